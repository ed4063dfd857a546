"""LLVM printer of scalar expressions: the same results as the NumPy printer, bit for bit.

Elements are "float32", an integer type (wrapping), or an unsigned type for bit patterns. `covers`
says which expressions have a meaning on elements of a type; the others stay with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from isa import scalar
from isa.alu import ACTIVATIONS, ALU, AluOperator, ScalarEngineFunction
from isa.scalar import Expression, Relation
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.codegen.vectors import VectorArithmetic, maximum, minimum, printed
from simulator.numerics import double, polynomial

Print = Callable[..., Value]


class Choice(NamedTuple):
    """A step that chooses y or z by x."""

    expression: Expression


def _choice(relation: Relation) -> Choice:
    condition = scalar.Compare(relation, scalar.X, scalar.Constant(0.0))
    return Choice(scalar.Select(condition, scalar.Y, scalar.Parameter("z")))


CHOICES = {"where": _choice(Relation.not_equal), "unless": _choice(Relation.equal)}

TABLES: dict[str, Mapping[str, AluOperator | ScalarEngineFunction | Choice]] = {
    "alu": ALU,
    "activation": ACTIVATIONS,
    "choice": CHOICES,
}
"""Where the expression of a step comes from."""


def _operation(name: str) -> Print:
    return lambda f, left, right: f.binary(name, left, right)


def _reciprocal(f: FunctionText, value: Value) -> Value:
    return 1.0 / value


def _rsqrt(f: FunctionText, value: Value) -> Value:
    """In double, rounded once: as `simulator.numerics.transcendental`."""
    root = f.intrinsic("sqrt", f.convert("fpext", value, "double"))
    return f.convert("fptrunc", 1.0 / root, "float")


def _invert(f: FunctionText, value: Value) -> Value:
    return value ^ -1


def _shift(operation: str) -> Print:
    def shift(f: FunctionText, left: Value, right: Value) -> Value:
        width = f.like(right, int(left.element[1:]))
        moved = f.binary(operation, left, right)
        return f.select(f.compare("icmp ult", right, width), moved, f.like(left, 0))

    return shift


def _absolute(f: FunctionText, value: Value) -> Value:
    negative = 0 - value
    return f.select(f.compare("icmp slt", value, f.like(value, 0)), negative, value)


def _in_double(function: Callable[..., Any]) -> Print:
    """A function of `simulator.numerics.double`."""

    def evaluate(f: FunctionText, *values: Value) -> Value:
        wide = [f.convert("fpext", value, "double") for value in values]
        result = function(VectorArithmetic(f, values[0].width, "double"), *wide)
        return f.convert("fptrunc", result, "float")

    return evaluate


def _across(f: FunctionText, operation: str, value: Value) -> Value:
    """The lanes of a vector of integers combined, as i64."""
    if value.width:
        name = f"llvm.vector.reduce.{operation}.v{value.width}{value.element}"
        value = f.call(name, value.element, 0, value)
    return f.convert("zext", value, "i64")


def unsigned_power(f: FunctionText, base: Value, exponent: Value) -> Value:
    """base ** exponent of integers, wrapping."""
    one, none = f.like(base, 1), f.like(base, 0)

    def step(index: Value, result: Value, square: Value, left: Value) -> Sequence[Value]:
        odd = f.compare("icmp ne", left & one, none)
        result = f.select(odd, result * square, result)
        return result, square * square, f.binary("lshr", left, one)

    zeros = f.intrinsic("ctlz", _across(f, "or", exponent), f.constant("i1", 0))
    steps = 64 - zeros
    return f.loop(f.integer(0), steps, 1, step, [one, base, exponent])[0]


def signed_power(f: FunctionText, base: Value, exponent: Value) -> Value:
    """The same; of negative exponents 1 / base ** -exponent, cut to an integer."""
    one, none = f.like(base, 1), f.like(base, 0)
    negative = f.compare("icmp slt", exponent, none)
    # Powers of 1 and -1 have no other fraction, which depends on whether the exponent is odd.
    odd = exponent & one
    result = unsigned_power(f, base, f.select(negative, odd, exponent))
    sizes = [f.compare("icmp eq", base, f.like(base, unit)) for unit in (1, -1)]
    fraction = f.select(f.binary("or", *sizes), result, none)
    return f.select(negative, fraction, result)


_TRUTH: dict[type[Expression], Print] = {
    scalar.And: _operation("and"),
    scalar.Or: _operation("or"),
    scalar.Xor: _operation("xor"),
    scalar.Not: _invert,
    scalar.Select: lambda f, condition, chosen, other: f.select(condition, chosen, other),
}

_REAL: dict[type[Expression], Print] = _TRUTH | {
    scalar.Add: _operation("fadd"),
    scalar.Subtract: _operation("fsub"),
    scalar.Multiply: _operation("fmul"),
    scalar.Divide: _operation("fdiv"),
    scalar.Power: _in_double(double.power),
    scalar.Maximum: maximum,
    scalar.Minimum: minimum,
    scalar.Negate: lambda f, value: f.unary("fneg", value),
    scalar.Absolute: lambda f, value: f.intrinsic("fabs", value),
    scalar.Exp: printed(polynomial.exp),
    scalar.Log: _in_double(double.log),
    scalar.Log1p: _in_double(double.log1p),
    scalar.Tanh: printed(polynomial.tanh),
    scalar.Erf: printed(polynomial.erf),
    scalar.ErfSlope: _in_double(double.erf_slope),
    scalar.Gelu: _in_double(double.gelu),
    scalar.GeluSlope: _in_double(double.gelu_slope),
    scalar.GeluSigmoidSlope: _in_double(double.gelu_sigmoid_slope),
    scalar.SiluSlope: _in_double(double.silu_slope),
    scalar.Mish: _in_double(double.mish),
    scalar.Sin: _in_double(double.sin),
    scalar.Atan: _in_double(double.atan),
    scalar.Sigmoid: printed(polynomial.sigmoid),
    scalar.Silu: printed(polynomial.silu),
    scalar.GeluSigmoid: printed(polynomial.gelu_sigmoid),
    scalar.GeluTanh: printed(polynomial.gelu_tanh),
    scalar.Sqrt: lambda f, value: f.intrinsic("sqrt", value),
    scalar.Rsqrt: _rsqrt,
    scalar.Reciprocal: _reciprocal,
}

_INTEGER: dict[type[Expression], Print] = _TRUTH | {
    scalar.Add: _operation("add"),
    scalar.Subtract: _operation("sub"),
    scalar.Multiply: _operation("mul"),
    scalar.Negate: lambda f, value: 0 - value,
    scalar.ShiftLeft: _shift("shl"),
    scalar.ShiftRight: _shift("lshr"),
}

_SIGNED = _INTEGER | {
    scalar.Power: signed_power,
    scalar.Maximum: lambda f, left, right: f.intrinsic("smax", left, right),
    scalar.Minimum: lambda f, left, right: f.intrinsic("smin", left, right),
    scalar.Absolute: _absolute,
}

_UNSIGNED = _INTEGER | {
    scalar.Power: unsigned_power,
    scalar.Maximum: lambda f, left, right: f.intrinsic("umax", left, right),
    scalar.Minimum: lambda f, left, right: f.intrinsic("umin", left, right),
    scalar.Absolute: lambda f, value: value,
}

_RELATIONS = {
    Relation.equal: ("oeq", "eq"),
    Relation.not_equal: ("une", "ne"),
    Relation.less: ("olt", "lt"),
    Relation.less_equal: ("ole", "le"),
    Relation.greater: ("ogt", "gt"),
    Relation.greater_equal: ("oge", "ge"),
}
"""Predicates of fcmp, and of icmp but for its sign letter."""

_ORDERED = frozenset(_RELATIONS) - {Relation.equal, Relation.not_equal}
_LEAVES = (scalar.Input, scalar.Parameter, scalar.Constant, scalar.Compare)


def is_signed(element: str) -> bool:
    """Whether a domain is one of signed integers."""
    return element.startswith("int")


def lane_type(element: str) -> str:
    """LLVM's type for the elements of a domain."""
    return "float" if element == "float32" else f"i{element.lstrip('uint')}"


def _table(element: str) -> dict[type[Expression], Print]:
    if element == "float32":
        return _REAL
    return _SIGNED if is_signed(element) else _UNSIGNED


@cache
def covers(table: str, name: str, element: str) -> bool:
    """Whether an operator or activation has an exact form on elements of this type."""
    printers = _table(element)
    return all(
        type(node) in printers or isinstance(node, _LEAVES)
        for node in scalar.walk(TABLES[table][name].expression)
    )


def print_expression(
    f: FunctionText, expression: Expression, element: str, inputs: Mapping[str, Value]
) -> Value:
    """Emit an expression over the values of its inputs and parameters, by name."""
    printers = _table(element)
    sample = next(iter(inputs.values()))

    def visit(node: Expression, *operands: Value) -> Value:
        if isinstance(node, (scalar.Input, scalar.Parameter)):
            return inputs[node.name]
        if isinstance(node, scalar.Constant):
            return f.like(sample, node.value)
        if isinstance(node, scalar.Compare):
            return f.compare(_comparison(node.relation, element), *operands)
        return printers[type(node)](f, *operands)

    return scalar.fold(expression, visit)


def _comparison(relation: Relation, element: str) -> str:
    real, integer = _RELATIONS[relation]
    if element == "float32":
        return f"fcmp {real}"
    sign = ("s" if is_signed(element) else "u") if relation in _ORDERED else ""
    return f"icmp {sign}{integer}"
