"""Element-wise functions: called, `nl.add(x, y)` makes a tile; named, `op=nl.add` selects what an
operation computes.

Each is one object. As `op` it stands for `alu`, a row of the ALU operator table, or for
`activation`, a row of the activation table; each is None where the table has none. What it does
when it is called is its row of `nki.language.lowering.table`.
"""

from __future__ import annotations

import inspect
from typing import Any

from isa.alu import ACTIVATIONS, ALU, AluOperator, ScalarEngineFunction
from isa.errors import NeuronError
from nki.ir.context import caller
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import Emitter, dtype_of
from nki.language.lowering.table import FUNCTIONS, Function


class Operator:
    """An element-wise operator by its public name: an `op` argument, and mostly a function too.

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def clipped_exp(a):
    ...     tile = nl.load(a)
    ...     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.minimum, operand0=0.0)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.exp(tile))
    ...     return out
    >>> print(clipped_exp(np.array([[-1, 0, 1]], np.float32)).round(3))
    [[0.368 1.    1.   ]]
    """

    __module__ = "nki.language"

    def __init__(
        self,
        name: str,
        alu: AluOperator | None,
        activation: ScalarEngineFunction | None,
        function: Function | None = None,
    ) -> None:
        self.__name__ = name
        self.__qualname__ = name
        self.alu = alu
        self.activation = activation
        self.function = function
        self.__doc__ = _document(self)
        self.__signature__ = _signature(function)

    def __call__(self, *operands: Any, **options: Any) -> Any:
        raise NeuronError(
            "not-supported",
            what=f"nl.{self.__name__} was called as a function",
            why=f"nl.{self.__name__} is a name for op= arguments.",
            hint=f"Pass it to an operation, for example nisa.activation(..., op=nl.{self.__name__})"
            " or nisa.tensor_scalar(..., op0=...).",
        )

    def __repr__(self) -> str:
        return f"nl.{self.__name__}"

    def __reduce__(self) -> str:
        return self.__name__


class _OfOne(Operator):
    """A function of one tile."""

    def __call__(self, x: Any, dtype: Any = None) -> NkiTensor:  # type: ignore[override]
        assert self.function is not None and self.function.unary is not None
        e = Emitter(self.__name__, caller())
        tile = e.tile("x", x)
        return self.function.unary(e, tile, dtype_of(dtype, tile.dtype))


class _OfTwo(Operator):
    """A function of two operands, at least one of them a tile."""

    def __call__(self, x: Any, y: Any, dtype: Any = None) -> NkiTensor:  # type: ignore[override]
        assert self.function is not None and self.function.binary is not None
        return self.function.binary(Emitter(self.__name__, caller()), x, y, dtype)


def _signature(function: Function | None) -> inspect.Signature:
    parameter = inspect.Parameter
    names = () if function is None else function.parameters
    kind = parameter.POSITIONAL_OR_KEYWORD
    operands = [parameter(name, kind) for name in names]
    return inspect.Signature([*operands, parameter("dtype", kind, default=None)] if names else [])


def _document(operator: Operator) -> str:
    """Contract, bound, use as `op`, source and example."""
    name, function = operator.__name__, operator.function
    uses = [
        f"{use} of {table}"
        for row, use, table in (
            (operator.alu, "ALU operator", "nisa.tensor_tensor and its kin"),
            (operator.activation, "activation function", "nisa.activation"),
        )
        if row is not None
    ]
    as_operator = f"As `op`: {' and '.join(uses)}." if uses else ""
    if function is None:
        return f"{name}: a name for `op` arguments. {as_operator}"
    operands = (
        "x: a tile in SBUF or PSUM."
        if function.binary is None
        else "x, y: tiles of one shape in SBUF or PSUM, or one of them a number or a [P, 1] column."
    )
    default = "that of x" if function.binary is None else "the operands', promoted; numbers follow"
    lines = [
        function.summary,
        "",
        operands,
        f"dtype: of the result, a new tile in SBUF (default: {default}).",
        *([function.note] if function.note else []),
        bound_text(function),
        *([as_operator] if as_operator else []),
        "",
        "Raises not-a-tensor, wrong-memory, shape-mismatch, dtype-not-allowed.",
        f"Source: SDK nki/api/nki/language/__init__.py ({name})",
        "",
        *_example(function),
    ]
    return "\n".join(lines)


def bound_text(function: Function) -> str:
    """The accuracy of a function, in words."""
    where = f" for {function.domain}" if function.domain else ""
    if not function.ulps and not function.absolute:
        return f"Exact, or correctly rounded{where}."
    extra = f" plus {function.absolute:.2g}" if function.absolute else ""
    return f"Within {function.ulps:g} units of the last place{extra} in fp32{where}."


def _example(function: Function) -> list[str]:
    *inputs, shown = function.example
    names = "ab"[: len(inputs)]
    loads = ", ".join(f"nl.load({name})" for name in names)
    arrays = ", ".join(f"np.array({text}, np.{function.dtype})" for text in inputs)
    target = f'(platform_target="{function.target}")' if function.target else ""
    return [
        ">>> import numpy as np, nki, nki.language as nl",
        f">>> @nki.jit{target}",
        f"... def kernel({', '.join(names)}):",
        "...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)",
        f"...     nl.store(out, nl.{function.name}({loads}))",
        "...     return out",
        f">>> print(kernel({arrays}))",
        shown,
    ]


def _operator(name: str) -> Operator:
    function = FUNCTIONS.get(name)
    kind = Operator if function is None else _OfOne if function.binary is None else _OfTwo
    return kind(name, ALU.get(name), ACTIVATIONS.get(name), function)


OPERATORS: dict[str, Operator] = {
    name: _operator(name) for name in sorted({*ALU, *ACTIVATIONS, *FUNCTIONS})
}
"""Every operator and element-wise function by its name in `nki.language`."""

OPERATOR_KINDS = {kind.__name__: kind.__call__ for kind in (_OfOne, _OfTwo)}
"""What is called when a function of this kind is, by the name that Python's messages have."""
