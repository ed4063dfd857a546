"""Neighbouring steps as one: their rows go through all of them while they are on chip.

Loop nests that have a dimension of the same count, along which they read and write the same rows,
are emitted together: for every tile of rows one nest after the other. What one of them makes for
another stays in a tile [rows, elements of a row], and goes to HBM only if something else needs it;
what several read is loaded once. Softmax is one pass over its rows then, instead of four. Products
that make or read such rows belong to the group too, so that attention is one: for each head and
tile of rows the first product, its softmax, and the product with the values.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise, product
from typing import Any

import numpy as np

from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.groups.members import (
    Member,
    RowNest,
    RowProduct,
    is_member,
    members_of,
    nest_of,
    product_counts,
)
from graph_compiler.lower.groups.relaid import relaid_steps
from graph_compiler.lower.groups.resident_rows import joined_elements
from graph_compiler.lower.groups.rows import RowGroupEmitter
from graph_compiler.lower.groups.savings import apart_ns, group_ns, saved_ns
from graph_compiler.lower.nests.nest import axes_of
from graph_compiler.lower.products.computed_operands import is_computed
from graph_compiler.lower.products.convolution import ConvolutionStep
from graph_compiler.lower.products.product import Contraction
from graph_compiler.lower.products.results import with_nests
from graph_compiler.schedule.steps import item_size
from graph_compiler.schedule.views import Buffer

LEAST_ROWS = 2
"""Rows that a group has at least."""

_SEVERAL = 32
"""Rows below which most partitions are idle. Short ones take less time so than to HBM and back."""

_SHORT = 4096
"""Elements of short rows."""

_FEW = 16
"""Elements of a batch, each of few rows, that go through a group one after another."""

_LONGEST = 1 << 17
"""Elements of the longest row that could be on chip."""

_WINDOW = 24
"""Steps that are looked at for one group."""

_SKIPPED = 4
"""Steps between two members that may come before the group."""


@dataclass
class Group:
    """Steps over the same rows: `counts` are those of the batch and of the rows. `steps`, `types`:
    elements from row to row of each buffer, and their type; `written`: those that the group makes,
    `read` those that it reads before."""

    counts: tuple[int, ...]
    relaid: bool = False
    """Whether nests may write what memory has in other rows, and rows are loaded by themselves."""
    members: list[Member] = field(default_factory=list)
    skipped: list[Any] = field(default_factory=list)
    """Steps between the members, which are to come before all of them."""
    steps: dict[Buffer, int] = field(default_factory=dict)
    types: dict[Buffer, str] = field(default_factory=dict)
    written: set[Buffer] = field(default_factory=set)
    read: set[Buffer] = field(default_factory=set)
    apart: set[Buffer] = field(default_factory=set)
    """Buffers that a member reads, or a product writes, otherwise than row by row."""
    made: dict[Buffer, np.ndarray] = field(default_factory=dict)
    """For each element of a row whether it is written."""
    spans: dict[Buffer, tuple[int, int]] = field(default_factory=dict)
    """The first and last element of a row that members read or write."""

    def is_whole(self, buffer: Buffer) -> bool:
        """Whether members read or write from the first to the last element of a row."""
        return self.spans[buffer] == (0, self.steps[buffer] - 1)

    def makes(self, buffer: Buffer, first: int = 0, last: int | None = None) -> bool:
        """Whether elements of a row, by default all, were written by members."""
        if buffer not in self.made:
            return False
        return bool(self.made[buffer][first : None if last is None else last + 1].all())

    def is_in_pieces(self, buffer: Buffer, least: int) -> bool:
        """Whether nests write whole rows in pieces, and runs of some are below so many bytes."""
        writers = [member for member in self.members if member.uses[0].buffer is buffer]
        if not all(isinstance(member, RowNest) for member in writers) or not self.makes(buffer):
            return False
        uses = [member.uses[0] for member in writers]
        short = any(use.run * item_size(use.type) < least for use in uses)
        return short and any(use.run < self.steps[buffer] for use in uses)

    def takes(self, member: Member) -> bool:
        """Add a step, if its rows are the group's, and others read or make some that it reads,
        or make the rest of those that it makes."""
        target, *reads = member.uses
        nests = all(isinstance(one, RowNest) for one in (*self.members, member))
        rows = self.counts[-1] * (joined_elements(self.counts) if nests else 1)
        if rows < _SEVERAL and member.elements > _SHORT:
            return False
        if isinstance(member, RowProduct):
            if not member.sides.device.limits.allows(member.right_share(math.prod(self.counts))):
                return False
            reads = [use if use.buffer in self.written else use._replace(step=0) for use in reads]
            reads += member.computed_of
        if target.by_row and target.buffer in self.apart:
            return False
        if not target.by_row:
            some = self.relaid or isinstance(member, RowProduct)
            if not some or target.buffer in self.written | self.read:
                return False
        forms: dict[Buffer, tuple[int, str]] = {}
        for use in (target, *reads):
            if use.by_row:
                known = self.steps.get(use.buffer, use.step), self.types.get(use.buffer, use.type)
                if forms.setdefault(use.buffer, known) != (use.step, use.type):
                    return False
        for use in reads:
            if use.buffer in self.written:
                if not use.by_row or use.buffer in self.apart:
                    return False
                if not self.makes(use.buffer, use.low, use.high):
                    return False
            elif not use.by_row and use.buffer is target.buffer:
                return False
        found = [target, *reads] if isinstance(member, RowNest) else reads
        alone = self.relaid or not self.members
        if not alone and not any(use.by_row and use.buffer in self.steps for use in found):
            return False
        for use in (target, *reads):
            if use.by_row:
                self.steps[use.buffer], self.types[use.buffer] = use.step, use.type
                low, high = self.spans.get(use.buffer, (use.low, use.high))
                self.spans[use.buffer] = min(low, use.low), max(high, use.high)
            else:
                self.apart.add(use.buffer)
        self.read.update(use.buffer for use in reads if use.buffer not in self.written)
        self.written.add(target.buffer)
        if target.by_row and target.step <= _LONGEST:
            made = self.made.setdefault(target.buffer, np.zeros(target.step, bool))
            made[target.elements] = True
        self.members.append(member)
        return True

    def may_follow(self, device: DeviceProgram, step: Any) -> bool:
        """Whether the group may come after a step that stands behind its members."""
        reads = {device.root(buffer) for buffer in device.sources(step.reads)}
        writes = {device.root(buffer) for buffer in step.writes}
        made = {device.root(buffer) for buffer in self.written}
        found = {device.root(buffer) for buffer in self.read}
        return not (made & (reads | writes) or found & writes)


def _counts(steps: Sequence[Any]) -> list[tuple[int, ...]]:
    """Counts of rows that steps may have in common: those of dimensions of nests that stay, also
    of a batch, and those of products and folds."""
    found: Counter[int] = Counter()
    batches: Counter[tuple[int, ...]] = Counter()
    makers: dict[tuple[int, ...], None] = {}  # of rows
    nests: dict[tuple[int, ...], None] = {}
    for step in steps:
        if isinstance(step, Contraction):
            makers.update(dict.fromkeys(product_counts(step)))
            batches.update(product_counts(step))
            continue
        loop, _ = nest_of(step)
        operands = [strides for _, strides in (loop.output, *loop.leaves)]
        axes = axes_of(loop.counts, operands, loop.reduced)
        if len(axes) > 2 and loop.fold is None:  # images, and their rows
            batches[axes[0].count, axes[1].count] += 1
        kept = tuple(axis.count for axis in axes if not axis.reduced)
        nests[kept] = None
        if loop.fold is not None and kept:
            makers[kept] = None
        for axis in axes:
            if not axis.reduced and axis.count >= LEAST_ROWS:
                found[axis.count] += 1 + 2 * (loop.fold is not None)
    alone = [(count,) for count, _ in found.most_common(4)]
    some = [counts for counts, _ in batches.most_common(4)]
    some += filter(None, (_common_parts(one, other) for one, other in product(makers, nests)))
    large = [
        counts
        for counts in some
        if counts[-1] * joined_elements(counts) >= _SEVERAL or _are_few(counts)
    ]
    return list(dict.fromkeys(chain(alone, large)))


def _are_few(counts: Sequence[int]) -> bool:
    """Whether rows, too few to fill partitions, are those of few elements of a batch.

    >>> _are_few((16,)), _are_few((12, 8)), _are_few((8, 32, 8))
    (True, True, False)
    """
    (*batch, rows) = counts
    return rows >= LEAST_ROWS and math.prod(batch) <= _FEW


def _common_parts(rows: Sequence[int], nest: Sequence[int]) -> tuple[int, ...]:
    """The counts of rows of a product or a fold, of which more are those of a batch: as a nest has
    them that goes through heads and their rows, or images and their channels. Nothing where they do
    not divide one another.

    >>> _common_parts((2, 2048), (8, 512, 512)), _common_parts((3, 64), (4, 48))
    ((2, 4, 512), ())
    """
    total = math.prod(rows)
    inside = {count for count in accumulate(nest, operator.mul) if count < total}
    counts = sorted({1, *accumulate(rows, operator.mul), *inside})
    if any(larger % smaller for smaller, larger in pairwise(counts)):
        return ()
    return tuple(larger // smaller for smaller, larger in pairwise(counts))


def grouped(device: DeviceProgram, steps: Sequence[Any], uses: Counter[Buffer]) -> Iterator[Any]:
    """The steps in their order, neighbours as `RowGroupEmitter` where that is faster. `uses`: how
    often each buffer is read in all."""
    position = 0
    while position < len(steps):
        if isinstance(steps[position], ConvolutionStep):
            step, others = with_nests(device, steps[position], steps[position + 1 :])
            yield from grouped(device, others, uses)
            yield step
            position += 1 + len(step.following) + len(others)
            continue
        run = position
        while run < len(steps) and is_member(steps[run]):
            run += 1
        found = _best(device, steps[position:run], uses) if run > position else None
        relaid = _relaid(device, steps[position:run], uses)
        if relaid is not None and relaid[0] > (0.0 if found is None else saved_ns(found)):
            yield relaid[1]
            position += relaid[2]
            continue
        if found is None:
            if not is_computed(device, steps[position], steps[position + 1 :], uses):
                yield steps[position]
            position += 1
            continue
        yield from grouped(device, found.group.skipped, uses)
        yield found
        position += len(found.group.members) + len(found.group.skipped)


def _best(
    device: DeviceProgram, steps: Sequence[Any], uses: Counter[Buffer]
) -> RowGroupEmitter | None:
    """The group that begins with the first of some steps and saves most; None where none does."""
    best: tuple[float, RowGroupEmitter] | None = None
    window = steps[:_WINDOW]
    for counts in _counts(window):
        for start in members_of(device, window[0], counts):
            rows = _fitting(device, start, window[1:], uses, *counts)
            if rows is None:
                continue
            if len(rows.group.members) > 1 or rows.finds() or rows.leaves():
                saved = saved_ns(rows)
                if saved > 0 and (best is None or saved > best[0]):
                    best = saved, rows
    return None if best is None else best[1]


def _relaid(
    device: DeviceProgram, steps: Sequence[Any], uses: Counter[Buffer]
) -> tuple[float, RowGroupEmitter, int] | None:
    """The group of most steps in another order of dimensions, how many ns it saves, and how many
    steps it stands for."""
    for some in relaid_steps(device, steps, uses) if steps else ():
        (first, *others) = some.steps
        for start in members_of(device, first, some.counts):
            group = _grown(device, start, others, some.counts, relaid=True)
            if group is None or len(group.members) < len(some.steps) or group.skipped:
                continue
            rows = RowGroupEmitter(device, group, uses)
            if not rows.fits() or rows.joined > 1:
                continue
            saved = apart_ns(device, steps[: some.number]) - group_ns(rows)
            longest = max(member.elements for member in group.members)
            if saved > 0 and device.limits.relays(longest):
                return saved, rows, some.number
    return None


def _fitting(
    device: DeviceProgram, start: Member, steps: Sequence[Any], uses: Counter[Buffer], *counts: int
) -> RowGroupEmitter | None:
    """The longest group that begins with a member and has room on chip. Where all that may follow
    does not fit, it ends before the product where the least is cut through: rows that would not
    leave the chip. None where there is no such group."""
    group = _grown(device, start, steps, counts)
    if group is None:
        return None
    whole = RowGroupEmitter(device, group, uses)
    if whole.fits():
        return whole
    found: RowGroupEmitter | None = None
    least = math.inf
    for number, member in enumerate(group.members):
        if not number or not isinstance(member, RowProduct):
            continue
        shorter = _grown(device, start, steps, counts, number)
        assert shorter is not None
        rows = RowGroupEmitter(device, shorter, uses)
        if not rows.fits():
            break
        cut = whole.inside & shorter.written - rows.inside
        size = sum(group.steps[b] * item_size(group.types[b]) for b in cut)
        if size <= least:
            found, least = rows, size
    return found


def _grown(
    device: DeviceProgram,
    start: Member,
    steps: Sequence[Any],
    counts: tuple[int, ...],
    most: int = _WINDOW,
    relaid: bool = False,
) -> Group | None:
    """The group of a first member and of steps that follow, of so many at most."""
    group = Group(counts, relaid)
    if not group.takes(start):
        return None
    waiting: list[Any] = []
    for step in steps:
        if len(group.members) == most:
            break
        if any(group.takes(member) for member in members_of(device, step, counts)):
            group.skipped += waiting
            waiting = []
        elif len(waiting) < _SKIPPED and group.may_follow(device, step):
            waiting.append(step)
        else:
            break
    return group
