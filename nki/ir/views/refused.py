"""What Python and NumPy do with numbers, and a tensor of a kernel refuses."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from isa.alu import ACTIVATIONS, ALU
from isa.errors import NeuronError
from nki.ir.context import CURRENT
from nki.ir.locations import asked_by_assert

_FUNCTIONS = {
    "add": ("+", "nl.add(a, b)"),
    "sub": ("-", "nl.subtract(a, b)"),
    "mul": ("*", "nl.multiply(a, b)"),
    "truediv": ("/", "nl.divide(a, b)"),
    "floordiv": ("//", "nl.floor(nl.divide(a, b))"),
    "mod": ("%", "nl.mod(a, b)"),
    "pow": ("**", "nl.power(a, b)"),
    "matmul": ("@", "nl.matmul(a, b)"),
    "and": ("&", "nl.bitwise_and(a, b)"),
    "or": ("|", "nl.bitwise_or(a, b)"),
    "xor": ("^", "nl.bitwise_xor(a, b)"),
    "lshift": ("<<", "nl.left_shift(a, b)"),
    "rshift": (">>", "nl.right_shift(a, b)"),
}
"""Python's operators by the names of their methods, each with the function to call instead."""

_UNARY = {
    "neg": ("-", "nl.negative(a)"),
    "invert": ("~", "nl.invert(a)"),
    "abs": ("abs()", "nl.abs(a)"),
}

_COMPARISONS = {
    "lt": ("<", "nl.less(a, b)"),
    "le": ("<=", "nl.less_equal(a, b)"),
    "gt": (">", "nl.greater(a, b)"),
    "ge": (">=", "nl.greater_equal(a, b)"),
}

_NUMPY = {"true_divide": "divide", "amax": "max", "amin": "min", "absolute": "abs"}
"""Functions of nki.language whose names NumPy's do not have."""

_SHARED = frozenset(
    {
        *("all", "broadcast_to", "ceil", "cos", "divide", "empty_like", "expand_dims", "floor"),
        *("fmod", "full", "load", "logical_not", "matmul", "max", "mean", "min", "mod"),
        *("negative", "ones", "prod", "sum", "tan", "transpose", "trunc", "var", "where"),
        *("zeros", "zeros_like"),
    }
    | ALU.keys()
    | ACTIVATIONS.keys()
)
"""Functions of nki.language that NumPy may have by the same name."""

_BRANCH = (
    "; nl.where chooses by the result, and nl.fori_loop or nl.while_loop decide on the device what "
    "runs"
)


def _refuse(what: str, function: str) -> NoReturn:
    raise NeuronError(
        "not-supported",
        what=what,
        why="Only functions of nki.language and nki.isa compute on the device; what a tensor "
        "holds is not known while the kernel is traced.",
        hint=f"Write {function}.",
    )


class NoNumber:
    """Base of tensors: each of Python's operators says which function to call instead.

    Not so `==` and `!=`, which are of identity: arguments that are a number or a tensor are
    compared with their defaults (`if scale == 1.0`). Nor the truth of a tensor, which says that
    there is one (`if bias:`), but for two that can only be asked for their values: one element on
    chip, where a loop would never end, and what the same expression computes (`if nl.equal(a, b)`).
    `assert nl.equal(a, b)` says that all elements hold, as the examples of
    nki/api/nki/language/__init__.py do, and is checked in eager mode.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        tensor: Any = self
        storage, frame = tensor.storage, sys._getframe(1)
        by_assert = asked_by_assert(tensor.name, storage.location, frame)
        context = CURRENT.get()
        if by_assert and context is not None:
            return context.holds(tensor, (frame.f_code, frame.f_lasti))
        if by_assert is False:
            _refuse(
                f"the truth of tensor {tensor.name!r}, which is made here",
                "nl.where to choose by it, element by element; nisa.register_load puts an element "
                "into a register, for `while register:`; `assert nl.equal(a, b)` checks all "
                "elements in eager mode",
            )
        if storage.memory.on_chip and all(_is_one(size) for size in tensor.shape):
            _refuse(
                f"the truth of tensor {tensor.name!r}, which has one element",
                "`is not None` to ask whether there is a tensor; nisa.register_load puts the "
                "element into a register, for `while register:` or nl.dynamic_range; nl.where "
                "chooses by it",
            )
        return True

    def __array_ufunc__(self, ufunc: Any, *_: Any, **__: Any) -> NoReturn:
        _refuse_numpy(self, ufunc.__name__)

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        _refuse_numpy(self, function.__name__)


def _is_one(size: Any) -> bool:
    return size.__class__ is int and size == 1


def _refuse_numpy(tensor: Any, name: str) -> NoReturn:
    same = _NUMPY.get(name, name)
    known = f"nl.{same}" if same in _SHARED else "a function of nki.language"
    _refuse(f"np.{name} on tensor {tensor.name!r}", known)


def _operator(symbol: str, function: str) -> Any:
    def refuse(self: Any, *_: Any) -> NoReturn:
        _refuse(f"the Python operator {symbol} on tensor {self.name!r}", function)

    return refuse


for _name, (_symbol, _function) in _FUNCTIONS.items():
    setattr(NoNumber, f"__{_name}__", _operator(_symbol, _function))
    setattr(NoNumber, f"__r{_name}__", _operator(_symbol, _function))
for _name, (_symbol, _function) in _UNARY.items():
    setattr(NoNumber, f"__{_name}__", _operator(_symbol, _function))
for _name, (_symbol, _function) in _COMPARISONS.items():
    setattr(NoNumber, f"__{_name}__", _operator(_symbol, _function + _BRANCH))


__all__ = ["NoNumber"]
