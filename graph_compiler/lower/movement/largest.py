"""The few largest, or smallest, elements of rows, by instructions that find eight at a time.

Those instructions compare in fp32, where neighbours among 32-bit keys are equal. So a first search
finds only about where the last wanted element lies in the order. All keys are then taken relative
to that number, which makes fp32 exact around the last wanted element: a second search finds exactly
the wanted elements. These few are brought in order by comparing each with all others.
"""

from __future__ import annotations

import math
from typing import Any

import nki.language as nl
from graph_compiler.host_kernels.bodies import SortKernel
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.movement.sort_keys import SortKey, halves, integer_keys, key_of
from graph_compiler.lower.movement.sort_rows import SortRows
from graph_compiler.lower.nests.nest import PARTITIONS
from isa.alu import ALU
from isa.enums import Engine
from nki.ir.views.tensor import NkiTensor

SLOTS = 8
"""Elements that an instruction finds."""

MOST = 64
"""Elements that are put in order by comparing each with all others: tiles of their pairs fit."""

STARTED = 60.0
"""About how many ns an instruction takes besides the elements."""

_LEAST = -(1 << 31)
_BELOW_ALL = -3e38
"""Less than any key, and than any difference of two."""


def search_ns(device: DeviceProgram, sort: SortKernel) -> float:
    """About how long `emit_largest` takes; infinite where it is not possible."""
    found = key_of(sort)
    if found is None or sort.taken > MOST:
        return math.inf
    rounds = -(-sort.taken // SLOTS)
    passes, pairs = 3 * rounds + 3, 0
    if found.is_wide:
        passes, pairs = 5 * rounds + 8, 10
    passes += 2 * len(found.key)
    clock = device.target.clock_ghz(Engine.vector)
    tiles = -(-math.prod(sort.counts[:-1]) // PARTITIONS)
    each = passes * (sort.counts[-1] / clock + STARTED)
    return tiles * (each + pairs * (sort.taken**2 / clock + STARTED))


def emit_largest(rows: SortRows, outputs: Any, inputs: Any) -> None:
    """The first elements in order, of rows for which `key_of` is known."""
    own = key_of(rows.sort)
    assert own is not None
    _LargestOfRows(rows, own).run(outputs, inputs)


class _LargestOfRows:
    """The first elements of up to 128 rows."""

    def __init__(self, rows: SortRows, own: SortKey) -> None:
        self.tiles = rows
        self.own = own
        self.device = rows.device
        self.rows = rows.rows
        self.taken = rows.sort.taken
        self.rounds = -(-self.taken // SLOTS)
        self.width = max(rows.sort.counts[-1], SLOTS)

    def run(self, outputs: Any, inputs: Any) -> None:
        sort = self.tiles.sort
        arrays = [self.tiles.loaded(place, which, self.width) for which, place in enumerate(inputs)]
        keys = self._keys(arrays[0])
        places = self._split(keys) if self.own.is_wide else self._places(keys)[:, : self.taken]
        for which, place in enumerate(outputs):
            value = places
            if which < len(sort.inputs):
                value = self._gathered(arrays[which], places)
            self.tiles.store(place, which, value)

    def _emit(self, name: str, **operands: Any) -> None:
        self.device.builder.emit(name, **operands)

    def _tile(self, dtype: str, *sizes: int) -> NkiTensor:
        return self.device.tile((self.rows, *sizes), dtype)

    def _scalar(self, dst: NkiTensor, data: NkiTensor, *steps: tuple[str, Any]) -> NkiTensor:
        """A tile computed from another one and one or two numbers."""
        operands: dict[str, Any] = {}
        for number, (op, operand) in enumerate(steps):
            operands |= {f"op{number}": ALU[op], f"operand{number}": operand}
        self._emit("tensor_scalar", dst=dst, data=data, **operands)
        return dst

    def _both(self, dst: NkiTensor, left: NkiTensor, op: str, right: NkiTensor) -> NkiTensor:
        self._emit("tensor_tensor", dst=dst, data1=left, data2=right, op=ALU[op])
        return dst

    def _keys(self, x: NkiTensor) -> NkiTensor:
        """Integers of which those of the first elements are the largest."""
        count = self.tiles.sort.counts[-1]
        keys = integer_keys(self.device, self.own, x)
        if self.width > count:
            keys = nl.copy(keys, dtype="int32") if keys is x or keys.dtype != "int32" else keys
            self._emit("memset", dst=keys[:, count:], value=_LEAST)
        return keys

    def _largest(self, keys: NkiTensor) -> NkiTensor:
        """The largest eight times so many as there are rounds, in fp32."""
        found = self._tile("float32", SLOTS * self.rounds)
        for number in range(self.rounds):
            here = found[:, SLOTS * number : SLOTS * (number + 1)]
            self._emit("max8", dst=here, src=keys)
            if number + 1 < self.rounds:
                keys = self._without(keys, here)
        return found

    def _without(self, keys: NkiTensor, values: NkiTensor) -> NkiTensor:
        """What is left of keys."""
        rest = self._tile("float32", self.width)
        self._emit("nc_match_replace8", dst=rest, data=keys, vals=values, imm=_BELOW_ALL)
        return rest

    def _places(self, keys: NkiTensor) -> NkiTensor:
        """Where the largest are; of equal ones the earlier are first."""
        found = self._tile("uint32", SLOTS * self.rounds)
        for number in range(self.rounds):
            values = self._tile("float32", SLOTS)
            here = found[:, SLOTS * number : SLOTS * (number + 1)]
            self._emit("max8", dst=values, src=keys)
            self._emit("nc_find_index8", dst=here, data=keys, vals=values)
            if number + 1 < self.rounds:
                keys = self._without(keys, values)
        return found

    def _split(self, keys: NkiTensor) -> NkiTensor:
        """Where the largest of 32-bit keys are."""
        high, low = halves(self.device, keys)
        last = self._largest(high)[:, self.taken - 1 : self.taken]
        # The key that is wanted last is less than 2^16 above `last`, so exact; rounding keeps the
        # order of all others.
        relative = self._tile("float32", self.width)
        self._emit(
            "scalar_tensor_tensor",
            dst=relative,
            data=high,
            op0=ALU["subtract"],
            operand0=last,
            op1=ALU["add"],
            operand1=low,
        )
        places = self._places(relative)[:, : self.taken]
        return places if self.taken == 1 else self._in_order(keys, places)

    def _gathered(self, data: NkiTensor, places: NkiTensor) -> NkiTensor:
        found = self._tile(data.dtype, self.taken)
        self._emit("nc_n_gather", dst=found, data=data, indices=places)
        return found

    def _in_order(self, keys: NkiTensor, places: NkiTensor) -> NkiTensor:
        """Places by their keys; they are in order already where keys are equal."""
        count = self.taken

        def along(tile: NkiTensor, last: bool) -> NkiTensor:
            """[partitions, count] repeated along another dimension."""
            steps = (0, 1) if last else (1, 0)
            return tile.ap([[tile.shape[1], self.rows], *([s, count] for s in steps)], 0)

        def compared(tile: NkiTensor) -> NkiTensor:
            pairs = self._tile("float32", count, count)
            return self._both(pairs, along(tile, True), "subtract", along(tile, False))

        high, low = halves(self.device, self._gathered(keys, places))
        # The sign of the sum is exact, and no sum is between -1 and 1 but 0.
        difference = compared(high)
        self._both(difference, difference, "add", compared(low))
        ordinals = self._tile("int32", count)
        self._emit("iota", dst=ordinals, pattern=[[1, count]], offset=0)
        earlier = compared(ordinals)
        self._scalar(earlier, earlier, ("maximum", -1.0), ("minimum", 0.0))
        self._both(difference, difference, "greater", earlier)
        rank = self._summed(difference, "float32")
        self._both(difference, along(rank, True), "equal", along(ordinals, False))
        number = nl.copy(places, dtype="float32")
        self._both(difference, difference, "multiply", along(number, True))
        return self._summed(difference, "uint32")

    def _summed(self, pairs: NkiTensor, dtype: str) -> NkiTensor:
        total = self._tile(dtype, self.taken)
        self._emit("tensor_reduce", dst=total, op=ALU["add"], data=pairs, axis=(2,))
        return total
