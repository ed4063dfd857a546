"""About how much time a group of steps saves against the steps one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graph_compiler.lower.groups.members import RowProduct, folded_by_makers, is_column
from graph_compiler.lower.groups.moments import moments
from graph_compiler.lower.nests.columns import nest_ns
from graph_compiler.lower.nests.evaluation import passes_of_engines
from graph_compiler.lower.nests.nest import UNROLLED, Price, cost, engines_of
from graph_compiler.lower.nests.plans import passes, types_of
from graph_compiler.schedule.steps import item_size
from graph_compiler.schedule.views import Buffer

if TYPE_CHECKING:
    from graph_compiler.lower.groups.rows import RowGroupEmitter

ROUND_TRIP = 4000.0
"""About how many ns a value takes to HBM and back, which the next step waits for."""

LEFT_ON_CHIP = ROUND_TRIP / 2
"""What it is worth, in ns, that later steps may find rows on chip."""

_EXPOSED = 8
"""Tiles of rows whose beginnings and ends no other tile hides, about."""


def saved_ns(rows: RowGroupEmitter) -> float:
    """About how many ns are saved: the steps one by one less the group. Products take the engines
    as long in it as alone. Both engines share the nests around products."""
    group, device = rows.group, rows.device
    each = rows.each if rows.together else 1
    blocks = rows.tiles(each)
    apart = vector = scalar = transfers = fixed = 0.0
    summed = folded_by_makers(group.members, ())
    products = any(isinstance(member, RowProduct) for member in group.members)
    squared: set[int] = set()
    columns: set[int] = set()
    if not rows.together:
        squared.update(moments(device, group.members).values())
        columns.update(n for n, one in enumerate(group.members) if is_column(one))
    found: set[Buffer] = set()
    for number, (member, tiling) in enumerate(zip(group.members, rows.tilings)):
        apart += ROUND_TRIP * (not found.isdisjoint(member.reads))
        found.update(use.buffer for use in member.uses if use.by_row)
        if isinstance(member, RowProduct):
            target, left, _ = member.uses
            for use in (target, left):
                if use.buffer in group.written and use.by_row:
                    run = (use.high - use.low + 1) * item_size(use.type)
                    one = _transfer_ns(rows, run)
                    apart += blocks * max(one, device.target.dma_trigger_static_ns.value)
            continue
        assert tiling is not None
        apart += nest_ns(device, member.loop)
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
        price = cost(own, operands, here, device.target)
        vector += blocks * price.engines / (rows.each if number in columns else 1)
        scalar += blocks * cost(own, operands, there, device.target).engines
        transfers += blocks * price.transfers
        fixed += min(blocks, _EXPOSED) * price.fixed  # tiles of rows overlap
    transfers += sum(_moving(rows, buffer) for buffer in rows.resident if buffer not in rows.inside)
    apart += LEFT_ON_CHIP * rows.leaves()
    return apart - Price(max(vector, scalar), transfers, fixed).total


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
