"""Overlapping boxes of one tensor: spans are compared in columns, elements once for pairs of one
form.

Tensors that many steps take in pieces, such as the images of a convolution, have thousands of boxes
and millions of pairs that are close to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, combinations, pairwise, product
from typing import Any

import numpy as np

from isa.columns import Flags, Integers, counted, distinct, joined, numbered
from nki.passes.analysis.footprint import Box, Span, elements_overlap, may_overlap, most_distant

_FEW = 8
"""Boxes of a tensor up to which columns take longer than they save."""

_ALL = 1 << 62
"""The extent of what is everything."""

_PAIRS = 1 << 20
"""Pairs that are compared at a time."""


def overlaps(boxes: list[Box]) -> Integers:
    """Pairs of different boxes of one tensor that may share an element, both ways round.

    Boxes that registers move alike are compared where these are 0, as they stay so far apart.

    >>> overlaps([Box(((0, 4), (0, 8))), Box(((0, 4), (8, 8))), Box(((2, 4), (4, 8)))]).tolist()
    [[0, 2], [2, 0], [1, 2], [2, 1]]
    """
    together: dict[Any, list[int]] = {}
    for number, box in enumerate(boxes):
        motion = box.motion
        form = number if motion is None else (len(box.spans), motion)
        together.setdefault(form, []).append(number)
    found = [
        np.array(numbers)[_at_rest([boxes[number].at_rest() for number in numbers])]
        for numbers in together.values()
        if len(numbers) > 1
    ]
    meet = [
        (one, other)
        for some, others in combinations(together.values(), 2)
        for one, other in product(some, others)
        if may_overlap(boxes[one], boxes[other])
    ]
    pairs = np.concatenate([*found, np.array(meet, np.int64).reshape(-1, 2)])
    return np.stack([pairs, pairs[:, ::-1]], axis=1).reshape(-1, 2)


def may_meet_later(boxes: list[Box], node: Any) -> Iterable[Sequence[int]]:
    """Pairs (one, other) of boxes of one tensor, with all those of which the other one meets, in a
    later iteration of a loop, what the one is now (`footprint.first_meeting`)."""
    everything = product(range(len(boxes)), repeat=2)
    motion = boxes[0].motion
    filled = {len(box.spans) for box in boxes}
    if len(boxes) <= 2 or motion is None or len(filled) > 1:
        return everything
    if any(box.motion != motion for box in boxes):
        return everything
    still = [box.at_rest() for box in boxes]
    spans = np.array([[_whole(span) for span in box.spans or (box.hull,)] for box in still])
    moving = [dict(terms or ()) for terms in (motion[-1:] if 0 in filled else motion)]
    steps = [terms.get(node.variable.number, 0) * node.step for terms in moving]
    many = max(_PAIRS // len(boxes), 1)
    return chain.from_iterable(
        _meeting_later(spans, steps, slice(first, first + many), most_distant(node)).tolist()
        for first in range(0, len(boxes), many)
    )


def _meeting_later(spans: Integers, steps: list[int], some: slice, most: int) -> Integers:
    """Pairs (one, other) of which the other one meets, one to `most` iterations later, what one of
    `some` is now. `spans` are by box and dimension, `steps` by dimension what an iteration adds."""
    low = np.ones((len(spans[some]), len(spans)), np.int64)
    high = low * most
    for (start, extent), step in zip(spans.transpose(1, 2, 0), steps):
        mine, its = extent[some, None], extent
        apart = start - start[some, None]
        if step < 0:
            step, apart = -step, mine - its - apart
        if step:
            np.maximum(low, (-its - apart) // step + 1, out=low)
            np.minimum(high, -((apart - mine) // step) - 1, out=high)
        else:
            high[(apart <= -its) | (apart >= mine)] = 0
    one, other = np.nonzero(low <= high)
    return np.array([some.start + one, other]).T


def _at_rest(boxes: list[Box]) -> Integers:
    """Pairs of static boxes that may share an element, each once. All have as many spans."""
    if len(boxes) > _FEW and boxes[0].spans:
        return _in_columns(boxes)
    pairs = [
        (one, other)
        for one, other in combinations(range(len(boxes)), 2)
        if may_overlap(boxes[one], boxes[other])
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _in_columns(boxes: list[Box]) -> Integers:
    """Pairs of static boxes with spans in all dimensions that meet, each once."""
    spans = np.array([[_whole(span) for span in box.spans] for box in boxes], np.int64)
    start, extent = spans.transpose(2, 0, 1)
    end = start + extent
    spread = max(range(start.shape[1]), key=lambda at: distinct(start[:, at]).values.size)
    order = np.lexsort((extent[:, spread], start[:, spread]))
    first = start[order, spread]
    until = np.searchsorted(first, end[order, spread])
    many = np.maximum(until - np.arange(1, len(boxes) + 1), 0)
    solid = np.array([box.access is None for box in boxes])
    dense = np.array([box.dense for box in boxes])
    _, form = numbered([_form(box) for box in boxes])
    place = np.array([_place(box) for box in boxes], np.int64)
    found = [np.zeros((0, 2), np.int64)]
    cuts = np.flatnonzero(np.diff(np.cumsum(many) // _PAIRS, append=-1)) + 1
    for low, high in pairwise([0, *cuts.tolist()]):
        at, within = counted(many[low:high])
        one, other = order[low + at], order[low + at + 1 + within]
        meet = ((start[one] < end[other]) & (start[other] < end[one])).all(axis=1)
        one, other = one[meet], other[meet]
        unclear = ~(solid[one] | solid[other] | (dense[one] & dense[other]))
        meet = ~unclear
        some = np.flatnonzero(unclear)
        meet[some] = _elements_meet(boxes, one[some], other[some], form, place)
        found.append(np.stack([one[meet], other[meet]], axis=1))
    return np.concatenate(found)


def _elements_meet(
    boxes: list[Box], one: Integers, other: Integers, form: Integers, place: Integers
) -> Flags:
    """Whether boxes that skip elements share some. Those of one form that are as far apart do
    alike."""
    apart = place[other] - place[one]
    key = joined([form[one], form[other], apart - apart.min(initial=0)])
    _, first, which = distinct(key)
    pairs = zip(one[first].tolist(), other[first].tolist())
    outcome = [elements_overlap(boxes[left], boxes[right]) for left, right in pairs]
    return np.array(outcome, np.bool_)[which]


def _form(box: Box) -> object:
    """What elements a box has, wherever it begins."""
    access = box.access
    return None if access is None else (access.dtype, access.shape, access.strides)


def _place(box: Box) -> int:
    """Where the elements of a box begin."""
    span = box.hull or box.spans[-1]
    return 0 if span is None else span[0]


def _whole(span: Span) -> tuple[int, int]:
    return (0, _ALL) if span is None else span
