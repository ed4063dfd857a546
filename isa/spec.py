"""The two kinds of table row: `Operation` (public API, tile IR) and `MachineInstruction`.

A row is a class; its body is the schema (fields in order), its docstring the reference text.
Defining the class enters it into the table. A class without a name, or without an opcode, is no row
but what several rows have in common. Rows take over the fields of a row that they derive from.
`Instruction` is one use of a machine row: in a compiled program its operands are
`isa.access.AccessPattern`s, during lowering tile-IR accesses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from isa.enums import Engine
from isa.fields import HBM, REQUIRED, Attribute, EngineState, Field, Kind, Operand, Several
from isa.meaning import AffineNumber, contains

if TYPE_CHECKING:
    from isa.cost_formula import Cost
    from isa.meaning import Meaning
    from isa.rules.form import Rule, Suspicion
    from isa.target import Target


Meeting = tuple[str, tuple[int, ...]]
"""A place where cores wait for each other: what tells it from others, and the cores."""

ISA = "nki/api/nki.isa.rst#nki.isa."
"""Where the documents describe operations: behind it comes a name."""


class Row:
    """Common to both tables: the fields of a class body, in order, with derived indices."""

    name: ClassVar[str]
    fields: ClassVar[dict[str, Field]] = {}
    field_names: ClassVar[tuple[str, ...]] = ()
    places: ClassVar[dict[str, int]] = {}
    """Where each field stands among the values of a use."""
    operands: ClassVar[tuple[tuple[int, str, Operand], ...]] = ()
    attributes: ClassVar[tuple[tuple[int, str, Attribute], ...]] = ()
    reads: ClassVar[tuple[int, ...]] = ()
    writes: ClassVar[tuple[int, ...]] = ()
    hbm_writes: ClassVar[tuple[int, ...]] = ()
    """Indices of the operands that may be written in HBM."""
    accesses: ClassVar[tuple[tuple[int, bool], ...]] = ()
    """(index, whether it is written) of every operand."""
    banked: ClassVar[tuple[int, ...]] = ()
    """Indices of the operands that lie in one PSUM bank before gen4."""
    lane_fields: ClassVar[tuple[int, ...]] = ()
    """Indices of the attributes that say how far behind dst's the accumulate registers are."""
    register_fields: ClassVar[tuple[int, ...]] = ()
    """Indices of the fields whose values can mention a register: operands (in their offsets),
    registers and values."""
    register_writes: ClassVar[tuple[int, ...]] = ()
    """Indices of the registers that are written."""
    document: ClassVar[str] = ""
    engines: ClassVar[tuple[Engine, ...]] = ()
    state: ClassVar[tuple[EngineState, ...]] = ()
    meets: ClassVar[bool] = False
    """Whether cores wait for each other at a use of the row."""
    apart: ClassVar[bool] = False
    """Whether such waits at one place do not hold up those at others."""

    @classmethod
    def meeting(cls, values: tuple[Any, ...], core: int) -> Meeting:
        """Where core `core` waits at this use, for rows that do."""
        return "", (core,)

    def __init_subclass__(cls) -> None:
        own: dict[str, Field] = {}
        for name, value in vars(cls).items():
            if isinstance(value, (Operand, Attribute)):
                own[name] = value
            elif isinstance(value, Several):
                own |= value.fields
        if not own and "machine" in vars(cls):
            own = vars(cls)["machine"].fields
        cls.fields = cls.fields | own
        cls.field_names = tuple(cls.fields)
        cls.places = {name: place for place, name in enumerate(cls.fields)}
        numbered = list(enumerate(cls.fields.items()))
        cls.operands = tuple((i, n, f) for i, (n, f) in numbered if isinstance(f, Operand))
        cls.attributes = tuple((i, n, f) for i, (n, f) in numbered if isinstance(f, Attribute))
        cls.reads = tuple(i for i, _, f in cls.operands if f.role.reads)
        cls.writes = tuple(i for i, _, f in cls.operands if f.role.writes)
        cls.hbm_writes = tuple(i for i, _, f in cls.operands if f.role.writes and f.memories & HBM)
        cls.accesses = tuple((i, f.role.writes) for i, _, f in cls.operands)
        cls.banked = tuple(i for i, _, f in cls.operands if f.one_bank)
        cls.lane_fields = tuple(i for i, _, f in cls.attributes if f.lanes)
        cls.register_writes = tuple(i for i, _, f in cls.attributes if f.kind is Kind.register)
        cls.register_fields = tuple(
            i
            for i, (_, f) in numbered
            if isinstance(f, Operand) or f.kind in (Kind.register, Kind.value)
        )


class Operation(Row):
    """A row of the operation table: what the public API, the tile IR and the user know.

    Values of one use are a tuple aligned with `field_names`.
    """

    rules: ClassVar[tuple[Rule, ...]] = ()
    suspicions: ClassVar[tuple[Suspicion, ...]] = ()
    """What uses are warned of; those are looked at again at each call."""
    generations: ClassVar[tuple[int, ...]] = (2, 3, 4)
    public: ClassVar[bool] = True
    lists: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Parameters of the public function that take a list: its items go to these fields, in order;
    those that are left over hold None."""
    variants: ClassVar[tuple[str, ...]] = ()
    """Flags and modes that decide into which machine instructions a use expands, besides engines
    and optional operands."""
    machine: ClassVar[type[MachineInstruction]]
    """The machine instruction that a use is, of rows that do not say how they `expand`. A row
    without fields has those of the instruction."""
    minimum_cores: ClassVar[int] = 1
    """Physical cores that the launch must have for the operation to make sense."""
    _engine_at: ClassVar[int] = -1
    """Where the engine stands among the fields, of rows that have one."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        names = cls.field_names
        listed = {n: value.names for n, value in vars(cls).items() if isinstance(value, Several)}
        cls.lists = cls.lists | listed
        cls._engine_at = names.index("engine") if "engine" in names else -1
        if "name" in vars(cls):
            OPERATIONS[cls.name] = cls
            if cls.public and not cls.document:
                cls.document = ISA + cls.name

    @classmethod
    def parameters(cls) -> dict[str, tuple[str, ...]]:
        """The parameters of the public function, in order, and the fields that each goes to."""
        listed = {fields[0]: name for name, fields in cls.lists.items()}
        later = {field for fields in cls.lists.values() for field in fields[1:]}
        return {
            listed.get(name, name): cls.lists.get(listed.get(name, ""), (name,))
            for name in cls.field_names
            if name not in later
        }

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Target) -> tuple[Any, ...]:
        """Replace choices left open (engine, descriptor mode) by those that fix the numerics. Here:
        an engine that is left open is the first of the row's."""
        at = cls._engine_at
        if at < 0 or values[at] is not Engine.unknown:
            return values
        return (*values[:at], cls.engines[0], *values[at + 1 :])

    @classmethod
    def starters(cls, values: tuple[Any, ...]) -> tuple[Engine, ...]:
        """The engines that may start a transfer whose call leaves that open, the usual one first;
        none where there is no choice."""
        return ()

    @classmethod
    def started(cls, values: tuple[Any, ...], engine: Engine) -> tuple[Any, ...]:
        """The values of a call that names the engine which starts a transfer."""
        return values

    @classmethod
    def signature_decides(cls, values: tuple[Any, ...]) -> bool:
        """Whether the verdict on a use holds for every use with the same memories, dtypes, shapes,
        start partitions and attributes, and need not be found again."""
        return True

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Target) -> Iterable[Instruction]:
        """The machine instructions of one use, in order, on the same operand objects. Here: one
        `machine`, with all values but that of `engine`, which it runs on; without such a field on
        the only engine that the row has, or on any."""
        at = cls._engine_at
        if at >= 0:
            return (Instruction(cls.machine, values[at], values[:at] + values[at + 1 :]),)
        engine = cls.engines[0] if len(cls.engines) == 1 else Engine.unknown
        return (Instruction(cls.machine, engine, values),)


class MachineInstruction(Row):
    """A row of the machine-instruction table: what a program, the encoding, an engine and the
    timing model know. `opcode` is ours (the vendor's encoding is not public)."""

    opcode: ClassVar[int]
    cost: ClassVar[Cost | None] = None
    asynchronous: ClassVar[bool] = False
    control: ClassVar[bool] = False
    one_quadrant: ClassVar[bool] = False
    """Whether operands must start in the same quadrant of 32 partitions as one another."""
    meaning: ClassVar[Meaning | None] = None
    """What it computes, of rows that compute element by element in fp32."""
    by_row: ClassVar[bool] = False
    """Whether it goes through each row of what it reads once, from its first element on."""
    by_partition: ClassVar[bool] = False
    """Whether what a partition gets is made of operands in the same partition, whatever its number,
    as the meaning of a row says if it has one. Rows that leave something in an accumulate register,
    or take it from there, may be of these."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "opcode" not in vars(cls):
            return
        cls.name = cls.__name__
        if cls.meaning is not None:
            cls.by_partition = not contains(cls.meaning.result, AffineNumber)
        if cls.opcode in {row.opcode for row in MACHINE_INSTRUCTIONS.values()}:
            raise ValueError(f"{cls.name}: opcode {cls.opcode:#x} is taken")
        MACHINE_INSTRUCTIONS[cls.name] = cls


OPERATIONS: dict[str, type[Operation]] = {}
MACHINE_INSTRUCTIONS: dict[str, type[MachineInstruction]] = {}


@dataclass(slots=True, repr=False)
class Instruction:
    """One instruction: row, engine, field values, semaphore waits and updates, source location.

    `waits`: (semaphore, amount) pairs. The instruction issues when every semaphore holds at least
    its amount, and takes that amount off. `updates`: (semaphore, amount) pairs added when it (for
    a DMA: its last byte) completes. `location` indexes the program's source map, or is a tracer
    location during lowering.
    """

    row: type[MachineInstruction]
    engine: Engine
    values: tuple[Any, ...]
    waits: tuple[tuple[int, int], ...] = ()
    updates: tuple[tuple[int, int], ...] = ()
    location: Any = 0

    @property
    def fields(self) -> dict[str, Any]:
        """The values by field."""
        return dict(zip(self.row.field_names, self.values))

    def value(self, field: str) -> Any:
        """The value of one field."""
        return self.values[self.row.places[field]]

    def __repr__(self) -> str:
        fields = " ".join(f"{n}={v!r}" for n, v in self.fields.items())
        return f"<{self.engine.name} {self.row.name} {fields}>"


def defaults(row: type[Row]) -> dict[str, Any]:
    """Default value of every field that has one."""
    return {n: f.default for n, f in row.fields.items() if f.default is not REQUIRED}
