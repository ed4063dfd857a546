"""Numbers of what eager mode computes on several cores (`simulator.races.value_numbers`): whether
cores that make one write write the same whatever the data are, not only for those of this run."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from isa.alu import AluOperator, ScalarEngineFunction
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.fields import ENUM_KINDS
from isa.machine import control
from isa.spec import Instruction
from nki.eager.storage import Storage, storage_of
from nki.ir.nodes import Access, Register, Tensor
from nki.ir.rewrite import form_registers
from simulator.races.dynamic_accesses import hull
from simulator.races.value_numbers import (
    COPIES,
    Digests,
    EngineStates,
    Memories,
    MemoryBox,
    MemoryPlace,
    deciding_attributes,
    fixed_key,
    interchangeable,
)
from simulator.views import Indirect, PickedColumns


class EagerNumbers:
    """What the cores of a run hold, by number. Cores are told apart by theirs."""

    def __init__(self) -> None:
        self._numbering = Digests()
        self._memories = Memories(self._numbering)
        self._states = EngineStates(self._numbering)
        self._loaded: dict[tuple[int, int], int] = {}
        self._scopes: dict[int, list[int]] = {}
        self._came: dict[tuple[Hashable, int], int] = {}
        self._messages: dict[tuple[Hashable, int], dict[int, tuple[Any, ...]]] = {}

    def forget(self, tensor: Tensor) -> None:
        """A tensor of a core is gone."""
        if tensor.core is not None:
            self._memories.forget(tensor.core, tensor.number)

    # Loops

    def enter(self, core: int, registers: list[Register]) -> None:
        """The operations of a core that follow depend on what registers hold."""
        found = [self._loaded.get((core, register.number), -1) for register in registers]
        outer = self._depends_on(core)
        number = (
            self._numbering.of("scope", outer, *found) if max(found, default=-1) >= 0 else outer
        )
        self._scopes.setdefault(core, []).append(number)

    def leave(self, core: int) -> None:
        self._scopes[core].pop()

    # Instructions

    def follow(
        self,
        core: int,
        instruction: Instruction,
        arguments: list[Any],
        storages: dict[int, Storage],
    ) -> int:
        """The number of what an instruction of a core writes; `arguments` are its operands in the
        tensors, `storages` these tensors by position."""
        row, values = instruction.row, instruction.values
        if row is control.CoreBarrier:
            self._arrive(core, row.meeting(values, core))
            return -1
        if row is control.SendReceive:
            self._send(core, instruction, arguments, storages)
            return -1
        places = {at: _place(values[at], storages[at], arguments[at]) for at in storages}
        if row in COPIES and _copies(instruction, arguments):
            return self._memories.copy(core, places[0], places[1])
        number = self._numbering.of(
            *fixed_key(instruction),
            self._depends_on(core),
            *self._attributes(core, instruction, arguments),
            *self._operands(core, instruction, arguments, places),
            *self._states.read(core, instruction),
        )
        for place, position in enumerate(row.writes):
            if position in places:
                written = self._numbering.of(place, number)
                self._memories.write(core, *places[position], written)
        if row.state:
            self._states.write(core, instruction, number)
        for position in row.register_writes:
            self._set(core, instruction, values[position], number)
        return number

    def _depends_on(self, core: int) -> int:
        scopes = self._scopes.get(core)
        return scopes[-1] if scopes else -1

    def _attributes(
        self, core: int, instruction: Instruction, arguments: list[Any]
    ) -> Iterator[Hashable]:
        for position in deciding_attributes(instruction.row):  # type: ignore[arg-type]
            value = arguments[position]
            yield _word(value) if type(value) in _NAMES else repr(value)
            yield from self._registers(core, instruction.values[position])

    def _registers(self, core: int, value: Any) -> Iterator[int]:
        """The numbers of the registers in a value that memory has decided."""
        for register in form_registers(value):
            yield self._loaded.get((core, register.number), -1)

    def _operands(
        self,
        core: int,
        instruction: Instruction,
        arguments: list[Any],
        places: dict[int, MemoryPlace],
    ) -> Iterator[Hashable]:
        row = instruction.row
        found: list[tuple[int, int]] = []
        for position, _, _ in row.operands:
            value = instruction.values[position]
            if position not in places:
                yield repr(value)
                continue
            shape, place = _form(value.dtype, value.shape, value.strides), places[position]
            if type(value.offset) is not int:
                yield from self._registers(core, value.offset)
            if value.vector_offset is not None:
                yield repr((value.vector_stride, value.vector_bound))
                index = getattr(arguments[position], "index", None)
                holder = storage_of(value.vector_offset.storage)
                yield self._memories.read(core, *_where(holder, index))
            if position in row.writes:
                yield shape
                yield repr(value.offset) if row.state or row.lane_fields else 0
            if position in row.reads:
                _, shared, box = place
                stays = shared and box.exact and any(place == places.get(at) for at in row.writes)
                found.append((shape, -1 if stays else self._memories.read(core, *place)))
        yield from sorted(found) if interchangeable(instruction) else found

    def _set(self, core: int, instruction: Instruction, register: Register, number: int) -> None:
        """A register has a value that memory decides, or has no longer."""
        from_memory = instruction.row is control.RegisterLoad or any(
            (core, value.number) in self._loaded
            for value in instruction.values
            if isinstance(value, Register) and value is not register
        )
        if from_memory or self._depends_on(core) >= 0:
            self._loaded[core, register.number] = number
        else:
            self._loaded.pop((core, register.number), None)

    # Meetings

    def _arrive(self, core: int, meeting: tuple[Hashable, tuple[int, ...]]) -> int:
        """A core comes to a meeting once more. With the last one what all have written is known."""
        self._came[meeting, core] = times = self._came.get((meeting, core), 0) + 1
        if all(self._came.get((meeting, other), 0) >= times for other in meeting[1]):
            self._memories.meet(meeting[1])
        return times

    def _send(
        self,
        core: int,
        instruction: Instruction,
        arguments: list[Any],
        storages: dict[int, Storage],
    ) -> None:
        meeting = instruction.row.meeting(instruction.values, core)
        times = self._arrive(core, meeting)
        sent = self._memories.tile(core, *_where(storages[1], arguments[1]))
        messages = self._messages.setdefault((meeting, times), {})
        messages[core] = _where(storages[0], arguments[0]), instruction.value("receive_from"), sent
        if len(messages) == len(meeting[1]):
            for other, (place, sender, _) in messages.items():
                if sender in messages:
                    self._memories.put(other, place, messages[sender][2])
            del self._messages[meeting, times]


def _copies(instruction: Instruction, arguments: list[Any]) -> bool:
    """Whether a transfer leaves all bits as they are, and in their order."""
    return len({value.dtype for value in instruction.values[:2]}) == 1 and all(
        isinstance(view, np.ndarray)
        and view.size > 0
        and all(a >= b for a, b in pairwise([s for s, n in zip(view.strides, view.shape) if n > 1]))
        for view in arguments[:2]
    )


@lru_cache(maxsize=4096)
def _form(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """The number of how an operand lies in its memory, but for where it begins."""
    return Digests().of(repr((dtype, shape, strides)))


_word = lru_cache(maxsize=4096, typed=True)(repr)
"""A name as a word: those of operators and enumerations take long to spell."""

_NAMES = frozenset({AluOperator, ScalarEngineFunction, *ENUM_KINDS.values()})


def _place(access: Access, storage: Storage, view: Any) -> MemoryPlace:
    """A memory, whether what it holds is common to the cores, and which part of it a view is."""
    if type(access.offset) is not int or access.vector_offset is not None:
        return _where(storage, view)
    known = storage.places.get(id(view))
    if known is None:
        known = storage.places[id(view)] = view, _where(storage, view)
    return known[1]


def _where(storage: Storage, view: Any) -> MemoryPlace:
    """As `_place`, of a view that may be another one next time."""
    tensor = storage.tensor
    shared = tensor.memory is Memory.shared_hbm or tensor.role in ("input", "constant")
    return tensor.number, shared, _box(storage, view)


def _box(storage: Storage, view: Any) -> MemoryBox:
    """The rows and columns of a tensor that a view has."""
    pitch = storage.row_bytes
    if storage.rows == 1 and len(storage.shape) > 1:
        pitch = storage.shape[-1] * DTYPES[storage.tensor.dtype].size
    picked = isinstance(view, (Indirect, PickedColumns))
    if picked:
        view = view.base
    if not isinstance(view, np.ndarray) or not view.size:
        return MemoryBox(0, 0, 0, 0, False, 0)
    if view.nbytes == storage.buffer.size and view.flags.c_contiguous and not picked:
        return MemoryBox(0, view.nbytes // pitch, 0, pitch, True, 0)
    low, high = (end - storage.buffer.ctypes.data for end in hull(view))
    row0, column0 = divmod(low, pitch)
    width = view.itemsize
    rest: list[tuple[int, int]] = []
    for stride, count in sorted(zip(view.strides, view.shape)):
        if count == 1:
            continue
        if stride == width and not rest:
            width *= count
        else:
            rest.append((stride, count))
    if picked:
        return MemoryBox(row0, -(-high // pitch), 0, pitch, False, column0)
    if not rest and column0 == 0 and width % pitch == 0:
        return MemoryBox(row0, row0 + width // pitch, 0, pitch, True, 0)
    if column0 + width <= pitch:
        if not rest:
            return MemoryBox(row0, row0 + 1, column0, column0 + width, True, column0)
        if len(rest) == 1 and rest[0][0] == pitch:
            return MemoryBox(row0, row0 + rest[0][1], column0, column0 + width, True, column0)
    return MemoryBox(row0, -(-high // pitch), 0, pitch, False, column0)
