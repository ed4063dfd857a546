"""Matrix products: dot and ragged-dot."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.elementwise.unary import INTEGER
from graph_compiler.hlo.operators.numerics import narrow, widen, wrap
from graph_compiler.hlo.operators.row import (
    Array,
    CalledWork,
    Evaluation,
    HloOperator,
    Work,
    check_axes,
    operand_array,
    require_kind,
    require_shape,
    require_type,
    result_array,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import PrimitiveType, Shape


def contraction_type(instruction: Instruction, left: Shape, right: Shape) -> str:
    """The result's element type: what the instruction states, if operands can give it."""
    kinds = {left.primitive.kind, right.primitive.kind}
    result = result_array(instruction)
    integers = kinds <= {"signed", "unsigned"}
    numbers = kinds <= {"signed", "unsigned", "float"}
    require_type(
        (len(kinds) == 1 and result.primitive.kind in kinds)
        or (integers and result.primitive.kind in ("signed", "unsigned"))
        or (numbers and result.primitive.kind == "float"),
        instruction,
        f"it makes {result} of {left} and {right}.",
        "Operands and result are of one kind: floats, integers, complex numbers or pred. Floats "
        "may be made of integers, too.",
    )
    return result.element_type


def _exact_in_float64(dtype: np.dtype[Any], depth: int) -> bool:
    """Whether sums of `depth` products of such integers are exact in float64."""
    bits = 8 * dtype.itemsize
    return bits <= 16 and depth < 1 << (53 - 2 * bits)


def matrix_product(left: Array, right: Array, target: PrimitiveType) -> Array:
    """left @ right over the last two dimensions, in the type that computes the target."""
    if target.kind == "boolean" or left.dtype.kind == "b":
        return (left.astype(np.float32) @ right.astype(np.float32) > 0).astype(target.numpy)
    if left.dtype.kind in "iu" and right.dtype.kind in "iu":
        if target.is_float:
            return (left.astype(np.float64) @ right.astype(np.float64)).astype(target.numpy)
        depth = left.shape[-1]
        if _exact_in_float64(left.dtype, depth) and _exact_in_float64(right.dtype, depth):
            product = left.astype(np.float64) @ right.astype(np.float64)
            return wrap(product.astype(np.int64), target)
        container = np.int64 if target.kind == "signed" else np.uint64
        return wrap(left.astype(container) @ right.astype(container), target)
    computed = np.result_type(left.dtype, right.dtype, widen(np.empty(0, target.numpy)).dtype)
    product = left.astype(computed, copy=False) @ right.astype(computed, copy=False)
    return narrow(product, target.numpy)


class Dot(HloOperator):
    """Sums of products over the contracting dimensions, for every index of the batch dimensions.

    The result has the batch dimensions, then the free ones of operand 0, then those of operand 1,
    and the element type that the instruction states. 16- and 8-bit floats are summed in float32.
    """

    opcode = "dot"
    builders = ("Dot", "DotGeneral")
    stablehlo = "dot_general"
    attributes = ("dot_dimension_numbers", "precision_config")
    arity = (2, 2)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        left, right = operand_array(instruction, 0), operand_array(instruction, 1)
        numbers = instruction.attribute("dot_dimension_numbers")
        require_shape(
            numbers is not None,
            instruction,
            "it has no dimension numbers.",
            "A dot states its dimension numbers.",
        )
        batch = _check_pairs(
            instruction,
            (left, numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions),
            (right, numbers.rhs_batch_dimensions, numbers.rhs_contracting_dimensions),
        )
        free = _free(left, numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions)
        others = _free(right, numbers.rhs_batch_dimensions, numbers.rhs_contracting_dimensions)
        shape = left.with_dimensions([*batch, *free, *others])
        return shape.with_element_type(contraction_type(instruction, left, right))

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        """A multiply-add for each element of the result and contracted element."""
        numbers = instruction.attribute("dot_dimension_numbers")
        left = instruction.operands[0].shape
        depth = math.prod(left.dimensions[axis] for axis in numbers.lhs_contracting_dimensions)
        return Work(2 * instruction.shape.size * depth)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        numbers = instruction.attribute("dot_dimension_numbers")
        left = grouped(
            widen(operands[0]), numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions
        )
        right = grouped(
            widen(operands[1]), numbers.rhs_batch_dimensions, numbers.rhs_contracting_dimensions
        )
        product = matrix_product(left, right.swapaxes(-1, -2), instruction.shape.primitive)
        return product.reshape(instruction.shape.dimensions)


def _check_pairs(
    instruction: Instruction,
    left: tuple[Shape, tuple[int, ...], tuple[int, ...]],
    right: tuple[Shape, tuple[int, ...], tuple[int, ...]],
) -> list[int]:
    """Checks that batch and contracting dimensions go together; sizes of the batch dimensions."""
    for shape, batch, contracting in (left, right):
        axes = (*batch, *contracting)
        check_axes(instruction, axes, shape.rank, "batch and contracting dimensions")
    for what, one, other in (("batch", left[1], right[1]), ("contracting", left[2], right[2])):
        sizes = [left[0].dimensions[axis] for axis in one]
        other_sizes = [right[0].dimensions[axis] for axis in other]
        require_shape(
            sizes == other_sizes,
            instruction,
            f"{what} dimensions have the sizes {sizes} and {other_sizes} in {left[0]} and"
            f" {right[0]}.",
            f"Both operands have the same {what} sizes, in the same order.",
        )
    return [left[0].dimensions[axis] for axis in left[1]]


def _free(shape: Shape, batch: tuple[int, ...], contracting: tuple[int, ...]) -> list[int]:
    taken = {*batch, *contracting}
    return [size for axis, size in enumerate(shape.dimensions) if axis not in taken]


def grouped(array: Array, batch: tuple[int, ...], contracting: tuple[int, ...]) -> Array:
    """`array` as [batch, free, contracting]."""
    taken = {*batch, *contracting}
    free = [axis for axis in range(array.ndim) if axis not in taken]
    sizes = [math.prod(array.shape[axis] for axis in axes) for axes in (batch, free, contracting)]
    if free and contracting and max(free) > max(contracting):
        # Merged the way it lies in memory: no copy where each group is one run of dimensions.
        merged = array.transpose([*batch, *contracting, *free])
        return merged.reshape(sizes[0], sizes[2], sizes[1]).swapaxes(-1, -2)
    return array.transpose([*batch, *free, *contracting]).reshape(sizes)


class RaggedDot(HloOperator):
    """A dot in which one dimension of operand 0 is made of groups of the sizes in operand 2.

    Of a free dimension: each group of rows meets its own matrix of operand 1. Of a contracting
    dimension: the result has a leading dimension of groups. Of a batch dimension: as a plain dot.
    """

    opcode = "ragged-dot"
    builders = ("RaggedDot",)
    stablehlo = "chlo.ragged_dot"
    attributes = ("ragged_dot_dimension_numbers", "precision_config")
    arity = (3, 3)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        left, right, groups = (operand_array(instruction, i) for i in range(3))
        require_kind(instruction, groups.primitive, INTEGER, "the group sizes")
        numbers = instruction.attribute("ragged_dot_dimension_numbers")
        require_shape(
            numbers is not None and groups.rank == 1,
            instruction,
            f"its group sizes are {groups}.",
            "A ragged dot states its dimension numbers and has one vector of group sizes.",
        )
        dots, ragged, group = _ragged(numbers)
        right_batch = (*group, *dots.rhs_batch_dimensions)
        require_shape(
            len(ragged) == 1 and 0 <= ragged[0] < left.rank,
            instruction,
            f"its ragged dimensions are {tuple(ragged)}.",
            "One dimension of operand 0 is ragged.",
        )
        free_ragged = ragged[0] not in (
            *dots.lhs_batch_dimensions,
            *dots.lhs_contracting_dimensions,
        )
        require_shape(
            len(group) == int(free_ragged)
            and all(
                0 <= i < right.rank and right.dimensions[i] == groups.dimensions[0] for i in group
            ),
            instruction,
            f"its group dimensions are {tuple(group)} of {right} for {groups}.",
            "Operand 1 has a dimension of groups where a free dimension is ragged, else none.",
        )
        batch = _check_pairs(
            instruction,
            (left, dots.lhs_batch_dimensions, dots.lhs_contracting_dimensions),
            (right, dots.rhs_batch_dimensions, dots.rhs_contracting_dimensions),
        )
        free = _free(left, dots.lhs_batch_dimensions, dots.lhs_contracting_dimensions)
        others = _free(right, right_batch, dots.rhs_contracting_dimensions)
        leading = [groups.dimensions[0]] if ragged[0] in dots.lhs_contracting_dimensions else []
        shape = left.with_dimensions([*leading, *batch, *free, *others])
        return shape.with_element_type(contraction_type(instruction, left, right))

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        """Every row meets one group, so the groups together are one dot."""
        dots, _, group = _ragged(instruction.attribute("ragged_dot_dimension_numbers"))
        right = instruction.operands[1].shape
        taken = (*group, *dots.rhs_batch_dimensions, *dots.rhs_contracting_dimensions)
        columns = math.prod(n for axis, n in enumerate(right.dimensions) if axis not in taken)
        return Work(2 * instruction.operands[0].shape.size * columns)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        dots, ragged, group = _ragged(instruction.attribute("ragged_dot_dimension_numbers"))
        left, right, sizes = widen(operands[0]), widen(operands[1]), operands[2].astype(np.int64)
        target = instruction.shape.primitive
        axis = ragged[0]
        ends = np.cumsum(sizes)
        steps = np.arange(left.shape[axis]).reshape(
            [-1 if i == axis else 1 for i in range(left.ndim)]
        )

        def product(rows: Array, matrix: Array, removed: int | None) -> Array:
            def shifted(axes: tuple[int, ...]) -> tuple[int, ...]:
                if removed is None:
                    return axes
                return tuple(i - (i > removed) for i in axes)

            one = grouped(rows, dots.lhs_batch_dimensions, dots.lhs_contracting_dimensions)
            other = grouped(
                matrix,
                shifted(dots.rhs_batch_dimensions),
                shifted(dots.rhs_contracting_dimensions),
            )
            return matrix_product(one, other.swapaxes(-1, -2), target)

        if axis in dots.lhs_batch_dimensions:
            return product(left, right, None).reshape(instruction.shape.dimensions)
        parts = []
        for number, (size, end) in enumerate(zip(sizes, ends)):
            inside = (steps >= end - size) & (steps < end)
            rows = np.where(inside, left, np.zeros((), left.dtype))
            if group:
                parts.append(product(rows, right.take(number, axis=group[0]), group[0]))
            else:
                parts.append(product(rows, right, None))
        # Rows of a free dimension are in one group each, so that a sum only joins them.
        joined = np.stack(parts) if not group else np.sum(parts, axis=0, dtype=parts[0].dtype)
        return joined.reshape(instruction.shape.dimensions)


def _ragged(numbers: Any) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    return (
        numbers.dot_dimension_numbers,
        numbers.lhs_ragged_dimensions,
        numbers.rhs_group_dimensions,
    )
