"""Programs whose allocations were moved together: the same results, in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import Builder, contiguous, hbm, sbuf

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine
from isa.machine.control import StorageBegin
from isa.program import Program
from isa.spec import Instruction
from simulator.execute import LoadedProgram
from simulator.straight_line import prepare
from simulator.streams import take_turns

P = 128


@nki.jit
def chain(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(a.shape[0] // P):
        x = nl.ndarray((P, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[nl.ds(i * P, P), :])
        y = nl.ndarray((P, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=y, op=nl.exp, data=x)
        total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=y, axis=1)
        z = nl.ndarray((P, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=z, data=y, op0=nl.subtract, operand0=total)
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=z)
    return out


@nki.jit
def gathered(a, places):
    """Columns of a tile, picked by indices on chip, and rows of a tensor by others."""
    tile = nl.ndarray((P, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a[0:P, 0:64])
    rows = nl.ndarray((P, 1), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=places)
    picked = nl.ndarray((P, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=picked, src=a.ap([[64, P], [1, 64]], vector_offset=rows, indirect_dim=0))
    total = nl.ndarray((P, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total, data1=tile, data2=picked, op=nl.add)
    out = nl.ndarray((P, 64), dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def two_cores(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    for i in range(2):
        tile = nl.ndarray((P, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        first = (2 * i + core) * P
        nisa.dma_copy(dst=tile, src=a[nl.ds(first, P), :])
        nisa.activation(dst=tile, op=nl.square, data=tile)
        nisa.dma_copy(dst=out[nl.ds(first, P), :], src=tile)
        nisa.core_barrier(out, (0, 1))
    return out


@nki.jit
def counted(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.dynamic_range(0, a.shape[0], P):
        nisa.dma_copy(dst=out[nl.ds(i, P), :], src=a[nl.ds(i, P), :])
    return out


def random(*shape: int) -> Any:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


CASES = {
    "chain": (chain, [random(4 * P, 96)]),
    "gathered": (
        gathered,
        [random(P, 64), np.random.default_rng(1).permutation(P)[:, None].astype(np.uint32)],
    ),
    "two cores": (two_cores[2], [random(4 * P, 32)]),
}


def program_of(kernel: Any, inputs: list[Any]) -> Program:
    return nki.compile(kernel, *inputs, target="trn2").program_for(inputs)


def compacted(program: Program) -> Program:
    return prepare(program).placed(ahead=False).program


def instructions(program: Program) -> list[Instruction]:
    return [i for core in program.cores for stream in core.streams.values() for i in stream]


def chip_end(program: Program) -> int:
    """One after the last byte of a partition of SBUF in which an allocation lies."""
    begun = [i.values[0] for i in instructions(program) if i.row is StorageBegin]
    return max(
        pattern.offset + pattern.dims[-1][1] * 4
        for pattern in begun
        if pattern.memory.on_chip and pattern.memory.value == "sbuf"
    )


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_program(name):
    kernel, inputs = CASES[name]
    program = program_of(kernel, inputs)
    assert compacted(program) is not program
    expected = LoadedProgram(program, native=False).run(inputs).outputs
    for places in (program, compacted(program)):
        for native in (False, True):
            found = LoadedProgram(places, native=native).run(inputs).outputs
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)


@nki.jit
def tiles_of_two_sizes(a):
    """Large tiles and small ones take turns; what is read of each looks the same."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(a.shape[0] // P):
        tile = nl.ndarray((P, 32 * (1 + i % 3)), dtype=a.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=float(i))
        part = nl.ndarray((P, 32), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=part, src=tile[:, 0:32])
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=part)
    return out


def test_allocations_are_known_ahead(executed):
    """Which allocation of those that take turns in a place holds an access is known when the
    program is loaded: Python executes no instruction to find out."""
    a = np.zeros((12 * P, 32), np.float32)
    result = LoadedProgram(program_of(tiles_of_two_sizes, [a])).run([a])
    np.testing.assert_array_equal(result.outputs[0], np.repeat(np.arange(12.0), P)[:, None] + a)
    assert not executed


def test_places_are_used_again():
    """Four tiles of two iterations fit in what two iterations need on the device."""
    kernel, inputs = CASES["chain"]
    program = program_of(kernel, inputs)
    assert chip_end(compacted(program)) < chip_end(program) / 2


def test_instructions_stay_in_order():
    program = program_of(*CASES["two cores"])
    places = compacted(program)
    for core, moved in zip(program.cores, places.cores, strict=True):
        assert {e: [i.row for i in s] for e, s in core.streams.items()} == {
            e: [i.row for i in s] for e, s in moved.streams.items()
        }
    old, new = instructions(program), instructions(places)
    assert [i.waits for i in old] == [i.waits for i in new]
    assert [i.location for i in old] == [i.location for i in new]


@pytest.mark.filterwarnings("ignore:nki.language.dynamic_range is superseded")
def test_a_loop_keeps_its_places():
    program = program_of(counted, [random(160 * P, 32)])
    assert compacted(program) is program


@pytest.mark.parametrize("begun", [True, False])
def test_an_access_in_no_allocation_keeps_all_places(begun):
    builder = Builder()
    source = builder.tensor("a", "float32", (4, 8), "input")
    target = builder.tensor("b", "float32", (4, 8), "output")
    tile = sbuf("float32", 256, 4, 8)
    if begun:
        builder.begin(Engine.sync, tile)
    builder.dma(Engine.sync, tile, hbm(source, "float32", contiguous((4, 8))))
    builder.dma(Engine.sync, hbm(target, "float32", contiguous((4, 8))), tile)
    program = builder.finish()
    assert (compacted(program) is program) is not begun


def test_a_deadlock_is_found_as_before():
    builder = Builder()
    source = builder.tensor("a", "float32", (4, 8), "input")
    tile = sbuf("float32", 256, 4, 8)
    builder.begin(Engine.sync, tile)
    builder.dma(Engine.sync, tile, hbm(source, "float32", contiguous((4, 8))), waits=((3, 1),))
    program = builder.finish()
    assert compacted(program) is program
    with pytest.raises(nki.NeuronError, match="deadlock"):
        LoadedProgram(program).run([random(4, 8)])


class Recorder:
    """A stream of so many instructions, some of which fetch; `log` gets what is executed."""

    def __init__(self, name: str, kinds: str, log: list[str]) -> None:
        self.name, self.kinds, self.log = name, kinds, log
        self.at = 0

    def advance(self, fetch: bool) -> bool:
        start = self.at
        while self.at < len(self.kinds):
            fetching = self.kinds[self.at] == "f"
            if fetching and not fetch:
                break
            self.log.append(f"{self.name}{self.at}")
            self.at += 1
            if fetching:
                break
        return self.at != start


def test_what_fetches_comes_last_and_in_turn():
    log: list[str] = []
    take_turns([Recorder("a", "ffcf", log), Recorder("b", "fc", log), Recorder("c", "ccc", log)])
    assert log == ["c0", "c1", "c2", "a0", "b0", "b1", "a1", "a2", "a3"]
