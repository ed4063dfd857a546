"""NumPy views on simulated memory: what an instruction's operands are while it executes.

A memory is a one-dimensional uint8 array. A view has the operand's dtype and shape
([partitions, *free] on chip, all dimensions in HBM) and aliases the memory's bytes. The dtype of a
view is the object that `view_dtype` returns, so that types which share a NumPy dtype (float32 and
tfloat32, packed types and unsigned integers) stay apart: compare with `same_type`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.access import AccessPattern
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.errors import NeuronError
from isa.program import allocation_bounds, allocations_of
from simulator.by_identity import ByIdentity

if TYPE_CHECKING:
    from simulator.device_state import CoreState

Array = np.ndarray[Any, Any]
"""Elements of any dtype and shape."""

_TAG = "nki"


@cache
def view_dtype(name: str) -> np.dtype[Any]:
    """NumPy dtype of a view on elements of dtype `name`, tagged where `numpy` is ambiguous."""
    plain = DTYPES[name].words
    if plain.name == name:
        return plain
    return np.dtype(plain, metadata={_TAG: name})


@cache
def _plain_name(dtype: np.dtype[Any]) -> str:
    return dtype.name


def dtype_name(view: np.ndarray[Any, Any]) -> str:
    """Name of the dtype (a key of `isa.dtypes.DTYPES`) of a view's elements."""
    metadata = view.dtype.metadata
    return _plain_name(view.dtype) if metadata is None else metadata[_TAG]


def same_type(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    """Whether two views hold elements of one dtype, so that a copy moves bits."""
    return left.dtype is right.dtype or (
        left.dtype == right.dtype and dtype_name(left) == dtype_name(right)
    )


UNSIGNED = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4, 8)}
"""Unsigned integers by their bytes."""


def bits(view: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same elements as unsigned integers of the same size."""
    return view.view(UNSIGNED[view.dtype.itemsize])


def strided(
    buffer: np.ndarray[Any, Any],
    dtype_name: str,
    byte_offset: int,
    shape: Sequence[int],
    byte_strides: Sequence[int],
) -> np.ndarray[Any, Any]:
    """View on a uint8 array: element (i, j, ...) starts at `byte_offset + i * byte_strides[0] + …`.

    Raises NeuronError out-of-bounds when any element lies outside `buffer`.
    """
    try:
        return np.ndarray(shape, view_dtype(dtype_name), buffer, byte_offset, byte_strides)
    except (ValueError, TypeError) as error:
        if buffer.size == 0 and 0 in shape:
            return np.empty(shape, view_dtype(dtype_name))
        raise _outside(
            "out-of-bounds", dtype_name, byte_offset, shape, byte_strides, buffer.size
        ) from error


def _outside(
    code: str,
    name: str,
    offset: int,
    shape: Sequence[int],
    strides: Sequence[int],
    limit: int,
) -> NeuronError:
    reach = [(n - 1) * s for n, s in zip(shape, strides)]
    low = offset + sum(r for r in reach if r < 0)
    high = offset + sum(r for r in reach if r > 0) + DTYPES[name].size
    return NeuronError(
        code,
        f"A {name}{list(shape)} access covers bytes {low} to {high} of a range of {limit} bytes.",
    )


@dataclass(slots=True, eq=False, repr=False)
class Indirect:
    """An operand whose rows are picked by indices: row i is `base[index[i]]`.

    `base` is a view of shape [bound, *inner], `index` an integer array or view of one index a
    row, read when the operand is used. With `skip`, rows whose index is outside 0 .. bound-1
    take no part; else such an index raises NeuronError dynamic-out-of-bounds.
    """

    base: np.ndarray[Any, Any]
    index: np.ndarray[Any, Any]
    skip: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.base.dtype

    @property
    def size(self) -> int:
        inner = 1
        for count in self.base.shape[1:]:
            inner *= count
        return self.index.size * inner

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.index.size, *self.base.shape[1:])

    def rows(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
        """The indices as int64 [n], and a mask of those inside (None when all are).

        Raises NeuronError dynamic-out-of-bounds for an index outside unless `skip`.
        """
        index = self.index.reshape(-1).astype(np.int64)
        bound = self.base.shape[0]
        inside = (index >= 0) & (index < bound)
        if inside.all():
            return index, None
        if not self.skip:
            position = int(np.argmin(inside))
            raise NeuronError(
                "dynamic-out-of-bounds",
                f"Index {position} of a gather or scatter is {index[position]}; "
                f"the tensor has rows 0 to {bound - 1}.",
            )
        return index, inside

    def gather(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
        """The rows [n, *inner] (copied) and the mask of valid ones; skipped rows are arbitrary."""
        index, inside = self.rows()
        if inside is None:
            return self.base[index], None
        if self.base.shape[0] == 0:
            return np.zeros(self.shape, self.base.dtype), inside
        return self.base[np.where(inside, index, 0)], inside

    def scatter(self, values: np.ndarray[Any, Any]) -> int:
        """Write rows [n, *inner] of the base's dtype; the last of equal indices stays. Returns
        the number of rows written."""
        index, inside = self.rows()
        if inside is None:
            self.base[index] = values
            return index.size
        self.base[index[inside]] = values[inside]
        return int(np.count_nonzero(inside))


class PickedColumns:
    """`count` columns of `base` [partitions, bound], picked by `index` [partitions, k]."""

    __slots__ = ("base", "count", "index")

    def __init__(self, base: np.ndarray[Any, Any], index: np.ndarray[Any, Any], count: int) -> None:
        self.base = base
        self.index = index
        self.count = count

    def spread(self, rows: np.ndarray[Any, Any], group: int) -> np.ndarray[Any, Any]:
        """What [partitions, k] values mean for each partition's `count` elements."""
        partitions = rows.shape[0]
        groups = rows.reshape(partitions // group, group, -1).transpose(0, 2, 1)
        taken = groups.reshape(partitions // group, -1)[:, : self.count]
        return np.repeat(taken, group, axis=0)

    def positions(self, group: int) -> np.ndarray[Any, Any]:
        """Columns of the elements of every partition, int64 [partitions, count].

        Raises NeuronError dynamic-out-of-bounds.
        """
        found = self.spread(self.index.reshape(self.base.shape[0], -1), group).astype(np.int64)
        bound = self.base.shape[1]
        outside = (found < 0) | (found >= bound)
        if outside.any():
            partition, element = (int(i) for i in np.argwhere(outside)[0])
            raise NeuronError(
                "dynamic-out-of-bounds",
                f"Index {element} for partition {partition} is {found[partition, element]}; the "
                f"operand has columns 0 to {bound - 1}.",
            )
        return found

    def gather(self, group: int = 16) -> tuple[np.ndarray[Any, Any], None]:
        """The columns (copied), and no mask, as of `views.Indirect`."""
        return np.take_along_axis(self.base, self.positions(group), axis=1), None


class PlacedAccess:
    """An access placed in memory: element (i, j, ...) starts at byte `origin` + `offset` +
    i * strides[0] + ..., and at as much more as registers say.

    `view(registers)` gives the NumPy view (or `Indirect`, or `PickedColumns`) for the values of
    registers; unless `dynamic` it is the same object every time. `low` and `high` say how far the
    access extends from its offset, within a partition on chip. A subclass says where it may be.
    """

    __slots__ = (
        "buffer",
        "count",
        "dtype",
        "dynamic",
        "fixed",
        "high",
        "index",
        "low",
        "moved",
        "name",
        "offset",
        "on_chip",
        "origin",
        "registers",
        "shape",
        "skip",
        "strides",
    )

    def __init__(
        self,
        buffer: np.ndarray[Any, Any],
        name: str,
        offset: int,
        dims: Sequence[tuple[int, int]],
        rows: tuple[int, int] | None,
        registers: tuple[tuple[int, int], ...],
        skip: bool,
        index: PlacedAccess | None,
        picked: tuple[int, int],
    ) -> None:
        """`dims`: (stride in elements, count) of each dimension in HBM, or of the free ones on
        chip, where `rows` are the partitions: how many, and how many bytes apart. Where an `index`
        picks along the first of `dims`, `picked` is what it picks from."""
        self.buffer, self.name, self.dtype = buffer, name, view_dtype(name)
        self.offset, self.registers, self.skip, self.index = offset, registers, skip, index
        self.origin = self.count = 0
        self.moved: tuple[tuple[int, int], ...] = ()
        if index is not None:
            self.count, dims = dims[0][1], (picked, *dims[1:])
        shape, strides = [], []
        size = self.dtype.itemsize
        low, high = 0, size
        for stride, count in dims:
            stride *= size
            shape.append(count)
            strides.append(stride)
            if stride < 0:
                low += (count - 1) * stride
            else:
                high += (count - 1) * stride
        self.low, self.high, self.on_chip = low, high, rows is not None
        if rows is not None:
            shape.insert(0, rows[0])
            strides.insert(0, rows[1])
        self.shape, self.strides = tuple(shape), tuple(strides)
        self.dynamic: bool = bool(registers) or (index is not None and index.dynamic)
        self.fixed: Any = None

    def view(self, registers: Sequence[int] | Mapping[int, int]) -> Any:
        """The operand for these register values, or None when it is out of bounds and `skip`.

        Raises NeuronError dynamic-out-of-bounds (with register terms) or out-of-bounds.
        """
        if self.fixed is not None:
            return self.fixed
        offset = self.offset
        for number, scale in self.registers:
            offset += registers[number] * scale
        moved = 0
        for number, scale in self.moved:
            moved += registers[number] * scale
        if 0 in self.shape:
            offset = 0
        elif not self._inside(offset, moved):
            if self.skip and self.registers:
                return None
            raise self._outside(offset, moved)
        view: Any = np.ndarray(
            self.shape, self.dtype, self.buffer, self.origin + offset, self.strides
        )
        if self.index is not None:
            index = self.index.view(registers)
            if self.on_chip:
                view = PickedColumns(view, index, self.count)
            else:
                view = Indirect(view, index, self.skip)
        if not self.dynamic:
            self.fixed = view
        return view

    @property
    def _code(self) -> str:
        """The error of an access that is outside."""
        return "dynamic-out-of-bounds" if self.registers else "out-of-bounds"

    def _inside(self, offset: int, moved: int = 0) -> bool:
        raise NotImplementedError

    def _outside(self, offset: int, moved: int = 0) -> NeuronError:
        raise NotImplementedError


class Window(PlacedAccess):
    """An access pattern of a bound program placed in a core's memories.

    It stays between `floor` and `limit`: in its tensor (HBM), partition, or, where registers move
    it, allocation. By how much registers move these limits is in `moved`.
    """

    __slots__ = ("floor", "limit", "pattern", "state")

    index: Window | None

    def __init__(self, state: CoreState, pattern: AccessPattern, skip: bool = False) -> None:
        self.state = state
        self.pattern = pattern
        vector, rows, origin = pattern.vector_offset, None, 0
        self.floor = 0
        if pattern.memory.on_chip:
            arena = state.sbuf if pattern.memory is Memory.sbuf else state.psum
            last = pattern.start_partition + pattern.partitions
            if pattern.start_partition < 0 or last > arena.partitions:
                raise NeuronError(
                    "address-out-of-range",
                    f"Partitions {pattern.start_partition} to {last - 1} of {arena.partitions}.",
                )
            buffer, rows = arena.buffer, (pattern.partitions, arena.pitch)
            origin = pattern.start_partition * arena.pitch
            self.limit = arena.partition_bytes
            held = allocation_bounds(state.allocations, pattern) if pattern.registers else None
            if held is not None:
                self.floor, self.limit = held
        else:
            buffer = state.device.tensors[pattern.tensor]
            self.limit = buffer.size
        super().__init__(
            buffer,
            pattern.dtype,
            pattern.offset,
            pattern.dims,
            rows,
            pattern.registers,
            skip,
            None if vector is None else Window(state, vector),
            (pattern.vector_stride, pattern.vector_bound),
        )
        self.origin = origin
        if pattern.limits is not None:
            self.floor, self.limit, self.moved = pattern.limits

    @property
    def base(self) -> Window:
        """All the rows that indices pick from; the window itself where there are none."""
        if self.index is None:
            return self
        found = copy.copy(self)
        found.index, found.fixed, found.dynamic = None, None, bool(self.registers)
        return found

    def check(self) -> None:
        """Raise NeuronError out-of-bounds unless the operand is where it may be: for one that no
        register moves."""
        if self.index is not None:
            self.index.check()
        if 0 not in self.shape:
            if not self._inside(self.offset):
                raise self._outside(self.offset)

    def _inside(self, offset: int, moved: int = 0) -> bool:
        low, high = offset + self.low, offset + self.high
        return low >= self.floor + moved and high <= self.limit + moved

    def move(self, buffer: np.ndarray[Any, Any]) -> None:
        """The memory is this buffer from now on."""
        self.buffer = buffer
        self.fixed = None

    def _outside(self, offset: int, moved: int = 0) -> NeuronError:
        free = slice(1, None) if self.on_chip else slice(None)
        shape, strides, start = self.shape[free], self.strides[free], offset - self.floor - moved
        holder = self._holder(moved)
        if not holder:
            return _outside(self._code, self.name, start, shape, strides, self.limit - self.floor)
        size = self.dtype.itemsize
        steps = [stride // size for stride in strides]
        return NeuronError(
            self._code,
            f"{self.name}{list(shape)} at element {start // size}"
            f"{' of a partition' * self.on_chip} with strides {steps} leaves {holder}",
        )

    def _holder(self, moved: int) -> str:
        """What messages call the tensor or allocation that the access has to stay in."""
        if self.on_chip:
            held = allocations_of(self.state.allocations, self.pattern)
            found = (f"{r.name!r}, which is {r.dtype}{list(r.shape)}" for r in held)
            return " or ".join(dict.fromkeys(found))
        device, number = self.state.device, self.pattern.tensor
        if number >= len(device.names):
            return ""
        if self.pattern.limits is None:
            return device.names[number]
        first, last = self.floor + moved, self.limit + moved
        bytes_of_it = f"bytes {first} to {last - 1} of {device.names[number]}"
        return device.parts.get((number, first, last), bytes_of_it)


class Windows:
    """The windows of a core, one for all patterns that look at the same elements."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._found: dict[tuple[Any, ...], Window] = {}
        self._indexed: dict[bool, ByIdentity[Window]] = {False: ByIdentity(), True: ByIdentity()}
        self._by_tensor: dict[int, list[Window]] = {}

    def window(self, pattern: AccessPattern, skip: bool = False) -> Window:
        """The window of a pattern; where `skip`, it looks at nothing when it would be outside."""
        if pattern.vector_offset is not None:
            known = self._indexed[skip]
            if pattern not in known:
                known[pattern] = self._made(pattern, skip)
            return known[pattern]
        key = _identity(pattern, skip)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._made(pattern, skip)
        return found

    def _made(self, pattern: AccessPattern, skip: bool) -> Window:
        made = Window(self._state, pattern, skip)
        for each in (made, made.index):
            if each is not None and not each.on_chip:
                self._by_tensor.setdefault(each.pattern.tensor, []).append(each)
        return made

    def move(self, tensor: int, buffer: np.ndarray[Any, Any]) -> None:
        """The memory of a tensor is this buffer from now on."""
        for window in self._by_tensor.get(tensor, ()):
            window.move(buffer)


def _identity(pattern: AccessPattern, skip: bool) -> tuple[Any, ...]:
    """Equal for patterns that look at the same elements, none of which an index picks."""
    return (
        pattern.memory.value,
        pattern.tensor,
        pattern.dtype,
        pattern.start_partition,
        pattern.partitions,
        pattern.offset,
        pattern.dims,
        pattern.registers,
        pattern.limits,
        skip,
    )
