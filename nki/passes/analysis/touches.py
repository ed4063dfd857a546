"""Reads, writes and allocations of tensors in each level of a body, by steps and by loops as one
item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from isa.columns import (
    Flags,
    Integers,
    by_first_use,
    counted,
    distinct,
    flags_of,
    is_among,
    joined,
    numbered,
    ordered,
    places,
)
from isa.machine.control import CoreBarrier, StorageBegin
from nki.passes.analysis.body import Accesses, Body
from nki.passes.analysis.channels import CoreFacts
from nki.passes.analysis.footprint import WHOLE, Box, united
from nki.passes.order.trips import at_least_once, at_most_once


class Touches(NamedTuple):
    """Rows, one for each thing that an item of a level does to a tensor.

    An item of level `layer` touches the box `box` of `tensor`: it reads or `write`s, or `begin`s to
    hold the tensor, whose earlier contents are gone then. It certainly does so if it is `sure`.
    `event` is what is over then, in `stream` (`Dependences` says how events are numbered). Moments
    order what is done: `begun` is when the item begins, `moment` when it touches. `item` is the
    number of the step, for a loop ~ its own.
    """

    layer: Integers
    item: Integers
    tensor: Integers
    box: Integers
    write: Flags
    begin: Flags
    sure: Flags
    event: Integers
    stream: Integers
    begun: Integers
    moment: Integers

    def of(self, rows: Integers | Flags) -> Touches:
        """Some of the rows."""
        return Touches._make(column[rows] for column in self)

    def and_(self, *others: Touches) -> Touches:
        """These rows, and others behind them."""
        return Touches._make(map(np.concatenate, zip(self, *others)))


class Touched:
    """The touches of a body: `steps` are those of its steps, `loops` those of its loops, as the
    level sees them in which a loop stands. `begins` are the beginnings of tensors by steps, those
    included that a write of the step makes needless. `tensors` and `boxes` are what rows number.

    `iterates` tells which levels have several iterations, `runs` which certainly run.
    """

    def __init__(self, body: Body, context: CoreFacts) -> None:
        self.body = body
        self.context = context
        self.tensors = list(body.accesses.tensors)
        self.boxes: list[Box] = []
        nodes = [layer.level.node for layer in body.layers]
        self.iterates = np.array([n is not None and not at_most_once(n) for n in nodes], np.bool_)
        self.runs = np.array([n is None or at_least_once(n) for n in nodes], np.bool_)
        self.steps = self._of_steps()
        self.loops = self._of_loops()

    def _of_steps(self) -> Touches:
        body, accesses, tensors = self.body, self.body.accesses, self.tensors
        first, ends = body.starts[:-1], body.starts[1:]
        step, _ = counted(ends - first)
        access = accesses.which[: step.size]
        tracked = np.array([tensor in self.context.tracked for tensor in tensors], np.bool_)
        wanted = tracked[accesses.tensor[access]]
        whole = self._whole()
        if whole:
            alone = np.array([step for step, _, _ in whole], np.int64)
            wanted &= ~flags_of(len(body.steps), alone)[step]
        kept = np.flatnonzero(wanted)
        step, access, write = step[kept], access[kept], body.writes[kept]
        boxes, box, fills = _boxes(accesses, access, self.context, body)
        self.boxes = [*boxes, WHOLE]
        plain = [
            ((one.spans, one.hull), at)
            for at, one in enumerate(boxes)
            if one.static and one.access is None
        ]
        self._known: dict[Any, int] = dict(plain)
        tensor = accesses.tensor[access]
        rows = self._rows(step, tensor, box, write, body.stream[step], 4 * kept + 2)
        # What is begun, and where no write of its step fills it.
        beginner, _ = counted(body.begins)
        new = accesses.tensor[accesses.which[body.starts[-1] :]]
        filled = (step * len(tensors) + tensor)[write & fills]
        of_all = np.full(beginner.size, len(boxes))
        begun = self._rows(
            beginner, new, of_all, of_all > -1, body.engine[beginner], 4 * ends[beginner] - 1
        )
        issued = np.where(body.queue[beginner] >= 0, len(body.steps) + beginner, beginner)
        self.begins = begun._replace(event=issued, begin=begun.write)
        marked = ~is_among(beginner * len(tensors) + new, filled)
        rows = rows.and_(self.begins.of(marked))
        if whole:
            step, tensor, begin = (np.array(column, np.int64) for column in zip(*whole))
            of_all = np.full(step.size, len(boxes))
            moment = 4 * first[step] + 2
            more = self._rows(step, tensor, of_all, of_all > -1, body.stream[step], moment)
            more = more._replace(begin=begin > 0)
            self.begins = self.begins.and_(more.of(more.begin))
            rows = rows.and_(more)
        return rows

    def _rows(
        self,
        step: Integers,
        tensor: Integers,
        box: Integers,
        write: Flags,
        stream: Integers,
        moment: Integers,
    ) -> Touches:
        """Rows of steps that touch something when they are over."""
        never = np.zeros(step.size, np.bool_)
        begun = 4 * self.body.starts[step]
        layer = self.body.layer[step]
        return Touches(layer, step, tensor, box, write, never, ~never, step, stream, begun, moment)

    def _whole(self) -> list[tuple[int, int, bool]]:
        """(step, tensor, whether it begins) of steps that stand for all of a tensor."""
        body, names = self.body, self.body.accesses.tensors
        shared = [names[tensor] for tensor in self.context.shared if tensor in names]
        found: list[tuple[int, int, bool]] = []
        for number in np.flatnonzero(body.fixed).tolist():
            step = body.steps[number]
            if step.instruction.row is StorageBegin:
                tensor = step.accesses[0].storage
                if not tensor.divided:  # a part that begins is written like any other
                    found.append((number, names[tensor], True))
            elif step.instruction.row is CoreBarrier:
                found += [(number, tensor, False) for tensor in shared]
        return found

    # -- loops ------------------------------------------------------------------------------------

    def _of_loops(self) -> Touches:
        """The rows of all loops: innermost ones first, as the others see them through these.
        `inside` has for each, as pairs, the items of the loop that do what the row tells."""
        layers = self.body.layers
        depth = np.array([layer.depth for layer in layers], np.int64)
        steps = self.steps.of(~self.steps.begin).and_(self.begins)
        found = inner = self.steps.of(np.zeros(0, np.int64))
        inside = [np.zeros((2, 0), np.int64)]
        for level in range(int(depth.max(initial=0)), 0, -1):
            mine = steps.of(depth[steps.layer] == level)
            inner, row, item = self._outside(mine.and_(inner))
            inside.append(np.array([found.item.size + row, item]))
            found = found.and_(inner)
        self.inside = np.concatenate(inside, axis=1)
        return found

    def _outside(self, rows: Touches) -> tuple[Touches, Integers, Integers]:
        """What loops do, each thing once, given what their items do; and pairs of such a row and
        an item that does it."""
        parents, firsts = np.array(
            [(layer.parent, layer.first) for layer in self.body.layers], np.int64
        ).T
        box = self.instead(rows.box, rows.layer, Box.widened)
        order = ordered(rows.begun)  # the first that begins takes over bytes from outside
        rows = rows._replace(box=box).of(order)
        place = joined([rows.layer, rows.tensor, rows.stream])
        # What follows a tensor's beginning in one stream is over when that is.
        kept = np.flatnonzero(rows.begin | ~is_among(place, place[rows.begin]))
        rows, place = rows.of(kept), place[kept]
        flags = 4 * rows.write + 2 * rows.begin + rows.sure
        rows = rows._replace(box=self._united(joined([place, flags]), rows.box))
        _, first, which = by_first_use(joined([place, rows.box, flags]))
        item, rows = rows.item, rows.of(first)
        begun = 4 * self.body.starts[firsts[rows.layer]]
        rows = rows._replace(
            layer=parents[rows.layer],
            item=~rows.layer,
            sure=rows.sure & self.runs[rows.layer],
            event=2 * len(self.body.steps) + rows.layer * self.context.streams + rows.stream,
            begun=begun,
            moment=begun + 2,
        )
        return rows, which, item

    def instead(self, box: Integers, layer: Integers, other: Callable[[Box, Any], Box]) -> Integers:
        """The numbers of other boxes, given by these and the nodes of their layers."""
        _, first, which = by_first_use(joined([box, layer]))
        found = []
        for number, at in zip(box[first].tolist(), layer[first].tolist()):
            old = self.boxes[number]
            new = other(old, self.body.layers[at].level.node)
            found.append(number if new is old else self.number(new))
        return np.array(found, np.int64)[which]

    def _united(self, key: Integers, box: Integers) -> Integers:
        """The numbers of boxes, of one key's that of a box that is just all of them, if there is
        one: copies of a body then touch one box together."""
        _, first, which = distinct(joined([key, box]))
        _, _, name = distinct(key[first])
        found = box[first]
        for its in places(name, int(name.max(initial=-1)) + 1):
            if its.size > 1:
                one = united([self.boxes[number] for number in found[its].tolist()])
                if one is not None:
                    found[its] = self.number(one)
        return found[which]

    def number(self, box: Box) -> int:
        """The number of a box, one for those that stay in place and are equal."""
        key = (box.spans, box.hull) if box.static else box
        number = self._known.setdefault(key, len(self.boxes))
        if number == len(self.boxes):
            self.boxes.append(box)
        return number


def _boxes(
    accesses: Accesses, wanted: Integers, context: CoreFacts, body: Body
) -> tuple[list[Box], Integers, Flags]:
    """The different boxes of wanted accesses, the number of each one's box, and whether that is
    all of its tensor."""
    used, _, use = distinct(wanted)
    like, kind = accesses.alike(used)
    boxes = [context.box(access, body.variables) for access in like]
    fills = [box.covers(access.storage) for access, box in zip(like, boxes)]
    kind = kind[use]
    kinds, _, used = by_first_use(kind)
    names, number = numbered([boxes[name] for name in kinds.tolist()])
    return list(names), number[used], np.array(fills, np.bool_)[kind]
