"""Convolution with strides, padding, both dilations, groups, batch groups and reversal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.contraction import contraction_type, matrix_product
from graph_compiler.hlo.operators.numerics import narrow, widen
from graph_compiler.hlo.operators.reduction import positions
from graph_compiler.hlo.operators.row import (
    Array,
    CalledWork,
    Evaluation,
    HloOperator,
    Work,
    check_axes,
    operand_array,
    require_shape,
)
from graph_compiler.hlo.operators.slicing import pad

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import PrimitiveType, Shape

_PATCH_ELEMENTS = 1 << 24
"""Patches are multiplied in blocks of about this many elements, to bound the memory."""


class Convolution(HloOperator):
    """Sums of products of a kernel with windows of the input.

    The input is dilated (`base_dilation`) and padded, the kernel dilated (`window_dilation`) and
    turned round where `window_reversal` says so. With feature groups, output features see only
    the input features of their group; with batch groups, only the batch elements of theirs.
    """

    opcode = "convolution"
    builders = ("Conv", "ConvGeneralDilated")
    stablehlo = "convolution"
    attributes = (
        "window",
        "convolution_dimension_numbers",
        "feature_group_count",
        "batch_group_count",
        "precision_config",
    )
    arity = (2, 2)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        left, right = operand_array(instruction, 0), operand_array(instruction, 1)
        numbers = instruction.attribute("convolution_dimension_numbers")
        require_shape(
            numbers is not None and left.rank == right.rank,
            instruction,
            f"it convolves {left} with {right}.",
            "Input and kernel have the same rank, and dimension numbers are stated.",
        )
        places = places_of(numbers)
        for what, axes in places.items():
            require_shape(
                len(axes) == left.rank,
                instruction,
                f"the {what} has dimension numbers {axes} for rank {left.rank}.",
                "Dimension numbers name every dimension.",
            )
            check_axes(instruction, axes, left.rank, f"dimension numbers of the {what}")
        groups = instruction.attribute("feature_group_count") or 1
        batches = instruction.attribute("batch_group_count") or 1
        batch, features, *spatial = (left.dimensions[axis] for axis in places["input"])
        outputs, kernel_features, *kernel = (right.dimensions[axis] for axis in places["kernel"])
        require_shape(
            groups > 0
            and batches > 0
            and (groups == 1 or batches == 1)
            and features == kernel_features * groups
            and outputs % groups == 0
            and outputs % batches == 0
            and batch % batches == 0,
            instruction,
            f"{features} input features and batch {batch} meet a kernel of {kernel_features} input"
            f" and {outputs} output features in {groups} feature and {batches} batch groups.",
            "Input features are those of the kernel times the groups, groups divide the output"
            " features and the batch, and only one kind of groups is used.",
        )
        window = instruction.attribute("window")
        parts = () if window is None else window.dimensions
        require_shape(
            [part.size for part in parts] == list(kernel),
            instruction,
            f"its window has sizes {[part.size for part in parts]} for a kernel of {list(kernel)}.",
            "The window has the kernel's spatial sizes.",
        )
        sizes = [batch // batches, outputs]
        sizes += [
            positions(instruction, axis, part, size)
            for axis, (part, size) in enumerate(zip(parts, spatial))
        ]
        result = [0] * left.rank
        for axis, size in zip(places["output"], sizes):
            result[axis] = size
        shape = left.with_dimensions(result)
        return shape.with_element_type(contraction_type(instruction, left, right))

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        """A multiply-add wherever an element of the kernel meets one of the input, not padding."""
        places = places_of(instruction.attribute("convolution_dimension_numbers"))
        left, right = (operand.shape.dimensions for operand in instruction.operands)
        batch, outputs, *sizes = (instruction.shape.dimensions[axis] for axis in places["output"])
        spatial = [left[axis] for axis in places["input"][2:]]
        parts = () if not sizes else instruction.attribute("window").dimensions
        met = math.prod(_met(*each) for each in zip(parts, spatial, sizes))
        return Work(2 * batch * outputs * right[places["kernel"][1]] * met)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        places = places_of(instruction.attribute("convolution_dimension_numbers"))
        x = widen(operands[0]).transpose(places["input"])  # batch, features, spatial
        kernel = widen(operands[1]).transpose(places["kernel"])  # outputs, features, spatial
        window = instruction.attribute("window")
        parts = () if window is None else window.dimensions
        backwards = [2 + i for i, part in enumerate(parts) if part.window_reversal]
        kernel = np.flip(kernel, tuple(backwards)) if backwards else kernel
        edges = [(p.padding_low, p.padding_high, (p.base_dilation or 1) - 1) for p in parts]
        x = pad(x, np.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *edges])
        batches = instruction.attribute("batch_group_count") or 1
        groups = instruction.attribute("feature_group_count") or 1
        if batches > 1:  # as feature groups: group g of the batch becomes group g of features
            batch, features = x.shape[:2]
            x = x.reshape(batches, batch // batches, features, *x.shape[2:]).swapaxes(0, 1)
            x = x.reshape(batch // batches, batches * features, *x.shape[3:])
            groups = batches
        sizes = [instruction.shape.dimensions[axis] for axis in places["output"]]
        steps = [(part.stride, part.window_dilation or 1) for part in parts]
        result = convolve(x, kernel, groups, steps, sizes[2:], instruction.shape.primitive)
        return result.transpose(np.argsort(places["output"]))


def _met(part: Any, size: int, positions: int) -> int:
    """Pairs of a position of the window and an element of it that lie on the input's elements."""
    base, dilation = part.base_dilation or 1, part.window_dilation or 1
    if part.size * positions > _PATCH_ELEMENTS:
        return int(part.size * positions)  # too many to look at: as if there were no padding
    starts = np.arange(positions)[:, np.newaxis] * part.stride - part.padding_low
    places = starts + np.arange(part.size) * dilation
    return int(((places >= 0) & (places % base == 0) & (places // base < size)).sum())


def places_of(numbers: Any) -> dict[str, list[int]]:
    """The dimensions of input, kernel and output in the order batch (output features), features
    (input features), spatial."""
    return {
        "input": [
            numbers.input_batch_dimension,
            numbers.input_feature_dimension,
            *numbers.input_spatial_dimensions,
        ],
        "kernel": [
            numbers.kernel_output_feature_dimension,
            numbers.kernel_input_feature_dimension,
            *numbers.kernel_spatial_dimensions,
        ],
        "output": [
            numbers.output_batch_dimension,
            numbers.output_feature_dimension,
            *numbers.output_spatial_dimensions,
        ],
    }


def convolve(
    x: Array,
    kernel: Array,
    groups: int,
    steps: list[tuple[int, int]],
    sizes: list[int],
    target: PrimitiveType,
) -> Array:
    """[batch, features, spatial] with [outputs, features of a group, spatial]: no padding left.

    `steps` are (stride, dilation) of the spatial dimensions, `sizes` those of the result.
    """
    batch, outputs = x.shape[0], kernel.shape[0]
    whole = [batch, outputs, *sizes]
    if math.prod(whole) == 0 or math.prod(kernel.shape) == 0:
        return np.zeros(whole, target.numpy)
    if kernel.shape[1] == 1 and groups > 1 and x.dtype.kind in "fc":
        return _depthwise(x, kernel, groups, steps, sizes, target)
    rank = len(sizes)
    shape = [batch, groups, kernel.shape[1], *sizes, *kernel.shape[2:]]
    strides = [x.strides[0], x.strides[1] * kernel.shape[1], x.strides[1]]
    strides += [stride * step for stride, (step, _) in zip(x.strides[2:], steps)]
    strides += [stride * dilation for stride, (_, dilation) in zip(x.strides[2:], steps)]
    windows = np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)
    # [groups, batch, positions, features of a group, kernel positions]
    order = [1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank)]
    windows = windows.transpose(order)
    depth = math.prod(kernel.shape[1:])
    matrix = kernel.reshape(groups, outputs // groups, depth).swapaxes(-1, -2)
    places = math.prod(sizes)
    rows = max(1, _PATCH_ELEMENTS // max(1, groups * places * depth))
    blocks = []
    for start in range(0, batch, rows):
        part = windows[:, start : start + rows]
        patches = part.reshape(groups, part.shape[1] * places, depth)
        product = matrix_product(patches, matrix, target)
        blocks.append(product.reshape(groups, part.shape[1], places, outputs // groups))
    result = np.concatenate(blocks, axis=1) if len(blocks) > 1 else blocks[0]
    return result.transpose(1, 0, 3, 2).reshape(whole)


def _depthwise(
    x: Array,
    kernel: Array,
    groups: int,
    steps: list[tuple[int, int]],
    sizes: list[int],
    target: PrimitiveType,
) -> Array:
    """One input feature a group: products are added up one kernel position after another."""
    batch, outputs = x.shape[0], kernel.shape[0]
    grouped_kernel = kernel.reshape(groups, outputs // groups, *kernel.shape[2:])
    ones = [1] * len(sizes)
    total: Array = np.zeros([batch, groups, outputs // groups, *sizes], x.dtype)
    for place in np.ndindex(*kernel.shape[2:]):
        index = tuple(
            slice(start * dilation, start * dilation + (size - 1) * stride + 1, stride)
            for start, (stride, dilation), size in zip(place, steps, sizes)
        )
        part = x[(slice(None), slice(None), *index)][:, :, np.newaxis]
        weight = grouped_kernel[(slice(None), slice(None), *place)]
        total += part * weight.reshape(1, groups, outputs // groups, *ones)
    return narrow(total.reshape(batch, outputs, *sizes), target.numpy)
