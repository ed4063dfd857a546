"""Sort by any comparator, and top-k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.numerics import total_order_key, widen
from graph_compiler.hlo.operators.row import (
    Array,
    CalledWork,
    Evaluation,
    HloOperator,
    Work,
    check_scalar_computation,
    operand_array,
    require_shape,
    require_type,
    tuple_or_one,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Computation, Instruction
    from graph_compiler.hlo.types import Shape


class Sort(HloOperator):
    """N arrays, put into the order along one dimension that the comparator gives to the first.

    The comparator takes (a0, b0, a1, b1, ...), one pair for every array, and is True where a comes
    before b. Always stable here: elements of which neither comes first keep their order.
    """

    opcode = "sort"
    builders = ("Sort",)
    stablehlo = "sort"
    attributes = ("dimensions", "is_stable")
    arity = (1, None)
    calls = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shapes = [operand_array(instruction, i) for i in range(len(instruction.operands))]
        axes = instruction.attribute("dimensions")
        require_shape(
            len(axes) == 1 and 0 <= axes[0] < shapes[0].rank,
            instruction,
            f"it sorts {shapes[0]} along {tuple(axes)}.",
            "Arrays are sorted along one of their dimensions.",
        )
        for position, shape in enumerate(shapes):
            require_shape(
                shape.dimensions == shapes[0].dimensions,
                instruction,
                f"operand {position} is {shape}, operand 0 is {shapes[0]}.",
                "All operands have the same dimensions.",
            )
        types = [shape.element_type for shape in shapes for _ in range(2)]
        check_scalar_computation(instruction, instruction.called[0], types, 1, decides=True)
        return tuple_or_one(shapes)

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        """A comparison for each element and bit of its position."""
        shape, axis = instruction.operands[0].shape, instruction.attribute("dimensions")[0]
        depth = max(0, shape.dimensions[axis] - 1).bit_length()
        return called(instruction.called[0]).times(shape.size * depth)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        axis = instruction.attribute("dimensions")[0]
        moved = [np.moveaxis(array, axis, -1) for array in operands]
        order = sorted_order(instruction.called[0], moved, context)
        results = tuple(
            np.moveaxis(np.take_along_axis(array, order, axis=-1), -1, axis) for array in moved
        )
        return results[0] if len(results) == 1 else results


def sorted_order(computation: Computation, arrays: list[Array], context: Evaluation) -> Array:
    """Indices along the last axis that put the arrays into the comparator's order."""
    root = computation.root
    if root.opcode == "compare" and root.attribute("comparison_direction") in _DESCENDING:
        left, right = root.operands
        if _mirrored(left, right):
            from graph_compiler.hlo.graph import Computation

            expression = Computation(computation.name, computation.instructions, left)
            pairs = [array for array in arrays for _ in range(2)]
            key = np.broadcast_to(context.elementwise(expression, pairs)[0], arrays[0].shape)
            if root.attribute("comparison_type") == "TOTALORDER" and key.dtype.kind not in "iub":
                key = total_order_key(key)
            descending = _DESCENDING[root.attribute("comparison_direction")]
            return stable_order(widen(key), descending)
    return _merge_order(computation, arrays, context)


_DESCENDING = {"LT": False, "LE": False, "GT": True, "GE": True}


def stable_order(key: Array, descending: bool) -> Array:
    """Indices that sort the last axis; equal keys keep their order."""
    if not descending:
        return np.argsort(key, axis=-1, kind="stable")
    backwards = np.argsort(np.flip(key, -1), axis=-1, kind="stable")
    return key.shape[-1] - 1 - np.flip(backwards, -1)


def _mirrored(left: Instruction, right: Instruction) -> bool:
    """Whether both compute the same function, one of the elements a, the other of the b."""
    if left.opcode != right.opcode or len(left.operands) != len(right.operands):
        return False
    if left.opcode == "parameter":
        return (
            left.parameter_number % 2 == 0 and right.parameter_number == left.parameter_number + 1
        )
    if left.opcode == "constant":
        one, other = left.attributes.get("literal"), right.attributes.get("literal")
        return left is right or (
            isinstance(one, np.ndarray)
            and isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and one.tobytes() == other.tobytes()
        )
    if left.called or right.called or left.shape.plain() != right.shape.plain():
        return False
    if left.attributes.get("comparison_direction") != right.attributes.get("comparison_direction"):
        return False
    return all(_mirrored(a, b) for a, b in zip(left.operands, right.operands))


def _merge_order(computation: Computation, arrays: list[Array], context: Evaluation) -> Array:
    """A merge sort in which all elements find their places at once, by binary search."""
    whole = arrays[0].shape
    count = whole[-1]
    order = np.broadcast_to(np.arange(count), whole).copy()
    place = np.arange(count)
    width = 1
    while width < count:
        start = place // (2 * width) * (2 * width)
        middle = np.minimum(start + width, count)
        in_left = place < middle
        low = np.broadcast_to(np.where(in_left, middle, start), whole).copy()
        high = np.broadcast_to(np.where(in_left, np.minimum(middle + width, count), middle), whole)
        base, high = low.copy(), high.copy()
        own = [np.take_along_axis(array, order, axis=-1) for array in arrays]
        while True:
            open_places = low < high
            if not open_places.any():
                break
            probe = np.minimum((low + high) // 2, count - 1)
            pairs: list[Array] = []
            for array in own:
                other = np.take_along_axis(array, probe, axis=-1)
                # Asks "right before left": of equal elements the left one then stays first.
                pairs += [np.where(in_left, other, array), np.where(in_left, array, other)]
            before = np.broadcast_to(context.elementwise(computation, pairs)[0], whole)
            passes = np.where(in_left, before, ~before)
            low = np.where(open_places & passes, probe + 1, low)
            high = np.where(open_places & ~passes, probe, high)
        # Places in the merged run: those of the own run before it and those of the other.
        target = start + (place - np.where(in_left, start, middle)) + (low - base)
        # Each place once, also where a comparator is no order and sends two elements to one.
        places = np.argsort(target, axis=-1, kind="stable")
        order = np.take_along_axis(order, places, axis=-1)
        width *= 2
    return order


class TopK(HloOperator):
    """The k largest (or smallest) elements of the last dimension, in order, and their s32 indices.

    Floats compare in total order; of equal elements the one with the lower index comes first.
    """

    opcode = "topk"
    builders = ("TopK",)
    stablehlo = "chlo.top_k"
    attributes = ("k", "largest")
    arity = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        from graph_compiler.hlo.types import Shape

        shape = operand_array(instruction, 0)
        k = instruction.attribute("k")
        require_shape(
            shape.rank > 0 and 0 <= k <= shape.dimensions[-1],
            instruction,
            f"it takes {k} of {shape}.",
            "k is at most the size of the last dimension.",
        )
        require_type(
            not shape.primitive.is_complex,
            instruction,
            f"operand 0 is {shape}.",
            "Complex numbers have no order.",
        )
        values = shape.with_dimensions((*shape.dimensions[:-1], k))
        return Shape.tuple_of([values, values.with_element_type("s32")])

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        array = operands[0]
        is_float = instruction.operands[0].shape.primitive.is_float
        key = total_order_key(array) if is_float else widen(array)
        order = stable_order(key, bool(instruction.attribute("largest")))
        order = order[..., : instruction.attribute("k")]
        return np.take_along_axis(array, order, axis=-1), order.astype(np.int32)
