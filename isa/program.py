"""A compiled program: instruction streams of every core, HBM tensors, symbols, source map.

Everything in a program is data. Integer fields may be polynomials in launch symbols
(`isa.affine.Polynomial`) until `bind` replaces them by their values for one launch.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any

from isa.access import AccessPattern
from isa.enums import Engine
from isa.spec import Instruction


@dataclass(frozen=True, slots=True)
class RegisterReference:
    """Register `number` of the engine that runs the instruction (0..63)."""

    number: int

    def __repr__(self) -> str:
        return f"R{self.number}"


ROLES = ("input", "output", "inout", "internal", "constant")
"""What a tensor in HBM is to its program."""


SPILLED = ".home"
"""How the name of a tensor ends that holds what an on-chip memory had no room for."""


@dataclass(slots=True)
class TensorDeclaration:
    """A tensor in HBM.

    `role`: "input", "output", "inout" (an input that the kernel updates), "internal" or
    "constant" (then `data` holds its bytes). `core` is None for shared HBM, else the core that
    owns it. `shape` entries are ints or polynomials; layout is row-major. `location` indexes the
    program's source map: the line that made the tensor. One that lies `within` another, by its
    number, has the bytes of that one from `offset` on: arguments and results may be there, and
    messages know it. Instructions name the other one, which has memory of its own.
    """

    name: str
    dtype: str
    shape: tuple[Any, ...]
    role: str
    core: int | None = None
    data: bytes | None = None
    location: int = 0
    within: int | None = None
    offset: Any = 0


@dataclass(frozen=True, slots=True)
class Queue:
    """A DMA queue. Its transfers start and complete in order; one engine feeds it."""

    name: str
    engine: Engine


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of the kernel's source that instructions come from."""

    file: str
    line: int
    column: int
    end_column: int
    function: str
    text: str


@dataclass(slots=True)
class OnChipAllocation:
    """An on-chip allocation, for the SBUF map, uninitialised-read checks and messages."""

    name: str
    memory: str
    dtype: str
    shape: tuple[int, ...]
    start_partition: int
    partitions: int
    offset: int
    bytes_per_partition: int
    location: int


def allocation_bounds(
    storages: Sequence[OnChipAllocation], pattern: AccessPattern
) -> tuple[int, int] | None:
    """First and one-after-last byte, within a partition, of the on-chip allocations in which an
    access lies when its registers are 0; None when there are none. Several have the same bytes at
    different times."""
    held = allocations_of(storages, pattern)
    if not held:
        return None
    return (
        min(record.offset for record in held),
        max(record.offset + record.bytes_per_partition for record in held),
    )


def allocations_of(
    storages: Sequence[OnChipAllocation], pattern: AccessPattern
) -> list[OnChipAllocation]:
    """The on-chip allocations in which an access lies when its registers are 0."""
    memory, first, offset = pattern.memory.value, pattern.start_partition, pattern.offset
    return [
        record
        for record in storages
        if record.memory == memory
        and record.offset <= offset < record.offset + record.bytes_per_partition
        and record.start_partition <= first < record.start_partition + record.partitions
    ]


@dataclass(slots=True)
class CoreProgram:
    """Instruction streams and DMA queues of one core; `storages` are its on-chip allocations. They
    are lists, or lists in columns: an `isa.files.stream.Stream`, `isa.storages.Storages`."""

    streams: dict[Engine, MutableSequence[Instruction]]
    queues: list[Queue]
    storages: MutableSequence[OnChipAllocation] = field(default_factory=list)


@dataclass(slots=True)
class Guard:
    """A condition on launch sizes: `form` must be at least zero. `text` says it for people.

    `location`: the line of the kernel that needs it, an index into the program's source map (in
    tile IR: what `Op.location` is).
    """

    form: Any
    text: str
    location: Any = 0

    def __iter__(self) -> Iterator[Any]:
        """Form and text."""
        return iter((self.form, self.text))


@dataclass(slots=True)
class Program:
    """A compiled kernel for one target. `parameters` index `tensors` in call order.

    `symbols` are the launch symbols (`isa.affine.Symbol`), `guards` the conditions on them.
    """

    name: str
    target: str
    cores: list[CoreProgram]
    tensors: list[TensorDeclaration]
    parameters: list[int]
    parameter_names: list[str]
    results: list[int]
    symbols: list[Any] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    locations: list[SourceLocation] = field(default_factory=list)

    @property
    def instruction_count(self) -> int:
        return sum(len(s) for core in self.cores for s in core.streams.values())

    def place(self, location: Any) -> SourceLocation | None:
        """The line that the location of an instruction or tensor is, where the program knows it."""
        known = isinstance(location, int) and 0 <= location < len(self.locations)
        return self.locations[location] if known else None
