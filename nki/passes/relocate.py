"""Cores whose bodies differ only in HBM tensors and offsets are compiled once, and relocated.

Passes and stages decide by relative addresses, so they would make the same of each such body. The
first core's body is compiled; each other core gets a copy of the program with its own HBM tensors
and base offsets.
"""

from __future__ import annotations

import math
from collections.abc import MutableSequence, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.affine import identical
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.files.stream import Moved, Stream, StreamColumns, in_columns, moving
from isa.program import CoreProgram, Program
from isa.spec import Instruction
from isa.storages import Storages
from nki.ir.nodes import Tensor, TracedKernel, bytes_of, walk
from nki.passes.analysis.content import Content
from nki.passes.emit.declarations import hbm_tensors


class Bases(NamedTuple):
    """What a core has instead of the first one: by tensor of that one its own, and by how many
    bytes each access lies behind the first core's."""

    tensors: dict[Tensor, Tensor]
    bytes: dict[Tensor, int]


def bases_of(kernel: TracedKernel) -> list[Bases] | None:
    """The bases of all cores behind the first; None where cores differ in more."""
    first, *others = kernel.bodies
    count = sum(1 for _ in walk(first))
    if any(sum(1 for _ in walk(body)) != count for body in others):
        return None
    own = Content(located=True)
    key = own.of(first)
    found = []
    for core, body in enumerate(others, 1):
        its = Content(located=True)
        if its.of(body) != key:
            return None
        tensors = dict(zip(own.tensors, its.tensors))
        if not all(_stands_for(other, one, core) for one, other in tensors.items()):
            return None
        distances = {one: its.lowest[tensors[one]] - byte for one, byte in own.lowest.items()}
        found.append(Bases(tensors, distances))
    return found


def _stands_for(one: Tensor, other: Tensor, core: int) -> bool:
    """Whether a tensor of a core can be what another one is on the first core."""
    return one is other or (
        (one.core, other.core) == (core, 0)
        and (one.role, one.label, one.copy) == (other.role, other.label, other.copy)
        and one.location == other.location
        and one.data is other.data
        and one.divided == other.divided
    )


def first_core(kernel: TracedKernel) -> TracedKernel:
    """A kernel that does on one core what this one does on its first."""
    tensors = [tensor for tensor in kernel.tensors if not tensor.core]
    return kernel.with_bodies(kernel.bodies[:1], tensors)


def with_images(kernel: TracedKernel, bases: Sequence[Bases]) -> TracedKernel:
    """The first core's kernel behind the passes of tile IR, with the tensors in HBM that the others
    have instead of its own; passes may have made some for it."""
    own = [tensor for tensor in kernel.tensors if not tensor.memory.on_chip]
    tensors = dict.fromkeys(kernel.tensors)
    for number, core in enumerate(bases, 1):
        tensors.update(dict.fromkeys(_image(tensor, number, core) for tensor in own))
    return kernel.with_bodies(kernel.bodies, list(tensors), kernel.placement)


def _image(tensor: Tensor, number: int, core: Bases) -> Tensor:
    """The tensor in HBM that a core has instead of one of the first core's."""
    image = core.tensors.get(tensor)
    if image is None:
        image = tensor
        if tensor.core is not None:
            image = copy(tensor)
            image.core = number
            if tensor.within is not None:
                image.lie(_image(tensor.within, number, core), tensor.offset)
        core.tensors[tensor] = image
    return image


def on_all_cores(program: Program, kernel: TracedKernel, bases: Sequence[Bases]) -> Program:
    """The program of the first core of a kernel, for all cores."""
    index = hbm_tensors(kernel)
    first = program.cores[0]
    for core in bases:
        places = {
            number: (index[core.tensors[tensor]], core.bytes.get(tensor, 0), bytes_of(tensor))
            for tensor, number in index.items()
            if tensor in core.tensors
        }
        moved: Moved = {}
        streams: dict[Engine, MutableSequence[Instruction]] = {
            engine: Stream(_at_bases(in_columns(stream), places), moved)
            for engine, stream in first.streams.items()
        }
        assert isinstance(first.storages, Storages) and first.storages.columns is not None
        storages = Storages(first.storages.columns)
        program.cores.append(CoreProgram(streams, list(first.queues), storages))
    return program


def _at_bases(columns: StreamColumns, places: dict[int, tuple[int, int, Any]]) -> StreamColumns:
    """A stream with (tensor, distance, bytes) instead of the tensors in HBM, by their numbers."""
    templates, numbers = [], []
    known: dict[int, AccessPattern] = {}
    for template, rows in zip(columns.templates, columns.numbers):
        values = list(template.values)
        shifts = np.zeros(rows.shape[1], np.int64)
        inside = moving(template)
        for position, value in enumerate(values):
            if type(value) is not AccessPattern or value.tensor < 0:
                continue
            tensor, distance, size = places[value.tensor]
            count = DTYPES[value.dtype].size * math.prod(number for _, number in value.dims)
            if identical(count, size):
                distance = 0
            image = known.get(id(value))
            if image is None:
                image = known[id(value)] = copy(value)
                image.tensor = tensor
                if position not in inside:
                    image.offset = value.offset + distance
            if position in inside:
                shifts[1 + inside.index(position)] = distance
            values[position] = image
        same = template.row, template.engine, tuple(values)
        templates.append(Instruction(*same, location=template.location))
        numbers.append(rows + shifts)
    return StreamColumns(templates, columns.semaphores, columns.order, numbers)
