"""The scalar expression language: what one element of an element-wise instruction becomes.

An expression is a tree of frozen nodes over the inputs `x` (the data, or the left operand) and `y`
(the right operand) and named parameters. `isa.alu` writes every ALU operator and activation
function in it; `simulator` prints it as NumPy and as machine code.

Meaning. A node is real, bits or truth. Real nodes are fp32, each rounded once to nearest even,
nothing contracted; on an engine that computes on 32-bit integers natively the same tree is
evaluated on integers and wraps. Bits nodes are unsigned patterns of the element's width. Truth
nodes exist between `Compare`, `And`, `Or`, `Xor`, `Not` and the condition of `Select` only, so no
result is a truth value. A comparison with NaN is false, except `not_equal`.

    >>> str((X + 1.0) * X)
    '(x + 1.0) * x'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar, TypeVar

Result = TypeVar("Result")


class Relation(Enum):
    """How the sides of a `Compare` relate; the value is how it prints."""

    equal = "=="
    not_equal = "!="
    less = "<"
    less_equal = "<="
    greater = ">"
    greater_equal = ">="


@dataclass(frozen=True, slots=True)
class Expression:
    """Base of all nodes. Python operators build nodes; `==` compares structure."""

    form: ClassVar[str]
    """How the node prints: `{0}` is its first child."""

    def __add__(self, other: Operable) -> Expression:
        return Add(self, lift(other))

    def __radd__(self, other: float) -> Expression:
        return Add(lift(other), self)

    def __sub__(self, other: Operable) -> Expression:
        return Subtract(self, lift(other))

    def __rsub__(self, other: float) -> Expression:
        return Subtract(lift(other), self)

    def __mul__(self, other: Operable) -> Expression:
        return Multiply(self, lift(other))

    def __rmul__(self, other: float) -> Expression:
        return Multiply(lift(other), self)

    def __truediv__(self, other: Operable) -> Expression:
        return Divide(self, lift(other))

    def __rtruediv__(self, other: float) -> Expression:
        return Divide(lift(other), self)

    def __neg__(self) -> Expression:
        return Negate(self)

    def __abs__(self) -> Expression:
        return Absolute(self)

    def __and__(self, other: Expression) -> Expression:
        return And(self, other)

    def __or__(self, other: Expression) -> Expression:
        return Or(self, other)

    def __xor__(self, other: Expression) -> Expression:
        return Xor(self, other)

    def __invert__(self) -> Expression:
        return Not(self)

    def __str__(self) -> str:
        return _bare(fold(self, lambda node, *children: node._text(*children)))

    def _text(self, *children: str) -> str:
        if not self.form.startswith("("):
            children = tuple(map(_bare, children))
        return self.form.format(*children)


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("(") else text


Operable = Expression | float


@dataclass(frozen=True, slots=True)
class Input(Expression):
    """An input element: `x` or `y`, the singletons `X` and `Y`."""

    name: str

    def _text(self, *children: str) -> str:
        return self.name

    form: ClassVar[str] = "input"


@dataclass(frozen=True, slots=True)
class Parameter(Expression):
    """A named number or column that the instruction carries, such as prelu's `relu_param`."""

    name: str

    def _text(self, *children: str) -> str:
        return self.name

    form: ClassVar[str] = "parameter"


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A number, rounded to the type in which its neighbours compute."""

    value: float

    def _text(self, *children: str) -> str:
        return repr(self.value)

    form: ClassVar[str] = "constant"


@dataclass(frozen=True, slots=True)
class Unary(Expression):
    """A node with one child."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    """A node with two children."""

    left: Expression
    right: Expression


# Real arithmetic.


class Add(Binary):
    """left + right."""

    form = "({0} + {1})"
    __slots__ = ()


class Subtract(Binary):
    """left - right."""

    form = "({0} - {1})"
    __slots__ = ()


class Multiply(Binary):
    """left * right."""

    form = "({0} * {1})"
    __slots__ = ()


class Divide(Binary):
    """left / right, correctly rounded."""

    form = "({0} / {1})"
    __slots__ = ()


class Power(Binary):
    """left raised to right, as C's pow: NaN for a negative base and a fractional exponent."""

    form = "power({0}, {1})"
    __slots__ = ()


class Maximum(Binary):
    """The larger side; NaN when either is NaN."""

    form = "maximum({0}, {1})"
    __slots__ = ()


class Minimum(Binary):
    """The smaller side; NaN when either is NaN."""

    form = "minimum({0}, {1})"
    __slots__ = ()


class Negate(Unary):
    """-operand: the sign bit flipped."""

    form = "(-{0})"
    __slots__ = ()


class Absolute(Unary):
    """The operand with its sign bit cleared."""

    form = "abs({0})"
    __slots__ = ()


# Conditions.


@dataclass(frozen=True, slots=True)
class Compare(Expression):
    """Truth of `left <relation> right`."""

    relation: Relation
    left: Expression
    right: Expression

    form: ClassVar[str] = "({0} {relation} {1})"

    def _text(self, *children: str) -> str:
        return self.form.format(*children, relation=self.relation.value)


@dataclass(frozen=True, slots=True)
class Select(Expression):
    """`chosen` where the condition holds, else `other`; the other branch has no effect."""

    condition: Expression
    chosen: Expression
    other: Expression

    form: ClassVar[str] = "select({0}, {1}, {2})"


# Bits, and truth values with the same names.


class And(Binary):
    """Bitwise and; of truth values, conjunction."""

    form = "({0} & {1})"
    __slots__ = ()


class Or(Binary):
    """Bitwise or; of truth values, disjunction."""

    form = "({0} | {1})"
    __slots__ = ()


class Xor(Binary):
    """Bitwise exclusive or; of truth values, inequality."""

    form = "({0} ^ {1})"
    __slots__ = ()


class Not(Unary):
    """Bitwise complement; of a truth value, negation."""

    form = "(~{0})"
    __slots__ = ()


class ShiftLeft(Binary):
    """left moved up by right bits; 0 when right is at least the width."""

    form = "({0} << {1})"
    __slots__ = ()


class ShiftRight(Binary):
    """left moved down by right bits, zeros entering; 0 when right is at least the width."""

    form = "({0} >> {1})"
    __slots__ = ()


# Functions of one real number.


class Exp(Unary):
    """e ** operand."""

    form = "exp({0})"
    __slots__ = ()


class Log(Unary):
    """Natural logarithm."""

    form = "log({0})"
    __slots__ = ()


class Log1p(Unary):
    """Natural logarithm of 1 + operand, accurate near 0."""

    form = "log1p({0})"
    __slots__ = ()


class Tanh(Unary):
    """Hyperbolic tangent."""

    form = "tanh({0})"
    __slots__ = ()


class Erf(Unary):
    """Error function."""

    form = "erf({0})"
    __slots__ = ()


class ErfSlope(Unary):
    """2 / sqrt(pi) * e ** -(operand ** 2), the derivative of the error function."""

    form = "erf_slope({0})"
    __slots__ = ()


class Gelu(Unary):
    """operand * Phi(operand), Phi the cumulative normal distribution."""

    form = "gelu({0})"
    __slots__ = ()


class GeluSlope(Unary):
    """The derivative of `Gelu`."""

    form = "gelu_slope({0})"
    __slots__ = ()


class GeluSigmoidSlope(Unary):
    """The derivative of `GeluSigmoid`."""

    form = "gelu_sigmoid_slope({0})"
    __slots__ = ()


class SiluSlope(Unary):
    """The derivative of `Silu`."""

    form = "silu_slope({0})"
    __slots__ = ()


class Mish(Unary):
    """operand * tanh(log(1 + e ** operand))."""

    form = "mish({0})"
    __slots__ = ()


class Sigmoid(Unary):
    """1 / (1 + e ** -operand), accurate where it is near 0."""

    form = "sigmoid({0})"
    __slots__ = ()


class Silu(Unary):
    """operand * sigmoid(operand)."""

    form = "silu({0})"
    __slots__ = ()


class GeluSigmoid(Unary):
    """operand * sigmoid(1.702 * operand)."""

    form = "gelu_sigmoid({0})"
    __slots__ = ()


class GeluTanh(Unary):
    """operand * (1 + tanh(sqrt(2 / pi) * (operand + 0.044715 * operand ** 3))) / 2."""

    form = "gelu_tanh({0})"
    __slots__ = ()


class Sin(Unary):
    """Sine of an angle in radians, from -pi to pi."""

    form = "sin({0})"
    __slots__ = ()


class Atan(Unary):
    """Inverse tangent, in radians."""

    form = "atan({0})"
    __slots__ = ()


class Sqrt(Unary):
    """Square root; NaN below 0."""

    form = "sqrt({0})"
    __slots__ = ()


class Rsqrt(Unary):
    """1 / sqrt(operand); infinity at 0, NaN below."""

    form = "rsqrt({0})"
    __slots__ = ()


class Reciprocal(Unary):
    """1 / operand, correctly rounded."""

    form = "reciprocal({0})"
    __slots__ = ()


X = Input("x")
Y = Input("y")

NODES: tuple[type[Expression], ...] = (
    *(Input, Parameter, Constant),
    *(Add, Subtract, Multiply, Divide, Power, Maximum, Minimum, Negate, Absolute),
    *(Compare, Select),
    *(And, Or, Xor, Not, ShiftLeft, ShiftRight),
    *(Exp, Log, Log1p, Tanh, Erf, ErfSlope, Gelu, GeluSlope, GeluSigmoidSlope, SiluSlope),
    *(Mish, Sigmoid, Silu, GeluSigmoid, GeluTanh),
    *(Sin, Atan, Sqrt, Rsqrt, Reciprocal),
)
"""Every node class that an expression can hold; a printer covers exactly these."""


def lift(value: Operable) -> Expression:
    """A number as a `Constant`; an expression as it is."""
    return value if isinstance(value, Expression) else Constant(float(value))


def children(node: Expression) -> tuple[Expression, ...]:
    """The direct children, in the order in which the constructor takes them."""
    values = (getattr(node, field.name) for field in fields(node))
    return tuple(value for value in values if isinstance(value, Expression))


def walk(expression: Expression) -> Iterator[Expression]:
    """Every node, children before parents, repeated where the tree repeats it."""
    for child in children(expression):
        yield from walk(child)
    yield expression


def fold(expression: Expression, function: Callable[..., Result]) -> Result:
    """`function(node, *results of its children)` from the leaves up; the root's result.

    Equal subtrees are visited once.
    """
    known: dict[Expression, Any] = {}

    def visit(node: Expression) -> Any:
        if node not in known:
            known[node] = function(node, *(visit(child) for child in children(node)))
        return known[node]

    return visit(expression)


def inputs(expression: Expression) -> frozenset[str]:
    """Names of the inputs and parameters that the expression uses."""
    leaves = (node for node in walk(expression) if isinstance(node, (Input, Parameter)))
    return frozenset(leaf.name for leaf in leaves)
