"""The registers that kernels see (`nisa.VirtualRegister`)."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from isa.errors import NeuronError
from nki.ir.context import CURRENT, branch_on
from nki.ir.nodes import Register


class VirtualRegister(Register):
    """A 32-bit value that exists only while the kernel runs on the device.

    Made by `nisa.register_alloc` and by `nl.dynamic_range`. It can bound a dynamic loop, be the
    condition of `while register:`, and be a dynamic offset (`scalar_offset`, `nl.ds`). Its value
    is unknown while the kernel is traced, so Python arithmetic and `if` on it are errors. `frozen`
    registers (loop variables) cannot be written.

    Source: SDK nki/api/nki/isa/__init__.py (VirtualRegister).

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def row_of(a, index):
    ...     row = nisa.register_alloc(nl.load(index))
    ...     out = nl.ndarray((1, 2), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.load(a[nl.ds(row, 1), :]))
    ...     return out
    >>> a = np.arange(6, dtype=np.float32).reshape(3, 2)
    >>> print(row_of(a, np.array([[2]], np.int32)))
    [[4. 5.]]
    """

    __slots__ = ("__weakref__", "frozen")

    frozen: bool

    def __init__(
        self,
        number: int,
        name: str = "",
        location: Any = None,
        lower: Any = None,
        upper: Any = None,
        frozen: bool = False,
    ) -> None:
        given = number, name, location, lower, upper, frozen
        for slot, value in zip((*Register.__slots__, "frozen"), given):
            object.__setattr__(self, slot, value)

    def __repr__(self) -> str:
        """With its value in eager mode: `print(register)` in a kernel."""
        context = CURRENT.get()
        value = None if context is None else context.value_of(self)
        held = "" if value is None else f", value={value}"
        return f"VirtualRegister({self.name!r}{held})"

    def __bool__(self) -> bool:
        context = CURRENT.get()
        if context is None:
            raise branch_on(self)
        return context.truth(self, sys._getframe(1))

    def __setattr__(self, name: str, _: Any) -> NoReturn:
        raise NeuronError(
            "not-supported",
            what=f"an assignment to {name} of {_text(self)}",
            why="Instructions write registers; what describes one is fixed when it is made.",
            hint="Write nisa.register_move(register, value) or nisa.register_load(register, tile).",
        )

    def _arithmetic(self, *_: Any) -> NoReturn:
        raise NeuronError(
            "register-arithmetic",
            what=f"Python arithmetic on {_text(self)}",
            why="A register's value exists only while the kernel runs on the device; Python "
            "computes while the kernel is traced.",
            hint="Let the loop count what the index needs, nl.dynamic_range(0, tiles * size, size) "
            "with nl.ds(i, size), or compute the value in a tile and load it with "
            "nisa.register_load.",
        )

    def _compare(self, _: Any) -> NoReturn:
        raise NeuronError("register-branch", what=f"a Python comparison of {_text(self)}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Register):
            return self is other
        if other is None or isinstance(other, str):
            return False
        return self._compare(other)

    __hash__ = Register.__hash__

    def _convert(self, *_: Any) -> NoReturn:
        raise NeuronError(
            "register-arithmetic",
            what=f"{_text(self)} was used where Python needs a number",
            why="A register's value exists only while the kernel runs on the device.",
            hint="As a loop bound: nl.dynamic_range. As an index: scalar_offset of "
            "NkiTensor.ap, or nl.ds(register, size).",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _arithmetic
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = _arithmetic
    __pow__ = __rpow__ = __lshift__ = __rshift__ = __and__ = __or__ = __xor__ = _arithmetic
    __rlshift__ = __rrshift__ = __rand__ = __ror__ = __rxor__ = _arithmetic
    __neg__ = __pos__ = __abs__ = __invert__ = _arithmetic
    __lt__ = __le__ = __gt__ = __ge__ = _compare
    __index__ = __int__ = __float__ = __array__ = _convert


def _text(register: VirtualRegister) -> str:
    return f"register {register.name!r}" if register.name else "a register"
