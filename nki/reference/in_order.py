"""Tile IR in the author's order as a program: what the reference mode executes.

A core has one stream with the machine instructions of all engines, as they come in its body, so
that nothing waits for anything but for other cores. There are no passes: every tensor on chip has
memory of its own for as long as it may be used. Memories are as large as that takes, and there are
as many registers as the kernel has. Such a program runs as compiled ones do
(`simulator.execute.LoadedProgram`); it is neither timed nor stored, and only its cores can race.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from isa.affine import Affine, Predicate
from isa.enums import Condition, Engine, Memory, RegisterOperation
from isa.errors import NeuronError
from isa.gc_pause import collection_paused
from isa.machine.control import Branch, Halt, LoopBegin, LoopEnd, RegisterAlu
from isa.operations.control import StorageBegin
from isa.program import CoreProgram, Program, RegisterReference
from isa.spec import Instruction
from isa.target import TARGETS, Target
from nki.ir.begins import begun_by
from nki.ir.locations import located
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, TracedKernel, While, operations
from nki.passes.emit.addresses import Addresses
from nki.passes.emit.declarations import hbm_tensors, program_of, storage_records
from nki.passes.emit.location_table import LocationTable
from nki.passes.place.allocate import check_addresses
from nki.passes.place.roots import ResolveRoots
from simulator.device_state import Capacity

_ALIGNMENT = 64
"""Bytes. Rows of different tensors share no line of a cache."""

_PAGE = 4096
"""Bytes of a partition come in whole pages: with what `simulator.device_state` adds to them,
partitions begin in different sets of a cache."""


Source = tuple[Op, int] | None


@dataclass(frozen=True, slots=True)
class OrderedProgram:
    """A program whose instructions run in the author's order, and the memories that it needs.

    `sources` are by core and index the operation of each instruction that computes or moves data,
    and how many such instructions of it come before; None for the others.
    """

    program: Program
    capacity: Capacity
    sources: list[list[Source]]


def in_order(kernel: TracedKernel) -> OrderedProgram:
    """The program of a kernel, with its launch symbols.

    Raises NeuronError for an operation that its target does not have, address-overlap and
    address-out-of-range.

    >>> from isa.files.text import disassemble
    >>> import nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def copy(a):
    ...     tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    ...     b = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    ...     nisa.dma_copy(dst=tile, src=a)
    ...     nisa.dma_copy(dst=b, src=tile)
    ...     return b
    >>> kernel = copy.trace(nki.TensorSpec((4, 8), nl.float32), target="trn2")
    >>> (core,) = in_order(kernel).program.cores
    >>> [instruction.row.name for stream in core.streams.values() for instruction in stream]
    ['StorageBegin', 'DmaCopy', 'DmaCopy', 'Halt']
    """
    kernel = ResolveRoots().run(kernel)
    with collection_paused():
        target = TARGETS[kernel.target]
        check_addresses(kernel)
        index = hbm_tensors(kernel)
        locations = LocationTable()
        given = kernel.placement or {}
        needed = Capacity.of(target)
        cores, sources = [], []
        for body in kernel.bodies:
            core = _Core(target, index, locations, _TensorPlaces(body, given))
            core.block(body, outermost=True)
            core.append(Halt, ())
            records = storage_records(body, locations, core.places.placement)
            cores.append(CoreProgram({Engine.unknown: core.stream}, [], records))
            sources.append(core.sources)
            needed = Capacity(
                max(needed.sbuf, -(-core.places.used[Memory.sbuf] // _PAGE) * _PAGE),
                max(needed.psum, -(-core.places.used[Memory.psum] // _PAGE) * _PAGE),
                max(needed.registers, core.registers.count),
            )
        return OrderedProgram(program_of(kernel, cores, index, locations), needed, sources)


class _TensorPlaces:
    """Where the tensors of a core are on chip.

    What a tensor leaves goes to the next one that covers the same partitions and as many bytes of
    them. So equal operands of a kernel are mostly equal operands of its program. Where registers
    move an access, its tensor shares memory with no other. The author's and the allocator's start
    partitions stay, as engine state belongs to partitions.

    `tensors` are those on chip that an operation mentions, as often as it does.
    """

    def __init__(self, body: list[Node], given: dict[Tensor, tuple[int, int]]) -> None:
        self.placement: dict[Tensor, tuple[int, int]] = {}
        self.used = {Memory.sbuf: 0, Memory.psum: 0}
        self.tensors: dict[Op, list[Tensor]] = {}
        self.mentions: Counter[Tensor] = Counter()
        self._given = given
        self._free: dict[tuple[Any, ...], list[int]] = {}
        self._alone: set[Tensor] = set()
        for op in operations(body):
            self.tensors[op] = self._tensors(op)
        for tensors in self.tensors.values():
            self.mentions.update(tensors)

    def _tensors(self, op: Op) -> list[Tensor]:
        found = []
        for position, _ in op.row.accesses:
            access = op.values[position]
            while isinstance(access, Access):
                tensor = access.storage
                if tensor.memory.on_chip:
                    found.append(tensor)
                if type(access.offset) is Affine:
                    self._alone.add(tensor)
                access = access.vector_offset
        return found

    def begin(self, tensor: Tensor) -> None:
        """Give a tensor its place, unless it has one."""
        if tensor in self.placement:
            return
        form = self._form(tensor)
        free = self._free.get(form)
        if free:
            offset = free.pop()
        else:
            memory, size = tensor.memory, form[3]
            offset = self.used[memory]
            self.used[memory] = offset + -(-size // _ALIGNMENT) * _ALIGNMENT
        self.placement[tensor] = form[1], offset

    def end(self, tensor: Tensor) -> None:
        """Nothing uses a tensor any more."""
        self._free.setdefault(self._form(tensor), []).append(self.placement[tensor][1])

    def _form(self, tensor: Tensor) -> tuple[Any, ...]:
        start, _ = self._given.get(tensor) or tensor.address or (0, 0)
        size = tensor.row_bytes
        alone = tensor if tensor in self._alone else None
        return tensor.memory, start, tensor.shape[0], size, alone


class _Numbers(dict[Register, int]):
    """A number for every register, given at its first mention."""

    def __init__(self) -> None:
        self.count = 0

    def __missing__(self, register: Register) -> int:
        number = self[register] = self.another()
        return number

    def another(self) -> int:
        """The number of a register for a value that the kernel has no name for."""
        self.count += 1
        return self.count - 1


class _Core:
    """Writes the stream of one core."""

    def __init__(
        self,
        target: Target,
        index: dict[Tensor, int],
        locations: LocationTable,
        places: _TensorPlaces,
    ) -> None:
        self.target = target
        self.places = places
        self.registers = _Numbers()
        self.stream: list[Instruction] = []
        self.sources: list[Source] = []
        self._addresses = Addresses(index, places.placement)
        self._locations = locations

    def append(
        self,
        row: Any,
        values: tuple[Any, ...],
        location: Any = None,
        engine: Engine = Engine.unknown,
        source: Source = None,
    ) -> int:
        """Add an instruction; gives its index."""
        number = self._locations.index(location)
        self.stream.append(Instruction(row, engine, values, (), (), number))
        self.sources.append(source)
        return len(self.stream) - 1

    def block(self, nodes: list[Node], outermost: bool = False) -> None:
        """The instructions of a body. Tensors that only it uses give their memory back behind the
        last of its nodes that does; an iteration begins them again."""
        tensors = self.places.tensors
        mentions: Counter[Tensor] = Counter()
        last: dict[Tensor, int] = {}
        begun = set()
        for position, node in enumerate(nodes):
            begins = isinstance(node, Op) and node.row is StorageBegin
            for op in (node,) if isinstance(node, Op) else operations(node.body):
                for tensor in tensors[op]:
                    if begins and tensor not in last:
                        begun.add(tensor)
                    last[tensor] = position
                    mentions[tensor] += 1
        ends: dict[int, list[Tensor]] = {}
        for tensor, position in last.items():
            if tensor in begun and mentions[tensor] == self.places.mentions[tensor]:
                ends.setdefault(position, []).append(tensor)
        for position, node in enumerate(nodes):
            if isinstance(node, Op):
                # HBM holds nothing at the start: another core may have written to it already. Parts
                # of a tensor take bytes over.
                mine = begun_by(node) if outermost and not tensors[node] else None
                if mine is None or mine.divided:
                    self._op(node)
            elif isinstance(node, Loop):
                self._loop(node)
            else:
                self._while(node)
            for tensor in ends.get(position, ()):
                self.places.end(tensor)

    def _op(self, op: Op) -> None:
        for tensor in self.places.tensors[op]:
            self.places.begin(tensor)
        part = 0
        try:
            values = op.row.resolve(op.values, self.target)
            for instruction in op.row.expand(values, self.target):
                control = instruction.row.control
                source = None if control else (op, part)
                self._instruction(instruction, list(instruction.values), op.location, source)
                part += not control
        except NeuronError as error:
            raise located(error, op.location) from None

    def _instruction(
        self, instruction: Instruction, values: list[Any], location: Any, source: Source
    ) -> None:
        """An instruction of an operation; one for each outcome of a condition on registers or
        launch symbols."""
        for position, value in enumerate(values):
            if isinstance(value, Predicate):
                self._choice(instruction, values, position, location, source)
                return
        row = instruction.row
        for position in row.register_fields:
            value = values[position]
            if isinstance(value, Access):
                values[position] = self._addresses.pattern(value, self.registers)
            elif value is not None and type(value) is not int:
                values[position] = self._number(value, location)
        self.append(row, tuple(values), location, instruction.engine, source)

    def _choice(
        self,
        instruction: Instruction,
        values: list[Any],
        position: int,
        location: Any,
        source: Source,
    ) -> None:
        predicate = values[position]
        left = self._number(predicate.form, location)
        outcomes = [[*values[:position], holds, *values[position + 1 :]] for holds in (True, False)]
        condition = _CONDITIONS[predicate.negate().op]
        head = self.append(Branch, (condition, left, 0, 0), location)
        self._instruction(instruction, outcomes[0], location, source)
        leave = self.append(Branch, (Condition.always, 0, 0, 0), location)
        self._lead_here(head)
        self._instruction(instruction, outcomes[1], location, source)
        self._lead_here(leave)

    def _loop(self, node: Loop) -> None:
        lower, upper = (self._number(form, node.location) for form in (node.lower, node.upper))
        variable = RegisterReference(self.registers[node.variable])
        begin = self.append(LoopBegin, (variable, lower, upper, node.step, 0), node.location)
        self.block(node.body)
        self.append(LoopEnd, (begin,), node.location)
        self._lead_here(begin)

    def _while(self, node: While) -> None:
        condition = RegisterReference(self.registers[node.register])
        begin = len(self.stream)
        leave = self.append(Branch, (Condition.eq, condition, 0, 0), node.location)
        self.block(node.body)
        self.append(Branch, (Condition.always, 0, 0, begin), node.location)
        self._lead_here(leave)

    def _lead_here(self, branch: int) -> None:
        """A branch, or the end of a loop, goes on with the next instruction."""
        values = self.stream[branch].values
        self.stream[branch].values = (*values[:-1], len(self.stream))

    def _number(self, value: Any, location: Any) -> Any:
        """A value as an instruction has it: a number, or the register that holds it."""
        if isinstance(value, Register):
            return RegisterReference(self.registers[value])
        if not isinstance(value, Affine):
            return value
        total: Any = None
        for register, coefficient in value.terms:
            term = RegisterReference(self.registers[register])
            if type(coefficient) is not int or coefficient != 1:
                term = self._computed(RegisterOperation.multiply, term, coefficient, location)
            if total is None:
                total = term
            else:
                total = self._computed(RegisterOperation.add, total, term, location)
        if type(value.constant) is int and value.constant == 0:
            return total
        return self._computed(RegisterOperation.add, total, value.constant, location)

    def _computed(
        self, operation: RegisterOperation, left: Any, right: Any, location: Any
    ) -> RegisterReference:
        result = RegisterReference(self.registers.another())
        self.append(RegisterAlu, (result, operation, left, right), location)
        return result


_CONDITIONS = {
    "<": Condition.lt,
    "<=": Condition.le,
    ">": Condition.gt,
    ">=": Condition.ge,
    "==": Condition.eq,
    "!=": Condition.ne,
}
