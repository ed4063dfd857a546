"""Order the instructions of every stretch without control flow, so that engines wait less.

The author's order is the meaning: what depends on what follows from it, with the bytes that tensors
have been given. Within that, an engine whose next instruction has to wait may run a later one that
need not. Times are those of the cost model. Where the new order is not faster by them, the
author's order stays.

An operation's instructions stay together. Loops, branches, barriers and register instructions are
not crossed; nor is an operation moved ahead of more than `WINDOW` others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from heapq import heappop, heappush
from typing import Any

from isa.affine import bounds
from isa.dtypes import DTYPES
from isa.enums import Memory, ReduceCommand
from isa.fields import Kind
from isa.machine.control import StorageBegin
from isa.machine.scalar import TABLE
from isa.spec import Instruction, MachineInstruction
from isa.target import Target
from nki.ir.nodes import Access, Loop, Op, Register, Tensor
from nki.passes.access_state import Occupants, Tiles
from nki.passes.channels import Context
from nki.passes.emit import Addresses
from nki.passes.footprint import WHOLE, Box, may_overlap
from nki.passes.steps import ENGINES, Region, Step

WINDOW = 128
"""Operations that may be overtaken at once."""

GAIN = 0.98
"""The part of the author's time below which a new order is taken."""

_RESETS = frozenset({ReduceCommand.reset, ReduceCommand.reset_reduce, ReduceCommand.load_reduce})
PSUM = Memory.psum


class Unit:
    """The steps of one operation, and when they can run.

    `units` before it and after it, by number: `needs` says how many of the former are missing,
    `ready` when those that are scheduled will be done. `timing` has (engine, interval, completion,
    transfer, table) of each step, in ns; the transfer is (dispatch, work, tail) or None, the table
    the activation table that it needs, or None.
    """

    __slots__ = ("done", "followers", "needs", "ready", "steps", "timing")

    def __init__(self, steps: list[Step], timing: list[Any]) -> None:
        self.steps = steps
        self.timing = timing
        self.followers: list[int] = []
        self.needs = 0
        self.ready = 0.0
        self.done = 0.0


class _Uses:
    """What a stretch has done with one region of a tensor: the last write, the reads since."""

    __slots__ = ("box", "reads", "write")

    def __init__(self, box: Box) -> None:
        self.box = box
        self.write = -1
        self.reads: list[int] = []


class Scheduler:
    """Schedules the body of one core. `context` knows the tensors and their boxes."""

    def __init__(self, context: Context, target: Target, addresses: Addresses) -> None:
        self.context = context
        self.target = target
        self.costs = Costs(target, addresses)
        self.occupants = {Memory.sbuf: Occupants(), Memory.psum: Occupants()}
        self.carried: set[tuple[int, str]] = set()

    def run(self, items: list[Step | Region]) -> list[Step | Region]:
        """The items in their new order; the bodies of regions are changed in place."""
        for unit in by_operation(items):
            self.carried |= carries(unit)
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
            elif _fixed(item):
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

    def _stretch(
        self, operations: list[list[Step]], variables: frozenset[Register]
    ) -> Iterable[Step]:
        units = [Unit(steps, [self.costs.of(step) for step in steps]) for steps in operations]
        graph = Dependences(units, self.context, self.carried, self._replaced, variables)
        for number, unit in enumerate(units):
            graph.enter(number, unit)
        if len(units) == 1:
            return operations[0]
        wanted = GAIN * _author_time(units, graph.before, self.target)
        order, time = _list_schedule(units, self.target)
        if time < wanted:
            return [step for number in order for step in units[number].steps]
        return [step for steps in operations for step in steps]


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


def _fixed(step: Step) -> bool:
    """Whether nothing moves across a step."""
    row = step.instruction.row
    return row.control or row is StorageBegin or step.op.row.minimum_cores > 1


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


_NOTHING: set[tuple[int, str]] = set()


@cache
def _commands(row: Any) -> list[int]:
    return [i for i, _, attribute in row.attributes if attribute.kind is Kind.reduce_command]


def carries(unit: list[Step]) -> set[tuple[int, str]]:
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


class Dependences:
    """Enters, unit by unit in the author's order, which earlier units each one must follow.

    `carried` is the engine state that passes from one operation to another, `replaced` gives the
    tensors whose bytes a tensor takes over, `variables` are those of the loops around.
    """

    def __init__(
        self,
        units: list[Unit],
        context: Context,
        carried: set[tuple[int, str]],
        replaced: Callable[[Tensor], list[Tensor]],
        variables: frozenset[Register],
    ) -> None:
        self.units = units
        self.context = context
        self.carried = carried
        self.replaced = replaced
        self.variables = variables
        self.before: list[set[int]] = []
        self.regions: dict[Tensor, Tiles[_Uses]] = {}
        self.users: dict[Tensor, list[int]] = {}
        self.states: dict[tuple[int, str], int] = {}
        self.by_op: dict[Op, int] = {}

    def enter(self, number: int, unit: Unit) -> None:
        found: set[int] = set()
        carried = self.carried
        for step in unit.steps:
            for _, tensor in step.begins:
                self._begin(number, tensor, found)
            boxes = self.context.boxes_of(step, self.variables)
            for (access, writes), box in zip(step.accesses, boxes):
                if box is not None:
                    self._access(number, access.storage, box, writes, found)
            if carried and step.instruction.row.state:
                for name, _ in engine_states(step.instruction):
                    key = step.engine, name
                    if key in carried:
                        found.add(self.states.get(key, number))
                        self.states[key] = number
            if step.after:
                found.update([self.by_op.get(op, number) for op in step.after])
        found.discard(number)
        self.by_op[unit.steps[0].op] = number
        unit.needs = len(found)
        for earlier in found:
            self.units[earlier].followers.append(number)
        self.before.append(found)

    def _begin(self, number: int, tensor: Tensor, found: set[int]) -> None:
        found.update(self.users.get(tensor, ()))
        for other in self.replaced(tensor):
            found.update(self.users.get(other, ()))
        uses = _Uses(WHOLE)
        uses.write = number
        self._replace(tensor, uses)
        self.users[tensor] = [number]

    def _replace(self, tensor: Tensor, uses: _Uses) -> None:
        """Make `uses` all that counts of a tensor."""
        regions = self.regions[tensor] = Tiles()
        regions.add(uses)

    def _access(self, number: int, tensor: Tensor, box: Box, writes: bool, found: set[int]) -> None:
        regions = self.regions.get(tensor)
        if regions is None:
            regions = self.regions[tensor] = Tiles()
            self.users[tensor] = [number]
        else:
            self.users[tensor].append(number)
        own = None
        records = regions.records
        if len(records) > 4:
            records = regions.candidates(box)
        for uses in records:
            if uses.box is box:
                own = uses
            elif (uses.write < 0 and not writes) or not may_overlap(uses.box, box):
                continue
            if uses.write >= 0:
                found.add(uses.write)
            if writes and uses.reads:
                found.update(uses.reads)
        if own is None:
            own = _Uses(box)
            regions.add(own)
        if writes:
            own.write = number
            own.reads = []
            if len(regions.records) > 1 and box.covers(tensor):
                # Whatever follows it follows what came before.
                self._replace(tensor, own)
        else:
            own.reads.append(number)


# -- times ----------------------------------------------------------------------------------------


class Costs:
    """What steps cost, by the cost model; steps that differ in addresses only cost the same."""

    def __init__(self, target: Target, addresses: Addresses) -> None:
        self.target = target
        self.addresses = addresses
        self._known: dict[Any, Any] = {}
        self._decisive: dict[type[MachineInstruction], tuple[int, ...]] = {}

    def of(self, step: Step) -> Any:
        """(engine, interval, completion, transfer, table): see `Unit`."""
        instruction = step.instruction
        row, values = instruction.row, instruction.values
        decisive = self._decisive.get(row)
        if decisive is None:
            assert row.cost is not None
            functions = (i for i, _, a in row.attributes if a.kind is Kind.activation)
            decisive = self._decisive[row] = (*row.cost.attributes(row), *functions)
        key: list[Any] = [row, step.engine]
        for access, _ in step.accesses:
            key += (access.storage.memory is PSUM, access.dtype, access.shape, access.strides)
        for index in decisive:
            key.append(getattr(values[index], "name", values[index]))
        signature = tuple(key)
        found = self._known.get(signature)
        if found is None:
            found = self._known[signature] = self._measure(step)
        return found

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


def _author_time(units: list[Unit], before: list[set[int]], target: Target) -> float:
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
