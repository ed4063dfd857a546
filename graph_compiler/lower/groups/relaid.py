"""Groups along rows that memory has no rows of: columns of matrices, channels of images.

A fold over the first dimension, or one in the middle, and what follows are one pass over the
dimension that stays, as soon as that comes first. So what these steps read is loaded in that order,
once for all of them (transfers, or the tensor engine, exchange dimensions: `nests.turned`), and
what they pass on has it from the beginning. Batch norm is one pass over its channels then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.groups.members import nest_of
from graph_compiler.schedule.steps import KernelCall, Place, item_size
from graph_compiler.schedule.views import Buffer, row_major

LONGEST = 24
"""Steps of such a group at most, those that load included."""


class Dimensions(NamedTuple):
    """The dimensions that arrays have in memory: counts, and whether each is folded."""

    counts: tuple[int, ...]
    reduced: tuple[bool, ...]

    @property
    def elements(self) -> int:
        """Elements of an array."""
        return math.prod(self.counts)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one to the next, in memory."""
        return row_major(self.counts)

    @property
    def kept(self) -> list[int]:
        """The dimensions that stay."""
        return [place for place, gone in enumerate(self.reduced) if not gone]

    @property
    def order(self) -> list[int]:
        """Dimensions that stay, then those that go."""
        return [*self.kept, *(place for place, gone in enumerate(self.reduced) if gone)]

    @property
    def moved(self) -> tuple[int, ...]:
        """Elements from one to the next where those that stay come first."""
        inside = row_major([self.counts[place] for place in self.order])
        steps = dict(zip(self.order, inside))
        return tuple(steps[place] for place in range(len(self.counts)))


def dimensions_of(step: Any) -> Dimensions | None:
    """Those of the array that a step folds, some of which stay behind one that goes."""
    if not isinstance(step, KernelCall) or not isinstance(step.kernel, LoopNest):
        return None
    loop, places = nest_of(step)
    if loop.fold is None:
        return None
    for (type, strides), place in zip(loop.leaves, places[1:]):
        order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
        found = Dimensions(
            tuple(loop.counts[axis] for axis in order), tuple(loop.reduced[axis] for axis in order)
        )
        if tuple(strides[axis] for axis in order) != found.strides or 1 in found.counts:
            continue
        if place != Place(place.buffer) or place.buffer.size != found.elements * item_size(type):
            continue
        apart = found.kept and found.order != list(range(len(found.counts)))
        return found if apart else None
    return None


class RelaidSteps(NamedTuple):
    """Steps that stand for others, and for how many. `counts`: those of the rows."""

    steps: list[Any]
    number: int
    counts: tuple[int, ...]


class _Nest(NamedTuple):
    """A step whose loop goes through dimensions one by one, and the numbers of its operands that
    are arrays."""

    step: KernelCall
    loop: LoopNest
    places: list[Place]
    arrays: list[int]


def relaid_steps(
    device: DeviceProgram, steps: Sequence[Any], uses: Counter[Buffer]
) -> Iterator[RelaidSteps]:
    """Steps from the first one on in another order of dimensions: all that may be, or fewer."""
    dims = dimensions_of(steps[0])
    if dims is None:
        return
    nests: list[_Nest] = []
    for step in steps[:LONGEST]:
        nest = _split(step, dims)
        if nest is None:
            break
        nests.append(nest)
    counts = tuple(dims.counts[place] for place in dims.kept)
    while len(nests) > 1:
        yield RelaidSteps(_moved(device, nests, dims, uses), len(nests), counts)
        nests.pop()


def _split(step: Any, dims: Dimensions) -> _Nest | None:
    """A step whose loop has an axis for each dimension; None of others."""
    if not isinstance(step, KernelCall) or not isinstance(step.kernel, LoopNest):
        return None
    loop, places = nest_of(step)
    operands = [loop.output, *loop.leaves]
    arrays = [
        number
        for number, ((type, strides), place) in enumerate(zip(operands, places))
        if place == Place(place.buffer)
        and place.buffer.size == dims.elements * item_size(type)
        and all(step or count == 1 for step, count in zip(strides, loop.counts))
    ]
    if not arrays:
        whole = tuple(dims.counts[place] for place in dims.kept)
        kept = math.prod(loop.counts) == math.prod(whole) and loop.fold is None
        return _Nest(step, loop, places, []) if kept else None
    axes = [
        _dimensions_along(dims, loop, operands, arrays, axis) for axis in range(len(loop.counts))
    ]
    if any(found is None for found in axes):
        return None
    parts = [found for found in axes if found is not None]
    if sorted(place for found in parts for place in found) != list(range(len(dims.counts))):
        return None

    def ordered(strides: Sequence[int]) -> tuple[int, ...]:
        """The stride along each dimension, of those that stay first."""
        steps = {}
        for found, step in zip(parts, strides):
            for place in reversed(found):
                steps[place] = step
                step *= dims.counts[place]
        return tuple(steps[place] for place in dims.order)

    flags = loop.reduced or (False,) * len(loop.counts)
    gone = {place: flag for found, flag in zip(parts, flags) for place in found}
    split = replace(
        loop,
        counts=tuple(dims.counts[place] for place in dims.order),
        output=(loop.output[0], ordered(loop.output[1])),
        leaves=tuple((type, ordered(strides)) for type, strides in loop.leaves),
        reduced=tuple(gone[place] for place in dims.order) if loop.reduced else (),
    )
    if loop.fold is not None and split.reduced != tuple(dims.reduced[p] for p in dims.order):
        return None
    return _Nest(step, split, places, arrays)


def _dimensions_along(
    dims: Dimensions,
    loop: LoopNest,
    operands: Sequence[tuple[str, tuple[int, ...]]],
    arrays: Sequence[int],
    axis: int,
) -> tuple[int, ...] | None:
    """The neighbouring dimensions that an axis goes along in all arrays; None of other axes."""
    steps = {operands[number][1][axis] for number in arrays}
    count = loop.counts[axis]
    if count == 1:
        return ()
    if len(steps) != 1 or not steps <= {*dims.strides}:
        return None
    last = dims.strides.index(*steps)
    first = last
    while first and math.prod(dims.counts[first : last + 1]) < count:
        first -= 1
    return (
        tuple(range(first, last + 1)) if math.prod(dims.counts[first : last + 1]) == count else None
    )


def _moved(
    device: DeviceProgram, nests: Sequence[_Nest], dims: Dimensions, uses: Counter[Buffer]
) -> list[Any]:
    """The steps, whose arrays have the dimensions that stay first: those that they read are loaded
    so, and those that they make are stored as memory has them."""
    order = dims.order
    there = tuple(dims.strides[place] for place in order)
    moved = tuple(dims.moved[place] for place in order)
    counts = tuple(dims.counts[place] for place in order)
    own: dict[Buffer, Buffer] = {}
    found: list[Any] = []
    reads = Counter(b for nest in nests for b in nest.step.reads)
    written = {nest.places[0].buffer for nest in nests}

    def other(buffer: Buffer, type: str) -> Buffer:
        if buffer not in own:
            own[buffer] = device.buffer(type, counts).buffer
            if buffer not in written:
                load = LoopNest(counts, (type, moved), ((type, there),), ())
                words: list[int | Place] = [Place(own[buffer]), Place(buffer)]
                found.append(KernelCall(load, words, [buffer], [own[buffer]]))
        return own[buffer]

    for nest in nests:
        loop, places, step = nest.loop, list(nest.places), nest.step
        operands = [loop.output, *loop.leaves]
        for number in sorted(nest.arrays, reverse=True):
            type, _ = operands[number]
            buffer = places[number].buffer
            if number == 0 and not reads[buffer]:
                continue
            places[number] = Place(other(buffer, type))
            operands[number] = type, moved
        again = replace(loop, output=operands[0], leaves=tuple(operands[1:]))
        target, *sources = places
        call = KernelCall(again, [*places], [p.buffer for p in sources], [target.buffer])
        device.same_place(step, [call])
        found.append(call)
        made = nest.places[0].buffer
        if target.buffer is not made and (made.kind != "arena" or uses[made] > reads[made]):
            type, _ = operands[0]
            back = LoopNest(counts, (type, there), ((type, moved),), ())
            stored: list[int | Place] = [Place(made), Place(target.buffer)]
            found.append(KernelCall(back, stored, [target.buffer], [made]))
            device.same_place(step, [found[-1]])
    for step in found:
        uses.update(buffer for buffer in step.reads if buffer in own.values())
    for step in found:
        if device.place_in_graph(step.kernel) is None:
            device.same_place(nests[0].step, [step])
    return found
