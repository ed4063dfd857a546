"""How a row of the operation or machine-instruction table declares its fields.

A row is a class whose body lists fields in order: `Operand`s (tensors an instruction reads or
writes) and `Attribute`s (everything else). `isa.spec` collects them; all that derives from a row
(signatures, checks, footprints, encoding, text, pages) walks these objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from isa.enums import (
    Condition,
    DgeMode,
    DmaEngine,
    Engine,
    MatmulPerfMode,
    Memory,
    OobMode,
    ReduceCommand,
    RegisterOperation,
)

REQUIRED: Any = object()
"""Default of a field that the caller must give."""

SBUF = frozenset({Memory.sbuf})
PSUM = frozenset({Memory.psum})
ON_CHIP = SBUF | PSUM
HBM = frozenset({Memory.private_hbm, Memory.shared_hbm})
SHARED_HBM = frozenset({Memory.shared_hbm})
SBUF_OR_HBM = SBUF | HBM
ANY_MEMORY = ON_CHIP | HBM

ANY_PARTITION = tuple(range(32))
"""For `Operand.starts`: transfers reach every partition."""


class Role(Enum):
    """What an instruction does with an operand's elements."""

    read = "read"
    write = "write"
    update = "update"

    @property
    def reads(self) -> bool:
        return self is not Role.write

    @property
    def writes(self) -> bool:
        return self is not Role.read


class Kind(Enum):
    """Type of an attribute's value; the encoding, the text form and the checks key on it."""

    flag = "flag"  # bool
    integer = "integer"  # int (32 bits, signed); a launch-symbol polynomial until loading
    float32 = "float32"  # float, rounded to fp32
    alu = "alu"  # isa.alu.AluOperator, or None
    activation = "activation"  # isa.alu.ScalarEngineFunction
    pattern = "pattern"  # tuple of (step, count) pairs
    integers = "integers"  # tuple of int
    numbers = "numbers"  # tuple of int or float; in operations only
    register = "register"  # a register that the instruction writes
    value = "value"  # int, polynomial, or a register that the instruction reads
    target = "target"  # index of an instruction in the same stream
    accumulate = "accumulate"  # None (infer), bool
    engine = "engine"
    reduce_command = "reduce_command"
    dge_mode = "dge_mode"
    dma_engine = "dma_engine"
    oob_mode = "oob_mode"
    perf_mode = "perf_mode"
    condition = "condition"
    register_operation = "register_operation"
    number = "number"  # int or float, as the destination's dtype takes it
    priority = "priority"  # None or 0..3
    array_tile = "array_tile"  # isa.array_tiles.ArrayTile; in machine instructions only


ENUM_KINDS: dict[Kind, type[Enum]] = {
    Kind.engine: Engine,
    Kind.reduce_command: ReduceCommand,
    Kind.dge_mode: DgeMode,
    Kind.dma_engine: DmaEngine,
    Kind.oob_mode: OobMode,
    Kind.perf_mode: MatmulPerfMode,
    Kind.condition: Condition,
    Kind.register_operation: RegisterOperation,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tensor operand.

    `column`: one element a partition, broadcast along the free dimensions.
    `immediate`: a number may stand in its place. `columns`: on chip, indices may pick its columns
    (gen4). `vector_offset`: the operand may carry
    per-partition row indices (gather or scatter); `index_columns`: in several columns, taken one
    after the other. `one_bank`: before gen4, its bytes of a partition
    lie in one PSUM bank. `starts`: where in a quadrant of 32 partitions it may start, if not where
    engines' accesses usually do. `permuted`: elements of the result come from other places of it,
    so that no result can be written where it lies.
    """

    role: Role
    memories: frozenset[Memory]
    dtypes: frozenset[str] | None = None
    optional: bool = False
    immediate: bool = False
    column: bool = False
    vector_offset: bool = False
    columns: bool = False
    index_columns: bool = False
    one_bank: bool = False
    starts: tuple[int, ...] | None = None
    permuted: bool = False
    default: Any = REQUIRED
    doc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A field that is not a tensor. `choices` limits an enum or ALU attribute, `limits` (least,
    most) a number. `lanes`: it says how many partitions behind the destination's the accumulate
    registers are."""

    kind: Kind
    optional: bool = False
    choices: tuple[Any, ...] | None = None
    limits: tuple[int, int] | None = None
    lanes: bool = False
    default: Any = REQUIRED
    doc: str = ""


INT32 = (-(1 << 31), (1 << 31) - 1)
"""The limits of 32-bit integers."""

REGISTER = (-(1 << 31), (1 << 32) - 1)
"""The limits of what a register of 32 bits may be given."""

Field = Operand | Attribute


def Read(memories: frozenset[Memory] = ON_CHIP, **options: Any) -> Operand:
    """An operand whose elements are read."""
    return Operand(role=Role.read, memories=memories, **options)


def Write(memories: frozenset[Memory] = ON_CHIP, **options: Any) -> Operand:
    """An operand whose elements are all overwritten."""
    return Operand(role=Role.write, memories=memories, **options)


def Update(memories: frozenset[Memory] = ON_CHIP, **options: Any) -> Operand:
    """An operand that is read and (partly) written."""
    return Operand(role=Role.update, memories=memories, **options)


@dataclass(frozen=True, slots=True)
class Several:
    """Up to so many fields alike, in the place of one: `name` with a number behind it. The first
    one is required."""

    name: str
    most: int
    field: Operand

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}{number}" for number in range(self.most))

    @property
    def fields(self) -> dict[str, Operand]:
        """The fields by name."""
        others = replace(self.field, optional=True)
        return {name: others if at else self.field for at, name in enumerate(self.names)}


@dataclass(frozen=True, slots=True)
class EngineState:
    """Engine-internal state that a row reads or writes; orders instructions of one engine.

    `idle`: whether it does so too where its reduce command is idle.
    """

    name: str
    reads: bool = True
    writes: bool = True
    idle: bool = True
    doc: str = field(default="")
