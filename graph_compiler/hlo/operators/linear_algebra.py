"""Triangular solve, Cholesky decomposition and Fourier transforms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.elementwise.unary import INEXACT
from graph_compiler.hlo.operators.numerics import narrow, widen_precise
from graph_compiler.hlo.operators.row import (
    Array,
    CalledWork,
    Evaluation,
    HloOperator,
    Work,
    operand_array,
    require_kind,
    require_shape,
    require_type,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape


def _check_square(instruction: Instruction, shape: Shape) -> None:
    require_kind(instruction, shape.primitive, INEXACT, "operand 0")
    require_shape(
        shape.rank >= 2 and shape.dimensions[-1] == shape.dimensions[-2],
        instruction,
        f"operand 0 is {shape}.",
        "The last two dimensions are those of square matrices.",
    )


_TRANSPOSITIONS = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


class TriangularSolve(HloOperator):
    """x of op(a) x = b, or of x op(a) = b, for triangular matrices a.

    Only the triangle named by `lower` is read, without its diagonal where `unit_diagonal`.
    """

    opcode = "triangular-solve"
    builders = ("TriangularSolve",)
    stablehlo = "triangular_solve"
    attributes = ("triangular_solve_options",)
    arity = (2, 2)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        a, b = operand_array(instruction, 0), operand_array(instruction, 1)
        _check_square(instruction, a)
        require_type(
            a.element_type == b.element_type,
            instruction,
            f"its operands are {a} and {b}.",
            "Both operands have the same element type.",
        )
        options = instruction.attribute("triangular_solve_options")
        require_type(
            options is not None and options.transpose_a in _TRANSPOSITIONS,
            instruction,
            f"its options are {options}.",
            "A triangular solve states whether it transposes: " + ", ".join(_TRANSPOSITIONS) + ".",
        )
        left = options.left_side
        require_shape(
            a.rank == b.rank
            and a.dimensions[:-2] == b.dimensions[:-2]
            and b.dimensions[-2 if left else -1] == a.dimensions[-1],
            instruction,
            f"its operands are {a} and {b}.",
            "Batches agree, and b has a row (column, from the right) for every unknown.",
        )
        return b

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        return Work(instruction.shape.size * instruction.operands[0].shape.dimensions[-1])

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        options = instruction.attribute("triangular_solve_options")
        a, b = (widen_precise(array) for array in operands)
        lower = options.lower
        if options.transpose_a in ("TRANSPOSE", "ADJOINT"):
            a, lower = a.swapaxes(-1, -2), not lower
            a = a.conj() if options.transpose_a == "ADJOINT" else a
        if not options.left_side:  # x a = b is aT xT = bT
            a, b, lower = a.swapaxes(-1, -2), b.swapaxes(-1, -2), not lower
        x = _substitute(a, b, lower, options.unit_diagonal)
        x = x if options.left_side else x.swapaxes(-1, -2)
        return narrow(x, operands[1].dtype)


def _substitute(a: Array, b: Array, lower: bool, unit: bool) -> Array:
    x = np.array(b)
    count = a.shape[-1]
    for row in range(count) if lower else range(count - 1, -1, -1):
        known = slice(0, row) if lower else slice(row + 1, count)
        rest = b[..., row, :] - (a[..., row, known, np.newaxis] * x[..., known, :]).sum(axis=-2)
        x[..., row, :] = rest if unit else rest / a[..., row, row, np.newaxis]
    return x


class Cholesky(HloOperator):
    """The triangular factor of Hermitian positive definite matrices; NaN where they are not.

    Only the triangle named by `lower` is read; the other triangle of the result is zero.
    """

    opcode = "cholesky"
    builders = ("Cholesky",)
    stablehlo = "cholesky"
    attributes = ("cholesky_options",)
    arity = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = operand_array(instruction, 0)
        _check_square(instruction, shape)
        return shape

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        shape = instruction.shape
        return Work(shape.size * shape.dimensions[-1] // 3)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        options = instruction.attribute("cholesky_options")
        lower = options is not None and options.lower
        a = widen_precise(operands[0])
        a = a if lower else a.swapaxes(-1, -2).conj()
        factor = np.zeros_like(a)
        for column in range(a.shape[-1]):
            done = factor[..., column, :column]
            square = a[..., column, column].real - (np.abs(done) ** 2).sum(axis=-1)
            diagonal = np.sqrt(square)
            factor[..., column, column] = diagonal
            below = factor[..., column + 1 :, :column] @ done[..., np.newaxis].conj()
            rest = a[..., column + 1 :, column] - below[..., 0]
            factor[..., column + 1 :, column] = rest / diagonal[..., np.newaxis]
        factor = factor if lower else factor.swapaxes(-1, -2).conj()
        bad = np.isnan(factor).any(axis=(-1, -2), keepdims=True)
        return narrow(np.where(bad, np.nan, factor).astype(a.dtype), operands[0].dtype)


class Fft(HloOperator):
    """Discrete Fourier transform of the last dimensions; the inverse ones divide by the size.

    FFT and IFFT map complex to complex, RFFT real to the non-negative half of the last dimension,
    IRFFT back.
    """

    opcode = "fft"
    builders = ("Fft",)
    stablehlo = "fft"
    attributes = ("fft_type", "fft_length")
    arity = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = operand_array(instruction, 0)
        lengths, form = instruction.attribute("fft_length"), instruction.attribute("fft_type")
        require_type(
            form in _TRANSFORMS and shape.element_type in _TRANSFORMS[form],
            instruction,
            f"{form} of {shape}.",
            "RFFT takes f32 or f64, the other transforms c64 or c128.",
        )
        require_shape(
            1 <= len(lengths) <= 3 and len(lengths) <= shape.rank,
            instruction,
            f"lengths {list(lengths)} for {shape}.",
            "One to three trailing dimensions are transformed.",
        )
        have = list(shape.dimensions[shape.rank - len(lengths) :])
        wanted = list(lengths)
        if form == "IRFFT":
            wanted[-1] = wanted[-1] // 2 + 1 if wanted[-1] else 0
        require_shape(
            have == wanted,
            instruction,
            f"lengths {list(lengths)} for {shape}.",
            f"The transformed dimensions have the sizes {wanted}.",
        )
        dimensions = list(shape.dimensions)
        if form == "RFFT":
            dimensions[-1] = dimensions[-1] // 2 + 1 if dimensions[-1] else 0
        elif form == "IRFFT":
            dimensions[-1] = lengths[-1]
        result = shape.with_dimensions(dimensions)
        return result.with_element_type(_TRANSFORMS[form][shape.element_type])

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        """5 n log2 n for n complex elements, half of it where one side is real."""
        count = math.prod(instruction.attribute("fft_length"))
        real = any(not s.primitive.is_complex for s in _sides(instruction))
        size = max(shape.size for shape in _sides(instruction))
        return Work(size * max(0, count - 1).bit_length() * 5 // (2 if real else 1))

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        lengths = instruction.attribute("fft_length")
        axes = tuple(range(operands[0].ndim - len(lengths), operands[0].ndim))
        transform = _FUNCTIONS[instruction.attribute("fft_type")]
        if instruction.shape.size == 0:
            return np.empty(instruction.shape.dimensions, instruction.shape.numpy_dtype())
        result = transform(widen_precise(operands[0]), tuple(lengths), axes)
        return result.astype(instruction.shape.numpy_dtype())


def _sides(instruction: Instruction) -> tuple[Shape, Shape]:
    return instruction.operands[0].shape, instruction.shape


_COMPLEX = {"c64": "c64", "c128": "c128"}
_TRANSFORMS = {
    "FFT": _COMPLEX,
    "IFFT": _COMPLEX,
    "RFFT": {"f32": "c64", "f64": "c128"},
    "IRFFT": {"c64": "f32", "c128": "f64"},
}
_FUNCTIONS: dict[Any, Any] = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}
