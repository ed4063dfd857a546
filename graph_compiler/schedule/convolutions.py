"""Convolutions: the product of the patches of an image, which are never stored, and the kernel.

One with a single input feature a group is element-wise work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graph_compiler.schedule.contractions import Product, converted, fresh_copy, in_memory
from graph_compiler.schedule.fusion import (
    ElementExpression,
    Lazy,
    Literal,
    contiguous,
    materialised,
    rewritten,
)
from graph_compiler.schedule.placement import padded
from graph_compiler.schedule.steps import GraphProgram
from graph_compiler.schedule.views import View

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler

UNROLLED = 32
"""Positions of a kernel that are written out as an element-wise sum."""


def convolution(scheduler: Scheduler, node: Node) -> Lazy | None:
    """A convolution of floats; None of other types, and of groups of the batch."""
    from graph_compiler.hlo.operators.convolution import places_of

    instruction = node.instruction
    assert instruction is not None
    x_node, kernel_node = node.operands
    types = (x_node.type, kernel_node.type, node.type)
    products = scheduler.program.machine.products
    if types[2] == "s32" or not products.takes(types, 0):
        return None
    if (instruction.attribute("batch_group_count") or 1) > 1:
        return None
    if 0 in x_node.dims or 0 in kernel_node.dims or 0 in node.dims:
        return None
    places = places_of(instruction.attribute("convolution_dimension_numbers"))
    window = instruction.attribute("window")
    parts = () if window is None else window.dimensions
    edges = [(p.padding_low, p.padding_high, (p.base_dilation or 1) - 1) for p in parts]
    cut = [(max(0, -low), max(0, -high)) for low, high, _ in edges]
    spatial_sizes = [x_node.dims[axis] for axis in places["input"][2:]]
    for size, (low, high), (_, _, interior) in zip(spatial_sizes, cut, edges):
        if (low or high) and (interior or low + high >= size):
            return None
    edges = [(max(0, low), max(0, high), interior) for low, high, interior in edges]
    program = scheduler.program
    groups = instruction.attribute("feature_group_count") or 1
    features = x_node.dims[places["input"][1]] // groups
    outputs = node.dims[places["output"][1]] // groups
    values = scheduler.value(x_node), scheduler.value(kernel_node)
    single = features == 1 and groups > 1
    x, kernel, pairs = products.operands(*values, features % 2 == 0 and not single)
    # Batch, spatial, features; and spatial, input features, output features.
    x = _permuted(program, x, [places["input"][0], *places["input"][2:], places["input"][1]])
    if any(any(ends) for ends in cut):
        x = _cut(materialised(program, x), cut)
    order = [*places["kernel"][2:], places["kernel"][1], places["kernel"][0]]
    kernel = _permuted(program, kernel, order)
    if any(part.window_reversal for part in parts):
        kernel = _reversed(materialised(program, kernel), [p.window_reversal for p in parts])
    if any(any(edge) for edge in edges):
        sizes = [
            low + high + size + (size - 1) * interior
            for size, (low, high, interior) in zip(x.dims[1:], edges)
        ]
        dims = (x.dims[0], *sizes, x.dims[-1])
        zero = Literal(x.type, (), np.zeros((), np.float32)[()])
        x = padded(program, x, zero, [(0, 0, 0), *edges, (0, 0, 0)], dims)
    steps = [(part.stride, part.window_dilation or 1) for part in parts]
    spatial = [node.dims[axis] for axis in places["output"][2:]]
    if single:
        if outputs > 1 or math.prod(kernel.dims[:-2]) > UNROLLED:
            return None
        result: Lazy = _depthwise(program, x, kernel, steps, spatial, node.type)
    else:
        result = _patches(
            program, x, kernel, pairs, steps, spatial, (groups, features, outputs), node.type
        )
    back = [0] * len(node.dims)
    target_order = [places["output"][0], *places["output"][2:], places["output"][1]]
    for place, axis in enumerate(target_order):
        back[axis] = place
    return _permuted(program, result, back)


def _permuted(program: GraphProgram, value: Lazy, order: Sequence[int]) -> Lazy:
    dims = tuple(value.dims[axis] for axis in order)
    result = rewritten(
        value,
        lambda view: view.placed(dims, tuple(view.strides[axis] for axis in order)),
        dims,
    )
    assert result is not None
    return result


def _reversed(view: View, flags: Sequence[bool]) -> View:
    strides, start = list(view.strides), 0
    for axis, flag in enumerate(flags):
        if flag:
            start += (view.dims[axis] - 1) * strides[axis]
            strides[axis] = -strides[axis]
    return view.placed(view.dims, tuple(strides), start)


def _cut(view: View, ends: Sequence[tuple[int, int]]) -> View:
    """[batch, spatial, features] without the first and last elements of spatial dimensions."""
    sizes = [size - low - high for size, (low, high) in zip(view.dims[1:], ends)]
    start = sum(low * stride for (low, _), stride in zip(ends, view.strides[1:]))
    return view.placed((view.dims[0], *sizes, view.dims[-1]), view.strides, start)


def _patches(
    program: GraphProgram,
    x: Lazy,
    kernel: Lazy,
    pairs: bool,
    steps: list[tuple[int, int]],
    spatial: list[int],
    groups: tuple[int, int, int],
    type: str,
) -> View:
    """[batch, spatial, features] by [spatial, features of a group, outputs]."""
    count, features, outputs = groups
    image = in_memory(program, x)
    if image.strides[-1] != 1 and image.dims[-1] > 1:
        image = contiguous(program, fresh_copy(program, image))
    weights = in_memory(program, kernel)
    dims = (image.dims[0], *spatial, count * outputs)
    target = program.buffer(type, dims)
    across = list(zip(spatial, (s * step for s, (step, _) in zip(image.strides[1:], steps))))
    down = [
        (size, stride * dilation)
        for size, stride, (_, dilation) in zip(weights.dims, image.strides[1:], steps)
    ]

    def product() -> Product:
        out = weights.strides[-1]
        return Product(
            image,
            weights,
            pairs,
            ([(count, features * image.strides[-1])], [(count, outputs * out)]),
            [(image.dims[0], image.strides[0]), *across],
            [(outputs, out)],
            (
                [*down, (features, image.strides[-1])],
                list(zip(weights.dims[:-1], weights.strides[:-1])),
            ),
        )

    found = product()
    if not found.right_fits():
        weights = fresh_copy(program, weights)
        found = product()
    program.machine.products.multiply(program, found, target, count * outputs, [(count, outputs)])
    return target


def _depthwise(
    program: GraphProgram,
    x: Lazy,
    kernel: Lazy,
    steps: list[tuple[int, int]],
    spatial: list[int],
    type: str,
) -> Lazy:
    """One input feature and one output a group: a sum over the kernel's positions."""
    image, weights = materialised(program, x), materialised(program, kernel)
    dims = (image.dims[0], *spatial, image.dims[-1])
    total: Lazy | None = None
    for position in np.ndindex(*weights.dims[:-2]):
        start = sum(
            place * dilation * stride
            for place, (_, dilation), stride in zip(position, steps, image.strides[1:])
        )
        strides = [stride * step for stride, (step, _) in zip(image.strides[1:], steps)]
        part = image.placed(dims, (image.strides[0], *strides, image.strides[-1]), start)
        place = sum(i * stride for i, stride in zip(position, weights.strides))
        weight = weights.placed(dims, (*[0] * (len(dims) - 1), weights.strides[-1]), place)
        term = ElementExpression(
            "multiply", "f32", None, [converted(part, "f32"), converted(weight, "f32")]
        )
        total = term if total is None else ElementExpression("add", "f32", None, [total, term])
    assert total is not None
    return converted(total, type)
