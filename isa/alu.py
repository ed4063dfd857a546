"""ALU operators and activation functions, each with its meaning as a scalar expression.

Sources: the tables "Supported Math Operators" and "Supported Activation Functions" of SDK
nki/api/nki.api.shared.rst; reductions, generations and tie-breaking from the pages of the functions
of the same names (nki/api/nki/language/__init__.py). Codes are ours.

Arithmetic operators convert their inputs to fp32 and compute there (the GpSimd engine computes on
32-bit integers natively); bit-vector operators see unsigned patterns. In `x <op> y`, x is the data
or the left operand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from isa.enums import Engine
from isa.scalar import (
    Absolute,
    And,
    Atan,
    Compare,
    Constant,
    Erf,
    ErfSlope,
    Exp,
    Expression,
    Gelu,
    GeluSigmoid,
    GeluSigmoidSlope,
    GeluSlope,
    GeluTanh,
    Log,
    Log1p,
    Maximum,
    Minimum,
    Mish,
    Or,
    Parameter,
    Power,
    Reciprocal,
    Relation,
    Rsqrt,
    Select,
    ShiftLeft,
    ShiftRight,
    Sigmoid,
    Silu,
    SiluSlope,
    Sin,
    Sqrt,
    Tanh,
    X,
    Xor,
    Y,
)

_OPERATORS = "nki/api/nki.api.shared.rst#supported-math-operators-for-nki-isa"
_FUNCTIONS = "nki/api/nki.api.shared.rst#supported-activation-functions-for-nki-isa"
_LANGUAGE = "nki/api/nki/language/__init__.py "
_ALL = (2, 3, 4)

_VECTOR = frozenset({Engine.vector})
_GPSIMD = frozenset({Engine.gpsimd})
_VECTOR_GPSIMD = _VECTOR | _GPSIMD
_COMPUTE = _VECTOR_GPSIMD | {Engine.scalar}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AluOperator:
    """One operator of the `op` fields.

    `arity`: how many of x and y it uses. `arithmetic`: False for bit-vector operators. `engines`
    run it on two tensors or as a reduction, `tensor_scalar_engines` on a tensor and a scalar (the
    scalar engine only in the combinations that `tensor_scalar` documents). `reduces`: legal as the
    operator of `tensor_reduce`; `identity` is what starts such a reduction (None: its first
    element), `finish` maps its result x and the number of elements y to the value stored.
    `comparison`: gives 1.0 or 0.0. `commutative`: x and y may change places, and the bits stay the
    same (a maximum of zeros of both signs depends on the order). `assumed`: what of the row no
    public document states.
    """

    name: str
    code: int
    arity: int
    arithmetic: bool
    expression: Expression
    engines: frozenset[Engine]
    tensor_scalar_engines: frozenset[Engine]
    reduces: bool = False
    comparison: bool = False
    commutative: bool = False
    identity: float | None = None
    finish: Expression | None = None
    generations: tuple[int, ...] = _ALL
    document: str = _OPERATORS
    assumed: str = ""

    def __repr__(self) -> str:
        return f"<operator {self.name}>"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScalarEngineFunction:
    """One function of the scalar engine: out = function(data * scale + bias), in fp32.

    `lowest`, `highest`: the documented valid range, of |x| where `range_of_magnitude`; results
    outside it are invalid on hardware. `table_set`: functions of one set share an activation table,
    a change of set costs a table load. `parameter`: name of the extra operand, or None.
    `bias_generations`: where a bias is allowed.
    """

    name: str
    code: int
    expression: Expression
    table_set: str
    lowest: float = -math.inf
    highest: float = math.inf
    range_of_magnitude: bool = False
    parameter: str | None = None
    bias_generations: tuple[int, ...] = _ALL
    table_set_assumed: bool = True
    document: str = _FUNCTIONS
    assumed: str = ""

    @property
    def loaded_table(self) -> str | None:
        """The set whose table must be loaded; None for copy, which every table has: NB036, NB039
        alternate it with sqrt and exp, and have no time for 1.3 us of a load each."""
        return None if self.name == "copy" else self.table_set

    def __repr__(self) -> str:
        return f"<activation {self.name}>"


def _truth(condition: Expression) -> Expression:
    return Select(condition, Constant(1.0), Constant(0.0))


def _nonzero(value: Expression) -> Expression:
    return Compare(Relation.not_equal, value, Constant(0.0))


def _bitvec(
    name: str, code: int, expression: Expression, arity: int = 2, identity: int | None = None
) -> AluOperator:
    return AluOperator(
        name=name,
        code=code,
        arity=arity,
        arithmetic=False,
        expression=expression,
        engines=_VECTOR,
        tensor_scalar_engines=_VECTOR,
        reduces=identity is not None,
        identity=identity,
    )


def _arithmetic(
    name: str,
    code: int,
    expression: Expression,
    arity: int = 2,
    engines: frozenset[Engine] = _VECTOR_GPSIMD,
    tensor_scalar_engines: frozenset[Engine] | None = None,
    reduces: bool = False,
    commutative: bool = False,
    identity: float | None = None,
    finish: Expression | None = None,
    generations: tuple[int, ...] = _ALL,
    document: str = _OPERATORS,
    assumed: str = "",
) -> AluOperator:
    return AluOperator(
        name=name,
        code=code,
        arity=arity,
        arithmetic=True,
        expression=expression,
        engines=engines,
        tensor_scalar_engines=tensor_scalar_engines or engines,
        reduces=reduces,
        commutative=commutative,
        identity=identity,
        finish=finish,
        generations=generations,
        document=document,
        assumed=assumed,
    )


def _comparison(code: int, relation: Relation) -> AluOperator:
    return AluOperator(
        name=relation.name,
        code=code,
        arity=2,
        arithmetic=True,
        expression=_truth(Compare(relation, X, Y)),
        engines=_VECTOR_GPSIMD,
        tensor_scalar_engines=_VECTOR_GPSIMD,
        comparison=True,
    )


def _logical(name: str, code: int, expression: Expression, identity: float) -> AluOperator:
    return _arithmetic(name, code, _truth(expression), reduces=True, identity=identity)


def _larger(relation: Relation) -> Expression:
    """x where |x| <relation> |y|, else y: the documented tie-breaking."""
    return Select(Compare(relation, Absolute(X), Absolute(Y)), X, Y)


_NAN_RULE = "NaN in either operand gives NaN"

_ALU_ROWS = (
    _bitvec("invert", 0x01, ~X, arity=1),
    _bitvec("bitwise_and", 0x02, And(X, Y), identity=-1),
    _bitvec("bitwise_or", 0x03, Or(X, Y), identity=0),
    _bitvec("bitwise_xor", 0x04, Xor(X, Y), identity=0),
    _bitvec("left_shift", 0x05, ShiftLeft(X, Y)),
    _bitvec("right_shift", 0x06, ShiftRight(X, Y)),
    _arithmetic(
        "add",
        0x10,
        X + Y,
        tensor_scalar_engines=_COMPUTE,
        reduces=True,
        identity=0.0,
        commutative=True,
    ),
    _arithmetic(
        "subtract",
        0x11,
        X - Y,
        reduces=True,
        assumed="a reduction is the first element minus the sum of the others",
    ),
    _arithmetic(
        "multiply",
        0x12,
        X * Y,
        tensor_scalar_engines=_COMPUTE,
        reduces=True,
        identity=1.0,
        commutative=True,
    ),
    _arithmetic(
        "maximum", 0x13, Maximum(X, Y), reduces=True, identity=-math.inf, assumed=_NAN_RULE
    ),
    _arithmetic("minimum", 0x14, Minimum(X, Y), reduces=True, identity=math.inf, assumed=_NAN_RULE),
    _comparison(0x18, Relation.equal),
    _comparison(0x19, Relation.not_equal),
    _comparison(0x1A, Relation.greater_equal),
    _comparison(0x1B, Relation.greater),
    _comparison(0x1C, Relation.less_equal),
    _comparison(0x1D, Relation.less),
    _logical("logical_and", 0x20, And(_nonzero(X), _nonzero(Y)), 1.0),
    _logical("logical_or", 0x21, Or(_nonzero(X), _nonzero(Y)), 0.0),
    _logical("logical_xor", 0x22, Xor(_nonzero(X), _nonzero(Y)), 0.0),
    # tensor_tensor: GpSimd only; tensor_scalar reserves GpSimd for rsqrt.
    _arithmetic(
        "power",
        0x24,
        Power(X, Y),
        engines=_GPSIMD,
        tensor_scalar_engines=_VECTOR,
        assumed="the engine of tensor_scalar",
    ),
    _arithmetic(
        "abs_max",
        0x25,
        _larger(Relation.greater),
        engines=_VECTOR,
        identity=0.0,
        generations=(4,),
        document=_LANGUAGE + "abs_max",
        assumed="y where either operand is NaN, as the documented comparison gives",
    ),
    _arithmetic(
        "abs_min",
        0x26,
        _larger(Relation.less),
        engines=_VECTOR,
        identity=math.inf,
        generations=(4,),
        document=_LANGUAGE + "abs_min",
        assumed="y where either operand is NaN, as the documented comparison gives",
    ),
    _arithmetic("abs", 0x28, Absolute(X), arity=1, engines=_VECTOR),
    # release-notes/components/nki.rst, 0.4.0: operators of tensor_scalar on trn3.
    _arithmetic(
        "square", 0x29, X * X, arity=1, engines=_VECTOR | {Engine.scalar}, generations=(4,)
    ),
    _arithmetic(
        "relu",
        0x2A,
        Maximum(X, Constant(0.0)),
        arity=1,
        engines=_VECTOR | {Engine.scalar},
        generations=(4,),
        assumed="NaN gives NaN",
    ),
    # nki.api.shared.rst, "NKI Engine Selection": GpSimd as tensor_scalar, else an activation.
    _arithmetic("rsqrt", 0x2B, Rsqrt(X), arity=1, engines=_GPSIMD),
    _arithmetic("reciprocal", 0x2C, Reciprocal(X), arity=1, engines=_VECTOR),
    _arithmetic("bypass", 0x30, X, arity=1, engines=_COMPUTE, document=_LANGUAGE + "bypass"),
    _arithmetic(
        "average",
        0x34,
        X + Y,
        engines=_GPSIMD,
        identity=0.0,
        finish=X / Y,
        document="nki/api/nki.isa.rst#nki.isa.tensor_partition_reduce",
        assumed="the arithmetic mean, divided once at the end",
    ),
)

ALU: dict[str, AluOperator] = {row.name: row for row in _ALU_ROWS}
"""Every ALU operator by its `nki.language` name."""

ALU_BY_CODE: dict[int, AluOperator] = {row.code: row for row in _ALU_ROWS}


# Activation functions. Composite ones are arranged so that no intermediate overflow or cancellation
# reaches the result, from -inf to inf.


def _softplus(x: Expression) -> Expression:
    return Maximum(x, Constant(0.0)) + Log1p(Exp(-Absolute(x)))


def _sign() -> Expression:
    zero = Constant(0.0)
    negative = Select(Compare(Relation.less, X, zero), Constant(-1.0), X)
    positive = Select(Compare(Relation.greater, X, zero), Constant(1.0), negative)
    return Select(Compare(Relation.equal, X, zero), zero, positive)


def _sine() -> Expression:
    """sin on [-pi, pi], outside the cubic of its Taylor polynomial at the nearer end.

    The document states a cubic extrapolation with sin(9.0) = 27.65; this one gives 27.654.
    """
    pi = Constant(math.pi)
    beyond = X - Select(Compare(Relation.greater, X, Constant(0.0)), pi, -pi)
    cubic = beyond * (beyond * beyond * (1.0 / 6.0) - 1.0)
    return Select(Compare(Relation.less_equal, Absolute(X), pi), Sin(X), cubic)


def _prelu() -> Expression:
    scaled = Parameter("relu_param") * X
    return Select(Compare(Relation.greater, X, Constant(0.0)), X, scaled)


_CLOSED = "coefficients of the usual formula; the document prints none"


def _activation(
    name: str,
    code: int,
    expression: Expression,
    table_set: str,
    lowest: float = -math.inf,
    highest: float = math.inf,
    range_of_magnitude: bool = False,
    parameter: str | None = None,
    bias_generations: tuple[int, ...] = _ALL,
    assumed: str = "",
) -> ScalarEngineFunction:
    return ScalarEngineFunction(
        name=name,
        code=code,
        expression=expression,
        table_set=table_set,
        lowest=lowest,
        highest=highest,
        range_of_magnitude=range_of_magnitude,
        parameter=parameter,
        bias_generations=bias_generations,
        table_set_assumed=name not in _OBSERVED_SETS,
        assumed=assumed,
    )


_OBSERVED_SETS = frozenset({"copy", "square", "rsqrt", "sigmoid", "silu", "exp", "softplus"})
"""Functions whose table set third-party profiles of trn2 show; the sets of others are assumed."""

_ACTIVATION_ROWS = (
    _activation("copy", 0x00, X, "copy"),
    _activation("square", 0x01, X * X, "copy"),
    _activation("sigmoid", 0x02, Sigmoid(X), "sigmoid"),
    _activation("relu", 0x03, Maximum(X, Constant(0.0)), "copy", assumed="NaN gives NaN"),
    _activation("prelu", 0x04, _prelu(), "copy", parameter="relu_param"),
    _activation("gelu", 0x05, Gelu(X), "gelu"),
    _activation("gelu_dx", 0x06, GeluSlope(X), "gelu"),
    _activation(
        "gelu_apprx_tanh",
        0x07,
        GeluTanh(X),
        "gelu",
        assumed=_CLOSED,
    ),
    _activation("gelu_apprx_sigmoid", 0x08, GeluSigmoid(X), "gelu", assumed=_CLOSED),
    _activation(
        "gelu_apprx_sigmoid_dx",
        0x09,
        GeluSigmoidSlope(X),
        "gelu",
        assumed=_CLOSED,
    ),
    _activation("silu", 0x0A, Silu(X), "silu"),
    _activation("silu_dx", 0x0B, SiluSlope(X), "silu"),
    _activation("tanh", 0x0C, Tanh(X), "tanh"),
    _activation("softplus", 0x0D, _softplus(X), "softplus"),
    _activation("mish", 0x0E, Mish(X), "mish"),
    _activation("erf", 0x0F, Erf(X), "erf"),
    _activation("erf_dx", 0x10, ErfSlope(X), "erf"),
    _activation("exp", 0x11, Exp(X), "exp"),
    _activation("log", 0x12, Log(X), "log", 2.0**-64, 2.0**64),
    _activation("sin", 0x13, _sine(), "sin", -math.pi, math.pi),
    _activation("arctan", 0x14, Atan(X), "arctan", -math.pi / 2, math.pi / 2),
    _activation("sqrt", 0x15, Sqrt(X), "sqrt", 2.0**-116, 2.0**118),
    _activation("rsqrt", 0x16, Rsqrt(X), "copy", 2.0**-87, 2.0**97),
    _activation(
        "reciprocal",
        0x17,
        Reciprocal(X),
        "reciprocal",
        2.0**-42,
        2.0**42,
        range_of_magnitude=True,
        bias_generations=(3, 4),
    ),
    _activation("sign", 0x18, _sign(), "copy"),
    _activation("abs", 0x19, Absolute(X), "copy"),
)

ACTIVATIONS: dict[str, ScalarEngineFunction] = {row.name: row for row in _ACTIVATION_ROWS}
"""Every activation function by its `nki.language` name."""

ACTIVATIONS_BY_CODE: dict[int, ScalarEngineFunction] = {row.code: row for row in _ACTIVATION_ROWS}
