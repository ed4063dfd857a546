"""Multi-buffering: unrolls loops over several sets of buffers, so that iterations overlap.

A trip then has the bodies of 2 to 16 iterations: as many as fit and as pay. That is estimated from
the body (`nki.passes.order.iterations`) where its iterations meet on chip only; else the event
model times the loop alone (`nki.passes.order.modelled`). For loops over ints the remaining
iterations are straight code, and small loops are unrolled completely. For loops over symbols the
rest is loops of at most one trip, each with half as many iterations as the one before, so that
every size overlaps. Loops whose count only the device knows keep one copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from isa.affine import Affine, minimum
from isa.enums import RegisterOperation
from isa.errors import NeuronError
from isa.operations.control import RegisterAlu, RegisterMove
from isa.target import TARGETS
from nki.ir.begins import begun
from nki.ir.nodes import Loop, Node, Op, Register, TracedKernel, operations, tensors_of
from nki.ir.rewrite import Cloner, Numbering, Original, replace_loops
from nki.passes.analysis.content import Content, kept
from nki.passes.order.iterations import iterations_of
from nki.passes.order.modelled import Modelled, launch_sizes, modelled, some_trips
from nki.passes.order.pipeline import pipelined
from nki.passes.order.queues import spread
from nki.passes.order.schedule import SPACED
from nki.passes.order.trips import at_most_once, most_trips, trip_count
from nki.passes.place.allocate import in_order, turns
from nki.passes.place.live_ranges import ranges_of
from nki.verification.hbm_capacity import fits_into_hbm

COPIES = (2, 4, 8, 16)
"""How many iterations a trip may have."""

STRAIGHT = 128
"""The most operations that a loop may become when nothing of it stays a loop."""

LONGEST = 1024
"""The most operations of a body with several copies: in a longer one the engines find enough to do
while iterations meet (twelve transformer layers of 566 operations: 594 us with one or two)."""

PAYS = 0.985
"""The part of the time with fewer copies below which more are taken."""

CERTAIN = 0.995
"""The part of the least time that a run says which no other takes less than: what comes before an
engine's first instruction, and behind its last one, differs a little."""

ITERATIONS = 16
"""How many iterations are timed at least: two trips of the most copies, where that is more."""


@dataclass(frozen=True)
class RotateBuffers:
    """Rotate the buffers of loops: a trip has the bodies of several iterations, each with tensors
    of its own, and a remainder comes behind.

    Before:

        loop %r1 = 0 to M//128 step 1 unroll:
          dma_copy dst=%tile src=%a[... @ 128*%r1]

    After:

        loop %r2 = 0 to 2*((M//128)//2) step 2:
          dma_copy dst=%tile.0 src=%a[... @ 128*%r2]
          dma_copy dst=%tile.1 src=%a[... @ 128*%r2 + 128]
        loop %r3 = 2*((M//128)//2) to M//128 step 1:
          dma_copy dst=%tile.2 src=%a[... @ 128*%r3]

    Of `COPIES` the fewest are taken with which more do not pay by the event model. Where a body,
    or what it keeps in HBM, does not fit then, all loops get fewer. A remainder of a known number
    of iterations is no loop, nor is what is left of a loop of few operations. Loops whose trip
    count only the device knows keep one copy of their buffers.
    """

    name = "rotate"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        if not kernel.has_loops:
            return kernel
        for most in (*reversed(COPIES), 1):
            rotated = replace_loops(kernel, _Rotation(kernel, most).replace)
            if rotated is kernel or _fits(rotated):
                return rotated
        return kernel


def _fits(kernel: TracedKernel) -> bool:
    """Whether there are places for all tensors, in the author's order."""
    target = TARGETS[kernel.target]
    try:
        for body in kernel.bodies:
            if not turns(ranges_of(kernel, body), target):
                in_order(body, target, search=False)
    except NeuronError:
        return False
    return fits_into_hbm(kernel.tensors, target)


class _Rotation(NamedTuple):
    """Rotates loops of a kernel over at most `most` copies."""

    kernel: TracedKernel
    most: int

    def replace(self, node: Loop, body: list[Node], numbering: Numbering) -> list[Node] | None:
        """What becomes of a loop with a body whose own loops are done; None: it stays."""
        if isinstance(node.lower, Register) or isinstance(node.upper, Register):
            return None
        trips = trip_count(node)
        count = sum(1 for _ in operations(body))
        if trips is not None and (trips <= 1 or trips * count <= STRAIGHT) and self.most > 1:
            values = range(node.lower, node.upper, node.step)
            return _straight(node, Original(body), numbering, values)
        if not _allocates(body) or at_most_once(node):
            return None
        copies = self._copies(node, body, numbering, trips, count)
        return None if copies < 2 else _rotated(node, body, numbering, copies)

    def _copies(
        self, node: Loop, body: list[Node], numbering: Numbering, trips: int | None, count: int
    ) -> int:
        """The number of copies that pays."""
        most = min(self.most, LONGEST // max(count, 1), most_trips(node) - (trips is not None))
        wanted = [n for n in COPIES if n <= most]
        if not wanted:
            return 1
        facts = (
            self.kernel.target,
            SPACED.get(),
            *self.kernel.symbols,
            node.step,
            node.unroll,
            trips,
            *wanted,
        )
        form = Content({node.variable: "around"}).of(body)
        paying = partial(self._paying, node, body, numbering, trips, wanted)
        return kept("copies", (*facts, form), paying)

    def _paying(
        self,
        node: Loop,
        body: list[Node],
        numbering: Numbering,
        trips: int | None,
        wanted: list[int],
    ) -> int:
        """The number of copies that pays: by the event model, where the body does not say it, or
        so many have no room at once."""
        alone = None
        if launch_sizes(self.kernel, body) is not None:
            alone = iterations_of(node, body, TARGETS[self.kernel.target])
        if alone is not None and alone.most_copies_pay(wanted[-1]):
            return wanted[-1]
        sample = max(ITERATIONS, 2 * wanted[-1])
        sample = sample if trips is None else min(trips, sample)
        one = None
        if alone is not None and alone.is_plain:
            estimated = partial(alone.with_copies, iterations=sample)
            one = estimated(1)
            found = fewest(wanted, one, estimated)
            if found <= alone.room:
                return found
        loop = some_trips(node, sample, body)

        def spent(copies: int) -> Modelled | None:
            if copies == 1:
                return self._spent([loop])
            first, *rest = _rotated(loop, body, numbering.for_trials(), copies)
            if isinstance(first, Loop):  # whose order is going to be that of the loop itself
                first.variable.upper = _middle(node, copies) - first.step
            return self._spent([first, *rest])

        one = one or spent(1)
        if one is None:
            return wanted[0] if node.unroll else 1
        return fewest(wanted, one, spent)

    def _spent(self, nodes: list[Node]) -> Modelled | None:
        """How long nodes take in the order that they are going to have."""
        own = dict.fromkeys(tensor for op in operations(nodes) for tensor in tensors_of(op))
        kernel = self.kernel.with_bodies([nodes], list(dict.fromkeys(self.kernel.tensors) | own))
        return modelled(kernel, pipelined(kernel, spread(kernel, nodes)))


def fewest(wanted: list[int], one: Modelled, spent: Callable[[int], Modelled | None]) -> int:
    """Of one copy, which takes some `one`, and the wanted numbers, the fewest that take no more
    than the least time over `PAYS`; `spent` tries a number.

    With n copies n iterations are under way where one was: they take no less than an n-th of its
    time, nor less than the busiest engine. So the first number is tried for which the latter is
    more, and others only while what they take at least leaves the choice open: fewer copies than
    some that are too slow are not tried, but one copy is. Where one copy does not say what the
    least is (0), the numbers that were tried do.
    """
    numbers = [1, *wanted]
    parts = [one.total_ns / number for number in numbers]
    tried: dict[int, Modelled] = {}

    def takes(at: int) -> float:
        if at not in tried:
            tried[at] = spent(numbers[at]) or NEVER
        return tried[at].total_ns

    def least(at: int) -> float:
        least_ns = one.least_ns or max(found.least_ns for found in tried.values())
        return max(parts[at], one.busiest_ns, CERTAIN * least_ns)

    best = next((at for at, ns in enumerate(parts) if PAYS * ns <= one.busiest_ns), len(wanted))
    while best and math.isinf(takes(best)):
        best -= 1
    while best < len(wanted) and (most := PAYS * takes(best)) > least(best + 1):
        if takes(best + 1) >= most:
            break
        best += 1
    fastest = takes(best)

    def as_fast(at: int) -> bool:
        return PAYS * least(at) <= fastest and PAYS * takes(at) <= fastest

    if not best or as_fast(0):
        return 1
    while as_fast(best - 1):
        best -= 1
    return numbers[best]


NEVER = Modelled(math.inf, 0.0, 0.0)


def _rotated(node: Loop, body: list[Node], numbering: Numbering, copies: int) -> list[Node]:
    """A loop over several copies of a body, and what is left: the iterations themselves where they
    are known, else loops of at most one trip over half as many copies, a quarter, and so on."""
    middle = _middle(node, copies)
    original = Original(body)
    result: list[Node] = [_trip(node, original, numbering, range(copies), (node.lower, middle))]
    if type(middle) is int and type(node.upper) is int:
        rest = range(middle, node.upper, node.step)
        return result + _straight(node, original, numbering, rest, copies)
    first = copies
    while copies > 1:
        copies //= 2
        stride = node.step * copies
        lower, middle = middle, middle + minimum(1, (node.upper - middle) // stride) * stride
        numbers = range(first, first + copies)
        result.append(_trip(node, original, numbering, numbers, (lower, middle)))
        first += copies
    return result


def _middle(node: Loop, copies: int) -> Any:
    """Where the trips over several copies end, and what is left begins."""
    stride = node.step * copies
    return node.lower + (node.upper - node.lower) // stride * stride


def _trip(
    node: Loop, original: Original, numbering: Numbering, copies: range, bounds: tuple[Any, Any]
) -> Loop:
    """A loop between bounds with copies of a body, which are numbered like that."""
    stride = node.step * len(copies)
    variable = numbering.register(node.variable)
    variable.upper = bounds[1] - stride
    bodies: list[Node] = []
    for copy, number in enumerate(copies):
        value = Affine(copy * node.step, ((variable, 1),))
        bodies += _iteration(node, original, numbering, value, f".{number}")
    alike = original.is_flat and not original.forms
    number = len(copies) if alike else 1
    return Loop(variable, *bounds, stride, bodies, False, node.location, number)


def _straight(
    node: Loop, original: Original, numbering: Numbering, values: range, first: int = 0
) -> list[Node]:
    """The iterations with some values of the loop's variable, one after the other."""
    result: list[Node] = []
    for copy, value in enumerate(values, first):
        result += _iteration(node, original, numbering, value, f".{copy}")
    return result


def _iteration(
    node: Loop, original: Original, numbering: Numbering, value: Any, suffix: str
) -> list[Node]:
    """One iteration, with tensors of its own. Where the variable is used as a register, there is
    one that has its value."""
    before: list[Node] = []
    moved = isinstance(value, int) or value.constant != 0
    if moved and any(form.__class__ is Affine or form is node.variable for form in original.forms):
        register = numbering.register(node.variable)
        if isinstance(value, int):
            values: tuple[Any, ...] = (register, value)
            before.append(Op(RegisterMove, values, node.location))
        else:
            values = register, RegisterOperation.add, value.terms[0][0], value.constant
            before.append(Op(RegisterAlu, values, node.location))
        value = Affine(0, ((register, 1),))
    return [*before, *Cloner(numbering, {node.variable: value}, suffix=suffix).nodes(original)]


def _allocates(nodes: list[Node]) -> bool:
    return any(tensor.memory.on_chip for tensor in begun(nodes))
