"""Tiles transposed by the tensor engine, as many at a time as a bank of PSUM has room for."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from graph_compiler.lower.sizes import BANK
from isa.dtypes import DTYPES as DTYPE_ROWS
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram


def into_bank(device: DeviceProgram, parts: list[NkiTensor]) -> NkiTensor:
    """Tiles [rows, columns] of the same columns, each turned, beside one another in PSUM."""
    columns = parts[0].shape[1]
    dtype = parts[0].dtype
    bank = device.tile((columns, sum(part.shape[0] for part in parts)), dtype, Memory.psum)
    begin = 0
    for part in parts:
        place = bank[:, begin : begin + part.shape[0]]
        device.transpose(place, part)
        begin += part.shape[0]
    return bank


def transposed(
    device: DeviceProgram, parts: list[NkiTensor], early: bool = False, base: int = 0
) -> list[NkiTensor]:
    """Tiles [rows, columns], each transposed by the tensor engine; neighbours of one shape
    together, as many as have room in a bank of PSUM. `early`: the first alone, and others by twos,
    so that what takes them begins early. They lie from partition `base` on."""
    found: list[NkiTensor] = []
    for (rows, columns), alike in groupby(parts, lambda part: part.shape):
        some = list(alike)
        dtype = some[0].dtype
        room = max(1, BANK // (rows * DTYPE_ROWS[dtype].size))
        while some:
            most = min(room, 2 if found else 1) if early else room
            several, some = some[:most], some[most:]
            tile = device.tile((base + columns, len(several) * rows), dtype)[base:]
            device.builder.emit("tensor_copy", dst=tile, src=into_bank(device, several))
            found += [
                tile[:, number * rows : (number + 1) * rows] for number in range(len(several))
            ]
    return found
