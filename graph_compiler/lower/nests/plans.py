"""How a nest is cut into tiles: the tiling that costs least, and what tiles take of a partition."""

from __future__ import annotations

from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests import arithmetic
from graph_compiler.lower.nests.evaluation import columns_of, folding_passes, wide_steps
from graph_compiler.lower.nests.nest import Tiling, axes_of, cost, tilings
from graph_compiler.lower.nests.permutation import permutation_of
from graph_compiler.schedule.steps import item_size
from graph_compiler.schedule.views import row_major

ROOM = 64 << 10
"""Bytes of a partition that the tiles of one nest may take at a time."""


def types_of(loop: LoopNest) -> list[str]:
    """Of the output, the leaves, and the initial value."""
    types = [loop.output[0], *(type for type, _ in loop.leaves)]
    return types if loop.fold is None else [*types, loop.output[0]]


def plan(
    device: DeviceProgram, loop: LoopNest, partition_reduced: bool = False
) -> tuple[float, Tiling]:
    """The cheapest tiling, and what it costs."""
    key = loop, partition_reduced
    if key not in device.plans:
        device.plans[key] = _cheapest(device, loop, partition_reduced)
    return device.plans[key]


def _cheapest(
    device: DeviceProgram, loop: LoopNest, partition_reduced: bool
) -> tuple[float, Tiling]:
    operands = [loop.output, *loop.leaves]
    if partition_reduced:  # and one that counts what is kept
        kept = [0 if gone else count for count, gone in zip(loop.counts, loop.reduced)]
        steps = iter(row_major([count for count in kept if count]))
        operands.append(("f32", tuple(next(steps) if count else 0 for count in kept)))
    axes = axes_of(loop.counts, [strides for _, strides in operands], loop.reduced)
    sizes = [item_size(type) for type, _ in operands]
    room = tiling_room(loop)
    across, moved = _across_ns(loop), is_move(loop)
    permuted = permutation_of(device, loop)
    turned = permuted is None  # else boxes of elements are
    found = [
        (cost(tiling, sizes, passes(loop), device.target, across, moved, turned).total, tiling)
        for tiling in tilings(axes, len(operands), room, partition_reduced)
    ]
    price, tiling = min(found, key=lambda item: item[0])
    return (price if permuted is None else min(price, permuted.ns)), tiling


def is_move(loop: LoopNest) -> bool:
    """Whether a nest stores what it loads as it is."""
    return (
        not loop.steps
        and loop.fold is None
        and [type for type, _ in loop.leaves] == [loop.output[0]]
    )


def _across_ns(loop: LoopNest) -> float:
    """About how long it takes to fold partitions: by a product, or by way of HBM."""
    return 1000.0 if loop.fold is not None and sums_across(loop) else 4000.0


def passes(loop: LoopNest) -> int:
    """About how often engines go through the elements of a nest's tiles."""
    return max(1, wide_steps(loop)) + folding_passes(loop)


def tiling_room(loop: LoopNest, on_chip: int = 0) -> int:
    """Elements of a partition that a tile of a nest may have; so many of its operands take no room
    of it, as their rows are on chip."""
    live = 2 * max(1, len(loop.leaves) + _live(loop) + 1 - on_chip)
    return max(1, ROOM // (4 * live))


def _live(loop: LoopNest) -> int:
    """Values of steps that are there at the same time, intermediate ones of a step included; not
    those that take little room."""
    leaves, columns = len(loop.leaves), columns_of(loop)
    last = {arg: number for number, step in enumerate(loop.steps) for arg in step.arguments}
    live = most = 0
    for number, step in enumerate(loop.steps):
        if leaves + number in columns:
            continue
        live += 1
        by_column = arithmetic.takes_column(step) and step.arguments[-1] in columns
        most = max(most, live + (0 if by_column else arithmetic.temporaries(step)))
        live -= sum(
            1
            for argument in {*step.arguments} - columns
            if argument >= leaves and last[argument] == number
        )
    return most


def sums_across(loop: LoopNest) -> bool:
    """Whether the tensor engine can fold partitions: it adds floats."""
    return loop.fold in _SUMS and kind(loop.output[0]) == "real"


_SUMS = frozenset({"add"})
