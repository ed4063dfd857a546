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
from typing import Any

import numpy as np

from isa.affine import bounds
from isa.columns import Integers, counted, distinct, joined, numbered_lists
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
from nki.passes.stretch import Stretch

WINDOW = 128
"""Operations that may be overtaken at once."""

GAIN = 0.98
"""The part of the author's time below which a new order is taken."""

PSUM = Memory.psum


class Unit:
    """The steps of one operation, and when they can run.

    `followers` are the units that must come after it, by number: `needs` says how many of those
    before it are missing, `ready` when those that are scheduled will be done. `timing` has (engine,
    interval, completion, transfer, table) of each step, in ns; the transfer is (dispatch, work,
    tail) or None, the table the activation table that it needs, or None.
    """

    __slots__ = ("done", "followers", "needs", "ready", "steps", "timing")

    def __init__(self, steps: list[Step], timing: list[Any]) -> None:
        self.steps = steps
        self.timing = timing
        self.followers: list[int] = []
        self.needs = 0
        self.ready = 0.0
        self.done = 0.0


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
        operations = list(by_operation(items))
        forms = {(step.instruction.row, step.op.row) for unit in operations for step in unit}
        if any(row.state for row, _ in forms):
            for unit in operations:
                self.carried |= carries(unit)
        looping = any(isinstance(item, Region) for item in items)
        self.straight = not looping and not any(_fixed(*form) for form in forms)
        if self.straight and items:
            return list(self._stretch(operations, frozenset()))
        return self._level(items, frozenset())

    def _level(
        self, items: list[Step | Region], variables: frozenset[Register]
    ) -> list[Step | Region]:
        result: list[Step | Region] = []
        stretch: list[list[Step]] = []

        def close() -> None:
            if stretch:
                result.extend(self._stretch(stretch, variables))
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
            elif stretch and stretch[-1][-1].op is item.op:
                stretch[-1].append(item)
            else:
                stretch.append([item])
        close()
        return result

    def _begin_all(self, step: Step) -> None:
        """Note the tensors that begin at a step which stays where it is."""
        begun = [tensor for _, tensor in step.begins]
        if step.instruction.row is StorageBegin:
            begun.append(step.accesses[0][0].storage)
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

    def _stretch(
        self, operations: list[list[Step]], variables: frozenset[Register]
    ) -> Iterable[Step]:
        stretch = self.stretch = Stretch([step for steps in operations for step in steps])
        graph = Dependences(operations, stretch, self.context, self.carried, self._taken, variables)
        self.dependences = graph
        self.order = np.arange(len(stretch.steps))
        if len(operations) == 1:
            return operations[0]
        before, after = graph.of_operations()
        costs = iter(self.costs.of(stretch))
        units = [Unit(steps, [next(costs) for _ in steps]) for steps in operations]
        for unit, earlier, later in zip(units, before, after):
            unit.needs = len(earlier)
            unit.followers = later
        wanted = GAIN * _author_time(units, before, self.target)
        order, time = _list_schedule(units, self.target)
        if time >= wanted:
            return stretch.steps
        counts = np.array([len(steps) for steps in operations], np.int64)
        numbers = np.array(order, np.int64)
        moved, within = counted(counts[numbers])
        first: Integers = np.cumsum(counts) - counts
        self.order = first[numbers][moved] + within
        return [stretch.steps[number] for number in self.order.tolist()]


def by_operation(items: list[Step | Region]) -> Iterator[list[Step]]:
    """The steps of every operation, loops included."""
    unit: list[Step] = []
    for item in items:
        if isinstance(item, Region):
            yield from by_operation(item.body)
        elif unit and unit[-1].op is item.op:
            unit.append(item)
        else:
            if unit:
                yield unit
            unit = [item]
    if unit:
        yield unit


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

    def of(self, stretch: Stretch) -> list[Any]:
        """By step (engine, interval, completion, transfer, table): see `Unit`."""
        steps, accesses = stretch.steps, stretch.accesses
        if not accesses.many:
            return [self._cost(step) for step in steps]
        psum = np.array([tensor.memory is PSUM for tensor in accesses.tensors], np.bool_)
        view = (2 * accesses.view + psum[accesses.tensor])[accesses.which]
        views = numbered_lists(stretch.starts, view)
        key = joined([stretch.kind[: len(steps)], views])
        _, first, which = distinct(key)
        costs = [self._cost(steps[at]) for at in first.tolist()]
        return [costs[cost] for cost in which.tolist()]

    def _cost(self, step: Step) -> Any:
        instruction = step.instruction
        signature: list[Any] = [instruction.row, step.engine]
        for access, _ in step.accesses:
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
    """The resources while units are put on them one by one."""

    __slots__ = ("dma", "free", "loading", "signal", "table", "total")

    def __init__(self, target: Target) -> None:
        self.free = [0.0] * ENGINES
        self.dma = 0.0
        self.total = 0.0
        self.signal = target.semaphore_ns.value
        self.table: str | None = None
        self.loading = target.activation_table_load_ns.value

    def run(self, unit: Unit, ready: float) -> float:
        """Put a unit on its engines, no earlier than `ready`; when its results are there."""
        free = self.free
        done = ready
        for engine, interval, completion, transfer, table in unit.timing:
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


def _author_time(units: list[Unit], before: Sequence[Iterable[int]], target: Target) -> float:
    """How long the units take in the author's order."""
    clock = _Clock(target)
    for unit, earlier in zip(units, before):
        ready = 0.0
        for number in earlier:
            if units[number].done > ready:
                ready = units[number].done
        unit.done = clock.run(unit, ready)
    return clock.total


def _list_schedule(units: list[Unit], target: Target) -> tuple[list[int], float]:
    """An order in which every engine takes, of the units that can start first, the author's first;
    and how long it takes."""
    clock = _Clock(target)
    waiting: list[list[tuple[float, int]]] = [[] for _ in range(ENGINES)]
    able: list[list[int]] = [[] for _ in range(ENGINES)]
    held: list[int] = []
    scheduled = bytearray(len(units))
    first, limit = 0, WINDOW
    order: list[int] = []

    def offer(number: int) -> None:
        unit = units[number]
        if number >= limit:
            heappush(held, number)
        else:
            heappush(waiting[unit.timing[0][0]], (unit.ready, number))

    for number, unit in enumerate(units):
        if not unit.needs:
            offer(number)
    while len(order) < len(units):
        best, when = -1, 0.0
        for engine in range(ENGINES):
            free, late, ready = clock.free[engine], waiting[engine], able[engine]
            while late and late[0][0] <= free:
                heappush(ready, heappop(late)[1])
            if not ready and not late:
                continue
            start = free if ready else late[0][0]
            if best < 0 or start < when:
                best, when = engine, start
        number = heappop(able[best]) if able[best] else heappop(waiting[best])[1]
        unit = units[number]
        done = clock.run(unit, unit.ready)
        scheduled[number] = 1
        order.append(number)
        for follower in unit.followers:
            other = units[follower]
            other.ready = max(other.ready, done)
            other.needs -= 1
            if not other.needs:
                offer(follower)
        while first < len(units) and scheduled[first]:
            first += 1
        limit = first + WINDOW
        while held and held[0] < limit:
            number = heappop(held)
            heappush(waiting[units[number].timing[0][0]], (units[number].ready, number))
    return order, clock.total
