"""The body of one core in columns, for passes that look at all of its steps at once.

All steps of a core are one sequence, those of a loop at the loop's position; a level says from
where to where its loop goes. What is done for each step is arithmetic on columns over the whole
body, so that one more loop costs little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np

from isa.columns import (
    Flags,
    Integers,
    by_first_use,
    distinct,
    flags_of,
    joined,
    numbered,
    numbered_lists,
    ordered,
    places,
    starts_of,
)
from isa.machine.control import StorageBegin
from isa.spec import Instruction
from nki.ir.nodes import Access, Loop, Register, Tensor
from nki.ir.rewrite import form_registers
from nki.passes.analysis.steps import Level, Step

MANY = 600
"""Accesses whose steps are as quick to look at in columns as one by one (measured with `tiled` and
`blocked` of the tutorials, 7.5 ms)."""


class Accesses:
    """Accesses in columns, each object once, in the order in which they come.

    `each` are the accesses, `which` the number among them of all that were given. `tensor` numbers
    their tensors, which are the keys of `tensors`, and `view` their (dtype, strides, shape), which
    are the keys of `views`. `offset` is where they begin if they are `plain`, at a place that is
    known, else 0. `many` tells whether they are so many that columns pay.
    """

    def __init__(self, accesses: Sequence[Access], order: Integers) -> None:
        """The accesses in the order of their places in `order`."""
        names = np.fromiter(map(id, accesses), np.int64, len(accesses))[order]
        _, first, self.which = by_first_use(names)
        self.many = len(accesses) >= MANY
        self.each = [accesses[at] for at in order[first].tolist()]
        self.tensors, self.tensor = numbered([access.storage for access in self.each])
        views = [(access.dtype, access.strides, access.shape) for access in self.each]
        self.views, self.view = numbered(views)
        plain = [type(a.offset) is int and a.vector_offset is None for a in self.each]
        self.plain: Flags = np.array(plain, np.bool_)
        offsets = [a.offset if known else 0 for a, known in zip(self.each, plain)]
        self.offset = np.array(offsets, np.int64)

    @cached_property
    def tensor_kind(self) -> Integers:
        """Numbers for tensors that differ in memory, dtype or shape."""
        return numbered([(t.memory, t.dtype, t.shape) for t in self.tensors])[1]

    def alike(self, wanted: Integers) -> tuple[list[Access], Integers]:
        """Of some accesses those that differ, but for their tensors: one of each kind, and for each
        of the wanted the number of its kind. They are alike if they are plain and lie alike within
        tensors that are alike."""
        kind = self.tensor_kind
        plain = self.plain[wanted]
        key = joined(
            [
                np.where(plain, 0, 1 + np.arange(wanted.size)),
                self.view[wanted],
                kind[self.tensor[wanted]],
                self.offset[wanted] - self.offset.min(initial=0),
            ]
        )
        _, first, which = distinct(key)
        return [self.each[at] for at in wanted[first].tolist()], which


_BEGINS, _INSTRUCTION = attrgetter("begins"), attrgetter("instruction")
_OPERATION = attrgetter("op.row")


class Layer(NamedTuple):
    """A level of a body: the steps from `first` to `end`, loops inside included, and where it
    stands. `number` is 0 for the body itself, then as the loops come; `inner` are the loops that
    stand right in it."""

    number: int
    level: Level
    parent: int
    depth: int
    first: int
    end: int
    inner: list[int]


class Body:
    """The steps of one core in columns, numbered in the author's order, those of loops included.
    Operation n has those from `operations[n]` to `operations[n + 1]`.

    `accesses` are those of all steps, then the storage that these begin: step n has the accesses
    `accesses.which[starts[n] : starts[n + 1]]`, and `begins[n]` markers come just before it.
    `layers` are the levels, each before those inside; step n stands right in `layer[n]`.
    """

    def __init__(
        self,
        level: Level,
        operations: Integers | None = None,
        variables: frozenset[Register] = frozenset(),
    ) -> None:
        """`operations`, where it is given, says where they begin, and that all are one stretch;
        `variables` are those of loops around the body."""
        self._given = operations, variables
        self.steps: list[Step] = []
        self.layers: list[Layer] = []
        runs: list[tuple[int, int]] = []
        self._enter(level, 0, 0, runs)
        ends = np.array([end for _, end in runs], np.int64)
        self.layer = np.repeat(
            np.array([layer for layer, _ in runs], np.int64), np.diff(ends, prepend=0)
        )
        steps = self.steps
        begins = list(map(_BEGINS, steps))
        self.begins = np.fromiter(map(len, begins), np.int64, len(steps))
        markers = [marker for marker, _ in chain.from_iterable(begins)]
        self.instructions: list[Instruction] = [*map(_INSTRUCTION, steps), *markers]
        self._columns = list(_by_row(self.instructions))
        if operations is None:
            begins_of = flags_of(len(steps) + 1, operation_starts(steps), self.stretches)
            operations = np.flatnonzero(begins_of)
        self.operations = operations
        accesses, number, write, order = _accesses_of(self._columns)
        self.accesses = Accesses(accesses, order)
        self.starts = starts_of(np.bincount(number, minlength=len(steps))[: len(steps)])
        self.writes: Flags = write[order][: self.starts[-1]]

    def _enter(self, level: Level, parent: int, depth: int, runs: list[tuple[int, int]]) -> int:
        """Enter a level and those inside; `runs` are layers, with where their steps in a row end.
        Returns the number of the layer."""
        number, first, inner = len(self.layers), len(self.steps), list[int]()
        self.layers.append(Layer(number, level, parent, depth, first, first, inner))
        items: Any
        for kind, items in groupby(level.items, type):
            if issubclass(kind, Level):
                inner += [self._enter(item, number, depth + 1, runs) for item in items]
            else:
                self.steps.extend(items)
            runs.append((number, len(self.steps)))
        self.layers[number] = self.layers[number]._replace(end=len(self.steps))
        return number

    @cached_property
    def variables(self) -> frozenset[Register]:
        """The variables of all loops."""
        nodes = [layer.level.node for layer in self.layers]
        return self._given[1].union(node.variable for node in nodes if isinstance(node, Loop))

    @cached_property
    def fixed(self) -> Flags:
        """Of the steps those that nothing moves across: what steers, begins storage by itself, or
        lets cores meet."""
        steps = self.steps
        fixed = np.zeros(len(steps), np.bool_)
        for row, mine, _ in self._columns:
            if row.control or row is StorageBegin:
                fixed[mine[mine < len(steps)]] = True
        if any(row.minimum_cores > 1 for row in set(map(_OPERATION, steps))):
            fixed |= [row.minimum_cores > 1 for row in map(_OPERATION, steps)]
        return fixed

    @cached_property
    def stretches(self) -> Integers:
        """Where stretches begin whose operations may change places, and where the last one ends:
        there is no fixed step in them, and no loop begins or ends."""
        if not self.steps or self._given[0] is not None:
            return np.array([0, len(self.steps)][: 1 + bool(self.steps)])
        new = np.ones(len(self.steps) + 1, np.bool_)
        new[1:-1] = self.fixed[1:] | self.fixed[:-1] | (self.layer[1:] != self.layer[:-1])
        for layer in self.layers:  # a loop that is over may be followed by one like it
            new[[layer.first, layer.end]] = True
        return np.flatnonzero(new)

    @cached_property
    def written(self) -> set[Tensor]:
        """The tensors that steps write or begin. Accesses of others have no order."""
        accesses = self.accesses
        changes = np.ones(accesses.which.size, np.bool_)
        changes[: self.writes.size] = self.writes
        numbers = accesses.tensor[accesses.which[changes]]
        tensors = list(accesses.tensors)
        changed = np.flatnonzero(flags_of(len(tensors), numbers))
        return {tensors[number] for number in changed.tolist()}

    @cached_property
    def engine(self) -> Integers:
        """The engine of each step."""
        return np.fromiter(map(attrgetter("engine"), self.steps), np.int64, len(self.steps))

    @cached_property
    def queue(self) -> Integers:
        """The queue of each step, -1 where there is none."""
        return np.fromiter(map(attrgetter("queue"), self.steps), np.int64, len(self.steps))

    @cached_property
    def stream(self) -> Integers:
        """The stream in which the end of each step is an event: its queue, or its engine."""
        return np.where(self.queue >= 0, self.queue, self.engine)

    @cached_property
    def kind(self) -> Integers:
        """Numbers for `instructions` that differ, if at all, in their accesses. (Those with
        different numbers may yet be alike, with values that are equal but not the same object.)"""
        instructions = self.instructions
        engine = np.append(self.engine, np.repeat(self.engine, self.begins))
        form = joined([engine, _places([instruction.location for instruction in instructions])])
        kind = np.zeros_like(form)
        known = 0
        for _, mine, values in self._columns:
            columns = [form[mine], *[_names(column) for column in values]]
            _, _, its = distinct(joined(columns))
            kind[mine] = known + its
            known += int(its.max()) + 1
        return kind

    @cached_property
    def mentioning(self) -> Integers:
        """The steps that mention registers."""
        accesses, count = self.accesses, len(self.steps)
        rest = np.flatnonzero(~accesses.plain)
        moved = [at for at in rest.tolist() if form_registers(accesses.each[at])]
        moves = flags_of(len(accesses.each), np.array(moved, np.int64))
        uses = np.flatnonzero(moves[accesses.which[: self.starts[-1]]])
        of_access = np.searchsorted(self.starts, uses, "right") - 1
        _, first, kind = distinct(self.kind[:count])
        plain = [self.steps[at].instruction for at in first.tolist()]
        scalar = np.array([_has_register_scalar(instruction) for instruction in plain], np.bool_)
        return np.flatnonzero(flags_of(count, of_access) | scalar[kind])

    @cached_property
    def operation_kind(self) -> Integers:
        """Numbers for operations that differ, if at all, in their accesses, as in `kind`. Where
        there are few, each has its own."""
        if not self.accesses.many:
            return np.arange(self.operations.size - 1)
        return numbered_lists(self.operations, self.kind[: len(self.steps)])

    def operation(self, number: int) -> list[Step]:
        """The steps of an operation."""
        start, end = self.operations[number : number + 2].tolist()
        return self.steps[start:end]


def _has_register_scalar(instruction: Instruction) -> bool:
    """Whether a field that is no view has a register."""
    values = instruction.values
    return any(
        form_registers(values[at])
        for at in instruction.row.register_fields
        if not isinstance(values[at], Access)
    )


_Row = tuple[Any, Integers, list[Sequence[Any]]]
"""A row, the numbers of its instructions, and these's values, a column for each field."""


def _by_row(instructions: Sequence[Instruction]) -> Iterator[_Row]:
    """Instructions row by row."""
    names, row = numbered([instruction.row for instruction in instructions])
    for name, mine in zip(names, places(row, len(names))):
        values = [instructions[at].values for at in mine.tolist()]
        yield name, mine, list(zip(*values, strict=True))


def _accesses_of(rows: list[_Row]) -> tuple[list[Access], Integers, Flags, Integers]:
    """The accesses of instructions, each with the indices of its rows behind it: of each the number
    of the instruction, and whether that writes it; and the order in which they come."""
    slots = 2 * max((len(row.accesses) for row, _, _ in rows), default=0)
    found: list[Access] = []
    keys, written = [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
    for row, mine, values in rows:
        for position, (index, write) in enumerate(row.accesses):
            column, numbers = _that_are(values[index], mine)
            indices, by = _that_are([access.vector_offset for access in column], numbers)
            found += column
            found += indices
            keys += [numbers * slots + 2 * position, by * slots + 2 * position + 1]
            written += [np.full(numbers.size, write), np.zeros(by.size, np.bool_)]
    key = np.concatenate(keys)
    return found, key // max(slots, 1), np.concatenate(written), ordered(key)


def _that_are(column: Sequence[Any], numbers: Integers) -> tuple[Sequence[Access], Integers]:
    """The values of a column that are accesses, and their numbers."""
    kinds = set(map(type, column))
    are = [issubclass(kind, Access) for kind in kinds]
    if all(are):
        return column, numbers
    if not any(are):
        return (), numbers[:0]
    flags = [isinstance(value, Access) for value in column]
    return [value for value, kept in zip(column, flags) if kept], numbers[flags]


def operation_starts(steps: list[Step]) -> Integers:
    """Where the steps of each operation begin, and where the last one's end."""
    if not steps:
        return np.zeros(1, np.int64)
    names = np.fromiter(map(id, map(attrgetter("op"), steps)), np.int64, len(steps))
    return np.append(np.flatnonzero(np.append(True, names[1:] != names[:-1])), names.size)


def _places(locations: list[Any]) -> Integers:
    """Numbers for source locations. Traced ones are told by their code objects' identity, as the
    hash of such an object walks its constants."""
    if set(map(type, locations)) != {tuple}:
        names = [(id(one[0]), one[1]) if type(one) is tuple else one for one in locations]
        return numbered(names)[1]
    codes, offsets = (list(map(itemgetter(part), locations)) for part in (0, 1))
    return joined([_names(codes), np.array(offsets, np.int64)])


def _names(column: Sequence[Any]) -> Integers:
    """Numbers for the identity of values, one for all accesses."""
    if isinstance(column[0], Access):
        if all(issubclass(one, Access) for one in set(map(type, column))):
            return np.zeros(len(column), np.int64)
    names = np.fromiter(map(id, column), np.int64, len(column))
    if (names == names[0]).all():
        return np.zeros_like(names)
    names[[isinstance(value, Access) for value in column]] = 0
    return distinct(names).which
