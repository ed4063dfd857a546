"""NumPy printer of scalar expressions.

An expression of `isa.scalar` becomes one Python function over arrays, compiled once for each
element type: "float32" (the arithmetic of the engines), a signed or unsigned integer type (native
integers of the GpSimd engine, wrapping), or an unsigned type for bit patterns. Every node is one
NumPy operation, so each result is rounded once and nothing is contracted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from isa import scalar
from isa.alu import ACTIVATIONS, ALU
from isa.scalar import Expression, Relation
from simulator.numerics import special_values, transcendental
from simulator.views import Array


class CompiledExpression:
    """A compiled expression: `call(x, y, relu_param, out)` over arrays of the element type.

    `out` (same shape and type as the result) receives the result if given; `call` returns it.
    """

    __slots__ = ("call", "element", "expression", "source")

    def __init__(self, expression: Expression, element: str, source: str, names: dict[str, Any]):
        self.expression = expression
        self.element = element
        self.source = source
        scope = dict(names)
        exec(compile(source, f"<{expression} as {element}>", "exec"), scope)
        self.call: Callable[..., Array] = scope["function"]


def _integer_power(base: Array, exponent: Array) -> Array:
    """Wrapping power; negative exponents give 1 / base ** -exponent cut to an integer."""
    negative = np.less(exponent, 0)
    # Powers of 1 and -1 have no other fraction, which depends on whether the exponent is odd.
    result = np.power(base, np.where(negative, exponent & 1, exponent))
    if not np.any(negative):
        return result
    unit = np.abs(base) == 1
    return np.where(negative, np.where(unit, result, result.dtype.type(0)), result)


_SHARED: dict[type[Expression], Callable[..., Array]] = {
    scalar.Add: np.add,
    scalar.Subtract: np.subtract,
    scalar.Multiply: np.multiply,
    scalar.Maximum: np.maximum,
    scalar.Minimum: np.minimum,
    scalar.Negate: np.negative,
    scalar.Absolute: np.absolute,
    scalar.Select: np.where,
    # Truth values are NumPy booleans, on which these are the logical operations.
    scalar.And: np.bitwise_and,
    scalar.Or: np.bitwise_or,
    scalar.Xor: np.bitwise_xor,
    scalar.Not: np.invert,
}

_INTEGER: dict[type[Expression], Callable[..., Array]] = _SHARED | {
    scalar.Power: _integer_power,
    scalar.ShiftLeft: np.left_shift,
    scalar.ShiftRight: np.right_shift,
}

_REAL: dict[type[Expression], Callable[..., Array]] = _SHARED | {
    scalar.Maximum: special_values.maximum,
    scalar.Minimum: special_values.minimum,
    scalar.Divide: np.divide,
    scalar.Sqrt: np.sqrt,
    scalar.Reciprocal: lambda x, **out: np.divide(np.float32(1), x, **out),
    scalar.Power: transcendental.power,
    scalar.Exp: transcendental.exp,
    scalar.Log: transcendental.log,
    scalar.Log1p: transcendental.log1p,
    scalar.Tanh: transcendental.tanh,
    scalar.Erf: transcendental.erf,
    scalar.ErfSlope: transcendental.erf_slope,
    scalar.Gelu: transcendental.gelu,
    scalar.GeluSlope: transcendental.gelu_slope,
    scalar.GeluSigmoidSlope: transcendental.gelu_sigmoid_slope,
    scalar.SiluSlope: transcendental.silu_slope,
    scalar.Mish: transcendental.mish,
    scalar.Sigmoid: transcendental.sigmoid,
    scalar.Silu: transcendental.silu,
    scalar.GeluSigmoid: transcendental.gelu_sigmoid,
    scalar.GeluTanh: transcendental.gelu_tanh,
    scalar.Sin: transcendental.sin,
    scalar.Atan: transcendental.atan,
    scalar.Rsqrt: transcendental.rsqrt,
}

_TAKES_OUT = {scalar.Reciprocal, scalar.Maximum, scalar.Minimum}
"""Nodes whose function is no NumPy ufunc but takes `out` like one."""

_RELATIONS: dict[Relation, Callable[..., Array]] = {
    Relation.equal: np.equal,
    Relation.not_equal: np.not_equal,
    Relation.less: np.less,
    Relation.less_equal: np.less_equal,
    Relation.greater: np.greater,
    Relation.greater_equal: np.greater_equal,
}

_LEAVES = (scalar.Input, scalar.Parameter, scalar.Constant)


def supports(expression: Expression, element: str) -> bool:
    """Whether every node has a meaning on elements of this type."""
    table = _REAL if element == "float32" else _INTEGER
    return all(
        type(node) in table or isinstance(node, (*_LEAVES, scalar.Compare))
        for node in scalar.walk(expression)
    )


@cache
def compiled(expression: Expression, element: str = "float32") -> CompiledExpression:
    """The function of an expression over arrays of the NumPy type named `element`."""
    table = _REAL if element == "float32" else _INTEGER
    number = np.dtype(element).type
    names: dict[str, Any] = {}
    lines: list[str] = []

    def bind(prefix: str, value: Any) -> str:
        name = f"{prefix}{len(names)}"
        names[name] = value
        return name

    def visit(node: Expression, *arguments: str) -> str:
        if isinstance(node, (scalar.Input, scalar.Parameter)):
            return node.name
        if isinstance(node, scalar.Constant):
            return bind("constant", number(node.value))
        if isinstance(node, scalar.Compare):
            function = _RELATIONS[node.relation]
        else:
            function = table[type(node)]
        result = f"t{len(lines)}"
        call = f"{bind('f', function)}({', '.join(arguments)}"
        if node is expression and (isinstance(function, np.ufunc) or type(node) in _TAKES_OUT):
            lines.append(f"return {call}, out=out)")
        else:
            lines.append(f"{result} = {call})")
        return result

    result = scalar.fold(expression, visit)
    if not lines or not lines[-1].startswith("return"):
        lines += ["if out is None:", f"    return {result}", f"out[...] = {result}", "return out"]
    body = "\n".join("    " + line for line in lines)
    default = bind("default", number(0))
    source = f"def function(x, y=None, relu_param={default}, out=None):\n{body}\n"
    return CompiledExpression(expression, element, source, names)


# By name, because hashing an expression walks it.


@cache
def alu(name: str, element: str = "float32") -> Callable[..., Array]:
    """The function `(x, y, out=None)` of an ALU operator on elements of a type."""
    return compiled(ALU[name].expression, element).call


@cache
def native_integers(name: str) -> bool:
    """Whether an ALU operator has a meaning on integers, without passing through fp32."""
    return supports(ALU[name].expression, "int64")


@cache
def activation(name: str) -> Callable[..., Array]:
    """The function `(x, relu_param=..., out=None)` of an activation on fp32 arrays."""
    return compiled(ACTIVATIONS[name].expression).call


@cache
def alu_ufunc(name: str) -> np.ufunc | None:
    """The NumPy ufunc that is the operator on x and y, or None where it is no single one."""
    expression = ALU[name].expression
    if isinstance(expression, scalar.Binary):
        if (expression.left, expression.right) == (scalar.X, scalar.Y):
            function = _SHARED.get(type(expression))
            return function if isinstance(function, np.ufunc) else None
    return None
