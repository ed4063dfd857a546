"""Constant factors of products, as part of their constant weights.

Before: `y = f32 multiply(f32 convolution(x, 0.5 0.25 ...), factors)`, a factor for each output;
after: `y = f32 convolution(x, weights times factors)`, computed when the graph is compiled. The
norm of a batch, which is a factor and a sum for each channel, is a sum then. Weights are fp32 as
the graph has them, before options cast them: each product of a weight and a factor is rounded as
often as the product of the sum and the factor was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_compiler.hlo.operators.convolution import places_of
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
        factors = _along(other, of_result)
        if factors is None:
            continue
        shape = [1] * len(weights.dims)
        shape[of_weights] = -1
        values = weights.value * factors.reshape(shape)
        if _is_exact(weights.value, factors.reshape(shape), values):
            form = _SINGLE, weights.dims
            new = Node("constant", [form], [], value=values)
            return Node(product.op, product.results, [image, new], product.instruction)
    return None


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


def _along(node: Node, axis: int) -> np.ndarray[Any, Any] | None:
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


def _is_exact(weights: Any, factors: Any, values: np.ndarray[Any, Any]) -> bool:
    """Whether products are numbers of as many bits as their operands."""
    zero = np.broadcast_to((weights == 0) | (factors == 0), values.shape)
    size = np.abs(values)
    return bool(np.isfinite(values).all() and (size[~zero] >= _LEAST).all())
