"""Comparing, and choosing by a comparison: compare, select, clamp."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.elementwise.binary import Binary, maximum, minimum
from graph_compiler.hlo.operators.numerics import binary, total_order_key, widen
from graph_compiler.hlo.operators.row import (
    ARITHMETIC,
    Array,
    Evaluation,
    HloOperator,
    operand_array,
    require_shape,
    require_type,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape

_DIRECTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


class Compare(Binary):
    """`x direction y` as pred. NaN makes NE true and all others false, except in TOTALORDER,
    which orders -NaN < -inf < -0 < +0 < inf < NaN. Complex numbers order by real part first."""

    opcode = "compare"
    builders = ("Compare", "Eq", "Ge", "Gt", "Le", "Lt", "Ne")
    stablehlo = "compare"
    attributes = ("comparison_direction", "comparison_type")

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = super().infer(instruction)
        direction = instruction.attribute("comparison_direction")
        require_type(
            direction in _DIRECTIONS,
            instruction,
            f"its direction is {direction!r}.",
            "A direction is one of " + ", ".join(_DIRECTIONS) + ".",
        )
        return shape.with_element_type("pred")

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        x, y = operands
        function = _DIRECTIONS[instruction.attribute("comparison_direction")]
        if instruction.attribute("comparison_type") == "TOTALORDER":
            if instruction.operands[0].shape.primitive.is_float:
                return function(total_order_key(x), total_order_key(y))
        return function(widen(x), widen(y))


class Select(HloOperator):
    """Elements of operand 1 where the pred of operand 0 is true, else of operand 2.

    A scalar pred chooses for the whole value, which may then be a tuple.
    """

    opcode = "select"
    builders = ("Select",)
    per_element = ARITHMETIC
    stablehlo = "select"
    arity = (3, 3)
    elementwise = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        predicate = operand_array(instruction, 0)
        yes, no = instruction.operands[1].shape, instruction.operands[2].shape
        require_type(
            predicate.element_type == "pred",
            instruction,
            f"operand 0 is {predicate}.",
            "The choice is made by pred.",
        )
        require_type(
            yes.plain() == no.plain() or yes.dimensions != no.dimensions,
            instruction,
            f"it chooses between {yes} and {no}.",
            "Both have the same element type.",
        )
        require_shape(
            yes.dimensions == no.dimensions
            and (predicate.is_scalar or predicate.dimensions == yes.dimensions),
            instruction,
            f"{predicate} chooses between {yes} and {no}.",
            "All three have the same dimensions, or the pred is a scalar.",
        )
        return yes

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        predicate, yes, no = operands
        if predicate.ndim == 0 and (isinstance(yes, tuple) or yes.ndim):
            return yes if predicate else no
        return np.where(predicate, yes, no)


class Clamp(HloOperator):
    """min(max(x, low), high) of operands (low, x, high); bounds may be scalars. NaN propagates."""

    opcode = "clamp"
    builders = ("Clamp",)
    per_element = ARITHMETIC
    stablehlo = "clamp"
    arity = (3, 3)
    elementwise = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        low, shape, high = (operand_array(instruction, i) for i in range(3))
        require_type(
            low.element_type == shape.element_type == high.element_type,
            instruction,
            f"its operands are {low}, {shape} and {high}.",
            "All three have the same element type.",
        )
        require_shape(
            all(bound.is_scalar or bound.dimensions == shape.dimensions for bound in (low, high)),
            instruction,
            f"{shape} is clamped to {low} and {high}.",
            "Bounds are scalars or have the dimensions of the operand.",
        )
        return shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        low, x, high = operands
        return binary(minimum, binary(maximum, x, low), high)
