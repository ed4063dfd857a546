"""SBUF and PSUM over a run: how much of each is used."""

from __future__ import annotations

import nki
import nki.language as nl
from isa.files.stream import in_columns
from simulator.profile.memory_maps import memory_maps
from simulator.timing import simulate


def test_a_memory_that_a_kernel_leaves_alone_is_not_used() -> None:
    @nki.jit(target="trn2")
    def doubled(a):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(nl.load(a), 2))
        return out

    program = nki.compile(doubled, nki.TensorSpec((128, 512), nl.float32)).program
    timeline = simulate(program)
    core = program.cores[0]
    streams = {one: in_columns(stream, encoded=False) for one, stream in core.streams.items()}
    maps = memory_maps(program, 0, streams, timeline.cores[0], timeline.total_ns)
    used = {one.memory.value: one.used for one in maps}
    assert used == {"sbuf": 2 * 512 * 4, "psum": 0}
