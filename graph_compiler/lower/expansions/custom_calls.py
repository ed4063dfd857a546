"""Custom calls on the device: targets with a meaning (`graph_compiler.hlo.operators.custom`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graph_compiler.hlo.operators.custom import dimension_of
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions.expansions import Expansion, Text
from graph_compiler.lower.expansions.extremes import LARGEST, SMALLEST, Direction, extreme_along
from graph_compiler.schedule.ordering import top_of

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler

# Functions of every element


def _half(text: Text, x: str, inner: str) -> str:
    """x (1 + inner) / 2."""
    dims = text.dims(x)
    one = text.apply("add", inner, text.number("f32", 1, dims))
    return text.apply("multiply", one, text.apply("multiply", x, text.number("f32", 0.5, dims)))


def _erf(text: Text, x: str) -> str:
    return text.apply("erf", x)


def _gelu(text: Text, x: str) -> str:
    scale = text.number("f32", 0.70710678118654752, text.dims(x))
    return _half(text, x, text.apply("erf", text.apply("multiply", x, scale)))


def _gelu_tanh(text: Text, x: str) -> str:
    dims = text.dims(x)
    cube = text.apply("multiply", x, text.apply("multiply", x, x))
    cubic = text.apply("multiply", cube, text.number("f32", 0.044715, dims))
    slope = text.number("f32", 0.79788456080286536, dims)
    inner = text.apply("multiply", text.apply("add", x, cubic), slope)
    return _half(text, x, text.apply("tanh", inner))


def _silu(text: Text, x: str) -> str:
    return text.apply("multiply", x, text.apply("logistic", x))


def _activation(function: Callable[[Text, str], str]) -> Expansion:
    def expansion(node: Node) -> str | None:
        if not PRIMITIVE_TYPES[node.type].is_float or len(node.operands) != 1:
            return None
        text = Text(node)
        x = text.convert(text.operands[0], "f32")
        return text.module([text.convert(function(text, x), node.type)])

    return expansion


# Along a dimension


def _folded(text: Text, x: str, op: str, initial: str, axis: int) -> str:
    """A fold along a dimension, spread along it again."""
    type, dims = text.types[x]
    kept = [i for i in range(len(dims)) if i != axis]
    more = f"dimensions={{{axis}}}, to_apply={text.combiner(op, type)}"
    start = text.number(type, initial)
    found = text.add(type, [dims[i] for i in kept], "reduce", [x, start], more)
    return text.spread(found, dims, kept)


def _softmax(node: Node) -> str | None:
    (operand,) = node.operands
    if not PRIMITIVE_TYPES[node.type].is_float or operand.dims != node.dims:
        return None
    assert node.instruction is not None
    axis = dimension_of(node.instruction, len(node.dims))
    text = Text(node)
    x = text.convert(text.operands[0], "f32")
    x = text.apply("subtract", x, _folded(text, x, "maximum", "-inf", axis))
    x = text.apply("exponential", x)
    x = text.apply("divide", x, _folded(text, x, "add", "0", axis))
    return text.module([text.convert(x, node.type)])


def _rms_norm(node: Node) -> str | None:
    if len(node.operands) != 3:
        return None
    x, weight, epsilon = node.operands
    if not all(PRIMITIVE_TYPES[one.type].is_float for one in (*node.operands, node)):
        return None
    assert node.instruction is not None
    axis = dimension_of(node.instruction, len(node.dims))
    size = node.dims[axis]
    if x.dims != node.dims or weight.dims != (size,) or epsilon.dims not in ((), (1,)):
        return None
    text = Text(node)
    value, factor, offset = (text.convert(name, "f32") for name in text.operands)
    total = text.sum(text.apply("multiply", value, value), [axis])
    mean = text.apply("divide", total, text.number("f32", size, text.dims(total)))
    offset = text.spread(text.reshape(offset, ()), text.dims(mean), [])
    scale = text.apply("rsqrt", text.apply("add", mean, offset))
    kept = [place for place in range(len(node.dims)) if place != axis]
    value = text.apply("multiply", value, text.spread(scale, node.dims, kept))
    value = text.apply("multiply", value, text.spread(factor, node.dims, [axis]))
    return text.module([text.convert(value, node.type)])


def _extreme(direction: Direction) -> Expansion:
    """Where the first of the largest (smallest) elements is; a NaN is more than any number."""

    def expansion(node: Node) -> str | None:
        (operand,) = node.operands
        if not PRIMITIVE_TYPES[operand.type].is_float or node.type not in _INDICES:
            return None
        assert node.instruction is not None
        axis = dimension_of(node.instruction, len(operand.dims))
        kept = [size for i, size in enumerate(operand.dims) if i != axis]
        if tuple(kept) != node.dims:
            return None
        text = Text(node)
        found = extreme_along(text, text.convert(text.operands[0], "f32"), direction, axis)
        return text.module([text.convert(found.place, node.type)])

    return expansion


_INDICES = frozenset({"s32", "u32"})

CALLS: dict[str, Expansion] = {
    "AwsNeuronErf": _activation(_erf),
    "AwsNeuronGelu": _activation(_gelu),
    "AwsNeuronGeluApprxTanh": _activation(_gelu_tanh),
    "AwsNeuronSilu": _activation(_silu),
    "AwsNeuronSoftmax": _softmax,
    "AwsNeuronRmsNorm": _rms_norm,
    "AwsNeuronArgMax": _extreme(LARGEST),
    "AwsNeuronArgMin": _extreme(SMALLEST),
}
"""The text of each target."""


def called(node: Node) -> str | None:
    """The text of a call; None of targets that have none."""
    item = node.instruction
    assert item is not None
    expansion = CALLS.get(item.attribute("custom_call_target"))
    return None if expansion is None else expansion(node)


_TOP = "AwsNeuronTopK"


def top_k(scheduler: Scheduler, node: Node) -> Any:
    """The largest elements of the last dimension, and where they were; None of other calls."""
    item = node.instruction
    assert item is not None
    if item.attribute("custom_call_target") != _TOP or len(node.results) != 2:
        return None
    (operand,) = node.operands
    (type, dims), (index, places) = node.results
    fits = operand.dims and dims[:-1] == operand.dims[:-1] and dims[-1] <= operand.dims[-1]
    if type != operand.type or index not in _INDICES or dims != places or not fits:
        return None
    return top_of(scheduler, node, largest=True)
