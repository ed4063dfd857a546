"""Checks that accesses which must lie in one bank of PSUM do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from isa.access import AccessPattern, byte_hull
from isa.errors import NeuronError
from isa.files.stream import at_offset, in_columns, moving
from isa.memory import psum_bank
from isa.spec import Instruction
from isa.target import Target
from nki.ir.locations import resolve
from nki.passes.emit.location_table import LocationTable


def check_banks(stream: Sequence[Instruction], target: Target, locations: LocationTable) -> None:
    """Raise psum-bank where an instruction writes more than one bank (SDK nki.isa.nc_matmul, "Tile
    size"). Addresses that a register or launch symbol moves are left to the author."""
    for instruction, position, pattern in _banked(stream):
        form = (pattern.offset, *(number for dim in pattern.dims for number in dim))
        if pattern.registers or not all(type(number) is int for number in form):
            continue
        low, high = byte_hull(pattern)
        if psum_bank(low, target) == psum_bank(high - 1, target):
            continue
        name = instruction.row.field_names[position]
        size = target.psum_bank_bytes.value
        raise NeuronError(
            "psum-bank",
            f"{name} covers bytes {low} to {high - 1} of its partitions of PSUM; a bank has "
            f"{size}, one ends at {(low // size + 1) * size - 1}",
            location=resolve(locations.locations[instruction.location]),
        )


def _banked(stream: Sequence[Instruction]) -> Iterator[tuple[Instruction, int, AccessPattern]]:
    """Operands that must lie in one bank, with their instructions (at other offsets) and their
    positions in these. Those at symbolic places are left out."""
    columns = in_columns(stream)
    for template, numbers in zip(columns.templates, columns.numbers):
        for column, position in enumerate(moving(template), 1):
            if position in template.row.banked:
                for offset in np.unique(numbers[:, column]).tolist():
                    yield template, position, at_offset(template.values[position], offset)
