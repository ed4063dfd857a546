"""A second meaning of the scalar language, independent of the simulator's printers: every node in
double precision by Python's math module, then rounded to fp32."""

from __future__ import annotations

import math
import operator

import numpy as np
from hypothesis import strategies as st

from isa import scalar
from isa.alu import ACTIVATIONS, ALU
from isa.scalar import (
    Compare,
    Constant,
    Input,
    Parameter,
    Select,
    fold,
)

INFINITY = math.inf
FAR = 3.0e38
FLOATS = st.floats(width=32, allow_nan=False)
BYTES = st.integers(0, 255)
WIDTH = 8


def rounded(value: float) -> float:
    """To fp32, overflowing to infinity."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def guarded(function, overflow=INFINITY, invalid=math.nan):
    def call(*values):
        if any(map(math.isnan, values)):
            return math.nan
        try:
            return function(*values)
        except OverflowError:
            return overflow
        except (ValueError, ZeroDivisionError):
            return invalid

    return call


def divide(x, y):
    if y == 0:
        return math.nan if x == 0 else math.copysign(INFINITY, x) * math.copysign(1, y)
    return x / y


def logarithm(x):
    return -INFINITY if x == 0 else math.log(x)


def either_nan(choose):
    return lambda x, y: math.nan if math.isnan(x) or math.isnan(y) else choose(x, y)


def root(x):
    return INFINITY if x == 0 else 1 / math.sqrt(x)


def gated(x, gate):
    """x * sigmoid(gate), and 0 where the sigmoid is."""
    return x / (1 + math.exp(-gate)) if gate > -700 or gate != gate else 0.0


def clamp(x: float, bound: float) -> float:
    return x if x != x else max(-bound, min(x, bound))


def phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


ROOT_TAU = math.sqrt(2 * math.pi)


def gated_slope(gate: float) -> float:
    """The derivative of x * sigmoid(gate), where gate is proportional to x."""
    gate = clamp(gate, 300.0)
    power = math.exp(-gate)
    return (1 + power + gate * power) / (1 + power) ** 2


REAL = {
    scalar.Add: operator.add,
    scalar.Subtract: operator.sub,
    scalar.Multiply: operator.mul,
    scalar.Divide: guarded(divide),
    scalar.Power: guarded(math.pow),
    scalar.Maximum: either_nan(max),
    scalar.Minimum: either_nan(min),
    scalar.Negate: operator.neg,
    scalar.Absolute: abs,
    scalar.Exp: guarded(math.exp),
    scalar.Log: guarded(logarithm),
    scalar.Log1p: guarded(math.log1p),
    scalar.Tanh: guarded(math.tanh),
    scalar.Erf: guarded(math.erf),
    scalar.ErfSlope: lambda x: 2 / math.sqrt(math.pi) * math.exp(-(clamp(x, 20.0) ** 2)),
    scalar.Gelu: lambda x: x if x != x else max(x, -30.0) * phi(max(x, -30.0)),
    scalar.GeluSlope: lambda x: (
        phi(x) + clamp(x, 30.0) * math.exp(clamp(x, 30.0) ** 2 / -2) / ROOT_TAU
    ),
    scalar.GeluSigmoidSlope: lambda x: gated_slope(1.702 * x),
    scalar.SiluSlope: lambda x: gated_slope(x),
    scalar.Mish: lambda x: max(x, -1e3) * math.tanh(max(x, 0) + math.log1p(math.exp(-abs(x)))),
    scalar.Sigmoid: lambda x: gated(1.0, x),
    scalar.Silu: lambda x: gated(x, x),
    scalar.GeluSigmoid: lambda x: gated(x, 1.702 * x),
    scalar.GeluTanh: lambda x: gated(x, 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
    scalar.Sin: guarded(math.sin),
    scalar.Atan: guarded(math.atan),
    scalar.Sqrt: guarded(math.sqrt),
    scalar.Rsqrt: guarded(root),
    scalar.Reciprocal: guarded(lambda x: divide(1.0, x)),
}
BITS = {
    scalar.And: operator.and_,
    scalar.Or: operator.or_,
    scalar.Xor: operator.xor,
    scalar.Not: lambda x: (not x) if isinstance(x, bool) else ~x & 0xFF,
    scalar.ShiftLeft: lambda x, y: (x << y) & 0xFF if y < WIDTH else 0,
    scalar.ShiftRight: lambda x, y: x >> y if y < WIDTH else 0,
}
RELATIONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def evaluate(expression, x=0.0, y=0.0, **parameters):
    """Value of an expression for inputs given as floats (fp32) or as 8-bit patterns (int)."""
    values = {"x": x, "y": y, **parameters}

    def visit(node, *operands):
        if isinstance(node, (Input, Parameter)):
            return values[node.name]
        if isinstance(node, Constant):
            return rounded(node.value)
        if isinstance(node, Compare):
            return RELATIONS[node.relation.name](*operands)
        if isinstance(node, Select):
            return operands[1] if operands[0] else operands[2]
        if type(node) in BITS:
            return BITS[type(node)](*operands)
        return rounded(REAL[type(node)](*operands))

    return fold(expression, visit)


def alu(name, x, y=0.0):
    return evaluate(ALU[name].expression, x, y)


def activate(name, x, **parameters):
    return evaluate(ACTIVATIONS[name].expression, x, **parameters)


def same(left: float, right: float) -> bool:
    return left == right or (math.isnan(left) and math.isnan(right))
