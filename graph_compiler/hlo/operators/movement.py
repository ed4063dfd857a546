"""Operations that place elements elsewhere: broadcast, reshape, slices, padding, constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graph_compiler.hlo.operators.elementwise.unary import NUMBER
from graph_compiler.hlo.operators.row import (
    Array,
    Evaluation,
    HloOperator,
    check_axes,
    operand_array,
    require_kind,
    require_shape,
    result_array,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape


class Parameter(HloOperator):
    """A value that the caller of the computation passes."""

    opcode = "parameter"
    builders = ("Parameter",)
    attributes = ("parameter_number",)
    arity = (0, 0)
    elementwise = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        return instruction.shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        return operands[0]  # the evaluator passes the argument


class Constant(HloOperator):
    """A value that the graph states."""

    opcode = "constant"
    builders = ("Constant", "ConstantLiteral")
    stablehlo = "constant"
    attributes = ("literal",)
    arity = (0, 0)
    elementwise = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        literal = instruction.attributes.get("literal")
        if isinstance(literal, np.ndarray):
            require_shape(
                tuple(literal.shape) == instruction.shape.dimensions,
                instruction,
                f"its literal has the dimensions {list(literal.shape)}.",
                "The literal of a constant has the constant's shape.",
            )
        return instruction.shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        literal = instruction.attributes.get("literal")
        if literal is None:  # of no elements
            return np.zeros(instruction.shape.dimensions, instruction.shape.numpy_dtype())
        return literal


class Iota(HloOperator):
    """The index along one dimension, at every element."""

    opcode = "iota"
    builders = ("Iota",)
    stablehlo = "iota"
    attributes = ("dimensions",)
    arity = (0, 0)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = result_array(instruction)
        require_kind(instruction, shape.primitive, NUMBER, "its result")
        dimensions = instruction.attribute("dimensions")
        require_shape(
            len(dimensions) == 1 and 0 <= dimensions[0] < shape.rank,
            instruction,
            f"it counts along {tuple(dimensions)} of {shape}.",
            "iota counts along one dimension of its result.",
        )
        return shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        from graph_compiler.hlo.operators.numerics import wrap

        shape, axis = instruction.shape, instruction.attribute("dimensions")[0]
        counts: Array = np.arange(shape.dimensions[axis])
        primitive = shape.primitive
        values = wrap(counts, primitive) if primitive.is_integer else counts.astype(primitive.numpy)
        column = values.reshape([-1 if i == axis else 1 for i in range(shape.rank)])
        return np.broadcast_to(column, shape.dimensions)


class Copy(HloOperator):
    """The operand."""

    opcode = "copy"
    builders = ("Copy",)
    arity = (1, 1)
    elementwise = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        return instruction.operands[0].shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        return operands[0]


class Broadcast(HloOperator):
    """Operand dimension i becomes dimension `dimensions[i]` of the result; others repeat it.

    A size-1 dimension of the operand is not stretched: HLO has no implicit broadcast.
    """

    opcode = "broadcast"
    builders = ("Broadcast", "BroadcastInDim")
    stablehlo = "broadcast_in_dim"
    attributes = ("dimensions",)
    arity = (1, 1)
    scalar_identity = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape, result = operand_array(instruction, 0), result_array(instruction)
        axes = instruction.attribute("dimensions")
        require_shape(
            len(axes) == shape.rank,
            instruction,
            f"`dimensions` is {tuple(axes)} for {shape}.",
            "Every dimension of the operand has a place in the result.",
        )
        check_axes(instruction, axes, result.rank, "`dimensions`")
        require_shape(
            all(shape.dimensions[i] == result.dimensions[axis] for i, axis in enumerate(axes)),
            instruction,
            f"{shape} becomes {result} by dimensions {tuple(axes)}.",
            "A dimension keeps its size.",
        )
        return result.with_element_type(shape.element_type)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        return broadcast_in_dimensions(
            operands[0], instruction.shape.dimensions, instruction.attribute("dimensions")
        )


def broadcast_in_dimensions(array: Array, sizes: tuple[int, ...], axes: Any) -> Array:
    """`array` with its dimension i at `axes[i]` of `sizes`, as a view."""
    order = sorted(range(len(axes)), key=lambda i: axes[i])
    moved = array.transpose(order) if list(order) != list(range(len(axes))) else array
    kept = set(axes)
    column = moved.reshape([size if i in kept else 1 for i, size in enumerate(sizes)])
    return np.broadcast_to(column, sizes)


class Reshape(HloOperator):
    """The same elements in row-major order under other dimensions."""

    opcode = "reshape"
    builders = ("Reshape",)
    stablehlo = "reshape"
    arity: ClassVar[tuple[int, int | None]] = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape, result = operand_array(instruction, 0), result_array(instruction)
        require_shape(
            shape.size == result.size,
            instruction,
            f"{shape} has {shape.size} elements, {result} has {result.size}.",
            "A reshape keeps the number of elements.",
        )
        return result.with_element_type(shape.element_type)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        return operands[0].reshape(instruction.shape.dimensions)


class DynamicReshape(Reshape):
    """A reshape whose sizes are also operands; they must be those of the result's shape."""

    opcode = "dynamic-reshape"
    builders = ("DynamicReshape",)
    stablehlo = "dynamic_reshape"
    arity = (1, None)


class Bitcast(HloOperator):
    """The bytes of the operand, in the order of its layout, read as the result's shape."""

    opcode = "bitcast"
    builders = ("Bitcast",)
    arity = (1, 1)
    scalar_identity = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape, result = operand_array(instruction, 0), result_array(instruction)
        require_shape(
            shape.bytes == result.bytes,
            instruction,
            f"{shape} has {shape.bytes} bytes, {result} has {result.bytes}.",
            "A bitcast keeps the bytes.",
        )
        return result

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        source, result = instruction.operands[0].shape, instruction.shape
        array = np.ascontiguousarray(operands[0].transpose(_major_to_minor(source)))
        raw = array.reshape(-1).view(result.numpy_dtype())
        order = _major_to_minor(result)
        stored = raw.reshape([result.dimensions[axis] for axis in order])
        return stored.transpose(np.argsort(order)) if order else stored


def _major_to_minor(shape: Shape) -> list[int]:
    if shape.layout is None:
        return list(range(shape.rank))
    return list(reversed(shape.layout))


class Transpose(HloOperator):
    """Dimension i of the result is dimension `dimensions[i]` of the operand."""

    opcode = "transpose"
    builders = ("Transpose",)
    stablehlo = "transpose"
    attributes = ("dimensions",)
    arity = (1, 1)
    scalar_identity = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = operand_array(instruction, 0)
        axes = instruction.attribute("dimensions")
        require_shape(
            sorted(axes) == list(range(shape.rank)),
            instruction,
            f"`dimensions` is {tuple(axes)} for {shape}.",
            "`dimensions` is a permutation of the operand's dimensions.",
        )
        return shape.with_dimensions(shape.dimensions[axis] for axis in axes)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        return operands[0].transpose(instruction.attribute("dimensions"))


class Reverse(HloOperator):
    """The order along the named dimensions turned round."""

    opcode = "reverse"
    builders = ("Rev",)
    stablehlo = "reverse"
    attributes = ("dimensions",)
    arity = (1, 1)
    scalar_identity = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = operand_array(instruction, 0)
        check_axes(instruction, instruction.attribute("dimensions"), shape.rank, "`dimensions`")
        return shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        return np.flip(operands[0], instruction.attribute("dimensions"))


class GetDimensionSize(HloOperator):
    """The size of one dimension, as s32."""

    opcode = "get-dimension-size"
    builders = ("GetDimensionSize",)
    stablehlo = "get_dimension_size"
    attributes = ("dimensions",)
    arity = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        from graph_compiler.hlo.types import Shape

        shape, axes = operand_array(instruction, 0), instruction.attribute("dimensions")
        require_shape(
            len(axes) == 1 and 0 <= axes[0] < shape.rank,
            instruction,
            f"it asks for {tuple(axes)} of {shape}.",
            "It gives the size of one dimension.",
        )
        return Shape("s32")

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        return np.array(operands[0].shape[instruction.attribute("dimensions")[0]], np.int32)
