"""Who finds which touches before its own, in columns: touches of one box are a group, and looks go
into groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.columns import (
    Flags,
    Integers,
    begins_of_runs,
    counted,
    distinct,
    elements,
    last_before,
    ordered,
)
from nki.ir.nodes import Tensor
from nki.passes.analysis.footprint import Box
from nki.passes.analysis.overlaps import overlaps
from nki.passes.analysis.touches import Touches


class TouchGroups:
    """The groups of accesses, each with its tensor and its box, by tensor."""

    def __init__(
        self, tensor: Integers, box: Integers, tensors: list[Tensor], boxes: list[Any]
    ) -> None:
        self.tensor = tensor
        self.covering = np.zeros(tensor.size, np.bool_)
        self._starts = np.searchsorted(tensor, np.arange(len(tensors) + 1))
        one, other = self._overlaps(box, tensors, boxes)
        order = ordered(one)
        self._partners = other[order]
        self._partner_starts = np.searchsorted(one[order], np.arange(tensor.size + 1))

    def _overlaps(
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
            pairs.append(np.array([(first + column).ravel() for column in overlaps(its).T]))
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


class Looks:
    """Who looks into which group, at which moment, and whether as a writer: first all rows of
    touches, in their own groups, then others, and from `taking` on those who take bytes. A
    `consumer` of -1 does not look."""

    def __init__(
        self,
        group: Integers,
        moment: Integers,
        write: Flags,
        consumer: Integers,
        rows: Touches,
        taking: int,
    ) -> None:
        size = rows.item.size
        resets = np.zeros(group.size, np.bool_)
        resets[:size] = rows.write & rows.sure
        order = ordered(2 * moment + ~resets)
        order = order[ordered(group[order])]
        self.group = group[order]
        self.moment = moment[order]
        self.write = write[order]
        self.consumer = consumer[order]
        self.row = np.where(order < size, order, -1)
        self.taking = order >= taking
        # Of what one loop writes nothing hides the other: it comes in turns.
        again = np.zeros(order.size, np.bool_)
        again[1:] = (self.group[1:] == self.group[:-1]) & (self.moment[1:] == self.moment[:-1])
        self.resets = resets[order] & ~again
        self.stream = np.full(order.size, -1)  # of what loops do
        of_loop = np.flatnonzero((self.row >= 0) & (rows.item[self.row] < 0))
        self.stream[of_loop] = rows.stream[self.row[of_loop]]

    def pairs(self) -> tuple[Integers, Integers, Integers]:
        """(consumer, moment of its look, row that it finds), in order of moments: the last write
        that hides what was before it, and what came since, of which readers see writes only."""
        begin = begins_of_runs(self.group)
        last = last_before(self.resets)
        start = np.maximum(last, begin)
        since = (self.row >= 0) & ~self.resets
        looking = self.consumer >= 0
        late, early = [], []
        sure = np.zeros(self.group.size, np.int64)  # what comes between in any case
        in_loops = np.flatnonzero(since & (self.stream >= 0))
        streams = distinct(self.stream[in_loops]).values.tolist()
        # Levels come in order, and loops stand in the outer ones.
        end = int(np.searchsorted(self.group, self.group[in_loops[-1:]], "right").sum())
        for some, wanted in (
            (since, looking & self.write),
            (since & self.write, looking & ~self.write),
        ):
            # Loops keep their order, so that the last one of each stream stands for all.
            for stream in streams:
                latest = last_before(some[:end] & (self.stream[:end] == stream))
                looker = np.flatnonzero(wanted[:end] & (latest >= start[:end]))
                late.append(looker)
                early.append(latest[looker])
            single = some & (self.stream < 0)
            before: Integers = np.cumsum(single) - single
            found = np.where(wanted, before - before[start], 0)
            looker, within = counted(found)
            late.append(looker)
            early.append(np.flatnonzero(single)[before[start][looker] + within])
            sure += found
        # Who takes bytes comes after the reads, and these after the write: but in a loop the last
        # write may come behind them, and a loop that reads may have no iteration.
        hidden = self.taking & (sure > 0) & (self.stream[last] < 0)
        writer = np.flatnonzero(looking & (last >= begin) & ~hidden)
        looker, found = np.concatenate([writer, *late]), np.concatenate([last[writer], *early])
        order = ordered(self.moment[looker])
        looker, found = looker[order], found[order]
        return self.consumer[looker], self.moment[looker], self.row[found]
