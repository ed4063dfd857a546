"""From an instruction's operands to calls of compiled functions.

A `Plan` serves all uses of an instruction on operands of the same dtypes, shapes and strides: it
knows the function, its argument words but for addresses and numbers, and which operands must not
share memory. `Plan.bind` fills in the rest.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from simulator.device_state import CoreState
from simulator.native.codegen.library import Function
from simulator.native.plans.iteration_space import (
    IterationSpace,
    ViewFootprint,
    disjoint,
    footprint,
    separate,
)
from simulator.views import Array, Indirect

Call = Callable[[], None]
Pack = Callable[[Any], int]

RANKS = (2, 5)
"""Dimensions that the loop nest of a micro-kernel can have; what needs more stays with NumPy. Most
tiles need 2, and the fewer loops the less time to compile."""


_FLOAT, _BITS = struct.Struct("<f"), struct.Struct("<I")


@cache
def words_type(count: int) -> Any:
    """The ctypes array of this many argument words."""
    return ctypes.c_int64 * count


def address(view: Array) -> int:
    """Where the first element of a view is."""
    return view.__array_interface__["data"][0]


def float32_word(value: Any) -> int:
    """A number as the bits of fp32."""
    try:
        return _BITS.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return _BITS.unpack(_FLOAT.pack(math.copysign(math.inf, value)))[0]


class Division(NamedTuple):
    """A range that a job can be divided into parts along: word `length` says how long it is, and
    each (word, bytes) of `steps` is a pointer and how far it moves with a unit. Parts begin at
    multiples of `multiple`."""

    length: int
    steps: tuple[tuple[int, int], ...]
    multiple: int = 1
    lockstep: int = 1


class Job(NamedTuple):
    """One call of a compiled function with its argument words.

    - `slots`: (word, position) of the pointers to the instruction's operands; the first `written`
      of them are written.
    - `same`: for each operand but the first, whether it may be the same bytes as a written one;
      other overlaps are never allowed.
    - `divisions`: ways to divide the job into parts, the best first.
    - `work`: about how many elements it computes.
    - `by_row`: each unit of a division depends on that unit of the operands alone.
    - `past_caches`: makes a function that writes with non-temporal stores, for results that are not
      read soon; other threads may read them after a fence.
    - `unread`: makes a function that does not write the first operand, which nobody reads.
    - `written`: how many operands are written.
    - `counted`: words that divisions advance though they are no pointers.
    - `hints`: the first word of each prefetch hint that it takes (`HINT_WORDS`).
    """

    function: Function
    words: Any
    slots: tuple[tuple[int, int], ...] = ()
    same: tuple[bool, ...] = ()
    divisions: tuple[Division, ...] = ()
    work: int = 0
    by_row: bool = False
    past_caches: Callable[[], Function] | None = None
    unread: Callable[[], Function] | None = None
    written: int = 1
    counted: tuple[int, ...] = ()
    hints: Sequence[int] = ()

    @property
    def address(self) -> int:
        """Where the code of the function is."""
        return address_of(self.function)


class TensorJob(NamedTuple):
    """A job of the tensor engine that may wait for others (`simulator.native.loop.tensor_queue`).

    It is divided along the partitions of its first operand, the results, by its one division. What
    loads a tile has no division, and `keep` is the job that copies the tile. Word `image` is the
    address of the tile's image, `apart` how far the images of several threads are apart. `streams`:
    it is a `simulator.native.matmul.gemm.MultiplyKernel`.
    """

    job: Job
    image: int
    apart: int
    streams: bool = False
    keep: Job | None = None


def address_of(function: Function) -> int:
    """Where the code of a function is."""
    place = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]
    assert place is not None
    return place


class Bound:
    """What executes one instruction on fixed operands: jobs, in order. The native program loop
    takes `jobs`, or `products` that do the same if there are some; to call it runs the jobs from
    Python. `keep` holds their scratch memory."""

    __slots__ = ("jobs", "keep", "products")

    def __init__(
        self, jobs: Sequence[Job], keep: Any = None, products: Sequence[TensorJob] = ()
    ) -> None:
        self.jobs = tuple(jobs)
        self.keep = keep
        self.products = tuple(products)

    def __call__(self) -> Any:
        for job in self.jobs:
            job.function(job.words)


class Guarded(Bound):
    """Jobs that take their operands as they are only if the job `guard` leaves 0 in its first word;
    else `refuse` executes the instruction. `result` is what the instruction returns."""

    __slots__ = ("_refuse", "_result", "guard")

    def __init__(
        self, jobs: Sequence[Job], guard: Job, refuse: Callable[[], Any], result: Any, keep: Any
    ) -> None:
        super().__init__(jobs, keep)
        self.guard = guard
        self._refuse = refuse
        self._result = result

    def __call__(self) -> Any:
        self.guard.function(self.guard.words)
        if self.guard.words[0]:
            return self._refuse()
        super().__call__()
        return self._result


class Compound:
    """A plan made of others, or of jobs of its own: its `bind` does as that of `Plan`."""

    __slots__ = ()

    result: Any = None


class FunctionPlan(Compound):
    """A plan whose `bind` is a function that its planner makes."""

    __slots__ = ("bind", "result")

    def __init__(
        self, bind: Callable[[CoreState, Sequence[Any]], Bound | None], result: Any = None
    ) -> None:
        self.bind = bind
        self.result = result


class Plan:
    """How to call `function` for operands of one layout; `result` is what the instruction returns.

    `words` are all argument words, pointers and numbers being 0; the first ones are the pointers
    of the operands at `positions` among the instruction's values. `numbers` are (word, position,
    function from the value to its word). The first operand is the one that is written; each of the
    others must be apart from it, or be the same bytes in the same order. `members` are those of the
    `job`, which has no words before it is bound.
    """

    __slots__ = ("_footprints", "_type", "_words", "job", "numbers", "positions", "result")

    def __init__(
        self,
        function: Function,
        views: Sequence[Array],
        positions: Sequence[int],
        words: Sequence[int],
        numbers: Sequence[tuple[int, int, Pack]] = (),
        same_order: Sequence[bool] = (),
        **members: Any,
    ) -> None:
        self.positions = tuple(positions)
        self.numbers = tuple(numbers)
        self.result: Any = None
        slots = tuple(enumerate(positions))
        # Whether an operand at the destination's address is the same elements in the same order.
        self.job = Job(function, None, slots, tuple(same_order), by_row=True, **members)
        self._type = words_type(len(words))
        self._words = bytes(self._type(*words))
        self._footprints: list[ViewFootprint] = [
            footprint(view.shape, view.strides, view.dtype.itemsize) for view in views
        ]

    def bind(
        self, state: CoreState, values: Sequence[Any], own: Sequence[Any] = ()
    ) -> Bound | None:
        """The call for these values; None where an operand is missing, or operands overlap so that
        order would matter. `own` are further operands, behind the values: memory of the engine's
        own, which nobody else moves."""
        words = self._type.from_buffer_copy(self._words)
        job, given, written = self.job, [*values, *own], 0
        for slot, position in enumerate(self.positions):
            view = given[position]
            if view is None:
                return None
            words[slot] = place = address(view)
            if not slot:
                written = place
            elif not (place == written and job.same[slot - 1]) and not disjoint(
                written, self._footprints[0], place, self._footprints[slot]
            ):
                return None
        for slot, position, pack in self.numbers:
            words[slot] = pack(given[position])
        for hint in job.hints:
            words[hint] = written
        slots = job.slots
        if own:
            slots = tuple(slot for slot in slots if slot[1] < len(values))
        return Bound([job._replace(words=words, slots=slots)], own)


def apart(left: Array, right: Array) -> bool:
    """Whether two views certainly share no byte."""
    prints = [footprint(view.shape, view.strides, view.dtype.itemsize) for view in (left, right)]
    return disjoint(address(left), prints[0], address(right), prints[1])


def view_at(values: Sequence[Any], position: int) -> Any:
    """The operand at a position of an instruction's values: of one whose rows indices pick all
    rows, or, at ~position, the indices."""
    value = values[max(position, ~position)]
    if isinstance(value, Indirect):
        return value.base if position >= 0 else value.index
    return value


def inner_job(
    plan: Plan, state: CoreState, target: Array, source: Array, slot: int, at: int
) -> Job:
    """The job of a plan that copies between an instruction's own memory and its operand at position
    `at`, which is the first (slot 0) or second (slot 1) one."""
    job = repeating_job(plan, state, target, source, slot, at)
    assert job is not None, "memory of its own overlaps nothing"
    return job


def repeating_job(
    plan: Plan, state: CoreState, target: Array, source: Array, slot: int, at: int
) -> Job | None:
    """As `inner_job`, for a plan that reads its target too: None where elements of that repeat."""
    bound = plan.bind(state, (target, source))
    if bound is None:
        return None
    (job,) = bound.jobs
    return job._replace(slots=((slot, at),), same=())


def ranked(space: IterationSpace, ranks: Sequence[int] = RANKS) -> IterationSpace | None:
    """The space with dimensions of one element added up to the next of `ranks`."""
    for rank in ranks:
        nest = space.padded(rank)
        if nest is not None:
            return nest
    return None


def nest_words(space: IterationSpace) -> list[int]:
    """Argument words of a loop nest: addresses (0 for now), counts, strides operand by operand."""
    words = [0] * len(space.strides)
    words += space.counts
    for strides in space.strides:
        words += strides
    return words


HINT_WORDS = (0, 0)
"""A hint: the address of memory that will be read a while later, and the bytes from row to row of
it. Where nobody knows of any, it is the destination."""

LEAST_RUN = 64
"""Elements of a row that stay together when it is divided."""


def nest_divisions(space: IterationSpace, dimensions: int) -> tuple[Division, ...]:
    """How words of `nest_words` can be divided along their outermost dimensions."""
    operands, rank = len(space.strides), len(space.counts)
    return tuple(
        Division(
            operands + dimension,
            tuple((index, strides[dimension]) for index, strides in enumerate(space.strides)),
            LEAST_RUN if dimension == rank - 1 else 1,
        )
        for dimension in range(dimensions)
    )


def same_orders(space: IterationSpace, sizes: Sequence[int]) -> list[bool]:
    """For each operand but the first: whether it walks memory exactly as the first one does, which
    comes to no element again."""
    once = separate(zip(space.counts, space.strides[0]), sizes[0])
    return [
        once and strides == space.strides[0] and size == sizes[0]
        for strides, size in zip(space.strides[1:], sizes[1:])
    ]
