"""Views of tensors as access patterns of one core: physical addresses."""

from __future__ import annotations

from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern, Limits
from isa.affine import Affine
from isa.columns import Integers, distinct, joined
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.files.stream import OperandTable
from nki.ir.nodes import Access, Register, Tensor
from nki.ir.rewrite import form_registers
from nki.passes.analysis.body import Accesses


class OperandColumns(NamedTuple):
    """The operands of accesses: the `different` ones at offset 0, and for each access the number of
    its (-1 where registers move it), and the offset (0 for a symbolic one)."""

    different: list[AccessPattern]
    number: Integers
    offset: Integers


class Addresses:
    """Turns IR accesses into access patterns of one core; remembers them by identity."""

    def __init__(
        self, tensor_index: dict[Tensor, int], placement: dict[Tensor, tuple[int, int]]
    ) -> None:
        self._index = tensor_index
        self._placement = placement
        self._patterns: dict[Any, AccessPattern] = {}
        self._known: dict[int, tuple[Access, AccessPattern]] = {}
        self.operands = OperandTable()

    def pattern(self, access: Access, registers: dict[Register, int]) -> AccessPattern:
        """The physical access pattern; `registers` maps to the engine's register numbers. On chip,
        plain accesses to the same place are one object."""
        known = self._known.get(id(access))
        if known is not None:
            return known[1]
        tensor = access.storage
        if tensor.pitch and type(access.offset) is int and access.vector_offset is None:
            key = access.geometry, self._placement[tensor]
            found = self._patterns.get(key)
            if found is None:
                found = self._patterns[key] = self._build(access, registers)
            self._known[id(access)] = access, found
            return found
        return self._build(access, registers)

    def columns(self, accesses: Accesses) -> OperandColumns:
        """The operands of accesses, all at once."""
        if not accesses.each:
            return OperandColumns([], accesses.which, accesses.which)
        views = [DTYPES[dtype].size for dtype, _, _ in accesses.views]
        size = np.array(views, np.int64)[accesses.view]
        memory, pitch, start, base = self._tensors(accesses)[:, accesses.tensor]
        on_chip = memory < 0
        partition, free = _within(accesses.offset, np.maximum(pitch // size, 1), size)
        start = np.where(on_chip, start + partition, 0)
        byte = np.where(on_chip, base + free, accesses.offset * size)
        columns = [accesses.view, start, memory - memory.min()]
        rest = np.flatnonzero(~accesses.plain)
        columns.append(np.zeros_like(start))
        columns[-1][rest] = 1 + np.arange(rest.size)
        _, first, number = distinct(joined(columns))
        split = self.operands.split
        different: list[AccessPattern] = []
        names = np.full(first.size, -1)
        for name, at in enumerate(first.tolist()):
            access = accesses.each[at]
            if form_registers(access):
                continue
            pattern, offset = split(self.pattern(access, _NO_REGISTERS))
            names[name] = len(different)
            different.append(pattern)
            if not accesses.plain[at]:
                byte[at] = offset or 0
        return OperandColumns(different, names[number], byte)

    def _tensors(self, accesses: Accesses) -> Integers:
        """By tensor of accesses: its memory, or its number in HBM, which is not negative; and on
        chip its pitch in bytes, its partition and its byte."""
        tensors = list(accesses.tensors)
        _, first, kind = distinct(accesses.tensor_kind)
        like = [tensors[at] for at in first.tolist()]
        forms = [(-1 - _MEMORIES.index(t.memory), t.row_bytes) for t in like]
        memory, pitch = np.array(forms, np.int64)[kind].T
        places = chain.from_iterable(map(self._placement.get, tensors, repeat((0, 0))))
        found = np.array([memory, pitch, *np.fromiter(places, np.int64).reshape(-1, 2).T])
        on_chip = np.array([tensor.memory.on_chip for tensor in like], np.bool_)
        for at in np.flatnonzero(~on_chip[kind]).tolist():
            found[:, at] = self._index[tensors[at]], 0, 0, 0
        return found

    def _build(self, access: Access, registers: dict[Register, int]) -> AccessPattern:
        tensor = access.storage
        offset = access.offset
        vector = access.vector_offset
        on_chip = tensor.memory is Memory.sbuf or tensor.memory is Memory.psum
        size = DTYPES[access.dtype].size
        terms: tuple[tuple[int, Any], ...] = ()
        if isinstance(offset, Affine):
            terms = tuple((registers[r], coefficient * size) for r, coefficient in offset.terms)
            offset = offset.constant
        if on_chip:
            start, base = self._placement[tensor]
            pitch = tensor.row_bytes // size
            partition, free = _within(offset, pitch or 1, size)
            return AccessPattern(
                tensor.memory,
                access.dtype,
                base + free,
                tuple(zip(access.strides[1:], access.shape[1:])),
                start + partition,
                access.shape[0],
                -1,
                terms,
                None if vector is None else self.pattern(vector, registers),
                access.vector_stride,
                access.vector_bound,
            )
        return AccessPattern(
            tensor.memory,
            access.dtype,
            offset * size,
            tuple(zip(access.strides, access.shape)),
            tensor=self._index[tensor],
            registers=terms,
            vector_offset=None if vector is None else self.pattern(vector, registers),
            vector_stride=access.vector_stride,
            vector_bound=access.vector_bound,
            limits=_limits(access.limits, registers),
        )


def _limits(forms: tuple[Any, Any] | None, registers: dict[Register, int]) -> Limits | None:
    """The limits of an access as a pattern has them; registers move both alike."""
    if forms is None:
        return None
    first, last = forms
    if not isinstance(first, Affine):
        return first, last, ()
    terms = tuple((registers[r], coefficient) for r, coefficient in first.terms)
    return first.constant, last.constant, terms


def _within(offset: Any, pitch: Any, size: Any) -> tuple[Any, Any]:
    """The partition in which an offset on chip is, and the byte there; also of columns."""
    partition, free = divmod(offset, pitch)
    return partition, free * size


_NO_REGISTERS: dict[Register, int] = {}
_MEMORIES = tuple(Memory)
