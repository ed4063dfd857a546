"""Cores that run one source are lowered once, and placed again with other tensors in HBM.

What a kernel does on its cores often differs in the tensors in HBM alone, and in where in these
each core begins. All passes and stages decide by what lies how far from what, so their results are
the same then: the program of one core is that of all, with the base addresses as parameters.
"""

from __future__ import annotations

import math
from collections.abc import MutableSequence, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.affine import Affine, Predicate, identical
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.program import CoreProgram, Program
from isa.spec import Instruction
from isa.storages import Storages
from isa.stream import Moved, Stream, StreamColumns, in_columns, moving
from nki.ir.nodes import Access, Kernel, Loop, Node, Op, Register, Tensor, While, bytes_of
from nki.passes.emit.declarations import hbm_tensors


class Bases(NamedTuple):
    """What a core has instead of the first one: by tensor of that one its own, and by how many
    bytes each access lies behind the first core's."""

    tensors: dict[Tensor, Tensor]
    bytes: dict[Tensor, int]


def bases_of(kernel: Kernel) -> list[Bases] | None:
    """The bases of all cores behind the first; None where cores differ in more."""
    first, *others = kernel.bodies
    found = []
    for core, body in enumerate(others, 1):
        comparison = _Comparison(core)
        if not comparison.nodes(first, body):
            return None
        found.append(Bases(comparison.tensors, comparison.bytes))
    return found


def first_core(kernel: Kernel) -> Kernel:
    """A kernel that does on one core what this one does on its first."""
    tensors = [tensor for tensor in kernel.tensors if not tensor.core]
    return kernel.with_bodies(kernel.bodies[:1], tensors)


def with_images(kernel: Kernel, bases: Sequence[Bases]) -> Kernel:
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


def on_all_cores(program: Program, kernel: Kernel, bases: Sequence[Bases]) -> Program:
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


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two lists of index forms are alike; never asks for a decision."""
    if {int}.issuperset(map(type, one)):
        return one == other
    return len(one) == len(other) and all(map(identical, one, other))


def _is_whole(access: Access) -> bool:
    """Whether an access has as many bytes as its tensor, which leaves it no other place."""
    count = DTYPES[access.dtype].size * math.prod(access.shape)
    return bool(identical(count, bytes_of(access.storage)))


class _Comparison:
    """Compares the bodies of two cores, node by node."""

    def __init__(self, core: int) -> None:
        self._core = core
        self.tensors: dict[Tensor, Tensor] = {}
        self.bytes: dict[Tensor, int] = {}
        self._taken: dict[Tensor, Tensor] = {}
        self._registers: dict[Register, Register] = {}
        self._ahead: dict[Register, int] = {}
        self._ops: dict[Op, Op] = {}
        self._views: dict[tuple[int, int], bool] = {}

    def nodes(self, one: list[Node], other: list[Node]) -> bool:
        """Whether all nodes are alike."""
        if len(one) != len(other):
            return False
        for mine, its in zip(one, other):
            if type(mine) is not type(its) or mine.location != its.location:
                return False
            if isinstance(mine, Op):
                if not self._operation(mine, its):
                    return False
            elif not self._loop(mine, its):
                return False
        return True

    def _operation(self, one: Op, other: Any) -> bool:
        if one.row is not other.row or one.name != other.name:
            return False
        if one.after or other.after:
            if [self._ops.get(op) for op in one.after] != list(other.after):
                return False
        self._ops[one] = other
        return all(map(self._value, one.values, other.values))

    def _loop(self, one: Loop | While, other: Any) -> bool:
        if isinstance(one, While):
            return self._register(one.register, other.register) and self.nodes(one.body, other.body)
        if (one.step, one.unroll) != (other.step, other.unroll):
            return False
        ahead = 0
        bounds = one.lower, one.upper, other.lower, other.upper
        if all(type(bound) is int for bound in bounds):
            ahead = other.lower - one.lower
            same = other.upper - one.upper == ahead
        else:
            same = self._value(one.lower, other.lower) and self._value(one.upper, other.upper)
        self._ahead[one.variable] = ahead
        self._registers[one.variable] = other.variable
        return same and self.nodes(one.body, other.body)

    def _value(self, one: Any, other: Any) -> bool:
        if isinstance(one, Access):
            return isinstance(other, Access) and self._view(one, other)
        if one is other:
            return True
        if type(one) is not type(other):
            return False
        if isinstance(one, Register):
            return self._register(one, other)
        if isinstance(one, Affine):
            return self._distance(one, other) == 0
        if isinstance(one, Predicate):
            return one.op == other.op and self._distance(one.form, other.form) == 0
        text = repr(one)
        return text == repr(other) and "%r" not in text

    def _register(self, one: Register, other: Register) -> bool:
        """Whether registers hold the same."""
        known = self._registers.setdefault(one, other)
        alike = _same((one.lower, one.upper), (other.lower, other.upper))
        return known is other and alike and not self._ahead.get(one)

    def _distance(self, one: Any, other: Any) -> int | None:
        """How far an index form is ahead of another one, None where that is not known."""
        ahead = 0
        if isinstance(one, Affine):
            if not isinstance(other, Affine) or len(one.terms) != len(other.terms):
                return None
            for (register, factor), (its, others) in zip(one.terms, other.terms):
                variable = self._ahead.get(register)
                if not identical(factor, others) or (variable and type(factor) is not int):
                    return None
                if variable and self._registers[register] is its:
                    ahead += factor * variable
                elif not self._register(register, its):
                    return None
            one, other = one.constant, other.constant
        if type(one) is int and type(other) is int:
            return ahead + other - one
        return ahead if identical(one, other) else None

    def _view(self, one: Access, other: Access) -> bool:
        key = id(one), id(other)
        if key not in self._views:
            self._views[key] = self._new_view(one, other)
        return self._views[key]

    def _new_view(self, one: Access, other: Access) -> bool:
        if one.dtype != other.dtype or not self._tensor(one.storage, other.storage):
            return False
        vectors = (one.vector_stride, one.vector_bound), (other.vector_stride, other.vector_bound)
        pairs = (one.shape, other.shape), (one.strides, other.strides), vectors
        if not all(mine is its or _same(mine, its) for mine, its in pairs):
            return False
        distance = self._distance(one.offset, other.offset)
        if distance is None or (distance and one.storage.memory.on_chip):
            return False
        if _is_whole(one):
            return not distance
        distance *= DTYPES[one.dtype].size
        if self.bytes.setdefault(one.storage, distance) != distance:
            return False
        if one.vector_offset is not None or other.vector_offset is not None:
            return not distance and self._value(one.vector_offset, other.vector_offset)
        return one.limits is None and other.limits is None

    def _tensor(self, one: Tensor, other: Tensor) -> bool:
        """Whether one tensor stands for the other, and both for no third one."""
        known = self.tensors.get(one)
        if known is not None:
            return known is other
        self.tensors[one] = other
        return (
            self._taken.setdefault(other, one) is one
            and one.memory is other.memory
            and (one.dtype, one.role, one.address) == (other.dtype, other.role, other.address)
            and (one.label, one.copy) == (other.label, other.copy)
            and one.location == other.location
            and _same(one.shape, other.shape)
            and one.data is other.data
            and (one is other or (one.core, other.core) == (0, self._core))
            and one.divided == other.divided
        )
