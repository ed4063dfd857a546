"""Which steps of a stretch without control flow must come before which.

All accesses of the stretch are columns, in the author's order. Those of one tensor with one box are
a group; an access looks into its own group and into those of other boxes that meet its own, at the
last write before it there and, if it writes, at the reads since. A tensor that takes over the bytes
of others looks into the groups of these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from isa.columns import (
    Flags,
    Integers,
    Lists,
    begins_of_runs,
    by_first_use,
    counted,
    distinct,
    elements,
    last_before,
    numbered,
    ordered,
)
from isa.enums import ReduceCommand
from isa.fields import Kind
from isa.machine.scalar import TABLE
from isa.spec import Instruction
from nki.ir.nodes import Op, Register, Tensor
from nki.passes.channels import Context
from nki.passes.footprint import WHOLE, Box, may_overlap
from nki.passes.steps import Step
from nki.passes.stretch import Accesses, Stretch

_RESETS = frozenset({ReduceCommand.reset, ReduceCommand.reset_reduce, ReduceCommand.load_reduce})

_NOTHING: set[tuple[int, str]] = set()


def engine_states(instruction: Instruction) -> Iterator[tuple[str, bool]]:
    """(state, whether the instruction needs what earlier ones left there)."""
    row: Any = instruction.row  # to type checkers a class of it has no hash
    if not row.state:
        return
    commands = _commands(row)
    for state in row.state:
        if state.name == TABLE:
            continue  # which table is loaded changes times, not results
        command = instruction.values[commands[0]] if commands else None
        if command is ReduceCommand.idle and not state.idle:
            continue
        yield state.name, state.reads and command not in _RESETS


@cache
def _commands(row: Any) -> list[int]:
    return [i for i, _, attribute in row.attributes if attribute.kind is Kind.reduce_command]


def carries(unit: Sequence[Step]) -> set[tuple[int, str]]:
    """The engine state that an operation takes from an earlier one."""
    for step in unit:
        if step.instruction.row.state:
            break
    else:
        return _NOTHING
    own: set[tuple[int, str]] = set()
    found: set[tuple[int, str]] = set()
    for step in unit:
        for name, needed in engine_states(step.instruction):
            key = step.engine, name
            if needed and key not in own:
                found.add(key)
            own.add(key)
    return found


Replaced = Callable[[list[Tensor]], tuple[Sequence[int], list[Tensor]]]
"""From tensors in the order in which they begin to pairs of a place among them and a tensor whose
bytes that one takes over."""


class Dependences:
    """The dependences between the steps of a stretch, and between its operations.

    `events[starts[n] : starts[n + 1]]` must be over before step n starts. The completion of step m
    is event m, ~m the moment at which its engine issues it. What follows from others may be left
    out.

    `carried` is the engine state that passes from one operation to another, `variables` are those
    of the loops around.
    """

    def __init__(
        self,
        stretch: Stretch,
        context: Context,
        carried: set[tuple[int, str]],
        replaced: Replaced,
        variables: frozenset[Register],
    ) -> None:
        following, events = _pairs(stretch, context, variables, replaced)
        if named := _named(stretch.steps):
            others = np.array(named[0], np.int64), np.array(named[1], np.int64)
            following, events = _merged((following, events), others)
        self.starts: Integers = np.searchsorted(following, np.arange(len(stretch.steps) + 1))
        self.events = events
        unit, _ = counted(np.diff(stretch.operations))
        late, early = unit[following], unit[np.where(events < 0, ~events, events)]
        if states := _states(stretch, carried):
            late = np.append(late, np.array(states[0], np.int64))
            early = np.append(early, np.array(states[1], np.int64))
        self._operations = late, early, stretch.operations.size - 1

    def of_operations(self) -> tuple[Lists, Lists]:
        """By operation, those that it must follow, and those that must follow it."""
        return neighbours(*self._operations)


def neighbours(late: Integers, early: Integers, count: int) -> tuple[Lists, Lists]:
    """By operation, those before and those after it, where some are later than others."""
    other = late != early
    names = np.sort(late[other] * count + early[other])
    names = names[np.append(True, names[1:] != names[:-1])[: names.size]]
    late, early = np.divmod(names, count)
    order = ordered(early)
    return _lists(late, early, count), _lists(early[order], late[order], count)


def _lists(keys: Integers, values: Integers, count: int) -> Lists:
    """The values of every key from 0 on; keys ascend."""
    return Lists(np.searchsorted(keys, np.arange(count + 1)), values)


def _named(steps: list[Step]) -> tuple[list[int], list[int]] | None:
    """Steps that follow others by the author's word, and these."""
    wanted = {op for step in steps for op in step.after}
    if not wanted:
        return None
    by_op: dict[Op, list[int]] = {}
    late: list[int] = []
    early: list[int] = []
    for number, step in enumerate(steps):
        for op in step.after:
            earlier = by_op.get(op, ())
            early += earlier
            late += [number] * len(earlier)
        if step.op in wanted:
            by_op.setdefault(step.op, []).append(number)
    return late, early


def _states(stretch: Stretch, carried: set[tuple[int, str]]) -> tuple[list[int], list[int]] | None:
    """Operations that use engine state that is carried on, and those that did before them."""
    if not carried:
        return None
    late: list[int] = []
    early: list[int] = []
    last: dict[tuple[int, str], int] = {}
    for number, (start, end) in enumerate(pairwise(stretch.operations.tolist())):
        for step in stretch.steps[start:end]:
            for name, _ in engine_states(step.instruction):
                key = step.engine, name
                if key in carried:
                    if key in last:
                        late.append(number)
                        early.append(last[key])
                    last[key] = number
    return late, early


def _pairs(
    stretch: Stretch,
    context: Context,
    variables: frozenset[Register],
    replaced: Replaced,
) -> tuple[Integers, Integers]:
    """(step, event that it must follow), in ascending order of steps.

    Moments are numbered so that what a step begins comes before its accesses, and the markers of
    storage behind them.
    """
    accesses = stretch.accesses
    first, ends = stretch.starts[:-1], stretch.starts[1:]
    step, _ = counted(ends - first)
    access = accesses.which[: step.size]
    known = np.array([tensor in context.tracked for tensor in accesses.tensors], np.bool_)
    kept = np.flatnonzero(known[accesses.tensor[access]])
    step, access, writes = step[kept], access[kept], stretch.writes[kept]
    boxes, box, fills = _boxes(accesses, access, context, variables)
    tensor = accesses.tensor[access]
    # What is begun, and where no write of its step fills it.
    names = accesses.tensors
    tensors = list(names)
    beginner, _ = counted(stretch.begins)
    new = accesses.tensor[accesses.which[stretch.starts[-1] :]]
    filled = (step * len(names) + tensor)[writes & fills]
    marked = np.flatnonzero(~np.isin(beginner * len(names) + new, filled))
    at = beginner[marked]
    event = np.append(step, np.where(stretch.queue[at] >= 0, ~at, at))
    if not event.size:
        return event, event
    moment = np.append(4 * kept + 2, 4 * ends[at] - 1)
    write = np.append(writes, np.ones(at.size, np.bool_))
    tensor = np.append(tensor, new[marked])
    boxes, box = [*boxes, WHOLE], np.append(box, np.full(at.size, len(boxes)))
    found, _, group = distinct(tensor * len(boxes) + box)
    groups = _Groups(*np.divmod(found, len(boxes)), tensors, boxes)
    # An access looks into its own group and those that meet it, a step that takes the bytes of a
    # tensor into all of its groups.
    place, met = groups.meeting(group)
    takers, lost = replaced([tensors[one] for one in new.tolist()])
    old = np.array([names.get(one, -1) for one in lost], np.int64)
    taker = beginner[np.array(takers, np.int64)[old >= 0]]
    old = old[old >= 0]
    begins = 4 * first
    later, head = _joined(old, begins[taker], tensor, moment, len(names))
    joined = taker[later], ~taker[head]
    taker, old = np.delete(taker, later), np.delete(old, later)
    row, taken = groups.of_tensors(old)
    at = taker[row]
    looks = _Looks(
        np.concatenate([group, met, taken]),
        np.concatenate([moment, moment[place], begins[at]]),
        np.concatenate([write, write[place], np.ones(row.size, np.bool_)]),
        np.concatenate([event, event[place], at]),
        event.size,
        event.size + place.size,
    )
    return _merged(looks.pairs(groups), joined)


def _merged(
    pairs: tuple[Integers, Integers], others: tuple[Integers, Integers]
) -> tuple[Integers, Integers]:
    """Pairs of a step and an event, in ascending order of steps, and others in any order."""
    if not others[0].size:
        return pairs
    step, event = np.append(pairs[0], others[0]), np.append(pairs[1], others[1])
    order = ordered(step)
    return step[order], event[order]


def _joined(
    old: Integers, moments: Integers, tensor: Integers, moment: Integers, tensors: int
) -> tuple[Integers, Integers]:
    """Of those who take bytes of tensors `old` at some moments, those for which it is enough to
    follow another one's issue, which comes after all accesses, and that one. `tensor` and `moment`
    are those of all accesses."""
    pairs = np.bincount(tensor, minlength=tensors) * np.bincount(old, minlength=tensors)
    last = np.full(tensors, -1)
    np.maximum.at(last, tensor, moment)
    order = np.lexsort((moments, old))
    head = order[begins_of_runs(old[order])]
    apart = (pairs[old[order]] >= _MANY) & (last[old[order]] < moments[head])
    later = np.flatnonzero(apart & (moments[order] > moments[head]))
    return order[later], head[later]


def _boxes(
    accesses: Accesses, wanted: Integers, context: Context, variables: frozenset[Register]
) -> tuple[list[Box], Integers, Flags]:
    """The different boxes of wanted accesses, the number of each one's box, and whether that is
    all of its tensor."""
    used, _, use = distinct(wanted)
    like, kind = accesses.alike(used)
    boxes = [context.box(access, variables) for access in like]
    fills = [box.covers(access.storage) for access, box in zip(like, boxes)]
    kind = kind[use]
    kinds, _, used = by_first_use(kind)
    names, number = numbered([boxes[name] for name in kinds.tolist()])
    return list(names), number[used], np.array(fills, np.bool_)[kind]


class _Groups:
    """The groups of accesses, each with its tensor and its box, by tensor."""

    def __init__(
        self, tensor: Integers, box: Integers, tensors: list[Tensor], boxes: list[Any]
    ) -> None:
        self.tensor = tensor
        self.covering = np.zeros(tensor.size, np.bool_)
        self._starts = np.searchsorted(tensor, np.arange(len(tensors) + 1))
        one, other = self._meetings(box, tensors, boxes)
        order = ordered(one)
        self._partners = other[order]
        self._partner_starts = np.searchsorted(one[order], np.arange(tensor.size + 1))

    def _meetings(
        self, box: Integers, tensors: list[Tensor], boxes: list[Box]
    ) -> tuple[Integers, Integers]:
        """Pairs of different groups of one tensor whose boxes meet. Notes the groups that cover
        their tensor, where there are others."""
        starts = self._starts.tolist()
        alike: dict[Any, list[int]] = {}
        for name in np.flatnonzero(np.diff(self._starts) > 1).tolist():
            start, end = starts[name : name + 2]
            tensor = tensors[name]
            kind = tuple(box[start:end].tolist()), tensor.shape[0], tensor.pitch, tensor.dtype
            alike.setdefault(kind, []).append(start)
        pairs = [np.zeros((2, 0), np.int64)]
        for (names, *_), firsts in alike.items():
            its = [boxes[name] for name in names]
            tensor = tensors[self.tensor[firsts[0]]]
            first = np.array(firsts)[:, None]
            covering = [number for number, one in enumerate(its) if one.covers(tensor)]
            self.covering[first + np.array(covering, np.int64)] = True
            meeting = np.array(_meeting(its), np.int64).reshape(-1, 2)
            pairs.append(np.array([(first + column).ravel() for column in meeting.T]))
        one, other = np.concatenate(pairs, axis=1)
        return one, other

    def meeting(self, groups: Integers) -> tuple[Integers, Integers]:
        """(place, group) for all other groups that meet those in a column."""
        return _ranges(self._partner_starts, groups, self._partners)

    def of_tensors(self, tensors: Integers) -> tuple[Integers, Integers]:
        """(place, group) for all groups of the tensors in a column."""
        return _ranges(self._starts, tensors, np.arange(self.tensor.size))


def _ranges(starts: Integers, keys: Integers, values: Integers) -> tuple[Integers, Integers]:
    """(place, value) for the values of each key in a column: those of key k from `starts[k]` on."""
    place, at = elements(starts, keys)
    return place, values[at]


def _meeting(boxes: list[Box]) -> list[tuple[int, int]]:
    """Pairs of different boxes of one tensor that may share an element, both ways round."""
    pairs = []
    for one, other in _near(boxes):
        if may_overlap(boxes[one], boxes[other]):
            pairs += [(one, other), (other, one)]
    return pairs


def _near(boxes: list[Box]) -> Iterator[tuple[int, int]]:
    """Pairs of boxes, those left out that lie apart in the dimension in which most begin at
    places of their own."""
    if len(boxes) <= _FEW or not all(box.static for box in boxes):
        yield from combinations(range(len(boxes)), 2)
        return
    longest = max(len(box.spans) for box in boxes)
    spans = [[_span(box, at) for box in boxes] for at in range(longest)]
    spread = max(spans, key=lambda column: len({start for start, _ in column}))
    order = sorted(range(len(boxes)), key=spread.__getitem__)
    starts = [spread[number][0] for number in order]
    for at, number in enumerate(order):
        start, extent = spread[number]
        for other in order[at + 1 : bisect_left(starts, start + extent, at + 1)]:
            yield number, other


def _span(box: Box, dimension: int) -> tuple[int, int]:
    """Start and extent of a static box, everything where it has none."""
    span = box.spans[dimension] if dimension < len(box.spans) else None
    return (0, _ALL) if span is None else span


_MANY = 1 << 12
"""Pairs of an access of a tensor and a step that takes some of its bytes from which on only the
first such step follows all accesses, and the others that one. It may cost a little time, as the
first one need not be the first to be ready."""

_FEW = 4
"""Boxes of a tensor that are compared without looking for those that come into question."""

_ALL = 1 << 62


class _Looks:
    """Who looks into which group, at which moment, and whether as a writer: first all accesses, in
    their own groups, then others, and from `taking` on those who take bytes. `event` is the access
    that looks, or its step."""

    def __init__(
        self,
        group: Integers,
        moment: Integers,
        write: Flags,
        event: Integers,
        accesses: int,
        taking: int,
    ) -> None:
        order = ordered(moment)
        order = order[ordered(group[order])]
        self.group = group[order]
        self.moment = moment[order]
        self.write = write[order]
        self.event = event[order]
        self.access = order < accesses
        self.taking = order >= taking

    def pairs(self, groups: _Groups) -> tuple[Integers, Integers]:
        """(step, event that it must follow), in ascending order of steps."""
        forgotten = self._forgotten(groups)
        begin = begins_of_runs(self.group)
        last = last_before(self.access & self.write)
        reads = self.access & ~self.write
        reads_before: Integers = np.cumsum(reads) - reads
        since: Integers = reads_before[np.maximum(last, begin)]
        count = np.where(self.write, reads_before - since, 0)
        reader, within = counted(count)
        read = np.flatnonzero(reads)[since[reader] + within]
        # Who takes bytes comes after the reads, and these after the write.
        writer = np.flatnonzero((last >= begin) & ~(self.taking & (count > 0)))
        late = np.concatenate([writer, reader])
        early = np.concatenate([last[writer], read])
        step = np.where(self.event < 0, ~self.event, self.event)
        kept = (self.moment[early] >= forgotten[late]) & (step[late] != step[early])
        late, early = late[kept], early[kept]
        order = ordered(self.moment[late])
        return step[late[order]], self.event[early[order]]

    def _forgotten(self, groups: _Groups) -> Integers:
        """The moment before which nothing counts: a write of all of a tensor comes after all that
        was before it."""
        covering = self.access & self.write & groups.covering[self.group]
        if not covering.any():
            return np.full(self.moment.size, -1)
        bits = int(self.moment.max()).bit_length()
        names = (groups.tensor[self.group] << bits) + self.moment
        found = np.sort(names[covering])
        at = found[np.maximum(np.searchsorted(found, names) - 1, 0)]
        same = (at >> bits == names >> bits) & (at < names)
        return np.where(same, at & ((1 << bits) - 1), -1)
