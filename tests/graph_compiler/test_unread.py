"""Stores that nobody reads: which go, and which stay."""

from __future__ import annotations

from graph_compiler.storage.unread import DropUnread
from isa.enums import Memory
from isa.target import TARGETS
from nki.ir.builder.builder import Builder
from nki.ir.nodes import TracedKernel, operations


def chain(reads: tuple[int, ...] = ()) -> TracedKernel:
    """x -> chip -> three tensors in HBM, one made of another; those with the numbers in `reads`
    are copied into results."""
    builder = Builder(TARGETS["trn2"], name="chain")
    x = builder.parameter((128, 64), "float32", "x")
    with builder.at(None):
        tile = builder.tensor((128, 64), "float32", Memory.sbuf, "tile")
        builder.emit("dma_copy", dst=tile, src=x)
        made = [builder.tensor((128, 64), "float32", Memory.private_hbm, "v") for _ in range(3)]
        builder.emit("dma_copy", dst=made[0], src=tile)
        builder.emit("dma_copy", dst=made[1], src=made[0])
        builder.emit("dma_copy", dst=made[2], src=tile)
        for number in reads:
            out = builder.tensor((128, 64), "float32", Memory.shared_hbm, "out")
            builder.emit("dma_copy", dst=out, src=made[number])
            builder.result(out)
    return builder.kernel()


def count(kernel: TracedKernel) -> int:
    return sum(1 for body in kernel.bodies for op in operations(body) if op.row.name == "dma_copy")


def test_what_nobody_reads_goes_with_what_only_it_read() -> None:
    """Of a chain of two, both."""
    assert count(chain((2,))) == 5
    assert count(DropUnread().run(chain((2,)))) == 3


def test_what_is_read_stays() -> None:
    kernel = chain((1, 2))
    assert DropUnread().run(kernel) is kernel


def test_results_stay() -> None:
    """A result is written and read by nobody on the device."""
    assert count(DropUnread().run(chain((0,)))) == 3
