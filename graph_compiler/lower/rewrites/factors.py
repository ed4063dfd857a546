"""Constant factors of products.

Those of results become part of constant weights (`into_weights`). Before: `y = f32 multiply(f32
convolution(x, 0.5 0.25 ...), factors)`, a factor for each output; after: `y = f32 convolution(x,
weights times factors)`, computed when the graph is compiled. The norm of a batch, which is a factor
and a sum for each channel, is a sum then. Weights are fp32 as the graph has them, before options
cast them: each product of a weight and a factor is rounded as often as the product of the sum and
the factor was.

Those of both operands go behind the product, where operands without them are numbers of few bits
(`behind_products`). Before, as PyTorch states attention: `f32 dot(f32 convert(q) * c, f32
convert(k) * c)`; after: `f32 dot(f32 convert(q), f32 convert(k)) * (c * c)`. Its products are exact
then, in a quarter of the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_compiler.hlo.operators.convolution import places_of
from graph_compiler.lower.rewrites.softmax import number_of, uniform
from graph_compiler.schedule.contractions import EXACT_IN_BF16
from graph_compiler.schedule.nodes import Block, Node

_SINGLE = "f32"

_LEAST = 2.0**-100
"""Weights that are smaller than this, unless they are zero, might have been rounded to fewer
bits."""


def into_weights(block: Block) -> None:
    """Multiply constant weights by factors, in a block and those inside of it."""
    uses = block.uses()
    replaced: dict[Node, Node] = {}
    nodes: list[Node] = []
    for node in block.nodes:
        for inner in node.blocks:
            into_weights(inner)
        node.operands = [replaced.get(operand, operand) for operand in node.operands]
        scaled = _scaled(node, uses)
        if scaled is None:
            nodes.append(node)
            continue
        nodes.append(scaled)
        replaced[node] = scaled
        uses[scaled] = uses.get(node, 0)
    block.nodes = nodes
    block.results = [replaced.get(result, result) for result in block.results]


def _scaled(node: Node, uses: dict[Node, int]) -> Node | None:
    """The product with new weights that a node is the same as."""
    if node.op != "multiply" or node.type != _SINGLE:
        return None
    for product, other in (node.operands, node.operands[::-1]):
        axes = _outputs(product)
        if axes is None or uses.get(product) != 1:
            continue
        image, weights = product.operands
        if weights.op != "constant" or {image.type, weights.type, product.type} != {_SINGLE}:
            continue
        of_result, of_weights = axes
        factors = along(other, of_result)
        if factors is None:
            continue
        shape = [1] * len(weights.dims)
        shape[of_weights] = -1
        values = weights.value * factors.reshape(shape)
        if is_exact(weights.value, factors.reshape(shape), values):
            form = _SINGLE, weights.dims
            new = Node("constant", [form], [], value=values)
            return Node(product.op, product.results, [image, new], product.instruction)
    return None


def behind_products(block: Block) -> None:
    """Multiply sums by what their operands are multiplied by, in a block and those inside of it."""
    replaced: dict[Node, Node] = {}
    nodes: list[Node] = []
    for node in block.nodes:
        for inner in node.blocks:
            behind_products(inner)
        node.operands = [replaced.get(operand, operand) for operand in node.operands]
        made = _multiplied_behind(node) or [node]
        replaced[node] = made[-1]
        nodes += made
    block.nodes = nodes
    block.results = [replaced.get(result, result) for result in block.results]


def _multiplied_behind(node: Node) -> list[Node] | None:
    """What a product of scaled numbers of few bits is instead; None of other nodes."""
    if node.op != "dot" or node.type != _SINGLE:
        return None
    made: list[Node] = []
    operands, factor = [], 1.0
    for operand in node.operands:
        found = _unscaled(operand, made)
        if found is None:
            return None
        operands.append(found[0])
        factor *= found[1]
    if operands == node.operands or not 1 / _MOST <= abs(factor) <= _MOST:
        return None
    plain = Node("dot", node.results, operands, node.instruction)
    return [*made, plain, Node("multiply", node.results, [plain, uniform(factor, node)])]


def _unscaled(node: Node, made: list[Node]) -> tuple[Node, float] | None:
    """Numbers of few bits that a node scales and moves, and the factor; None of others. Nodes that
    this takes are `made`."""
    if node.op == "convert" and node.type == _SINGLE:
        return (node, 1.0) if node.operands[0].type in EXACT_IN_BF16 else None
    if node.op == "multiply":
        for value, other in (node.operands, node.operands[::-1]):
            factor = number_of(other)
            found = None if factor is None else _unscaled(value, made)
            if factor is not None and found is not None:
                return found[0], found[1] * factor
    if node.op not in _MOVED:
        return None
    found = _unscaled(node.operands[0], made)
    if found is None or found[0] is node.operands[0]:
        return found and (node, found[1])
    made.append(Node(node.op, node.results, [found[0]], node.instruction))
    return made[-1], found[1]


_MOVED = frozenset({"reshape", "transpose", "broadcast", "slice"})

_MOST = 2.0**16
"""Factors up to this, and down to its reciprocal, leave sums of ordinary numbers ordinary."""


def _outputs(node: Node) -> tuple[int, int] | None:
    """The dimension of the outputs of a product, in its result and in its weights."""
    if node.instruction is None:
        return None
    if node.op == "convolution":
        places = places_of(node.instruction.attribute("convolution_dimension_numbers"))
        return places["output"][1], places["kernel"][0]
    if node.op == "dot":
        numbers = node.instruction.attribute("dot_dimension_numbers")
        gone = {*numbers.rhs_contracting_dimensions, *numbers.rhs_batch_dimensions}
        free = [axis for axis in range(len(node.operands[1].dims)) if axis not in gone]
        return (len(node.dims) - 1, free[0]) if len(free) == 1 else None
    return None


def along(node: Node, axis: int) -> np.ndarray[Any, Any] | None:
    """A constant that changes along one dimension at most, as its elements there."""
    if node.op == "broadcast" and node.operands[0].op == "constant":
        assert node.instruction is not None
        dims = tuple(node.instruction.attribute("dimensions"))
        value = node.operands[0].value
        if value.ndim == 0:
            return np.full(node.dims[axis], value)
        return np.asarray(value) if dims == (axis,) else None
    if node.op != "constant":
        return None
    value = node.value
    pairs = enumerate(zip(value.shape, value.strides))
    if any(size > 1 and stride for at, (size, stride) in pairs if at != axis):
        return None
    return np.asarray(value[tuple(slice(None) if at == axis else 0 for at in range(value.ndim))])


def is_exact(weights: Any, factors: Any, values: np.ndarray[Any, Any]) -> bool:
    """Whether products are numbers of as many bits as their operands."""
    zero = np.broadcast_to((weights == 0) | (factors == 0), values.shape)
    size = np.abs(values)
    return bool(np.isfinite(values).all() and (size[~zero] >= _LEAST).all())
