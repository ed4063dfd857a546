"""Batch normalisation: training, inference and gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graph_compiler.hlo.operators.elementwise.unary import REAL
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


def _check(instruction: Instruction, vectors: int) -> tuple[Shape, Shape]:
    """Checks operand 0 and the vectors of features; (shape of operand 0, of a vector)."""
    shape = operand_array(instruction, 0)
    require_kind(instruction, shape.primitive, REAL, "operand 0")
    feature = instruction.attribute("feature_index")
    require_shape(
        0 <= feature < shape.rank,
        instruction,
        f"its feature dimension is {feature} of {shape}.",
        "The feature dimension is one of the operand's.",
    )
    vector = shape.with_dimensions((shape.dimensions[feature],))
    for position in range(1, vectors + 1):
        other = operand_array(instruction, position)
        require_shape(
            other.dimensions == vector.dimensions,
            instruction,
            f"operand {position} is {other}, the features are {vector}.",
            "There is one value a feature.",
        )
        require_type(
            other.element_type == shape.element_type,
            instruction,
            f"operand {position} is {other}, operand 0 is {shape}.",
            "All operands have the same element type.",
        )
    return shape, vector


def _columns(instruction: Instruction, vectors: list[Array], rank: int) -> list[Array]:
    """Vectors of features, to be broadcast along the other dimensions."""
    feature = instruction.attribute("feature_index")
    sizes = [-1 if axis == feature else 1 for axis in range(rank)]
    return [vector.reshape(sizes) for vector in vectors]


def _others(instruction: Instruction, rank: int) -> tuple[int, ...]:
    feature = instruction.attribute("feature_index")
    return tuple(axis for axis in range(rank) if axis != feature)


class BatchNorm(HloOperator):
    """Arithmetic on every element, and a square root for every feature."""

    flops_per_element: ClassVar[int]

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        size = instruction.operands[0].shape.size
        return Work(size * cls.flops_per_element, instruction.operands[1].shape.size)


class BatchNormTraining(BatchNorm):
    """(normalised, mean, variance) of operands (x, scale, offset).

    Mean and biased variance are over all dimensions but the feature's; the result is
    (x - mean) * scale / sqrt(variance + epsilon) + offset.
    """

    opcode = "batch-norm-training"
    builders = ("Batchnorm", "BatchNormTraining")
    stablehlo = "batch_norm_training"
    flops_per_element = 8  # mean 1, variance 3, normalisation 4
    attributes = ("epsilon", "feature_index")
    arity = (3, 3)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        from graph_compiler.hlo.types import Shape

        shape, vector = _check(instruction, 2)
        return Shape.tuple_of([shape, vector, vector])

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        x, scale, offset = (widen_precise(array) for array in operands)
        axes = _others(instruction, x.ndim)
        mean, variance = x.mean(axis=axes), x.var(axis=axes)
        result = _normalise(instruction, x, [scale, offset, mean, variance])
        return tuple(narrow(value, operands[0].dtype) for value in (result, mean, variance))


def _normalise(instruction: Instruction, x: Array, vectors: list[Array]) -> Array:
    scale, offset, mean, variance = _columns(instruction, vectors, x.ndim)
    epsilon = instruction.attribute("epsilon")
    return (x - mean) * scale / np.sqrt(variance + epsilon) + offset


class BatchNormInference(BatchNorm):
    """(x - mean) * scale / sqrt(variance + epsilon) + offset of (x, scale, offset, mean,
    variance)."""

    opcode = "batch-norm-inference"
    builders = ("Batchnorminference", "BatchNormInference")
    stablehlo = "batch_norm_inference"
    flops_per_element = 4
    attributes = ("epsilon", "feature_index")
    arity = (5, 5)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        return _check(instruction, 4)[0]

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        x, *vectors = (widen_precise(array) for array in operands)
        return narrow(_normalise(instruction, x, vectors), operands[0].dtype)


class BatchNormGrad(BatchNorm):
    """Gradients for (x, scale, offset) of operands (x, scale, mean, variance, gradient)."""

    opcode = "batch-norm-grad"
    builders = ("Batchnormgrad", "BatchNormGrad")
    stablehlo = "batch_norm_grad"
    flops_per_element = 10  # centred 1, its sum 2, sum of gradients 1, combination 6
    attributes = ("epsilon", "feature_index")
    arity = (5, 5)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        from graph_compiler.hlo.types import Shape

        shape, vector = _check(instruction, 3)
        gradient = operand_array(instruction, 4)
        require_shape(
            gradient.dimensions == shape.dimensions,
            instruction,
            f"the gradient is {gradient}, operand 0 is {shape}.",
            "The gradient has the operand's dimensions.",
        )
        return Shape.tuple_of([shape, vector, vector])

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        x, scale, mean, variance, gradient = (widen_precise(array) for array in operands)
        axes = _others(instruction, x.ndim)
        count = x.size / max(1, len(mean))
        columns = _columns(instruction, [scale, mean, variance], x.ndim)
        scale_column, mean_column, variance_column = columns
        spread = variance_column + instruction.attribute("epsilon")
        centred = x - mean_column
        total = gradient.sum(axis=axes, keepdims=True)
        weighted = (gradient * centred).sum(axis=axes, keepdims=True)
        grad_x = scale_column / np.sqrt(spread) / count
        grad_x = grad_x * (count * gradient - total - centred * weighted / spread)
        grad_scale = (weighted / np.sqrt(spread)).reshape(-1)
        dtype = operands[0].dtype
        return narrow(grad_x, dtype), narrow(grad_scale, dtype), narrow(total.reshape(-1), dtype)
