"""Arrays that a sort carries along, as tiles whose bits the tensor engine can transpose.

It leaves bits of four bytes as they are from gen3 on. Of fewer bytes, and before that of halves,
they are numbers in fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import nki.language as nl
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.sizes import BIT_FOR_BIT
from isa.alu import ALU
from isa.dtypes import DTYPES as DTYPE_ROWS
from nki.ir.views.tensor import NkiTensor

_WORD, _HALF = 4, 16


@dataclass(frozen=True, slots=True)
class Payload:
    """How elements of a dtype are carried. `turned`: whether they are transposed."""

    device: DeviceProgram
    dtype: str
    turned: bool

    @property
    def _is_plain(self) -> bool:
        """Whether bits stay as they are."""
        return not self.turned or (self._bytes == _WORD and self._passes)

    @property
    def _passes(self) -> bool:
        return self.device.target.generation >= BIT_FOR_BIT

    @property
    def _bytes(self) -> int:
        return DTYPE_ROWS[self.dtype].size

    @property
    def parts(self) -> int:
        """How many tiles there are."""
        return 2 if self.turned and self._bytes == _WORD and not self._passes else 1

    def encoded(self, tile: NkiTensor) -> list[NkiTensor]:
        """The tiles that are carried."""
        if self._is_plain:
            return [tile.view("float32") if self.turned and tile.dtype != "float32" else tile]
        bits = self._bits(tile)
        if self.parts == 1:
            return [nl.copy(bits, dtype="float32")]
        found = []
        for op, operand in (("right_shift", _HALF), ("bitwise_and", (1 << _HALF) - 1)):
            part = self.device.tile(bits.shape, bits.dtype)
            self.device.builder.emit(
                "tensor_scalar", dst=part, data=bits, op0=ALU[op], operand0=operand
            )
            found.append(nl.copy(part, dtype="float32"))
        return found

    def _bits(self, tile: NkiTensor) -> NkiTensor:
        dtype = f"uint{8 * self._bytes}"
        return tile if tile.dtype == dtype else tile.view(dtype)

    def decoded(self, parts: Sequence[NkiTensor]) -> NkiTensor:
        """The elements again, as a new tile."""
        if self._is_plain:
            return self._of_bits(nl.copy(parts[0]))
        if self.parts == 1:
            return self._of_bits(nl.copy(parts[0], dtype=f"uint{8 * self._bytes}"))
        high, low = (nl.copy(part, dtype="uint32") for part in parts)
        emit = self.device.builder.emit
        emit("tensor_scalar", dst=high, data=high, op0=ALU["left_shift"], operand0=_HALF)
        emit("tensor_tensor", dst=high, data1=high, data2=low, op=ALU["bitwise_or"])
        return self._of_bits(high)

    def _of_bits(self, tile: NkiTensor) -> NkiTensor:
        return tile if tile.dtype == self.dtype else tile.view(self.dtype)
