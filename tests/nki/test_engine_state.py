"""Which state of engines operations take over from earlier ones."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
from isa.target import TARGETS
from nki.ir.nodes import operations
from nki.passes.analysis.engine_state import engine_states


def states(function) -> list[list[tuple[str, bool]]]:
    """By operation that computes, what its instructions have to do with engine state."""
    kernel = nki.jit(function).trace(nki.TensorSpec((128, 8), nl.float32))
    found = []
    for op in operations(kernel.bodies[0]):
        values = op.row.resolve(op.values, TARGETS["trn2"])
        found.append([s for i in op.row.expand(values, TARGETS["trn2"]) for s in engine_states(i)])
    return [one for one in found if one]


def test_a_product_needs_the_tile_that_it_has_loaded_itself() -> None:
    def kernel(a):
        tile = nl.load(a)
        sums = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(sums, tile, tile)

    assert states(kernel) == [[("stationary", False), ("stationary", True)]]


def test_sums_that_go_on_need_the_registers() -> None:
    def kernel(a):
        tile = nl.load(a)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        cmd = nisa.reduce_cmd
        for command in (cmd.reset_reduce, cmd.reduce):
            nisa.activation(
                dst=tile,
                op=nl.exp,
                data=tile,
                reduce_op=nl.add,
                reduce_res=total,
                reduce_cmd=command,
            )
        nisa.activation(dst=tile, op=nl.exp, data=tile)

    first, second, *idle = states(kernel)
    assert first[0] == ("accumulators", False) and second[0] == ("accumulators", True)
    assert first[1] == second[1] == ("accumulators", True)  # reading them out
    assert idle == []  # which table is loaded changes no result


def test_random_numbers_go_on() -> None:
    def kernel(a):
        tile = nl.ndarray((4, 4), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.rng(dst=tile)

    assert states(kernel) == [[("random", True)]]
