"""More tiles of a depth than fill partitions, where rows of the right operand are short.

A partition loads its neighbours of the depth in one run. Transfers of short runs are slow, so that
a product may be faster whose tiles are of fewer partitions, though the tensor engine goes through
more of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graph_compiler.lower.nests.nest import engines_of
from graph_compiler.lower.products.array_halves import ArrayHalves
from graph_compiler.lower.products.bands import (
    LEAST,
    beside_cycles,
    load_cycles,
    turning_passes,
)
from graph_compiler.lower.products.depths import Depth, folded
from graph_compiler.lower.sizes import BANKS, BIT_FOR_BIT, HALF, PARTITIONS
from graph_compiler.schedule.contractions import Product
from graph_compiler.schedule.steps import item_size
from isa.enums import Engine

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

_MOST = 4
"""How many times as many tiles as fill partitions."""

_ON_CHIP = 72 << 10
"""Bytes of a partition that two elements of a batch may take."""

_WORTH = 0.9
"""The part of the time that is taken at most by what is not the simplest way."""


def in_long_runs(device: DeviceProgram, product: Product, depth: Depth | None) -> Depth | None:
    """A depth in as many tiles as take least time, if neighbours of it are tiles of one partition
    anyway; other depths as they are."""
    if depth is None or depth != folded(product.depth_left):
        return depth
    ((columns, across),) = product.columns
    ((_, down),) = product.depth_right
    run, rate = columns * item_size(product.right.type), device.target.dma_bytes_per_ns_per_engine
    short = device.target.dma_run_bytes_per_ns(run) < rate.value
    if across != 1 or down != columns or not short or product.right.buffer in device.computed:
        return depth
    choices = [folded(product.depth_left, n) for n in range(depth.tiles, _MOST * depth.tiles + 1)]
    found = [one for one in choices if one is not None]
    best = min(found, key=lambda one: _ns(device, product, one))
    worth = _ns(device, product, best) < _WORTH * _ns(device, product, depth)
    return best if worth else depth


def fastest_halves(device: DeviceProgram, product: Product, depth: Depth) -> ArrayHalves:
    """Where elements of a batch lie if they have their depth on either half of the partitions, so
    that more DMA engines load them, or their rows, so that fewer columns of the tensor engine's
    array are idle; on neither where that does not take less time."""
    if not product.batch[0] or product.batch[0][-1][0] == 1:
        return ArrayHalves()
    fitting = []
    if depth.partitions <= HALF:
        fitting.append(ArrayHalves(depth=True))
    # Nobody writes what is left of the first half: it has to pass bit for bit.
    bits = device.target.generation >= BIT_FOR_BIT
    if bits and product.left.buffer not in device.computed:
        fitting.append(ArrayHalves(rows=True))
    plain = _WORTH * _ns(device, product, depth, ArrayHalves())
    found = [
        (_ns(device, product, depth, halves), halves)
        for halves in fitting
        if _fits(product, depth, halves)
    ]
    return min([one for one in found if one[0] < plain], default=(0.0, ArrayHalves()))[1]


def _fits(product: Product, depth: Depth, halves: ArrayHalves) -> bool:
    """Whether two elements of a batch fit on chip, and their rows are no more tiles than banks."""
    rows = math.prod(count for count, _ in product.rows)
    ((columns, _),) = product.columns
    tiles = halves.tiles_of(rows)
    elements = depth.tiles * (rows + columns) * (2 - halves.depth)
    elements += tiles * (depth.elements + columns) * (2 - halves.rows)
    fitting = elements * item_size(product.left.type) <= _ON_CHIP
    return fitting and (tiles <= BANKS or not halves.rows)


def _ns(
    device: DeviceProgram, product: Product, depth: Depth, halves: ArrayHalves | None = None
) -> float:
    """About how long an element of the batch takes: its transfers, or the tensor engine."""
    target, size = device.target, item_size(product.left.type)
    ((columns, _),) = product.columns
    rows = math.prod(count for count, _ in product.rows)
    halves = ArrayHalves(depth=depth.partitions <= HALF) if halves is None else halves
    blocks = halves.tiles_of(rows)
    run = depth.tiles * columns * size
    each = target.dma_descriptor_ns.value + run / target.dma_run_bytes_per_ns(run)
    engines = engines_of(depth.partitions, target)
    if halves.depth and product.batch[0]:
        engines *= 2
    right = depth.partitions * each / engines
    others = rows * (depth.elements + columns) * size / target.dma_bytes_per_ns
    several = 1 + halves.rows
    cycles = beside_cycles(target, rows / blocks, [columns] * several, size) / several
    # The first element waits until another one is loaded, too.
    waits = halves.rows * (right + others) / math.prod(count for count, _ in product.batch[0])
    if product.depth_left[0][1] == 1:
        cycles += turning_passes(size, target) * max(LEAST, rows / blocks)
        hidden = target.tile_loads_hidden.value
        cycles += 0.0 if hidden else load_cycles(target, size) * PARTITIONS
    tensor = depth.tiles * blocks * cycles / target.clock_ghz(Engine.tensor)
    return max(right + others, tensor) + waits
