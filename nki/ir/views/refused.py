"""What Python and NumPy do with numbers, and a tensor of a kernel refuses."""

from __future__ import annotations

import ast
import sys
from types import FrameType
from typing import Any, NoReturn, Self

from isa.alu import ACTIVATIONS, ALU
from isa.errors import NeuronError
from isa.errors.warned import warn
from nki.ir.context import CURRENT
from nki.ir.locations import asked_by_assert, is_comparison, is_own_file, resolve

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


_INSTEAD_OF_CHANGES = {
    "shape": "Write tile.reshape(shape), a view in another shape.",
    "dtype": "Write tile.view(dtype) for the same bytes, nl.copy(tile, dtype=dtype) to convert.",
    "name": "Write nl.ndarray(..., name=name).",
    "buffer": "Write nl.ndarray(..., buffer=buffer), and copy.",
    "offset": "Write tile[start:stop], or tile.ap(...) for any pattern.",
    "strides": "Write tile.ap(...), a view with any strides.",
    "address": "Write nl.ndarray(..., address=address).",
    "T": "Write nisa.nc_transpose or nl.transpose into another tile.",
}
"""What to write for an attribute that somebody wants to change."""


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

    Not so `==` and `!=` of whole tensors, which are of identity: arguments that are a number or a
    tensor are compared with their defaults (`if scale == 1.0`), with a warning where that is a
    number. What can only be asked for its values is refused: an element, and a tensor that the
    same function makes. Nor the truth of a tensor, which says that there is one (`if bias:`), but
    for those that can only be asked for their values: an element, for which a loop would never end,
    and what the same expression computes (`if nl.equal(a, b)`). `assert nl.equal(a, b)` says that
    all elements hold, as the examples of nki/api/nki/language/__init__.py do, and is checked in
    eager mode.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if self is not other:
            _compared(self, other, "==", sys._getframe(1))
        return self is other

    def __ne__(self, other: object) -> bool:
        if self is not other:
            _compared(self, other, "!=", sys._getframe(1))
        return self is not other

    __hash__ = object.__hash__

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        tensor: Any = self
        _refuse(
            f"tensor {tensor.name!r} used as an array",
            "nl.device_print for its values; an array of the host becomes a tensor with "
            "nl.shared_constant",
        )

    def __bool__(self) -> bool:
        tensor: Any = self
        storage, frame = tensor.storage, sys._getframe(1)
        if is_own_file(frame.f_code.co_filename):
            return True
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
        if _is_element(tensor) or (storage.memory.on_chip and _has_one(tensor)):
            _refuse(
                f"the truth of tensor {tensor.name!r}, which has one element",
                "`is not None` to ask whether there is a tensor; nisa.register_load puts the "
                "element into a register, for `while register:` or nl.dynamic_range; nl.where "
                "chooses by it",
            )
        return True

    def __setattr__(self, name: str, _: Any) -> NoReturn:
        self._refuse_change(f"an assignment to {name}", name)

    def __delattr__(self, name: str) -> NoReturn:
        self._refuse_change(f"`del` of {name}", name)

    def _refuse_change(self, what: str, name: str) -> NoReturn:
        tensor: Any = self
        raise NeuronError(
            "not-supported",
            what=f"{what} of tensor {tensor.name!r}",
            why="A tensor is a view with a shape, a data type and a place of its own for good.",
            hint=_INSTEAD_OF_CHANGES.get(name, "Keep what belongs to a tensor beside it."),
        )

    def __copy__(self) -> Self:
        """A view cannot change."""
        return self

    def __deepcopy__(self, _: Any) -> Self:
        """The same view, of the same tensor."""
        return self

    def __reduce_ex__(self, _: Any) -> NoReturn:
        tensor: Any = self
        _refuse(f"pickling of tensor {tensor.name!r}", "nki.compile(kernel, ...).save(path)")

    def __delitem__(self, _: Any) -> NoReturn:
        tensor: Any = self
        _refuse(
            f"`del` of a part of tensor {tensor.name!r}",
            "tile[start:stop] for a part of a tile",
        )

    def __array_ufunc__(self, ufunc: Any, *_: Any, **__: Any) -> NoReturn:
        _refuse_numpy(self, ufunc.__name__)

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        _refuse_numpy(self, function.__name__)


def _has_one(tensor: Any) -> bool:
    """Whether a tensor is sure to have one element."""
    return all(size.__class__ is int and size == 1 for size in tensor.shape)


def _is_element(tensor: Any) -> bool:
    """Whether a view is one element of a tensor that has more dimensions, or more elements."""
    whole = tensor.storage.shape
    return _has_one(tensor) and (len(whole) != len(tensor.shape) or whole != tensor.shape)


def _compared(tensor: Any, other: Any, symbol: str, frame: FrameType) -> None:
    """A comparison that is never of values: refused where values are meant, else a warning."""
    number = isinstance(other, (bool, int, float))
    if not (number or isinstance(other, NoNumber)) or not is_comparison(frame):
        return
    storage = tensor.storage
    made_here = number and storage.location is not None and storage.location[0] is frame.f_code
    element = _is_element(tensor) or (isinstance(other, NoNumber) and _is_element(other))
    if element or made_here or (number and storage.memory.on_chip and _has_one(tensor)):
        function = "nl.equal(a, b)" if symbol == "==" else "nl.not_equal(a, b)"
        _refuse(f"the Python operator {symbol} on tensor {tensor.name!r}", function + _BRANCH)
    if number:
        what = f"tensor {tensor.name!r} {symbol} {other!r} is {symbol == '!='} whatever it holds"
        warn("number-comparison", what, resolve((frame.f_code, frame.f_lasti)))


def _refuse_numpy(tensor: Any, name: str) -> NoReturn:
    same = _NUMPY.get(name, name)
    known = f"nl.{same}" if same in _SHARED else "a function of nki.language"
    _refuse(f"np.{name} on tensor {tensor.name!r}", known)


def _operator(symbol: str, function: str) -> Any:
    def refuse(self: Any, *_: Any) -> NoReturn:
        meant = _with_operands(function, sys._getframe(1))
        _refuse(f"the Python operator {symbol} on tensor {self.name!r}", meant)

    return refuse


def _with_operands(function: str, frame: FrameType) -> str:
    """A call of `a` and `b`, with what the line that `frame` executes has in their places."""
    place = resolve((frame.f_code, frame.f_lasti))
    assert place is not None
    try:
        found = ast.parse(place.text[place.column : place.end_column]).body
    except SyntaxError:  # an expression of several lines
        return function
    match found:
        case [
            ast.Expr(ast.BinOp(left=left, right=right))
            | ast.AugAssign(target=left, value=right)
            | ast.Expr(ast.Compare(left=left, comparators=[right]))
        ]:
            return function.replace("(a, b)", f"({ast.unparse(left)}, {ast.unparse(right)})")
        case [ast.Expr(ast.UnaryOp(operand=operand) | ast.Call(args=[operand]))]:
            return function.replace("(a)", f"({ast.unparse(operand)})")
    return function


for _name, (_symbol, _function) in _FUNCTIONS.items():
    setattr(NoNumber, f"__{_name}__", _operator(_symbol, _function))
    setattr(NoNumber, f"__r{_name}__", _operator(_symbol, _function))
for _name, (_symbol, _function) in _UNARY.items():
    setattr(NoNumber, f"__{_name}__", _operator(_symbol, _function))
for _name, (_symbol, _function) in _COMPARISONS.items():
    setattr(NoNumber, f"__{_name}__", _operator(_symbol, _function + _BRANCH))
