"""About how much time a group of steps saves against the steps one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.groups.members import RowNest, RowProduct, folded_by_makers, is_column
from graph_compiler.lower.groups.moments import moments
from graph_compiler.lower.nests.columns import nest_ns
from graph_compiler.lower.nests.evaluation import passes_of_engines
from graph_compiler.lower.nests.nest import PARTITIONS, UNROLLED, Price, cost, engines_of
from graph_compiler.lower.nests.plans import passes, types_of
from graph_compiler.lower.products.bands import product_cycles
from graph_compiler.schedule.steps import item_size
from graph_compiler.schedule.views import Buffer
from isa.enums import Engine

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.groups.rows import RowGroupEmitter

ROUND_TRIP = 4000.0
"""About how many ns a value takes to HBM and back, which the next step waits for."""

LEFT_ON_CHIP = ROUND_TRIP / 2
"""What it is worth, in ns, that later steps may find rows on chip."""

_EXPOSED = 8
"""Tiles of rows whose beginnings and ends no other tile hides, about."""


def saved_ns(rows: RowGroupEmitter) -> float:
    """About how many ns are saved: the steps one by one less the group. Products take the tensor
    engine as long in it as alone, but for tiles of few rows. Both other engines share the nests
    around products."""
    return _steps_ns(rows) - group_ns(rows)


def apart_ns(device: DeviceProgram, steps: Sequence[Any]) -> float:
    """About how many ns nests take one by one, of which some read what others make."""
    made: set[Buffer] = set()
    found = 0.0
    for step in steps:
        found += nest_ns(device, step.kernel) + ROUND_TRIP * (not made.isdisjoint(step.reads))
        made.update(step.writes)
    return found


def _steps_ns(rows: RowGroupEmitter) -> float:
    """About how many ns longer the steps of a group take by themselves than products alone."""
    group, device = rows.group, rows.device
    blocks = rows.tiles(rows.each if rows.together else 1)
    apart = 0.0
    found: set[Buffer] = set()
    for member in group.members:
        apart += ROUND_TRIP * (not found.isdisjoint(member.reads))
        found.update(use.buffer for use in member.uses if use.by_row)
        if isinstance(member, RowNest):
            apart += nest_ns(device, member.loop)
            continue
        apart -= _of_few_rows(rows, member, blocks)
        target, left, _ = member.uses
        for use in (target, left):
            if use.buffer in group.written and use.by_row:
                run = (use.high - use.low + 1) * item_size(use.type)
                one = _transfer_ns(rows, run)
                apart += blocks * max(one, device.target.dma_trigger_static_ns.value)
    return apart + LEFT_ON_CHIP * rows.leaves()


def group_ns(rows: RowGroupEmitter) -> float:
    """About how many ns a group takes, but for its products."""
    group, device = rows.group, rows.device
    each = rows.each if rows.together else 1
    blocks = rows.tiles(each)
    vector = scalar = transfers = fixed = 0.0
    summed = folded_by_makers(group.members, ())
    products = any(isinstance(member, RowProduct) for member in group.members)
    squared: set[int] = set()
    columns: set[int] = set()
    if not rows.together:
        squared.update(moments(device, group.members).values())
        columns.update(n for n, one in enumerate(group.members) if is_column(one))
    for number, (member, tiling) in enumerate(zip(group.members, rows.tilings)):
        if not isinstance(member, RowNest):
            continue
        assert tiling is not None
        sizes = [
            0 if place.buffer in rows.resident else item_size(type)
            for place, type in zip(member.places, types_of(member.loop))
        ]
        operands = sizes[: 1 + len(member.loop.leaves)]
        own = rows.own_tiling(tiling, tiling.sizes[0], each)
        here, there = passes(member.loop), 0
        if products:
            here, there = (0, 0) if number in summed else passes_of_engines(member.loop)
        if number in squared:
            here = 0
        price = cost(own, operands, here, device.target, beside=rows.count)
        again = _read_again(rows, member, operands)
        vector += blocks * price.engines / (rows.each if number in columns else 1)
        scalar += blocks * cost(own, operands, there, device.target).engines
        transfers += blocks * price.transfers
        for operand, part in again.items():  # loaded once of all elements that have it
            alone = [size if n == operand else 0 for n, size in enumerate(operands)]
            transfers -= blocks * cost(own, alone, 0, device.target).transfers * part
        fixed += min(blocks, _EXPOSED) * price.fixed  # tiles of rows overlap
    transfers += sum(_moving(rows, buffer) for buffer in rows.resident if buffer not in rows.inside)
    return Price(max(vector, scalar), transfers, fixed).total


def _read_again(rows: RowGroupEmitter, member: RowNest, sizes: Sequence[int]) -> dict[int, float]:
    """Operands in HBM whose tiles several elements of the batch share, and the part of their loads
    that this saves."""
    if not rows.shares_loads():
        return {}
    return {
        operand: 1.0 - 1.0 / member.repeats(operand)
        for operand, size in enumerate(sizes)
        if operand and size and rows.is_read_again(member, operand)
    }


def _of_few_rows(rows: RowGroupEmitter, member: RowProduct, blocks: int) -> float:
    """About how many ns longer a product takes where tiles have fewer rows than alone: a group's
    rows may be parts of those that the product has."""
    product, target = member.product, rows.device.target
    batch = math.prod(count for count, _ in product.batch[0])
    alone = batch * -(-math.prod(count for count, _ in product.rows) // PARTITIONS)
    size = item_size(product.left.type)
    cycles = product_cycles(target, rows.rows_at_once, member.columns, size)
    one = member.sides.depth.tiles * cycles / target.clock_ghz(Engine.tensor)
    return max(0, blocks - alone) * one


def _moving(rows: RowGroupEmitter, buffer: Buffer) -> float:
    """About how many ns it takes to load, or to store, all rows of a buffer, tile by tile."""
    group, target = rows.group, rows.device.target
    tiles = rows.tiles(rows.each)
    run = rows.each * group.steps[buffer] * item_size(group.types[buffer])
    is_straight = tiles * rows.each <= UNROLLED or rows.is_straight()
    static, dynamic = target.dma_trigger_static_ns.value, target.dma_trigger_dynamic_ns
    return tiles * max(_transfer_ns(rows, run), static if is_straight else dynamic)


def _transfer_ns(rows: RowGroupEmitter, run: int) -> float:
    """About how many ns a transfer of a tile of rows takes, each so many bytes, without its
    trigger."""
    target, partitions = rows.device.target, rows.rows_at_once
    rate = target.dma_run_bytes_per_ns(run)
    one = target.dma_descriptor_ns.value + run / rate
    return partitions * one / engines_of(partitions, target)
