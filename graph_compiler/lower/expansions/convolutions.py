"""Convolutions as graphs: those of integers, and those in groups whose result has few places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from graph_compiler.hlo.operators.convolution import places_of
from graph_compiler.hlo.text_forms import show_labels, show_window
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions.expansions import Text, braces

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.schedule.nodes import Node

_DOTS = 64
"""Dots that a convolution becomes at most. Larger kernels have several places in each."""

_SUMMED = 64
"""Numbers of a group and a place of the result up to which they are sums of products of elements;
a dot for each group takes longer."""

_MOST_PLACES = 1024
"""Places of a kernel that are written out at most."""


def convolution(node: Node) -> str | None:
    """The sum, over the places of the kernel, of dots of features."""
    assert node.instruction is not None
    if 0 in node.dims:
        return None
    if (node.instruction.attribute("batch_group_count") or 1) > 1:
        return _in_feature_groups(node)
    form = _Form(node)
    text = form.text
    total: str | None = None
    places = list(product(*map(range, form.sizes)))
    if len(places) > _MOST_PLACES:
        return None
    together = -(-len(places) // _DOTS)
    for first in range(0, len(places), together):
        some = places[first : first + together]
        patches = [form.patch(place) for place in some]
        kernels = [form.weights(place) for place in some]
        rank = len(form.sizes) + 2
        x, kernel = text.concatenate(patches, rank), text.concatenate(kernels, 0)
        more = (
            f"lhs_batch_dims={{{rank - 1}}}, rhs_batch_dims={{1}}, "
            f"lhs_contracting_dims={{{rank}}}, rhs_contracting_dims={{0}}"
        )
        batch, *spatial, _, _ = text.dims(x)
        dims = (form.groups, batch, *spatial, text.dims(kernel)[-1])
        value = text.add(form.type, dims, "dot", [x, kernel], more)
        total = value if total is None else text.apply("add", total, value)
    assert total is not None
    return form.result(total)


def few_results(node: Node) -> str | None:
    """A convolution in groups whose kernel has many places and whose result has few, as gradients
    of weights have: for each place of the result, sums of products of elements, or a dot."""
    item = node.instruction
    assert item is not None
    groups = _groups(item)
    if groups == 1 or 0 in node.dims or not PRIMITIVE_TYPES[node.type].is_float:
        return None
    places = places_of(item.attribute("convolution_dimension_numbers"))
    spatial = [node.dims[axis] for axis in places["output"][2:]]
    window = item.attribute("window")
    sizes = [] if window is None else [part.size for part in window.dimensions]
    if not math.prod(spatial) <= _DOTS < math.prod(sizes):
        return None
    form = _Form(node)
    text = form.text
    rank = len(sizes)
    inputs, outputs = text.dims(form.kernel)[-2:]
    kernel = text.reshape(form.kernel, (*sizes, inputs, groups, outputs // groups))
    weights = text.transpose(kernel, [*range(rank), rank + 1, rank, rank + 2])
    found = []
    for place in product(*map(range, spatial)):
        x = form.seen(place)
        batch, *_ = text.dims(x)
        dims = (batch, *sizes, groups, inputs, outputs // groups)
        if batch * dims[-1] <= _SUMMED:
            left = text.spread(x, dims, range(rank + 3))
            each = text.apply("multiply", left, text.spread(weights, dims, range(1, rank + 4)))
            value = text.transpose(text.sum(each, [*range(1, rank + 1), rank + 2]), (1, 0, 2))
        else:
            more = (
                f"lhs_batch_dims={{{rank + 1}}}, rhs_batch_dims={{{rank}}}, "
                f"lhs_contracting_dims={braces([*range(1, rank + 1), rank + 2])}, "
                f"rhs_contracting_dims={braces([*range(rank), rank + 1])}"
            )
            product_dims = (groups, batch, dims[-1])
            value = text.add(form.type, product_dims, "dot", [x, weights], more)
        found.append(text.reshape(value, (groups, batch, 1, dims[-1])))
    value = text.concatenate(found, 2)
    groups, batch, _, outputs = text.dims(value)
    return form.result(text.reshape(value, (groups, batch, *spatial, outputs)))


class _Form:
    """A convolution's operands in one order: the image, [batch, spatial ..., groups, features],
    with what lies around it, and the kernel, [spatial ..., features of a group, outputs]."""

    def __init__(self, node: Node) -> None:
        item = node.instruction
        assert item is not None
        self.node = node
        self.text = text = Text(node)
        self.places = places = places_of(item.attribute("convolution_dimension_numbers"))
        window = item.attribute("window")
        self.parts = parts = () if window is None else window.dimensions
        self.sizes = [part.size for part in parts]
        self.type = "f32" if PRIMITIVE_TYPES[node.type].is_float else node.type
        self.groups = _groups(item)
        self.spatial = [node.dims[axis] for axis in places["output"][2:]]
        x, kernel = (_typed(text, name, self.type) for name in text.operands)
        x = text.transpose(x, [places["input"][0], *places["input"][2:], places["input"][1]])
        x = self._apart(x, (item.attribute("batch_group_count") or 1) > 1)
        order = [*places["kernel"][2:], places["kernel"][1], places["kernel"][0]]
        kernel = text.transpose(kernel, order)
        backwards = [axis for axis, part in enumerate(parts) if part.window_reversal]
        if backwards:
            more = f"dimensions={braces(backwards)}"
            kernel = text.add(text.type(kernel), text.dims(kernel), "reverse", [kernel], more)
        edges = [(p.padding_low, p.padding_high, (p.base_dilation or 1) - 1) for p in parts]
        if any(any(edge) for edge in edges):
            x = text.pad(x, [(0, 0, 0), *edges, (0, 0, 0), (0, 0, 0)])
        self.image, self.kernel = x, kernel

    def _apart(self, x: str, batch: bool) -> str:
        """The groups, of the batch or of the features, as a dimension of their own."""
        first, *spatial, last = self.text.dims(x)
        if not batch:
            return self.text.reshape(x, (first, *spatial, self.groups, last // self.groups))
        x = self.text.reshape(x, (self.groups, first // self.groups, *spatial, last))
        rank = len(spatial)
        return self.text.transpose(x, [*range(1, rank + 2), 0, rank + 2])

    def patch(self, place: Sequence[int]) -> str:
        """What a place of the kernel is multiplied with, [batch, spatial ..., groups, features]."""
        starts = [i * (part.window_dilation or 1) for i, part in zip(place, self.parts)]
        return self._slice(starts, self.spatial, [part.stride for part in self.parts])

    def seen(self, place: Sequence[int]) -> str:
        """What a place of the result sees, [batch, spatial ..., groups, features]."""
        starts = [i * part.stride for i, part in zip(place, self.parts)]
        return self._slice(starts, self.sizes, [part.window_dilation or 1 for part in self.parts])

    def _slice(self, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]) -> str:
        batch, *_, groups, features = self.text.dims(self.image)
        parts = [
            (start, start + (count - 1) * step + 1, step)
            for start, count, step in zip(starts, counts, steps)
        ]
        parts = [(0, batch, 1), *parts, (0, groups, 1), (0, features, 1)]
        return self.text.slice(self.image, parts)

    def weights(self, place: Sequence[int]) -> str:
        """A place of the kernel, [features, groups, outputs]."""
        inputs, outputs = self.text.dims(self.kernel)[-2:]
        parts = [*((i, i + 1, 1) for i in place), (0, inputs, 1), (0, outputs, 1)]
        own = self.text.slice(self.kernel, parts)
        return self.text.reshape(own, (inputs, self.groups, outputs // self.groups))

    def result(self, value: str) -> str:
        """The module that gives a value of [groups, batch, spatial ..., outputs of a group]."""
        text = self.text
        groups, batch, *spatial, outputs = text.dims(value)
        rank = len(spatial) + 1
        value = text.transpose(value, [*range(1, rank + 1), 0, rank + 1])
        value = text.reshape(value, (batch, *spatial, groups * outputs))
        back = [0] * len(self.node.dims)
        target = [self.places["output"][0], *self.places["output"][2:], self.places["output"][1]]
        for position, axis in enumerate(target):
            back[axis] = position
        return text.module([text.transpose(text.convert(value, self.node.type), back)])


def _typed(text: Text, name: str, work: str) -> str:
    """Integers of the result's type; floats as they are."""
    return name if PRIMITIVE_TYPES[text.type(name)].is_float else text.convert(name, work)


def _groups(item: Instruction) -> int:
    """The groups of the features or of the batch."""
    found: int = item.attribute("feature_group_count") or 1
    return max(found, item.attribute("batch_group_count") or 1)


def _in_feature_groups(node: Node) -> str:
    """A convolution in groups of the batch: the groups of its image become groups of features."""
    item = node.instruction
    assert item is not None
    text = Text(node)
    groups = item.attribute("batch_group_count")
    x, kernel = text.operands
    numbers = item.attribute("convolution_dimension_numbers")
    batch, feature, *_ = places_of(numbers)["input"]
    dims = list(text.dims(x))
    dims[batch] //= groups
    x = text.reshape(x, [*dims[:batch], groups, *dims[batch:]])
    order = [axis + (axis >= batch) for axis in range(len(dims))]
    x = text.transpose(x, [*order[:feature], batch, *order[feature:]])
    dims[feature] *= groups
    x = text.reshape(x, dims)
    window = item.attribute("window")
    more = f"dim_labels={show_labels(numbers)}, feature_group_count={groups}"
    if window is not None:
        more = f"window={show_window(window)}, {more}"
    return text.module([text.add(node.type, node.dims, "convolution", [x, kernel], more)])
