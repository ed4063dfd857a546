"""Elementwise functions of one operand that are not exact."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from graph_compiler.hlo.operators.elementwise.unary import INEXACT, REAL, Unary
from graph_compiler.hlo.operators.numerics import precise, unary
from graph_compiler.hlo.operators.row import TRANSCENDENTAL, Array


class Transcendental(Unary):
    """A function that is not exact: computed more precisely, rounded once."""

    kinds = INEXACT
    per_element = TRANSCENDENTAL
    formula: ClassVar[Any]

    @classmethod
    def function(cls, x: Array) -> Array:
        return precise(cls.formula, x)


class Exponential(Transcendental):
    """e to the power of the element."""

    opcode = "exponential"
    builders = ("Exp",)
    stablehlo = "exponential"
    attributes = ("result_accuracy",)
    formula = staticmethod(np.exp)


class ExponentialMinusOne(Transcendental):
    """exp(x) - 1 without cancellation."""

    opcode = "exponential-minus-one"
    builders = ("Expm1",)
    stablehlo = "exponential_minus_one"
    formula = staticmethod(np.expm1)


class Log(Transcendental):
    """Natural logarithm; NaN below zero."""

    opcode = "log"
    builders = ("Log",)
    stablehlo = "log"
    formula = staticmethod(np.log)


class LogPlusOne(Transcendental):
    """log(1 + x) without cancellation."""

    opcode = "log-plus-one"
    builders = ("Log1p",)
    stablehlo = "log_plus_one"

    @classmethod
    def formula(cls, x: Array) -> Array:
        if x.dtype.kind != "c":
            return np.log1p(x)
        # log|1 + z| = log1p(2 re + |z|^2) / 2 keeps small arguments exact.
        real, imaginary = x.real, x.imag
        near = (np.abs(real) < 0.5) & (np.abs(imaginary) < 0.5)
        small = 0.5 * np.log1p(np.where(near, real * (2 + real) + imaginary * imaginary, 0))
        modulus = np.where(near, small, np.log(np.hypot(1 + real, imaginary)))
        return modulus + 1j * np.arctan2(imaginary, 1 + real)


class Logistic(Transcendental):
    """1 / (1 + exp(-x))."""

    opcode = "logistic"
    builders = ("Logistic",)
    stablehlo = "logistic"

    @classmethod
    def formula(cls, x: Array) -> Array:
        return 1 / (1 + np.exp(-x))


class Sqrt(Transcendental):
    """Square root, correctly rounded; NaN below zero."""

    opcode = "sqrt"
    builders = ("Sqrt",)
    stablehlo = "sqrt"

    @classmethod
    def function(cls, x: Array) -> Array:
        return precise(np.sqrt, x) if x.dtype.kind == "c" else unary(np.sqrt, x)


class Rsqrt(Transcendental):
    """1 / sqrt(x)."""

    opcode = "rsqrt"
    builders = ("Rsqrt",)
    stablehlo = "rsqrt"

    @classmethod
    def formula(cls, x: Array) -> Array:
        return 1 / np.sqrt(x)


class Cbrt(Transcendental):
    """Cube root, real of a negative element."""

    opcode = "cbrt"
    builders = ("Cbrt",)
    stablehlo = "cbrt"

    @classmethod
    def formula(cls, x: Array) -> Array:
        return np.power(x, 1 / 3) if x.dtype.kind == "c" else np.cbrt(x)


class Sine(Transcendental):
    """Sine of radians."""

    opcode = "sine"
    builders = ("Sin",)
    stablehlo = "sine"
    formula = staticmethod(np.sin)


class Cosine(Transcendental):
    """Cosine of radians."""

    opcode = "cosine"
    builders = ("Cos",)
    stablehlo = "cosine"
    formula = staticmethod(np.cos)


class Tan(Transcendental):
    """Tangent of radians."""

    opcode = "tan"
    builders = ("Tan",)
    stablehlo = "tan"
    formula = staticmethod(np.tan)


class Tanh(Transcendental):
    """Hyperbolic tangent."""

    opcode = "tanh"
    builders = ("Tanh",)
    stablehlo = "tanh"
    formula = staticmethod(np.tanh)


class Sinh(Transcendental):
    """Hyperbolic sine."""

    opcode = "sinh"
    builders = ("Sinh",)
    stablehlo = "chlo.sinh"
    formula = staticmethod(np.sinh)


class Cosh(Transcendental):
    """Hyperbolic cosine."""

    opcode = "cosh"
    builders = ("Cosh",)
    stablehlo = "chlo.cosh"
    formula = staticmethod(np.cosh)


class Asin(Transcendental):
    """Inverse sine."""

    opcode = "asin"
    builders = ("Asin",)
    stablehlo = "chlo.asin"
    formula = staticmethod(np.arcsin)


class Acos(Transcendental):
    """Inverse cosine."""

    opcode = "acos"
    builders = ("Acos",)
    stablehlo = "chlo.acos"
    formula = staticmethod(np.arccos)


class Asinh(Transcendental):
    """Inverse hyperbolic sine."""

    opcode = "asinh"
    builders = ("Asinh",)
    stablehlo = "chlo.asinh"
    formula = staticmethod(np.arcsinh)


class Acosh(Transcendental):
    """Inverse hyperbolic cosine."""

    opcode = "acosh"
    builders = ("Acosh",)
    stablehlo = "chlo.acosh"
    formula = staticmethod(np.arccosh)


class Atanh(Transcendental):
    """Inverse hyperbolic tangent."""

    opcode = "atanh"
    builders = ("Atanh",)
    stablehlo = "chlo.atanh"
    formula = staticmethod(np.arctanh)


_erf = np.frompyfunc(math.erf, 1, 1)


class Erf(Transcendental):
    """The error function."""

    opcode = "erf"
    builders = ("Erf",)
    stablehlo = "chlo.erf"
    kinds = REAL

    @classmethod
    def formula(cls, x: Array) -> Array:
        return np.asarray(_erf(x)).astype(np.float64)
