"""Neighbouring nests as one: their rows go through all of them while they are on chip.

Nests that have a dimension of the same count, along which they read and write the same rows, are
emitted together: for every tile of rows one nest after the other. What one of them makes for
another stays in a tile [rows, elements of a row], and goes to HBM only if something else needs it;
what several read is loaded once. Softmax is one pass over its rows then, instead of four.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph_compiler.execute.loops import Loop
from graph_compiler.execute.steps import Call, Place, item_size
from graph_compiler.execute.views import Buffer
from graph_compiler.lower.arithmetic import ACTIVATIONS
from graph_compiler.lower.device import Device
from graph_compiler.lower.elementwise import Nest, passes, plan, tiling_room, types_of
from graph_compiler.lower.nest import (
    PARTITIONS,
    Axis,
    Price,
    Tiling,
    axes_of,
    cost,
    numbers,
    tiled,
)
from graph_compiler.lower.operands import Operand, Resident, Stored
from isa.enums import Engine

RESIDENT = 80 << 10
"""Bytes of a partition that tiles which stay may take."""

ROUND_TRIP = 4000.0
"""About how many ns a value takes to HBM and back, which the next nest waits for."""

LEAST_ROWS = 32
"""Rows below which partitions would be left idle."""


@dataclass(frozen=True)
class Member:
    """A nest of a group: its rows, an axis of its own, and the axes within a row."""

    loop: Loop
    places: list[Place]
    rows: Axis
    inner: list[Axis]

    def span(self, operand: int) -> tuple[int, int]:
        """The first and last element of a row that an operand has, from its place on."""
        low = high = 0
        for axis in self.inner:
            reach = (axis.count - 1) * axis.strides[operand]
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high

    def is_dense(self) -> bool:
        """Whether the result has every element of its span."""
        low, high = self.span(0)
        counts = [axis.count for axis in self.inner if axis.strides[0]]
        return math.prod(counts) == high - low + 1


@dataclass
class Group:
    """Nests over the same rows. `steps`, `types`: elements from row to row of each buffer, and
    their type; `written`: those that the group makes, `read` those that it reads before."""

    count: int
    members: list[Member] = field(default_factory=list)
    steps: dict[Buffer, int] = field(default_factory=dict)
    types: dict[Buffer, str] = field(default_factory=dict)
    written: set[Buffer] = field(default_factory=set)
    read: set[Buffer] = field(default_factory=set)
    apart: set[Buffer] = field(default_factory=set)
    """Buffers that a member reads otherwise than row by row."""
    made: dict[Buffer, list[tuple[int, int]]] = field(default_factory=dict)
    """Elements of a row that are written, as first and last ones of runs without gaps."""

    def makes(self, buffer: Buffer, first: int = 0, last: int | None = None) -> bool:
        """Whether elements of a row, by default all, were written by members."""
        last = self.steps[buffer] - 1 if last is None else last
        for low, high in sorted(self.made.get(buffer, [])):
            if low <= first <= high:
                first = high + 1
        return first > last

    def takes(self, member: Member) -> bool:
        """Add a nest, if its rows are the group's."""
        changes: list[tuple[Buffer, int, str]] = []
        own: list[tuple[int, int]] = []
        found: dict[Buffer, tuple[int, str]] = {}
        types = types_of(member.loop)
        for operand, (place, type) in enumerate(zip(member.places, types)):
            if operand > len(member.loop.leaves):
                break  # the initial value of a fold
            buffer, size = place.buffer, item_size(type)
            step = member.rows.strides[operand]
            low, high = member.span(operand)
            first = place.offset // size
            by_row = first + low >= 0 and first + high < step
            if operand == 0:
                if not by_row or buffer in self.apart:
                    return False
                if member.is_dense():
                    own.append((first + low, first + high))
            elif by_row and buffer in self.written:
                if not self.makes(buffer, first + low, first + high):
                    return False
            elif not by_row:
                if buffer in self.written or buffer is member.places[0].buffer:
                    return False
                changes.append((buffer, 0, type))
                continue
            known = self.steps.get(buffer, step), self.types.get(buffer, type)
            if found.setdefault(buffer, known) != (step, type):
                return False
            changes.append((buffer, step, type))
        for operand, (buffer, step, type) in enumerate(changes):
            if step:
                self.steps[buffer], self.types[buffer] = step, type
            else:
                self.apart.add(buffer)
            if operand and buffer not in self.written:
                self.read.add(buffer)
        target = member.places[0].buffer
        self.written.add(target)
        self.made.setdefault(target, []).extend(own)
        self.members.append(member)
        return True


def _members(loop: Loop, places: list[Place], count: int) -> Iterator[Member]:
    """A nest with each of its dimensions that may be rows of this count."""
    operands = [strides for _, strides in (loop.output, *loop.leaves)]
    axes = axes_of(loop.counts, operands, loop.reduced)
    for number, axis in enumerate(axes):
        if axis.reduced or axis.count % count or min(axis.strides) < 0 or not axis.strides[0]:
            continue
        inside = axis.count // count
        rows = Axis(count, tuple(inside * stride for stride in axis.strides))
        rest = [*axes[:number], *axes[number + 1 :]]
        if inside > 1:
            rest.insert(number, Axis(inside, axis.strides))
        yield Member(loop, places, rows, rest)


def _counts(calls: Sequence[Call]) -> list[int]:
    """Counts of rows that nests may have in common: those of their dimensions that stay."""
    found: Counter[int] = Counter()
    for call in calls:
        loop = call.kernel
        assert isinstance(loop, Loop)
        operands = [strides for _, strides in (loop.output, *loop.leaves)]
        for axis in axes_of(loop.counts, operands, loop.reduced):
            if not axis.reduced and axis.count >= LEAST_ROWS:
                found[axis.count] += 1 + 2 * (loop.fold is not None)
    return [count for count, _ in found.most_common(4)]


def grouped(device: Device, steps: Sequence[Any], uses: Counter[Buffer]) -> Iterator[Any]:
    """The steps in their order, neighbouring nests as `Rows` where that is faster. `uses`: how
    often each buffer is read in all."""
    position = 0
    while position < len(steps):
        run = position
        while run < len(steps) and _is_nest(steps[run]):
            run += 1
        found = _best(device, steps[position:run], uses) if run > position else None
        if found is None:
            yield steps[position]
            position += 1
            continue
        yield found
        position += len(found.group.members)


def _is_nest(step: Any) -> bool:
    return isinstance(step, Call) and isinstance(step.kernel, Loop)


def _best(device: Device, calls: Sequence[Call], uses: Counter[Buffer]) -> Rows | None:
    """The group that begins with the first of some nests and saves most; None where none does."""
    best: tuple[float, Rows] | None = None
    window = calls[:_WINDOW]
    for count in _counts(window):
        for group in _grown(window, count):
            rows = Rows(device, group, uses)
            if (len(group.members) > 1 or rows.finds()) and rows.fits():
                saved = rows.saved()
                if saved > 0 and (best is None or saved > best[0]):
                    best = saved, rows
    return None if best is None else best[1]


_WINDOW = 24
"""Nests that are looked at for one group."""


def _grown(calls: Sequence[Call], count: int) -> Iterator[Group]:
    """Groups of the first nests, for each dimension that the first one's rows may be."""
    first, *others = map(_nest, calls)
    for start in _members(*first, count):
        group = Group(count)
        if not group.takes(start):
            continue
        for nest in others:
            if not any(group.takes(member) for member in _members(*nest, count)):
                break
        yield group


def _nest(call: Call) -> tuple[Loop, list[Place]]:
    """A nest and its places."""
    assert isinstance(call.kernel, Loop)
    return call.kernel, [word for word in call.words if isinstance(word, Place)]


class Rows:
    """A group, ready to be emitted."""

    def __init__(self, device: Device, group: Group, uses: Counter[Buffer]) -> None:
        self.device = device
        self.group = group
        own = Counter(place.buffer for member in group.members for place in member.places[1:])
        self.inside = {
            buffer
            for buffer in group.written - group.read
            if buffer.kind == "arena" and uses[buffer] == own[buffer]
        }
        self.shared = {
            buffer
            for buffer in group.read - group.apart
            if own[buffer] > 1 or buffer in group.written or self._is_held(buffer)
        }
        self.tilings = [self._tiling(member) for member in group.members]
        self.sums_on_scalar: set[int] = set()

    def _is_held(self, buffer: Buffer) -> bool:
        group = self.group
        step, type = group.steps[buffer], group.types[buffer]
        return self.device.held(buffer, step, group.count, type) is not None

    @property
    def writes(self) -> set[Buffer]:
        """What the group makes, and holds by itself."""
        return self.group.written

    @property
    def resident(self) -> list[Buffer]:
        """Buffers whose rows stay on chip: all that is made, and what several nests read."""
        return [b for b in self.group.steps if b in self.group.written or b in self.shared]

    def finds(self) -> bool:
        """Whether rows that it reads are on chip already."""
        return any(self._is_held(buffer) for buffer in self.group.read - self.group.apart)

    def fits(self) -> bool:
        """Whether there is room for the rows that stay."""
        group = self.group
        taken = sum(group.steps[b] * item_size(group.types[b]) for b in self.resident)
        return taken <= RESIDENT

    def _tiling(self, member: Member) -> Tiling:
        rows = Axis(min(self.group.count, PARTITIONS), member.rows.strides)
        operands = member.places[: 1 + len(member.loop.leaves)]
        on_chip = sum(place.buffer in self.group.written | self.shared for place in operands)
        room = tiling_room(member.loop, on_chip)
        if self.group.count <= PARTITIONS:  # two tiles in all, on which engines take turns
            elements = math.prod(axis.count for axis in member.inner)
            room = min(room, max(_PART, -(-elements // 2)))
        return tiled(rows, member.inner, room)

    def saved(self) -> float:
        """About how many ns are saved: the nests one by one less the group."""
        group, device = self.group, self.device
        blocks = -(-group.count // PARTITIONS)
        apart = engines = transfers = fixed = 0.0
        for number, (member, tiling) in enumerate(zip(group.members, self.tilings)):
            apart += plan(device, member.loop)[0] + (ROUND_TRIP if number else 0)
            sizes = [
                0 if place.buffer in self.resident else item_size(type)
                for place, type in zip(member.places, types_of(member.loop))
            ]
            operands = sizes[: 1 + len(member.loop.leaves)]
            price = cost(tiling, operands, passes(member.loop), device.target)
            engines += blocks * price.engines
            transfers += blocks * price.transfers
            fixed += blocks * price.fixed
        for buffer in self.resident:
            if buffer not in self.inside:
                moved = group.count * group.steps[buffer] * item_size(group.types[buffer])
                transfers += moved / device.target.dma_bytes_per_ns
        return apart - Price(engines, transfers, fixed).total

    def emit(self, device: Device) -> None:
        count = self.group.count
        fixed = self._fixed()
        self.sums_on_scalar = self._moved_sums()
        whole = count // PARTITIONS
        for number in numbers(device.builder, whole):
            self._rows(number * PARTITIONS, PARTITIONS, fixed)
        if count % PARTITIONS:
            self._rows(whole * PARTITIONS, count % PARTITIONS, fixed)

    def _fixed(self) -> dict[tuple[int, int], Resident]:
        """Operands that are the same for all rows, loaded once, by member and operand."""
        device = self.device
        found: dict[tuple[int, int], Resident] = {}
        known: dict[Any, Resident] = {}
        rows = min(self.group.count, PARTITIONS)
        for number, member in enumerate(self.group.members):
            for operand in range(1, 1 + len(member.loop.leaves)):
                place, type = member.places[operand], types_of(member.loop)[operand]
                low, high = member.span(operand)
                elements = high - low + 1
                if member.rows.strides[operand] or elements > _FIXED:
                    continue
                key = place, type, low, high
                if key not in known:
                    source = Stored(device, place, type)
                    tile = source.leaf([(0, rows), (1, elements)], low)
                    known[key] = Resident(device, tile, -low)
                found[number, operand] = known[key]
        return found

    def _moved_sums(self) -> set[int]:
        """Members whose sums along rows the scalar engine makes: it does so while it squares or
        copies. They are chosen as long as the vector engine has more to do."""
        fast, slow = map(self.device.target.clock_ghz, (Engine.scalar, Engine.vector))
        elements = [math.prod(axis.count for axis in m.inner) for m in self.group.members]
        found, vector, scalar = set(), 0.0, 0.0
        for member, count in zip(self.group.members, elements):
            functions = sum(step.op in ACTIVATIONS for step in member.loop.steps)
            scalar += functions * count / fast
            vector += (passes(member.loop) - functions) * count / slow
        for number, (member, count) in enumerate(zip(self.group.members, elements)):
            movable = member.loop.fold == "add" and member.loop.output[0] == "f32"
            if movable and count >= _LONG and vector - count / slow > scalar + count / fast:
                found.add(number)
                vector -= count / slow
                scalar += count / fast
        return found

    def _rows(self, start: Any, rows: int, fixed: dict[tuple[int, int], Resident]) -> None:
        """One tile of rows through all nests."""
        device, group = self.device, self.group
        tiles = {}
        for buffer in self.resident:
            step, type = group.steps[buffer], group.types[buffer]
            source = Stored(device, Place(buffer), type)
            held = device.held(buffer, step, group.count, type)
            if held is not None and buffer not in group.written:
                tiles[buffer] = held
            elif buffer in self.shared:
                tiles[buffer] = source.leaf([(step, rows), (1, step)], start * step)
            else:
                tiles[buffer] = device.tile((rows, step), source.dtype)
        for number, (member, tiling) in enumerate(zip(group.members, self.tilings)):
            operands: list[Operand] = []
            offsets: list[Any] = []
            for operand, (place, type) in enumerate(zip(member.places, types_of(member.loop))):
                first = place.offset // item_size(type)
                step = 0
                if operand <= len(member.loop.leaves):
                    step = member.rows.strides[operand]
                kept = (number, operand) in fixed
                here = place.buffer in tiles and step and place.buffer not in group.apart
                if kept:
                    operands.append(fixed[number, operand])
                    offsets.append(0)
                elif here and operand <= len(member.loop.leaves):
                    behind = None
                    if operand == 0 and place.buffer not in self.inside:
                        behind = Stored(device, Place(place.buffer), type)
                    operands.append(Resident(device, tiles[place.buffer], 0, behind, start * step))
                    offsets.append(first)
                else:
                    operands.append(Stored(device, place, type))
                    offsets.append(start * step)
            own = Tiling(
                Axis(rows, tiling.partition.strides),
                tiling.free,
                tiling.outer,
                (rows, *tiling.sizes[1:]),
            )
            with device.builder.at(device.place_in_graph(member.loop)):
                nest = Nest(device, member.loop, operands, number in self.sums_on_scalar)
                nest.emit(own, offsets[: len(own.partition.strides)], rolled=False)
        if rows == group.count:
            for buffer in self.resident:
                if buffer in self.shared or group.makes(buffer):
                    step, type = group.steps[buffer], group.types[buffer]
                    device.hold(buffer, tiles[buffer], step, type)


_PART = 256
"""Elements of a row up to which it is not cut for the sake of overlap."""

_LONG = 512
"""Elements of a row from which on its sum may move to the scalar engine, which takes a fixed time
to read out what it has added up."""

_FIXED = 4096
"""Elements of an operand that is the same for all rows, up to which it is kept."""
