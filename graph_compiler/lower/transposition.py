"""Nests with one operand that turn rows into columns, through the tensor engine.

A transfer of such a nest moves single elements, each a descriptor. Where the elements of one
dimension are adjacent in the source, and those of another one in the target, blocks of both are
loaded in rows, turned by the tensor engine, which passes elements on bit for bit from gen3 on (SDK
nki/api/nki.isa.rst#nki.isa.nc_transpose), and stored in rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from graph_compiler.execute.loops import Loop
from graph_compiler.execute.steps import item_size
from graph_compiler.lower.device import Device
from graph_compiler.lower.nest import PARTITIONS, UNROLLED, Axis, axes_of, numbers
from graph_compiler.lower.operands import Stored
from isa.enums import Engine, Memory
from nki.ir.views.tensor import NkiTensor

BLOCK, WIDTH = 512, 1024
"""Elements of a block: adjacent ones in the target, and in the source."""

_BLOCKS = 32
"""Blocks of the other dimensions up to which none of them is a loop on the device."""

LEAST = 32
"""Elements along either dimension below which transfers do it."""

BIT_FOR_BIT = 3
"""The generation from which the tensor engine passes on bits."""

_FLOATS = {2: "bfloat16", 4: "float32"}
"""As what elements pass through the tensor engine, by their bytes."""

_BITS = {2: "uint16", 4: "uint32"}
"""As what they leave PSUM."""


def turned(device: Device, loop: Loop) -> tuple[Axis, Axis, list[Axis]] | None:
    """Of a nest with one operand the dimension that is adjacent in it, the one that is in the
    target, and the others; None of nests that are not turned, or not on this device."""
    if len(loop.leaves) != 1 or loop.fold is not None:
        return None
    if device.target.generation < BIT_FOR_BIT or item_size(loop.output[0]) not in _FLOATS:
        return None
    axes = axes_of(loop.counts, [loop.output[1], loop.leaves[0][1]])
    across = [axis for axis in axes if axis.strides[1] == 1 and axis.strides[0] != 1]
    along = [axis for axis in axes if axis.strides[0] == 1 and axis.strides[1] != 1]
    if len(across) != 1 or len(along) != 1 or min(across[0].count, along[0].count) < LEAST:
        return None
    (a,), (b,) = across, along
    if min(a.strides) < 1 or min(b.strides) < 1:
        return None
    return a, b, [axis for axis in axes if axis not in (a, b)]


def emit_turned(
    device: Device,
    target: Stored,
    source: Stored,
    axes: tuple[Axis, Axis, list[Axis]],
    computed: Callable[[NkiTensor], NkiTensor],
) -> None:
    """The nest, block by block, `computed` in rows before it is turned."""
    a, b, others = axes
    # Many small blocks are a loop on the device, whatever the count of each dimension.
    unrolled = UNROLLED if math.prod(axis.count for axis in others) <= _BLOCKS else 1

    def each(rest: list[Axis], to: Any, at: Any) -> None:
        if rest:
            axis, *more = rest
            for index in numbers(device.builder, axis.count, unrolled):
                each(more, to + index * axis.strides[0], at + index * axis.strides[1])
            return
        for first, rows in _blocks(device, b.count, BLOCK):
            for start, width in _blocks(device, a.count, WIDTH):
                _block(
                    device,
                    (target, to + first + start * a.strides[0], a.strides[0]),
                    (source, at + start + first * b.strides[1], b.strides[1]),
                    (rows, width),
                    computed,
                )

    each(others, 0, 0)


def _blocks(device: Device, count: int, size: int) -> Iterator[tuple[Any, int]]:
    """Where blocks of a dimension begin, and how long they are."""
    whole = count // size
    for index in numbers(device.builder, whole):
        yield index * size, size
    if count % size:
        yield whole * size, count % size


def _block(
    device: Device,
    target: tuple[Stored, Any, int],
    source: tuple[Stored, Any, int],
    sizes: tuple[int, int],
    computed: Callable[[NkiTensor], NkiTensor],
) -> None:
    """[rows, width] of the source, whose rows are a step apart, turned into the target."""
    (to, first, step), (at, start, pitch) = target, source
    rows, width = sizes
    dtype = _FLOATS[item_size(to.type)]
    loaded: list[NkiTensor] = []
    for row in range(0, rows, PARTITIONS):
        count = min(PARTITIONS, rows - row)
        tile = computed(at.leaf([(pitch, count), (1, width)], start + row * pitch))
        loaded.append(tile if tile.dtype == dtype else tile.view(dtype))
    for column in range(0, width, PARTITIONS):
        count = min(PARTITIONS, width - column)
        bank = device.tile((count, rows), dtype, Memory.psum)
        for number, tile in enumerate(loaded):
            begin = number * PARTITIONS
            part = tile[:, column : column + count]
            place = bank[:, begin : begin + tile.shape[0]]
            device.builder.emit("nc_transpose", dst=place, data=part, engine=Engine.tensor)
        done = device.tile((count, rows), to.dtype)
        bits = _BITS[item_size(to.type)]  # of which a copy leaves all as they are
        device.builder.emit("tensor_copy", dst=_as(done, bits), src=_as(bank, bits))
        to.keep(done, [(step, count), (1, rows)], first + column * step)


def _as(tile: NkiTensor, dtype: str) -> NkiTensor:
    return tile if tile.dtype == dtype else tile.view(dtype)
