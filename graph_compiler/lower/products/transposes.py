"""Tiles transposed by the tensor engine, as many at a time as a bank of PSUM has room for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING

import nki.language as nl
from graph_compiler.lower.sizes import BANK, BIT_FOR_BIT, DTYPES, HALF, PARTITIONS
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
    device: DeviceProgram, parts: list[NkiTensor], early: bool = False
) -> list[NkiTensor]:
    """Tiles [rows, columns], each transposed by the tensor engine; neighbours of one shape
    together, as many as have room in a bank of PSUM. `early`: the first alone, and others by twos,
    so that what takes them begins early."""
    found: list[NkiTensor] = []
    for (rows, columns), alike in groupby(parts, lambda part: part.shape):
        some = list(alike)
        dtype = some[0].dtype
        room = max(1, BANK // (rows * DTYPE_ROWS[dtype].size))
        while some:
            most = min(room, 2 if found else 1) if early else room
            several, some = some[:most], some[most:]
            tile = device.tile((columns, len(several) * rows), dtype)
            device.builder.emit("tensor_copy", dst=tile, src=into_bank(device, several))
            found += [
                tile[:, number * rows : (number + 1) * rows] for number in range(len(several))
            ]
    return found


def transposed_by_two(device: DeviceProgram, whole: NkiTensor, elements: int) -> list[NkiTensor]:
    """A tile [rows, several times so many elements], each of them turned: by twos, of which the
    second is on the partitions behind the first."""
    several = whole.shape[1] // elements
    pairs = [
        whole[:, first * elements : min(first + 2, several) * elements]
        for first in range(0, several, 2)
    ]
    turned = transposed(device, pairs)
    return [turned[n // 2][n % 2 * elements : (n % 2 + 1) * elements] for n in range(several)]


def transposed_on_halves(
    device: DeviceProgram, halves: Sequence[Sequence[NkiTensor]], identity: NkiTensor
) -> list[list[NkiTensor]]:
    """Tiles [rows, columns] of two sequences, transposed onto either half of the partitions, one of
    each at a time in columns of the array. The second sequence may have fewer tiles."""
    found: list[list[NkiTensor]] = [[], []]
    (rows, columns), dtype = halves[0][0].shape, halves[0][0].dtype
    summed = "float32" if device.target.generation < BIT_FOR_BIT else dtype
    room = max(1, BANK // (rows * DTYPE_ROWS[summed].size))
    for start in range(0, len(halves[0]), room):
        some = [half[start : start + room] for half in halves]
        shape = (HALF + columns if some[1] else columns, len(some[0]) * rows)
        bank = device.tile(shape, summed, Memory.psum)
        for place in range(len(some[0])):
            turned = []
            for half, own in zip((0, HALF), some):
                for part in own[place : place + 1]:
                    into = bank[half : half + columns, place * rows : place * rows + part.shape[0]]
                    turned.append([(half, *pair) for pair in device.transposes(into, part)])
            for half, dst, data in chain.from_iterable(zip(*turned)):
                device.builder.emit(
                    "nc_matmul",
                    dst=dst,
                    stationary=data,
                    moving=identity[: data.shape[0], : data.shape[0]],
                    is_transpose=True,
                    tile_position=(0, half),
                    tile_size=(PARTITIONS, HALF),
                )
        tile = device.tile(shape, dtype)
        device.builder.emit("tensor_copy", dst=tile, src=bank)
        for own, parts, half in zip(found, some, (0, HALF)):
            own += [
                tile[half : half + columns, place * rows : place * rows + part.shape[0]]
                for place, part in enumerate(parts)
            ]
    return found


def identity(device: DeviceProgram, type: str) -> NkiTensor:
    """What `transposed_on_halves` takes to turn elements of a type."""
    return nl.shared_identity_matrix(PARTITIONS, device.turned_as(DTYPES[type]))
