"""The element-wise functions of `nki.language`: name -> operations, bound and example.

`nki.language.operators` makes the public functions from these rows. A bound holds for fp32 results
against the exact function of the fp32 input, wherever `domain` holds; results in narrower dtypes
are rounded once more. It is that of the simulated engines: the documents publish none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki.language.lowering import arithmetic, division, logarithm, rounding, trigonometry
from nki.language.lowering.arithmetic import (
    Binary,
    Unary,
    activation,
    binary,
    exact_or,
    negative,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function of one tile (`unary`) or of two operands (`binary`).

    `ulps` and `absolute`: |error| <= ulps * (unit of the last place of the result) + absolute; 0
    and 0 for functions whose results are those of correct rounding. `domain`: where that holds, in
    words; empty means for all inputs. `example`: Python expressions for the inputs, then what is
    printed. `target`: the first one that has the function, where not all do.
    """

    name: str
    summary: str
    example: tuple[str, ...]
    unary: Unary | None = None
    binary: Binary | None = None
    ulps: float = 0
    absolute: float = 0
    domain: str = ""
    note: str = ""
    dtype: str = "float32"
    target: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the operands."""
        return ("x",) if self.binary is None else ("x", "y")


_INTEGERS = "int32 and uint32 tiles are computed exactly, on the GpSimd engine."
_TRUTH = "1 where it holds, 0 elsewhere, in the operands' dtype unless `dtype` is given."
_BITS = "Operands are integers; negative ones stand for their two's complement pattern."


_REMAINDERS = (
    "Not a number where y is 0 or x infinite; of int32 and uint32 tiles exact for all y but 0. "
    "Tiles with |x| >= 2**41 |y| take some 300 operations more, in loops that other tiles skip."
)
_ANGLES = (
    "Tiles with an angle beyond 2**18 take some 120 operations more, in a loop that other tiles "
    "skip."
)


def _arithmetic(name: str, summary: str, *example: str, **options: Any) -> Function:
    note = options.pop("note", _INTEGERS)
    return Function(
        name=name, summary=summary, example=example, binary=binary(name), note=note, **options
    )


def _comparison(name: str, symbol: str, shown: str) -> Function:
    return _arithmetic(
        name,
        f"x {symbol} y: {_TRUTH}",
        "[[1, 2, 3]]",
        "[[2, 2, 2]]",
        shown,
    )


def _logical(name: str, word: str, shown: str) -> Function:
    return _arithmetic(
        name,
        f"x {word} y of truth values: 1 or 0; anything but 0 is true.",
        "[[0, 0, 1, 1]]",
        "[[0, 1, 0, 1]]",
        shown,
    )


def _bits(name: str, summary: str, *example: str) -> Function:
    return _arithmetic(name, summary, *example, dtype="int32", note=_BITS)


def _activation(
    name: str, summary: str, *example: str, ulps: float = 1, absolute: float = 0
) -> Function:
    return Function(
        name=name,
        summary=summary,
        example=example,
        unary=activation(name),
        ulps=ulps,
        absolute=absolute,
    )


def _unary(name: str, summary: str, lower: Unary, *example: str, **options: Any) -> Function:
    return Function(name=name, summary=summary, example=example, unary=lower, **options)


_TRN3 = "NeuronCore-v4 (trn3) only."

_BINARY = (
    _arithmetic("add", "x + y.", "[[1, 2, 3]]", "[[4, 5, 6]]", "[[5. 7. 9.]]"),
    _arithmetic("subtract", "x - y.", "[[5, 7, 9]]", "[[4, 5, 6]]", "[[1. 2. 3.]]"),
    _arithmetic("multiply", "x * y.", "[[1, 2, 3]]", "[[4, 5, 6]]", "[[ 4. 10. 18.]]"),
    _arithmetic("maximum", "The greater of x and y.", "[[1, 5]]", "[[3, 3]]", "[[3. 5.]]"),
    _arithmetic("minimum", "The smaller of x and y.", "[[1, 5]]", "[[3, 3]]", "[[1. 3.]]"),
    _arithmetic(
        "abs_max",
        "x where |x| > |y|, else y, with its sign.",
        "[[-5, 1]]",
        "[[3, -1]]",
        "[[-5. -1.]]",
        note=_TRN3,
        target="trn3",
    ),
    _arithmetic(
        "abs_min",
        "x where |x| < |y|, else y, with its sign.",
        "[[5, 1]]",
        "[[-3, -1]]",
        "[[-3. -1.]]",
        note=_TRN3,
        target="trn3",
    ),
    Function(
        name="power",
        summary="x to the power of y, on the GpSimd engine.",
        example=("[[2, 9, 2]]", "[[3, 0.5, -1]]", "[[8.  3.  0.5]]"),
        binary=binary("power"),
        ulps=1,
    ),
    Function(
        name="divide",
        summary="x / y; float32 for two integers. x * (1 / y) with both scaled by a power of two: "
        "several small instructions, where nl.multiply by nl.reciprocal is two.",
        example=("[[1, 2, -3]]", "[[4, 0.5, 0]]", "[[0.25 4.   -inf]]"),
        binary=division.divide,
        ulps=2,
    ),
    Function(
        name="fmod",
        summary="The remainder of x / y with the sign of x.",
        example=("[[7, -7, 7]]", "[[3, 3, -3]]", "[[ 1. -1.  1.]]"),
        binary=division.fmod,
        note=_REMAINDERS,
    ),
    Function(
        name="mod",
        summary="The remainder of x / y with the sign of y.",
        example=("[[7, -7, 7]]", "[[3, 3, -3]]", "[[ 1.  2. -2.]]"),
        binary=division.mod,
        note=_REMAINDERS,
    ),
    _comparison("equal", "==", "[[0. 1. 0.]]"),
    _comparison("not_equal", "!=", "[[1. 0. 1.]]"),
    _comparison("less", "<", "[[1. 0. 0.]]"),
    _comparison("less_equal", "<=", "[[1. 1. 0.]]"),
    _comparison("greater", ">", "[[0. 0. 1.]]"),
    _comparison("greater_equal", ">=", "[[0. 1. 1.]]"),
    _logical("logical_and", "and", "[[0. 0. 0. 1.]]"),
    _logical("logical_or", "or", "[[0. 1. 1. 1.]]"),
    _logical("logical_xor", "xor", "[[0. 1. 1. 0.]]"),
    _bits("bitwise_and", "x & y.", "[[12, 10]]", "[[10, 3]]", "[[8 2]]"),
    _bits("bitwise_or", "x | y.", "[[12, 10]]", "[[10, 3]]", "[[14 11]]"),
    _bits("bitwise_xor", "x ^ y.", "[[12, 10]]", "[[10, 3]]", "[[6 9]]"),
    _bits("left_shift", "x << y.", "[[1, 3]]", "[[4, 1]]", "[[16  6]]"),
    _bits("right_shift", "x >> y, zeros entering.", "[[16, 6]]", "[[4, 1]]", "[[1 3]]"),
)

_EXACT_UNARY = (
    _unary("abs", "|x|.", arithmetic.absolute, "[[-1, 2]]", "[[1. 2.]]", note=_INTEGERS),
    _unary("negative", "-x.", negative, "[[1, -2]]", "[[-1.  2.]]", note=_INTEGERS),
    _unary(
        "square",
        "x * x.",
        exact_or(binary("multiply"), None, None, activation("square")),
        "[[-3, 0.5]]",
        "[[9.   0.25]]",
        note=_INTEGERS,
    ),
    _unary(
        "sign",
        "-1, 0 or 1, with the sign of x.",
        activation("sign"),
        "[[-5, 0, 3]]",
        "[[-1.  0.  1.]]",
    ),
    _unary(
        "relu",
        "x where x > 0, else 0.",
        exact_or(binary("maximum"), None, 0, activation("relu")),
        "[[-1, 2]]",
        "[[0. 2.]]",
        note=_INTEGERS,
    ),
    _unary(
        "copy",
        "A copy of an SBUF or PSUM tile in SBUF, bit for bit between equal dtypes.",
        arithmetic.copy,
        "[[1, 2]]",
        "[[1. 2.]]",
    ),
    _unary("floor", "The greatest integer <= x.", rounding.floor, "[[3.7, -3.2]]", "[[ 3. -4.]]"),
    _unary("ceil", "The least integer >= x.", rounding.ceil, "[[3.2, -3.7]]", "[[ 4. -3.]]"),
    _unary("trunc", "x without its fraction.", rounding.trunc, "[[3.7, -3.7]]", "[[ 3. -3.]]"),
    _unary(
        "logical_not", "1 where x is 0, else 0.", arithmetic.logical_not, "[[0, 1]]", "[[1. 0.]]"
    ),
    _unary(
        "invert",
        "All bits of an integer flipped.",
        arithmetic.invert,
        "[[0, 5]]",
        "[[-1 -6]]",
        dtype="int32",
    ),
)

_ROUNDED_UNARY = (
    _unary(
        "reciprocal",
        "1 / x, on the vector engine.",
        arithmetic.reciprocal,
        "[[4, -0.5]]",
        "[[ 0.25 -2.  ]]",
    ),
    _unary(
        "sqrt",
        "The square root, on the GpSimd engine.",
        arithmetic.sqrt,
        "[[4, 0.25]]",
        "[[2.  0.5]]",
        ulps=1,
        domain="x >= 0",
    ),
    _unary(
        "rsqrt",
        "1 / sqrt(x), on the GpSimd engine; x is in SBUF.",
        arithmetic.rsqrt,
        "[[4, 0.25]]",
        "[[0.5 2. ]]",
        ulps=1,
        domain="x >= 0",
    ),
    _unary(
        "log",
        "The natural logarithm.",
        logarithm.log,
        "[[1, 2]]",
        "[[0.        0.6931472]]",
        ulps=2,
    ),
    _unary(
        "sin",
        "The sine.",
        trigonometry.sin,
        "[[0, 9]]",
        "[[0.        0.4121185]]",
        ulps=3,
        domain="all finite x, and NaN elsewhere",
        note=_ANGLES,
    ),
    _unary(
        "cos",
        "The cosine.",
        trigonometry.cos,
        "[[0, 9]]",
        "[[ 1.         -0.91113025]]",
        ulps=3,
        domain="all finite x, and NaN elsewhere",
        note=_ANGLES,
    ),
    _unary(
        "tan",
        "The tangent.",
        trigonometry.tan,
        "[[0, 9]]",
        "[[ 0.         -0.45231566]]",
        ulps=5,
        domain="all finite x, and NaN elsewhere",
        note=_ANGLES,
    ),
    _unary(
        "arctan",
        "The angle between -pi/2 and pi/2 whose tangent is x.",
        trigonometry.arctan,
        "[[1, -100]]",
        "[[ 0.7853982 -1.5607967]]",
        ulps=3,
    ),
)

_ACTIVATIONS = (
    _activation("exp", "e ** x.", "[[0, 1]]", "[[1.        2.7182817]]"),
    _activation("tanh", "The hyperbolic tangent.", "[[0, 1]]", "[[0.        0.7615942]]", ulps=1.5),
    _activation(
        "sigmoid",
        "1 / (1 + exp(-x)).",
        "[[0, 1]]",
        "[[0.5       0.7310586]]",
        ulps=2.5,
    ),
    _activation(
        "gelu",
        "x * Phi(x), Phi the normal distribution.",
        "[[0, 1]]",
        "[[0.        0.8413448]]",
        ulps=1,
    ),
    _activation(
        "gelu_dx",
        "The derivative of gelu.",
        "[[0, 1]]",
        "[[0.5       1.0833155]]",
        ulps=1,
    ),
    _activation(
        "gelu_apprx_tanh",
        "gelu with Phi from a tanh of a cubic.",
        "[[0, 1]]",
        "[[0.       0.841192]]",
        ulps=2.5,
    ),
    _activation(
        "gelu_apprx_sigmoid",
        "x * sigmoid(1.702 x).",
        "[[0, 1]]",
        "[[0.         0.84579575]]",
        ulps=2.5,
    ),
    _activation(
        "gelu_apprx_sigmoid_dx",
        "The derivative of gelu_apprx_sigmoid.",
        "[[0, 1]]",
        "[[0.5       1.0677797]]",
        ulps=1,
    ),
    _activation("silu", "x * sigmoid(x).", "[[0, 1]]", "[[0.        0.7310586]]", ulps=2.5),
    _activation(
        "silu_dx",
        "The derivative of silu.",
        "[[0, 1]]",
        "[[0.5        0.92767054]]",
        ulps=1,
    ),
    _activation("softplus", "log(1 + exp(x)).", "[[0, 1]]", "[[0.6931472 1.3132617]]", ulps=2),
    _activation(
        "mish",
        "x * tanh(softplus(x)).",
        "[[0, 1]]",
        "[[0.        0.8650984]]",
        ulps=1,
    ),
    _activation("erf", "The error function.", "[[0, 1]]", "[[0.        0.8427008]]", ulps=1.5),
    _activation(
        "erf_dx",
        "The derivative of erf, 2 / sqrt(pi) * exp(-x * x).",
        "[[0, 1]]",
        "[[1.1283792 0.4151075]]",
        ulps=1,
    ),
)

FUNCTIONS: dict[str, Function] = {
    row.name: row for row in (*_BINARY, *_EXACT_UNARY, *_ROUNDED_UNARY, *_ACTIVATIONS)
}
"""Every element-wise function by its name in `nki.language`."""
