"""Slices, joins and padding, at places that are stated or computed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.elementwise.unary import INTEGER
from graph_compiler.hlo.operators.row import (
    Array,
    Evaluation,
    HloOperator,
    operand_array,
    require_kind,
    require_shape,
    require_type,
    shape_error,
)
from graph_compiler.hlo.types import MAX_VALUE_BYTES

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape


class Slice(HloOperator):
    """Elements start, start + stride, ... below limit of every dimension."""

    opcode = "slice"
    builders = ("Slice",)
    stablehlo = "slice"
    attributes = ("slice_dimensions",)
    arity = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = operand_array(instruction, 0)
        ranges = instruction.attribute("slice_dimensions")
        require_shape(
            len(ranges) == shape.rank,
            instruction,
            f"it has {len(ranges)} ranges for {shape}.",
            "A slice states a range for every dimension.",
        )
        sizes = []
        for axis, (part, size) in enumerate(zip(ranges, shape.dimensions)):
            require_shape(
                0 <= part.start <= part.limit <= size and part.stride > 0,
                instruction,
                f"dimension {axis} of {size} is sliced [{part.start}:{part.limit}:{part.stride}].",
                "A range satisfies 0 <= start <= limit <= size with a positive stride.",
            )
            sizes.append(-(-(part.limit - part.start) // part.stride))
        return shape.with_dimensions(sizes)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        ranges = instruction.attribute("slice_dimensions")
        return operands[0][tuple(slice(part.start, part.limit, part.stride) for part in ranges)]


class Concatenate(HloOperator):
    """Operands one after another along one dimension."""

    opcode = "concatenate"
    builders = ("Concatenate",)
    stablehlo = "concatenate"
    attributes = ("dimensions",)
    arity = (1, None)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shapes = [operand_array(instruction, i) for i in range(len(instruction.operands))]
        first, axes = shapes[0], instruction.attribute("dimensions")
        require_shape(
            len(axes) == 1 and 0 <= axes[0] < first.rank,
            instruction,
            f"it joins {first} along {tuple(axes)}.",
            "Arrays are joined along one of their dimensions.",
        )
        axis = axes[0]
        for position, shape in enumerate(shapes):
            require_type(
                shape.element_type == first.element_type,
                instruction,
                f"operand {position} is {shape}, operand 0 is {first}.",
                "All operands have the same element type.",
            )
            same = shape.rank == first.rank and all(
                size == other
                for i, (size, other) in enumerate(zip(shape.dimensions, first.dimensions))
                if i != axis
            )
            require_shape(
                same,
                instruction,
                f"operand {position} is {shape}, operand 0 is {first}.",
                f"Operands differ in dimension {axis} only.",
            )
        total = sum(shape.dimensions[axis] for shape in shapes)
        return first.with_dimensions(
            total if i == axis else size for i, size in enumerate(first.dimensions)
        )

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        return np.concatenate(operands, axis=instruction.attribute("dimensions")[0])


class Pad(HloOperator):
    """`edge_padding` elements of operand 1 before and after, `interior_padding` between elements.

    Negative edges take elements away, after the interior padding.
    """

    opcode = "pad"
    builders = ("Pad",)
    stablehlo = "pad"
    attributes = ("padding_config",)
    arity = (2, 2)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape, value = operand_array(instruction, 0), operand_array(instruction, 1)
        require_type(
            shape.element_type == value.element_type,
            instruction,
            f"{shape} is padded with {value}.",
            "The padding value has the operand's element type.",
        )
        require_shape(
            value.is_scalar,
            instruction,
            f"it is padded with {value}.",
            "The padding value is a scalar.",
        )
        edges = padding_of(instruction)
        require_shape(
            len(edges) == shape.rank and all(interior >= 0 for _, _, interior in edges),
            instruction,
            f"{shape} is padded by {edges}.",
            "Every dimension has (low, high, interior) padding, interior not negative.",
        )
        sizes = [
            low + high + size + max(size - 1, 0) * interior
            for size, (low, high, interior) in zip(shape.dimensions, edges)
        ]
        if any(size < 0 for size in sizes):
            raise shape_error(
                instruction,
                f"{shape} padded by {edges} has the sizes {sizes}.",
                "Padding leaves sizes of at least 0.",
            )
        return shape.with_dimensions(sizes)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        return pad(operands[0], operands[1], padding_of(instruction))


def padding_of(instruction: Instruction) -> list[tuple[int, int, int]]:
    """(low, high, interior) of every dimension."""
    config = instruction.attribute("padding_config")
    dimensions = () if config is None else config.dimensions
    return [
        (part.edge_padding_low, part.edge_padding_high, part.interior_padding)
        for part in dimensions
    ]


def pad(array: Array, value: Any, edges: list[tuple[int, int, int]]) -> Array:
    """`array` with (low, high, interior) padding in every dimension. Raises MemoryError."""
    if not any(any(edge) for edge in edges):
        return array
    sizes, target, source = [], [], []
    for size, (low, high, interior) in zip(array.shape, edges):
        step = interior + 1
        total = low + high + size + max(size - 1, 0) * interior
        # Element i lands at low + i * step; the first and last that land inside:
        first = max(0, -(low // step)) if low < 0 else 0
        last = min(size, -(-(total - low) // step)) if total > low else 0
        sizes.append(total)
        source.append(slice(first, max(first, last)))
        start = low + first * step
        target.append(slice(start, start + max(0, last - first - 1) * step + 1, step))
        if last <= first:
            target[-1] = slice(0, 0)
    if math.prod(sizes) * array.dtype.itemsize >= MAX_VALUE_BYTES:
        raise MemoryError
    result = np.empty(sizes, array.dtype)
    result[...] = value
    result[tuple(target)] = array[tuple(source)]
    return result


def start_indices(operands: list[Any], rank: int) -> list[int]:
    """Start indices, passed as scalars or as one vector."""
    if len(operands) == 1 and operands[0].ndim == 1:
        return [int(index) for index in operands[0]]
    return [int(index) for index in operands[:rank]]


def _check_starts(instruction: Instruction, first: int, rank: int) -> None:
    indices = [operand_array(instruction, i) for i in range(first, len(instruction.operands))]
    vector = len(indices) == 1 and indices[0].dimensions == (rank,)
    require_shape(
        vector or (len(indices) == rank and all(index.is_scalar for index in indices)),
        instruction,
        f"its start indices are ({', '.join(map(str, indices))}) for {rank} dimensions.",
        "There is one scalar start index a dimension.",
    )
    for index in indices:
        require_kind(instruction, index.primitive, INTEGER, "a start index")


class DynamicSlice(HloOperator):
    """A block of `dynamic_slice_sizes` from start indices that are operands.

    Starts are clamped so that the block lies inside.
    """

    opcode = "dynamic-slice"
    builders = ("DynamicSlice",)
    stablehlo = "dynamic_slice"
    attributes = ("dynamic_slice_sizes",)
    arity = (1, None)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = operand_array(instruction, 0)
        sizes = instruction.attribute("dynamic_slice_sizes")
        require_shape(
            len(sizes) == shape.rank
            and all(0 <= size <= whole for size, whole in zip(sizes, shape.dimensions)),
            instruction,
            f"it takes {list(sizes)} of {shape}.",
            "Sizes are stated for every dimension and fit into the operand.",
        )
        _check_starts(instruction, 1, shape.rank)
        return shape.with_dimensions(sizes)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        array, sizes = operands[0], instruction.attribute("dynamic_slice_sizes")
        return array[block(array.shape, start_indices(operands[1:], array.ndim), sizes)]


def block(whole: tuple[int, ...], starts: list[int], sizes: Any) -> tuple[slice, ...]:
    """A block at clamped starts."""
    return tuple(
        slice(start, start + size)
        for size, start in (
            (size, min(max(start, 0), total - size))
            for total, start, size in zip(whole, starts, sizes)
        )
    )


class DynamicUpdateSlice(HloOperator):
    """Operand 0 with operand 1 written at start indices that are operands.

    Starts are clamped so that the update lies inside.
    """

    opcode = "dynamic-update-slice"
    builders = ("DynamicUpdateSlice",)
    stablehlo = "dynamic_update_slice"
    arity = (2, None)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape, update = operand_array(instruction, 0), operand_array(instruction, 1)
        require_type(
            shape.element_type == update.element_type,
            instruction,
            f"{update} is written into {shape}.",
            "The update has the operand's element type.",
        )
        require_shape(
            shape.rank == update.rank
            and all(size <= whole for size, whole in zip(update.dimensions, shape.dimensions)),
            instruction,
            f"{update} is written into {shape}.",
            "The update has the operand's rank and fits into it.",
        )
        _check_starts(instruction, 2, shape.rank)
        return shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        array, update = operands[0], operands[1]
        result = np.array(array)
        starts = start_indices(operands[2:], array.ndim)
        result[block(array.shape, starts, update.shape)] = update
        return result
