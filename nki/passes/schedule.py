"""Order the instructions of every stretch without control flow, so that engines wait less.

The author's order is the meaning: what depends on what follows from it, with the bytes that tensors
have been given. Within that, an engine whose next instruction has to wait may run a later one that
need not. Times are those of the cost model. Where the new order is not faster by them, the
author's order stays.

An operation's instructions stay together. Loops, branches, barriers and register instructions are
not crossed; nor is an operation moved ahead of more than `WINDOW` others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np

from isa.affine import bounds
from isa.columns import Integers, Lists, distinct, elements, joined, numbered_lists
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.fields import Kind
from isa.machine.control import StorageBegin
from isa.spec import Instruction, MachineInstruction, Operation
from isa.target import Target
from nki.ir.nodes import Access, Loop, Register, Tensor
from nki.passes.access_state import Occupants, taken_over
from nki.passes.channels import Context
from nki.passes.dependences import Dependences, carries
from nki.passes.emit import Addresses
from nki.passes.steps import ENGINES, Region, Step
from nki.passes.stretch import Stretch, operation_starts

WINDOW = 128
"""Operations that may be overtaken at once."""

GAIN = 0.98
"""The part of the author's time below which a new order is taken."""

PSUM = Memory.psum


Timing = Sequence[tuple[int, float, float, tuple[float, float, float] | None, str | None]]
"""Of each step of an operation (engine, interval, completion, transfer, table), in ns: the transfer
is (dispatch, work, tail) or None, the table the activation table that it needs, or None."""


class Scheduler:
    """Schedules the body of one core. `context` knows the tensors and their boxes.

    Afterwards `straight` tells whether the body is one stretch, and nothing stays where it is;
    `stretch` is the last one, `dependences` are its, and `order` has the numbers of its steps in
    their new order.
    """

    def __init__(self, context: Context, target: Target, addresses: Addresses) -> None:
        self.context = context
        self.target = target
        self.costs = Costs(target, addresses)
        self.occupants = {Memory.sbuf: Occupants(), Memory.psum: Occupants()}
        self.carried: set[tuple[int, str]] = set()
        self.straight = False
        self.stretch: Stretch | None = None
        self.dependences: Dependences | None = None
        self.order: Integers = np.arange(0)

    def run(self, items: list[Step | Region]) -> list[Step | Region]:
        """The items in their new order; the bodies of regions are changed in place."""
        steps = list(all_steps(items))
        forms = set(map(_FORM, steps))
        looping = any(issubclass(kind, Region) for kind in set(map(type, items)))
        self.straight = not looping and not any(_fixed(*form) for form in forms)
        if self.straight and items:
            stretch = Stretch(steps)
            if any(row.state for row, _ in forms):
                for number in distinct(stretch.operation_kind).first.tolist():
                    self.carried |= carries(stretch.operation(number))
            return list(self._stretch(stretch, frozenset()))
        for start, end in pairwise(operation_starts(steps).tolist()):
            self.carried |= carries(steps[start:end])
        return self._level(items, frozenset())

    def _level(
        self, items: list[Step | Region], variables: frozenset[Register]
    ) -> list[Step | Region]:
        result: list[Step | Region] = []
        stretch: list[Step] = []

        def close() -> None:
            if stretch:
                result.extend(self._stretch(Stretch(stretch.copy()), variables))
                stretch.clear()

        for item in items:
            if isinstance(item, Region):
                close()
                node = item.node
                inner = variables | {node.variable} if isinstance(node, Loop) else variables
                item.body = self._level(item.body, inner)
                result.append(item)
            elif _fixed(item.instruction.row, item.op.row):
                close()
                self._begin_all(item)
                result.append(item)
            else:
                stretch.append(item)
        close()
        return result

    def _begin_all(self, step: Step) -> None:
        """Note the tensors that begin at a step which stays where it is."""
        begun = [tensor for _, tensor in step.begins]
        if step.instruction.row is StorageBegin:
            begun.append(step.accesses[0].storage)
        for tensor in begun:
            self._replaced(tensor)

    def _replaced(self, tensor: Tensor) -> list[Tensor]:
        """The tensors whose bytes a tensor takes over."""
        if not tensor.memory.on_chip:
            return []
        partition, low = self.context.placement[tensor]
        rows = partition + tensor.shape[0]
        high = low + tensor.pitch * DTYPES[tensor.dtype].size
        found = self.occupants[tensor.memory].replace(low, high, partition, rows, tensor)
        return [o for p0, p1, o in found if o is not tensor and p0 < rows and partition < p1]

    def _taken(self, begun: list[Tensor]) -> tuple[Sequence[int], list[Tensor]]:
        """Pairs of the place of a tensor, of those that begin, and one whose bytes it takes."""
        if self.straight:  # so that nothing has begun before
            found = taken_over(begun, self.context.placement)
            if found is not None:
                return found
        pairs = [(at, one) for at, tensor in enumerate(begun) for one in self._replaced(tensor)]
        return [at for at, _ in pairs], [one for _, one in pairs]

    def _stretch(self, stretch: Stretch, variables: frozenset[Register]) -> Iterable[Step]:
        self.stretch = stretch
        steps = stretch.steps
        graph = Dependences(stretch, self.context, self.carried, self._taken, variables)
        self.dependences = graph
        self.order = np.arange(len(steps))
        if stretch.operations.size == 2:
            return steps
        before, after = graph.of_operations()
        timings = self.costs.of(stretch)
        wanted = GAIN * _author_time(timings, before, self.target)
        order, time = _list_schedule(timings, before, after, self.target)
        if time >= wanted:
            return steps
        self.order = elements(stretch.operations, np.array(order, np.int64))[1]
        return [steps[number] for number in self.order.tolist()]


_FORM = attrgetter("instruction.row", "op.row")


def all_steps(items: Iterable[Step | Region]) -> Iterator[Step]:
    """The steps of a body, loops included."""
    for item in items:
        if isinstance(item, Region):
            yield from all_steps(item.body)
        else:
            yield item


def _fixed(row: type[MachineInstruction], operation: type[Operation]) -> bool:
    """Whether nothing moves across a step."""
    return row.control or row is StorageBegin or operation.minimum_cores > 1


# -- times ----------------------------------------------------------------------------------------


class Costs:
    """What steps cost, by the cost model; steps that differ in addresses only cost the same."""

    def __init__(self, target: Target, addresses: Addresses) -> None:
        self.target = target
        self.addresses = addresses
        self._known: dict[Any, Any] = {}

    def of(self, stretch: Stretch) -> list[Timing]:
        """By operation."""
        steps, accesses = stretch.steps, stretch.accesses
        if not accesses.many:
            costs = [self._cost(step) for step in steps]
            return [costs[start:end] for start, end in pairwise(stretch.operations.tolist())]
        psum = np.array([tensor.memory is PSUM for tensor in accesses.tensors], np.bool_)
        view = (2 * accesses.view + psum[accesses.tensor])[accesses.which]
        views = numbered_lists(stretch.starts[stretch.operations], view)
        _, first, which = distinct(joined([stretch.operation_kind, views]))
        timings = [[self._cost(step) for step in stretch.operation(at)] for at in first.tolist()]
        return [timings[number] for number in which.tolist()]

    def _cost(self, step: Step) -> Any:
        """What a step costs, as in `Timing`."""
        instruction = step.instruction
        signature: list[Any] = [instruction.row, step.engine]
        for access in step.accesses:
            in_psum = access.storage.memory is PSUM
            signature.append((in_psum, access.dtype, access.shape, access.strides))
        for index in self._decisive(instruction.row):
            value = instruction.values[index]
            signature.append(getattr(value, "name", value))
        key = tuple(signature)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._measure(step)
        return found

    def _decisive(self, row: type[MachineInstruction]) -> tuple[int, ...]:
        """The positions of the attributes on which times depend."""
        assert row.cost is not None
        functions = (i for i, _, a in row.attributes if a.kind is Kind.activation)
        return (*row.cost.attributes(row), *functions)

    def _measure(self, step: Step) -> Any:
        from simulator.timing.dma import plan_transfer

        instruction = step.instruction
        row = instruction.row
        values = tuple(
            self.addresses.pattern(_largest(value), _NO_REGISTERS)
            if isinstance(value, Access)
            else value
            for value in instruction.values
        )
        sized = Instruction(row, instruction.engine, values)
        assert row.cost is not None
        measured = row.cost.measure(sized, self.target)
        transfer = None
        if row.asynchronous:
            planned = plan_transfer(sized, self.target)
            work = max((ns for _, ns in planned.work), default=0.0)
            transfer = planned.dispatch_ns, work, planned.tail_ns
        tables = [
            instruction.values[index].table_set
            for index, _, attribute in row.attributes
            if attribute.kind is Kind.activation
        ]
        table = tables[0] if tables else None
        return step.engine, measured.interval_ns, measured.completion_ns, transfer, table


_NO_REGISTERS: dict[Register, int] = {}


def _largest(access: Access) -> Access:
    """The view at the largest launch sizes and at the start of its tensor."""
    vector = access.vector_offset
    return Access(
        access.storage,
        access.dtype,
        tuple(_most(count) for count in access.shape),
        tuple(_most(stride) for stride in access.strides),
        0,
        None if vector is None else _largest(vector),
        _most(access.vector_stride),
        _most(access.vector_bound),
    )


def _most(form: Any) -> int:
    if type(form) is int:
        return form
    most = bounds(form)[1]
    return 1 << 16 if most is None else int(most)


class _Clock:
    """The resources while operations are put on them one by one."""

    __slots__ = ("dma", "free", "loading", "signal", "table", "total")

    def __init__(self, target: Target) -> None:
        self.free = [0.0] * ENGINES
        self.dma = 0.0
        self.total = 0.0
        self.signal = target.semaphore_ns.value
        self.table: str | None = None
        self.loading = target.activation_table_load_ns.value

    def run(self, timing: Timing, ready: float) -> float:
        """Put an operation on its engines, no earlier than `ready`; when its results are there."""
        free = self.free
        done = ready
        for engine, interval, completion, transfer, table in timing:
            start = free[engine]
            if table is not None and table != self.table:
                self.table = table
                start += self.loading
            if ready > start:
                start = ready
            free[engine] = start + interval
            if transfer is None:
                end = start + completion
            else:
                dispatch, work, tail = transfer
                begin = max(self.dma, start + interval + dispatch)
                self.dma = begin + work
                end = begin + work + tail
            if end > done:
                done = end
        if done > self.total:
            self.total = done
        return done + self.signal


def _author_time(timings: Sequence[Timing], before: Lists, target: Target) -> float:
    """How long operations take in the author's order."""
    clock = _Clock(target)
    starts, earlier = before.starts.tolist(), before.values.tolist()
    done: list[float] = []
    for timing, (start, end) in zip(timings, pairwise(starts)):
        ready = 0.0
        for number in earlier[start:end]:
            if done[number] > ready:
                ready = done[number]
        done.append(clock.run(timing, ready))
    return clock.total


def _list_schedule(
    timings: Sequence[Timing], before: Lists, after: Lists, target: Target
) -> tuple[list[int], float]:
    """An order in which every engine takes, of the operations that can start first, the author's
    first; and how long it takes."""
    clock = _Clock(target)
    count = len(timings)
    needs = np.diff(before.starts).tolist()  # how many of those before it are missing
    ready = [0.0] * count  # when those that are scheduled will be done
    starts, followers = after.starts.tolist(), after.values.tolist()
    waiting: list[list[tuple[float, int]]] = [[] for _ in range(ENGINES)]
    able: list[list[int]] = [[] for _ in range(ENGINES)]
    held: list[int] = []
    scheduled = bytearray(count)
    first, limit = 0, WINDOW
    order: list[int] = []

    def offer(number: int) -> None:
        if number >= limit:
            heappush(held, number)
        else:
            heappush(waiting[timings[number][0][0]], (ready[number], number))

    for number in np.flatnonzero(np.diff(before.starts) == 0).tolist():
        offer(number)
    while len(order) < count:
        best, when = -1, 0.0
        for engine in range(ENGINES):
            free, late, now = clock.free[engine], waiting[engine], able[engine]
            while late and late[0][0] <= free:
                heappush(now, heappop(late)[1])
            if not now and not late:
                continue
            start = free if now else late[0][0]
            if best < 0 or start < when:
                best, when = engine, start
        number = heappop(able[best]) if able[best] else heappop(waiting[best])[1]
        done = clock.run(timings[number], ready[number])
        scheduled[number] = 1
        order.append(number)
        for follower in followers[starts[number] : starts[number + 1]]:
            if done > ready[follower]:
                ready[follower] = done
            needs[follower] -= 1
            if not needs[follower]:
                offer(follower)
        while first < count and scheduled[first]:
            first += 1
        limit = first + WINDOW
        while held and held[0] < limit:
            number = heappop(held)
            heappush(waiting[timings[number][0][0]], (ready[number], number))
    return order, clock.total
