"""Dependences: which steps of a body must come before which, in every level of its loops.

All touches of tensors (`nki.passes.analysis.touches`) are columns, in the author's order. Those in
one level of one tensor with one box are a group. Who touches looks into its own group, and into the
groups of boxes that meet its own. There it finds the last write before it and, if it writes, the
reads since. Who takes over the bytes of other tensors looks into the groups of these. A loop is one
item of the level in which it stands; in a level with iterations, what one does comes behind the
same things of the iteration before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from isa.columns import (
    Flags,
    Integers,
    Lists,
    begins_of_runs,
    counted,
    distinct,
    is_among,
    joined,
    ordered,
)
from nki.ir.nodes import Loop, Op
from nki.passes.analysis.body import Body
from nki.passes.analysis.channels import CoreFacts
from nki.passes.analysis.engine_state import engine_states
from nki.passes.analysis.footprint import Box, first_meeting
from nki.passes.analysis.looks import Looks, TouchGroups
from nki.passes.analysis.occupants import taken_over
from nki.passes.analysis.overlaps import may_meet_later
from nki.passes.analysis.touches import Touched

_MANY = 1 << 12
"""Pairs of an access of a tensor and a step that takes some of its bytes. From this number on only
the first such step follows all accesses. The other steps follow that one. It may cost a little
time, as the first one need not be the first to be ready."""

_NONE = -1 << 62
"""The number of no item."""


class Dependences:
    """What the steps of a body, and its loops, must follow.

    Events are numbered. Of N steps, event m is that step m is over, and event N + m that its engine
    issues it. Of S streams, event 2N + kS + s is that stream s is done with loop k. Event `ready` +
    r is all that row r of `touched.loops`, where a tensor may begin, had to wait for. What happened
    d iterations ago is such a number + d * `space`, for d up to `reach`.

    Events `steps.values[steps.starts[n] : steps.starts[n + 1]]` come before step n starts; those of
    other levels than its own do not occur. What follows from others may be left out. `loops` has,
    by layer, what must come before things that the loop does: (row of `touched.loops`, event).

    `carried` is the engine state that passes from one operation to another.
    """

    def __init__(self, body: Body, context: CoreFacts, carried: set[tuple[int, str]]) -> None:
        touched = Touched(body, context)
        self.touched = touched
        count = len(body.steps)
        self.ready = 2 * count + len(body.layers) * context.streams
        self.space = self.ready + touched.loops.item.size
        rows = _TouchRows(touched, self.ready, self.space)
        late, event = rows.pairs()
        distant = np.array(list(rows.distant()), np.int64).reshape(-1, 3).T
        self.reach = int(distant[2].max(initial=1))
        late = np.append(late, distant[0])
        event = np.append(event, distant[1] + distant[2] * self.space)
        if named := _named(body):
            late, event = np.append(late, named[0]), np.append(event, named[1])
        late, event = self._latest_loops(late, event, 2 * count, context.streams)
        of_loops = np.flatnonzero(late >= count)
        self.loops: dict[int, list[tuple[int, int]]] = {}
        row = late[of_loops] - count
        layers = ~touched.loops.item[row]
        for layer, *need in zip(layers.tolist(), row.tolist(), event[of_loops].tolist()):
            self.loops.setdefault(layer, []).append((need[0], need[1]))
        late, event = np.delete(late, of_loops), np.delete(event, of_loops)
        order = ordered(late)
        late, event = late[order], event[order]
        self.steps = _lists(late, event, count)
        unit, _ = counted(np.diff(body.operations))
        near = np.flatnonzero(event < 2 * count)
        late, early = unit[late[near]], unit[event[near] % max(count, 1)]
        issues = event[near] >= count
        if states := _states(body, carried):
            late, early = np.append(late, states[0]), np.append(early, states[1])
            issues = np.append(issues, np.zeros(states[0].size, np.bool_))
        # The order of stretches stays.
        stretch = np.searchsorted(body.stretches, body.operations[:-1], "right")
        near = np.flatnonzero(stretch[late] == stretch[early])
        self._operations = late[near], early[near], body.operations.size - 1
        self._issues = issues[near]

    def _latest_loops(
        self, late: Integers, event: Integers, first: int, streams: int
    ) -> tuple[Integers, Integers]:
        """Without the events of loops, which are those from `first` on, that come before another
        loop's in their stream: loops keep their order, so that the last one stands for all."""
        distance, number = np.divmod(event, self.space)
        of_loops = np.flatnonzero((number >= first) & (number < self.ready))
        loop, stream = np.divmod(number[of_loops] - first, streams)
        moment = loop - distance[of_loops] * streams * self.space
        which = late[of_loops] * streams + stream
        order = np.lexsort((moment, which))
        which = which[order]
        needless = np.append(which[1:] == which[:-1], False)[: order.size]
        dropped = of_loops[order[needless]]
        return np.delete(late, dropped), np.delete(event, dropped)

    def of_operations(self, issues: bool = False) -> tuple[Lists, Lists]:
        """By operation, those of its stretch that it must follow, and that must follow it. With
        `issues` ~m are those that must be issued, not over."""
        return neighbours(*self._operations, self._issues if issues else None)


def neighbours(
    late: Integers, early: Integers, count: int, issues: Flags | None = None
) -> tuple[Lists, Lists]:
    """By operation, those before and those after it, where some are later than others; of
    `issues` ~m is instead of m, unless another pair says the same of m."""
    names = 2 * (late * count + early)
    if issues is not None:
        names += issues
    names = np.sort(names[late != early], kind="stable")  # most ascend
    names, marked = names >> 1, names & 1
    first = np.append(True, names[1:] != names[:-1])[: names.size]
    marked = -marked[first]  # all bits of those that are to be inverted
    late, early = np.divmod(names[first], count)
    order = ordered(early)
    after = (late ^ marked)[order]
    return _lists(late, early ^ marked, count), _lists(early[order], after, count)


def _lists(keys: Integers, values: Integers, count: int) -> Lists:
    """The values of every key from 0 on; keys ascend."""
    return Lists(np.searchsorted(keys, np.arange(count + 1)), values)


def _named(body: Body) -> tuple[Integers, Integers] | None:
    """Steps that follow others of their level by the author's word, and these."""
    wanted = set[Op]().union(*set(map(attrgetter("op.after"), body.steps)))
    if not wanted:
        return None
    by_op: dict[Op, list[int]] = {}
    late: list[int] = []
    early: list[int] = []
    for number, step in enumerate(body.steps):
        for op in step.op.after:
            earlier = by_op.get(op, ())
            early += earlier
            late += [number] * len(earlier)
        if step.op in wanted:
            by_op.setdefault(step.op, []).append(number)
    pairs = np.array([late, early], np.int64)
    one, other = pairs[:, body.layer[pairs[0]] == body.layer[pairs[1]]]
    return one, other


def _states(body: Body, carried: set[tuple[int, str]]) -> tuple[Integers, Integers] | None:
    """Operations that use engine state that is carried on, and those that did before them."""
    if not carried:
        return None
    late: list[int] = []
    early: list[int] = []
    last: dict[tuple[int, str], int] = {}
    for number, (start, end) in enumerate(pairwise(body.operations.tolist())):
        for step in body.steps[start:end]:
            for name, _ in engine_states(step.instruction):
                key = step.engine, name
                if key in carried:
                    if key in last:
                        late.append(number)
                        early.append(last[key])
                    last[key] = number
    return np.array(late, np.int64), np.array(early, np.int64)


def _earlier(box: Box, node: Any) -> Box:
    """A box in the iteration before."""
    return box.later(node.variable, -node.step) if isinstance(node, Loop) else box


class _TouchRows:
    """All touches, and who looks at them.

    In a level with iterations what the one before did comes first: at moments that are negative,
    in boxes as they were then. `name` numbers (level, tensor).
    """

    def __init__(self, touched: Touched, ready: int, space: int) -> None:
        self.ready = ready
        self.space = space
        body, loops = touched.body, touched.loops
        self.touched = touched
        self.count = len(body.steps)
        self.now = now = touched.steps.and_(loops)
        self.consumer = np.append(touched.steps.item, self.count + np.arange(loops.item.size))
        self.back = 4 * int(body.starts[-1]) + 8
        before = now.of(touched.iterates[now.layer])
        self.all = now.and_(
            before._replace(
                box=touched.instead(before.box, before.layer, _earlier),
                event=before.event + space,
                moment=before.moment - self.back,
                begun=before.begun - self.back,
            )
        )
        key = self.all.layer * len(touched.tensors) + self.all.tensor
        self.keys, first, self.name = distinct(key)
        self.tensors = [touched.tensors[at] for at in self.all.tensor[first].tolist()]

    def pairs(self) -> tuple[Integers, Integers]:
        """(consumer, event that it must follow): consumers are steps, and rows of loops behind.

        1. Touches of one level, tensor and box are a group. Its rows are sorted by moment.
        2. Each touch looks into its own group, and into the groups of the same tensor whose boxes
           meet its own. Who takes over a tensor's bytes (`_takers`) looks into all its groups.
        3. A look finds the last certain write before it, and what came since; a reader the writes
           of that only (`Looks.pairs`).
        4. What lies before a write of all of the tensor is left out (`_remembered`).

        An example, of a loop body:

            step 0  load  writes t           group (t, all)
            step 1  mul   reads t[:, :64]    group (t, half)
            step 2  add   reads t            group (t, all)

        Step 1 looks into its own group and finds nothing, then into (t, all), as the boxes meet: it
        must follow step 0. Step 2 finds step 0 in its own group. Step 0 finds, at negative moments,
        itself and the two readers in the iteration before: events 0 + space, 1 + space, 2 + space.
        So it waits for the readers before it overwrites t.
        """
        rows, now, boxes = self.all, self.now, self.touched.boxes
        if not now.item.size:
            return now.item, now.item
        found, _, group = distinct(self.name * len(boxes) + rows.box)
        groups = TouchGroups(*np.divmod(found, len(boxes)), self.tensors, boxes)
        # An access looks into its own group and those that meet it, what takes the bytes of a
        # tensor into all of its groups. Loops look before they touch.
        of_loop = now.item < 0
        key = joined([np.where(of_loop, ~now.item, 0), now.tensor])
        own = of_loop & is_among(key, key[of_loop & now.begin])  # what a loop begins is its own
        looking = np.flatnonzero(~now.begin & ~own)
        place, met = groups.meeting(group[looking])
        place = looking[place]
        behind = looking[of_loop[looking]]
        takers = self._takers()
        row, taken = groups.of_tensors(takers.old)
        late = now.moment - of_loop
        mine = np.full(rows.item.size, -1)
        mine[: now.item.size] = np.where(of_loop | now.begin, -1, self.consumer)
        looks = Looks(
            np.concatenate([group, met, group[behind], taken]),
            np.concatenate([rows.moment, late[place], late[behind], takers.moment[row]]),
            np.concatenate([rows.write, now.write[place], now.write[behind], row > -1]),
            np.concatenate(
                [mine, self.consumer[place], self.consumer[behind], takers.consumer[row]]
            ),
            rows,
            mine.size + place.size + behind.size,
        )
        consumer, moment, entry = looks.pairs()
        kept = self._remembered(moment, entry, groups.covering[group])
        kept &= self._item(consumer) != np.where(entry < now.item.size, rows.item[entry], _NONE)
        consumer, event = consumer[kept], rows.event[entry[kept]]
        return np.append(consumer, takers.late), np.append(event, takers.event)

    def distant(self) -> Iterator[tuple[int, int, int]]:
        """(consumer, event, distance) of what iterations do that are two or more apart, where those
        next to each other do not meet: boxes that the loop moves."""
        rows, boxes = self.now, self.touched.boxes
        moving: dict[tuple[int, int], dict[int, list[int]]] = {}
        moved = np.array([not box.static for box in boxes], np.bool_)[rows.box]
        for at in np.flatnonzero(moved & self.touched.iterates[rows.layer]).tolist():
            layer, box = int(rows.layer[at]), int(rows.box[at])
            node = self.touched.body.layers[layer].level.node
            if isinstance(node, Loop) and boxes[box].moves(node.variable):
                of_tensor = moving.setdefault((layer, int(rows.tensor[at])), {})
                of_tensor.setdefault(box, []).append(at)
        for (layer, _), groups in moving.items():
            node = self.touched.body.layers[layer].level.node
            writes = [any(rows.write[at] for at in group) for group in groups.values()]
            if not any(writes):
                continue
            its, touches = [boxes[box] for box in groups], list(groups.values())
            for first, then in may_meet_later(its, node):
                if not (writes[first] or writes[then]):
                    continue
                distance = first_meeting(its[first], its[then], node)
                if distance is not None:
                    for one, other in product(touches[then], touches[first]):
                        if rows.write[one] or rows.write[other]:
                            yield int(self.consumer[one]), int(rows.event[other]), distance

    def _item(self, consumer: Integers) -> Integers:
        """The items of consumers, as in touches."""
        items = np.append(np.arange(self.count), self.touched.loops.item)
        return items[consumer]

    def _remembered(self, moment: Integers, entry: Integers, covering: Flags) -> Flags:
        """Whether a look at a moment counts: a write of all of a tensor, or its beginning, comes
        after all that was before it."""
        rows = self.all
        whole = rows.sure & rows.write & (rows.begin | covering)
        if not whole.any():
            return np.ones(entry.size, np.bool_)
        since = np.where(rows.begin, rows.begun, rows.moment) + self.back
        bits = 1 + int(rows.moment.max() + self.back).bit_length()
        found = np.sort((self.name[whole] << bits) + since[whole])
        wanted = (self.name[entry] << bits) + moment + self.back
        at = found[np.maximum(np.searchsorted(found, wanted) - 1, 0)]
        same = (at >> bits == wanted >> bits) & (at < wanted)
        forgotten = np.where(same, at & ((1 << bits) - 1), -1)
        kept: Flags = rows.moment[entry] + self.back >= forgotten
        return kept

    def _takers(self) -> _Takers:
        """Who takes over the bytes of which tensors.

        1. The begins of tensors, of steps and of loops, in order of moments; in a level with
           iterations those of the iteration before stand ahead of them.
        2. By addresses, who had the bytes of each begin last (`taken_over`): pairs (late, early).
           In a level with iterations each begin also takes over its own tensor.
        3. Where `early` is inside a loop that may not run, `late` also follows what that begin had
           to wait for: event `ready` + row.
        4. Where a tensor has very many accesses and takers, only the first taker looks at all the
           accesses; the others follow its issue (`_joined`).
        """
        touched = self.touched
        loops = touched.loops
        of_loops = np.flatnonzero(loops.begin)
        begins = touched.begins.and_(loops.of(of_loops))
        layer, tensor, moment = begins.layer, begins.tensor, begins.begun
        consumer = np.append(touched.begins.item, self.count + of_loops)
        order = ordered(moment)
        layer, tensor, moment, consumer = (c[order] for c in (layer, tensor, moment, consumer))
        again = touched.iterates[layer]
        place = np.append(np.flatnonzero(again), np.arange(order.size))
        begun = [touched.tensors[at] for at in tensor.tolist()]
        late, early = place[:0], place[:0]
        if touched.context.placement is not None:
            late, early = taken_over(layer, begun, place, touched.context.placement)
        now = late >= place.size - order.size
        late, early = late[now], early[now]
        own = np.flatnonzero(again)
        # Whose loop may not run may not have waited for who had the bytes before: so this one does.
        row = consumer[place[early]] - self.count
        unsure = np.flatnonzero((row >= 0) & ~np.append(loops.sure, True)[np.maximum(row, -1)])
        event = self.ready + row[unsure]
        event += np.where(early[unsure] < place.size - order.size, self.space, 0)
        waiting = consumer[place[late[unsure]]]
        late, early = np.append(place[late], own), np.append(place[early], own)
        key = layer[late] * len(touched.tensors) + tensor[early]
        old = np.searchsorted(self.keys, key)
        known = np.append(self.keys, -1)[old] == key
        late, old = late[known], old[known]
        order = ordered(late)
        late, old = late[order], old[order]
        moment, consumer = moment[late], consumer[late]
        later, head = self._joined(old, moment, consumer)
        return _Takers(
            np.delete(consumer, later),
            np.delete(old, later),
            np.delete(moment, later),
            np.append(consumer[later], waiting),
            np.append(self.count + consumer[head], event),
        )

    def _joined(
        self, old: Integers, moment: Integers, consumer: Integers
    ) -> tuple[Integers, Integers]:
        """Of those who take bytes of tensors `old` at some moments, those for which it is enough to
        follow the issue of the first taker (`head`), and that one: there are `_MANY` pairs of an
        access and a taker, and all accesses come before the first taker."""
        tensors = self.keys.size
        pairs = np.bincount(self.name, minlength=tensors) * np.bincount(old, minlength=tensors)
        last = np.full(tensors, -self.back)
        np.maximum.at(last, self.name, self.all.moment)
        order = np.lexsort((moment, old))
        head = order[begins_of_runs(old[order])]
        apart = (pairs[old[order]] >= _MANY) & (last[old[order]] < moment[head])
        apart &= (moment[order] > moment[head]) & (consumer[head] < self.count)
        later = np.flatnonzero(apart)
        return order[later], head[later]


class _Takers(NamedTuple):
    """Consumers that take over the bytes of tensors `old` at some moments; and consumers `late`
    that need only follow an event."""

    consumer: Integers
    old: Integers
    moment: Integers
    late: Integers
    event: Integers
