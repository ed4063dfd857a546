"""Steps with their semaphores become the streams of a program: addresses, registers, branches."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.affine import Affine
from isa.columns import Integers, distinct, joined
from isa.dtypes import DTYPES
from isa.enums import SEQUENCERS, Condition, Engine, Memory
from isa.machine.control import Branch, DrainQueue, Halt, LoopBegin, LoopEnd, Nop
from isa.program import RegisterReference, SourceLocation
from isa.spec import Instruction
from isa.stream import Operands
from nki.ir.nodes import Access, Loop, Register, Tensor, While
from nki.ir.rewrite import form_registers
from nki.passes.steps import ENGINES, Region, Step, check_registers, mentioned
from nki.passes.stretch import Accesses

_RESOLVED = (Access, Register, Affine)
"""Types of field values that the emitter replaces; all others go into the program as they are."""


class OperandColumns(NamedTuple):
    """The operands of accesses: the `different` ones at offset 0, and for each access the number of
    its, and the offset (0 for a symbolic one)."""

    different: list[AccessPattern]
    number: Integers
    offset: Integers


class Addresses:
    """Turns IR accesses into access patterns of one core; remembers them by identity."""

    def __init__(
        self, tensor_index: dict[Tensor, int], placement: dict[Tensor, tuple[int, int]]
    ) -> None:
        self._index = tensor_index
        self._placement = placement
        self._patterns: dict[Any, AccessPattern] = {}
        self._known: dict[int, tuple[Access, AccessPattern]] = {}
        self.operands = Operands()

    def pattern(self, access: Access, registers: dict[Register, int]) -> AccessPattern:
        """The physical access pattern; `registers` maps to the engine's register numbers. On chip,
        plain accesses to the same place are one object."""
        known = self._known.get(id(access))
        if known is not None:
            return known[1]
        tensor = access.storage
        if tensor.pitch and type(access.offset) is int and access.vector_offset is None:
            key = access.geometry, self._placement[tensor]
            found = self._patterns.get(key)
            if found is None:
                found = self._patterns[key] = self._build(access, registers)
            self._known[id(access)] = access, found
            return found
        return self._build(access, registers)

    def columns(self, accesses: Accesses) -> OperandColumns:
        """The operands of accesses without registers, all at once."""
        views = [DTYPES[dtype].size for dtype, _, _ in accesses.views]
        size = np.array(views, np.int64)[accesses.view]
        memory, pitch, start, base = self._tensors(accesses)[:, accesses.tensor]
        on_chip = memory < 0
        partition, free = _within(accesses.offset, np.maximum(pitch // size, 1), size)
        start = np.where(on_chip, start + partition, 0)
        byte = np.where(on_chip, base + free, accesses.offset * size)
        columns = [accesses.view, start, memory - memory.min()]
        rest = np.flatnonzero(~accesses.plain)
        columns.append(np.zeros_like(start))
        columns[-1][rest] = 1 + np.arange(rest.size)
        _, first, number = distinct(joined(columns))
        split = self.operands.split
        different = []
        for at in first.tolist():
            pattern, offset = split(self.pattern(accesses.each[at], _NO_REGISTERS))
            different.append(pattern)
            if not accesses.plain[at]:
                byte[at] = offset or 0
        return OperandColumns(different, number, byte)

    def _tensors(self, accesses: Accesses) -> Integers:
        """By tensor of accesses: its memory, or its number in HBM, which is not negative; and on
        chip its pitch in bytes, its partition and its byte."""
        tensors = list(accesses.tensors)
        _, first, kind = distinct(accesses.tensor_kind)
        like = [tensors[at] for at in first.tolist()]
        forms = [(-1 - _MEMORIES.index(t.memory), t.pitch * DTYPES[t.dtype].size) for t in like]
        memory, pitch = np.array(forms, np.int64)[kind].T
        places = chain.from_iterable(map(self._placement.get, tensors, repeat((0, 0))))
        found = np.array([memory, pitch, *np.fromiter(places, np.int64).reshape(-1, 2).T])
        on_chip = np.array([tensor.memory.on_chip for tensor in like], np.bool_)
        for at in np.flatnonzero(~on_chip[kind]).tolist():
            found[:, at] = self._index[tensors[at]], 0, 0, 0
        return found

    def _build(self, access: Access, registers: dict[Register, int]) -> AccessPattern:
        tensor = access.storage
        offset = access.offset
        vector = access.vector_offset
        on_chip = tensor.memory is Memory.sbuf or tensor.memory is Memory.psum
        size = DTYPES[access.dtype].size
        terms: tuple[tuple[int, Any], ...] = ()
        if isinstance(offset, Affine):
            terms = tuple((registers[r], coefficient * size) for r, coefficient in offset.terms)
            offset = offset.constant
        if on_chip:
            start, base = self._placement[tensor]
            pitch = tensor.pitch * DTYPES[tensor.dtype].size // size
            partition, free = _within(offset, pitch or 1, size)
            return AccessPattern(
                tensor.memory,
                access.dtype,
                base + free,
                tuple(zip(access.strides[1:], access.shape[1:])),
                start + partition,
                access.shape[0],
                -1,
                terms,
                None if vector is None else self.pattern(vector, registers),
                access.vector_stride,
                access.vector_bound,
            )
        return AccessPattern(
            tensor.memory,
            access.dtype,
            offset * size,
            tuple(zip(access.strides, access.shape)),
            tensor=self._index[tensor],
            registers=terms,
            vector_offset=None if vector is None else self.pattern(vector, registers),
            vector_stride=access.vector_stride,
            vector_bound=access.vector_bound,
        )


def _within(offset: Any, pitch: Any, size: Any) -> tuple[Any, Any]:
    """The partition in which an offset on chip is, and the byte there; also of columns."""
    partition, free = divmod(offset, pitch)
    return partition, free * size


_NO_REGISTERS: dict[Register, int] = {}
_MEMORIES = tuple(Memory)


class LocationTable:
    """The source map of a program: a number for every traced location; 0 is "no line"."""

    def __init__(self) -> None:
        self.locations: list[Any] = [None]
        self._places: dict[int, dict[int, int]] = {}
        self._latest: Any = None
        self._latest_number = 0

    def index(self, location: Any) -> int:
        if location is not self._latest:  # most come several times in a row
            self._latest_number = self._number(location)
            self._latest = location
        return self._latest_number

    def _number(self, location: Any) -> int:
        if location is None:
            return 0
        if isinstance(location, SourceLocation):
            known, key = self._places.setdefault(-1, {}), hash(location)
        else:
            # The hash of a code object walks its constants; its identity is as good here.
            code, key = location[0], location[1]
            known = self._places.get(id(code)) or self._places.setdefault(id(code), {})
        number = known.get(key)
        if number is None:
            number = known[key] = len(self.locations)
            self.locations.append(location)
        return number


class RegisterFile:
    """Register numbers of one engine: a register is taken at its first mention and given back
    after its last, or after the loop around it when it outlives an iteration. Those that are
    `unset` when they are read, as far as one knows, share their number with no other, so that it is
    seen when they are."""

    def __init__(self, engine: Engine, limit: int, unset: Set[Register]) -> None:
        self.engine = engine
        self.limit = limit
        self.unset = unset
        self.numbers: dict[Register, int] = {}
        self._free: list[int] = []
        self._used = 0

    def take(self, register: Register, location: Any) -> int:
        number = self.numbers.get(register)
        if number is None:
            if self._free and register not in self.unset:
                number = self._free.pop()
            else:
                number = self._used
                self._used += 1
                check_registers(self._used, self.limit, self.engine, location)
            self.numbers[register] = number
        return number

    def release(self, registers: list[Register]) -> None:
        for register in registers:
            if register in self.unset:
                continue
            number = self.numbers.pop(register, None)
            if number is not None:
                self._free.append(number)


class Emitter:
    """Writes the stream of one engine of one core."""

    def __init__(
        self,
        engine: int,
        addresses: Addresses,
        limit: int,
        locations: LocationTable,
        has_registers: bool,
        unset: Set[Register] = frozenset(),
    ) -> None:
        self.has_registers = has_registers
        self.engine = engine
        self.name = SEQUENCERS[engine]
        self.addresses = addresses
        self.registers = RegisterFile(self.name, limit, unset)
        self.locations = locations
        self.stream: list[Instruction] = []

    def run(self, mine: list[Step | Region]) -> list[Instruction]:
        """The stream for the items that run on this engine."""
        self._items(mine)
        self._append(Halt, (), (), (), None)
        return self.stream

    def _items(self, mine: list[Step | Region]) -> None:
        held = set(self.registers.numbers)
        last = _last_mentions(mine, held) if self.has_registers else {}
        for index, item in enumerate(mine):
            if isinstance(item, Step):
                self._step(item)
            else:
                self._region(item)
            if index in last:
                self.registers.release(last[index])

    def _append(
        self, row: Any, values: tuple[Any, ...], waits: Any, updates: Any, location: Any
    ) -> int:
        self.stream.append(
            Instruction(
                row,
                self.name,
                values,
                merged(waits) if waits else (),
                merged(updates) if updates else (),
                self.locations.index(location),
            )
        )
        return len(self.stream) - 1

    def _step(self, step: Step) -> None:
        instruction = step.instruction
        row, location = instruction.row, instruction.location
        pattern, registers = self.addresses.pattern, self.registers.numbers
        waits: Sequence[tuple[int, int]] = step.waits
        for begin, _ in step.begins:
            values = (pattern(begin.values[0], registers),)
            self._append(begin.row, values, waits, (), begin.location)
            waits = ()
        resolved = list(instruction.values)
        for index in row.register_fields:
            value = resolved[index]
            if isinstance(value, Access) and type(value.offset) is not Affine:
                resolved[index] = pattern(value, registers)
            elif isinstance(value, _RESOLVED):
                resolved[index] = self._value(value, location)
        if step.queue >= 0:
            resolved[row.field_names.index("queue")] = step.queue - ENGINES
        self._append(row, tuple(resolved), waits, step.updates, location)

    def _value(self, value: Any, location: Any) -> Any:
        if isinstance(value, Access):
            if isinstance(value.offset, Affine):
                for register, _ in value.offset.terms:
                    self.registers.take(register, location)
            return self.addresses.pattern(value, self.registers.numbers)
        if isinstance(value, Register):
            return RegisterReference(self.registers.take(value, location))
        if isinstance(value, Affine):
            return self._scalar(value, location)
        return value

    def _scalar(self, value: Affine, location: Any) -> Any:
        """A register for an index form used as a plain value; only `register + 0` occurs."""
        (register, coefficient), *rest = value.terms
        assert coefficient == 1 and not rest and value.constant == 0
        return RegisterReference(self.registers.take(register, location))

    def _region(self, region: Region) -> None:
        node, engine = region.node, self.engine
        enter, primes = region.enter_waits.get(engine, ()), region.primes.get(engine, ())
        if enter or primes:
            self._append(Nop, (), enter, primes, node.location)
        if isinstance(node, Loop):
            variable = self.registers.take(node.variable, node.location)
            lower = self._value(node.lower, node.location)
            upper = self._value(node.upper, node.location)
            begin = self._append(
                LoopBegin,
                (RegisterReference(variable), lower, upper, node.step, 0),
                (),
                (),
                node.location,
            )
            self._items(divided(region.body)[engine])
            self._append(LoopEnd, (begin,), (), (), node.location)
            values = self.stream[begin].values
            self.stream[begin].values = (*values[:-1], len(self.stream))
            self.registers.release([node.variable])
        else:
            self._while(node, region)
        self._leave(region, node.location)

    def _while(self, node: While, region: Region) -> None:
        condition = RegisterReference(self.registers.take(node.register, node.location))
        head = self._append(Branch, (Condition.eq, condition, 0, 0), (), (), node.location)
        self._items(divided(region.body)[self.engine])
        self._append(Branch, (Condition.always, 0, 0, head), (), (), node.location)
        values = self.stream[head].values
        self.stream[head].values = (*values[:-1], len(self.stream))

    def _leave(self, region: Region, location: Any) -> None:
        """Take the tokens that are left, drain queues, then tell the others."""
        waits = region.exit_waits.get(self.engine, ())
        drains = region.drains.get(self.engine, [])
        updates = region.exit_updates.get(self.engine, ())
        for index, queue in enumerate(drains):
            final = index == len(drains) - 1
            self._append(DrainQueue, (queue - ENGINES,), waits, updates if final else (), location)
            waits = ()
        if not drains and (waits or updates):
            self._append(Nop, (), waits, updates, location)


def divided(items: list[Step | Region]) -> list[list[Step | Region]]:
    """The items of every engine."""
    parts: list[list[Step | Region]] = [[] for _ in range(ENGINES)]
    for item in items:
        if isinstance(item, Step):
            parts[item.engine].append(item)
        else:
            for engine in item.engines:
                parts[engine].append(item)
    return parts


def merged(pairs: Any) -> tuple[tuple[int, int], ...]:
    """(semaphore, amount) pairs with the amounts of one semaphore added up."""
    if len(pairs) == 1:
        return (pairs[0],)
    total: dict[int, int] = {}
    for semaphore, amount in pairs:
        total[semaphore] = total.get(semaphore, 0) + amount
    return tuple(sorted(total.items()))


def _last_mentions(items: list[Step | Region], held: set[Register]) -> dict[int, list[Register]]:
    """Registers by the index of the last item of this list that mentions them; those in `held`,
    which an enclosing list defines, stay taken."""
    last: dict[Register, int] = {}
    for index, item in enumerate(items):
        for register in _mentions(item):
            last[register] = index
    result: dict[int, list[Register]] = {}
    for register, index in last.items():
        if register in held:
            continue
        result.setdefault(index, []).append(register)
    return result


def _mentions(item: Step | Region) -> set[Register]:
    if isinstance(item, Step):
        return set(mentioned(item.instruction))
    node = item.node
    found: set[Register] = set()
    if isinstance(node, While):
        found.add(node.register)
    else:
        found.update(form_registers(node.lower))
        found.update(form_registers(node.upper))
    for inner in item.body:
        found |= _mentions(inner)
    if isinstance(node, Loop):
        found.discard(node.variable)
    return found
