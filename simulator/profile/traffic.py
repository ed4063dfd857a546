"""The bytes that a run moves to and from HBM, beside those that it cannot do without."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isa.access import AccessPattern
from isa.cost_formula import elements
from isa.dtypes import DTYPES
from isa.program import SPILLED, Program, TensorDeclaration
from isa.sections import Table
from simulator.profile.representatives import executed
from simulator.timing.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Spill:
    """A tensor that waited in HBM because an on-chip memory had no room for it: its name, the line
    that made it, and the bytes written for that and read again."""

    tensor: str
    file: str
    line: int
    saved_bytes: int
    reloaded_bytes: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """`argument_bytes` and `result_bytes`: those of the tensors that a kernel takes and gives, each
    once; `constant_bytes` those of tensors that the program comes with. `spills`: largest first."""

    argument_bytes: int
    result_bytes: int
    constant_bytes: int
    spills: list[Spill]

    @property
    def read_once_bytes(self) -> int:
        """Bytes of all tensors that come from outside, each once."""
        return self.argument_bytes + self.constant_bytes

    @property
    def saved_bytes(self) -> int:
        """Bytes that spills write."""
        return sum(one.saved_bytes for one in self.spills)

    @property
    def reloaded_bytes(self) -> int:
        """Bytes that spills read again."""
        return sum(one.reloaded_bytes for one in self.spills)


def traffic_of(program: Program, timeline: Timeline) -> Traffic:
    """Of a bound program and its timing."""
    taken, given, kept = (
        sum(_bytes(tensor) for tensor in program.tensors if tensor.role in roles)
        for roles in (("input", "inout"), ("output", "inout"), ("constant",))
    )
    return Traffic(taken, given, kept, _spills(program, timeline))


def _bytes(tensor: TensorDeclaration) -> int:
    return DTYPES[tensor.dtype].size * math.prod(map(int, tensor.shape))


def _spills(program: Program, timeline: Timeline) -> list[Spill]:
    homes = [tensor.name.endswith(SPILLED) for tensor in program.tensors]
    if not any(homes):
        return []
    moved: dict[int, list[int]] = {}
    for _, _, instruction, times, _, _ in executed(program, timeline):
        if not instruction.row.asynchronous:
            continue
        for position, value in enumerate(instruction.values):
            if (
                isinstance(value, AccessPattern)
                and not value.memory.on_chip
                and homes[value.tensor]
            ):
                entry = moved.setdefault(value.tensor, [0, 0])
                size = elements(value) * DTYPES[value.dtype].size
                entry[position not in instruction.row.writes] += times * size
    found = []
    for number, (saved, reloaded) in moved.items():
        tensor = program.tensors[number]
        place = program.place(tensor.location)
        where = ("", 0) if place is None else (place.file, place.line)
        found.append(Spill(tensor.name.removesuffix(SPILLED), *where, saved, reloaded))
    return sorted(found, key=lambda one: -one.saved_bytes - one.reloaded_bytes)


def table(found: Traffic) -> Table:
    """The spills as a part of a report."""
    rows = (
        (
            one.tensor,
            f"{one.file.rpartition('/')[2]}:{one.line}",
            f"{one.saved_bytes:,}",
            f"{one.reloaded_bytes:,}",
        )
        for one in found.spills
    )
    title = "spills: tensors that waited in HBM for room on chip"
    return Table.of(title, ("tensor", "made at", ">bytes written", ">bytes read"), rows)
