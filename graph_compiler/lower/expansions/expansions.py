"""Operations that become other operations: each as a graph of HLO text, scheduled in their place.

A function of `EXPANSIONS` writes the text for one instruction, with the instruction's operands as
parameters, or gives None for variants that it has no text for. What the text says is fused with its
surroundings like any other part of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from graph_compiler.schedule.schedule import Scheduler
from graph_compiler.schedule.simplify import Simplifier
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Computation, Instruction
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.schedule.nodes import Node

Dims = Sequence[int]


def shape(type: str, dims: Dims) -> str:
    """A shape as text has it."""
    return f"{type}[{','.join(map(str, dims))}]"


def braces(numbers: Dims) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


class Text:
    """A computation that is being written: methods add an instruction and give its name."""

    def __init__(self, node: Node) -> None:
        self.types: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.lines: list[str] = []
        self.computations: list[str] = []
        self.operands = [
            self.add(operand.type, operand.dims, "parameter", [str(number)])
            for number, operand in enumerate(node.operands)
        ]

    def add(self, type: str, dims: Dims, op: str, operands: Sequence[str], more: str = "") -> str:
        """One instruction. `more`: its attributes."""
        name = f"v{len(self.lines)}"
        tail = f", {more}" if more else ""
        self.lines.append(f"  {name} = {shape(type, dims)} {op}({', '.join(operands)}){tail}")
        self.types[name] = type, tuple(dims)
        return name

    def type(self, name: str) -> str:
        return self.types[name][0]

    def dims(self, name: str) -> tuple[int, ...]:
        return self.types[name][1]

    def apply(self, op: str, *operands: str) -> str:
        """An element-wise operation that keeps the type."""
        return self.add(self.type(operands[-1]), self.dims(operands[-1]), op, operands)

    def convert(self, name: str, type: str) -> str:
        if self.type(name) == type:
            return name
        return self.add(type, self.dims(name), "convert", [name])

    def number(self, type: str, value: Any, dims: Dims = ()) -> str:
        """One number in every element."""
        scalar = self.add(type, (), "constant", [str(value)])
        return self.spread(scalar, dims, ()) if dims else scalar

    def spread(self, name: str, dims: Dims, axes: Dims) -> str:
        """An array whose dimensions become `axes` of larger ones."""
        return self.add(self.type(name), dims, "broadcast", [name], f"dimensions={braces(axes)}")

    def reshape(self, name: str, dims: Dims) -> str:
        return self.add(self.type(name), dims, "reshape", [name])

    def transpose(self, name: str, order: Dims) -> str:
        if list(order) == list(range(len(order))):
            return name
        dims = [self.dims(name)[axis] for axis in order]
        return self.add(self.type(name), dims, "transpose", [name], f"dimensions={braces(order)}")

    def swapped(self, name: str) -> str:
        """Matrices in the last two dimensions, transposed."""
        rank = len(self.dims(name))
        return self.transpose(name, [*range(rank - 2), rank - 1, rank - 2])

    def slice(self, name: str, parts: Sequence[tuple[int, int, int]]) -> str:
        """Of each dimension the elements from a first to before a last one, by a step."""
        dims = [-(-(end - start) // step) for start, end, step in parts]
        text = ",".join(f"[{start}:{end}:{step}]" for start, end, step in parts)
        return self.add(self.type(name), dims, "slice", [name], f"slice={{{text}}}")

    def pad(
        self, name: str, edges: Sequence[tuple[int, int, int]], filling: str | None = None
    ) -> str:
        """Zeros, or a scalar, before, behind and between elements."""
        dims = [
            low + high + size + max(0, size - 1) * interior
            for size, (low, high, interior) in zip(self.dims(name), edges)
        ]
        filling = self.number(self.type(name), 0) if filling is None else filling
        text = "x".join(f"{low}_{high}_{interior}" for low, high, interior in edges)
        return self.add(self.type(name), dims, "pad", [name, filling], f"padding={text}")

    def concatenate(self, names: Sequence[str], axis: int) -> str:
        """Arrays one behind the other along a dimension."""
        dims = list(self.dims(names[0]))
        dims[axis] = sum(self.dims(name)[axis] for name in names)
        return self.add(self.type(names[0]), dims, "concatenate", names, f"dimensions={{{axis}}}")

    def compare(self, direction: str, left: str, right: str) -> str:
        """A pred of each pair of elements."""
        more = f"direction={direction}"
        return self.add("pred", self.dims(left), "compare", [left, right], more)

    def bits_as(self, name: str, type: str) -> str:
        """The same bits, read as a type of that width."""
        return self.add(type, self.dims(name), "bitcast-convert", [name])

    def sum(self, name: str, axes: Dims) -> str:
        """The sum along dimensions."""
        type = self.type(name)
        dims = [size for axis, size in enumerate(self.dims(name)) if axis not in axes]
        adder = self.combiner("add", type)
        zero = self.number(type, 0)
        more = f"dimensions={braces(axes)}, to_apply={adder}"
        return self.add(type, dims, "reduce", [name, zero], more)

    def combiner(self, op: str, type: str) -> str:
        """A computation of two scalars."""
        name = f"{op}_{type}"
        text = (
            f"{name} {{\n  a = {type}[] parameter(0)\n  b = {type}[] parameter(1)\n"
            f"  ROOT r = {type}[] {op}(a, b)\n}}\n"
        )
        if text not in self.computations:
            self.computations.append(text)
        return name

    def fold(self, opcode: str | None, left: str, right: str) -> str:
        """Both folded by an operation, or by a computation of the graph, which `STEP` stands
        for."""
        if opcode is not None:
            return self.apply(opcode, left, right)
        type = self.type(left)
        self.stand_in(type)
        axes = range(len(self.dims(left)))
        more = f"dimensions={braces(axes)}, to_apply={STEP}"
        return self.add(type, self.dims(left), "map", [left, right], more)

    def stand_in(self, type: str) -> None:
        """`STEP`, in whose place comes a computation of the graph, of two scalars."""
        step = (
            f"{STEP} {{\n  a = {type}[] parameter(0)\n  b = {type}[] parameter(1)\n"
            f"  ROOT r = {type}[] add(a, b)\n}}\n"
        )
        if step not in self.computations:
            self.computations.append(step)

    @property
    def calls(self) -> bool:
        """Whether `STEP` stands for a computation of the graph."""
        return any(STEP in one for one in self.computations)

    def module(self, results: Sequence[str]) -> str:
        """The text of a module that gives these."""
        parts = ", ".join(shape(*self.types[name]) for name in results)
        lines = [*self.lines, f"  ROOT result = ({parts}) tuple({', '.join(results)})"]
        return "\n".join(["HloModule expansion", "", *self.computations, "ENTRY e {", *lines, "}"])


Expansion = Callable[["Node"], str | None]


def expanded(scheduler: Scheduler, node: Node, text: str, called: Computation | None = None) -> Any:
    """A node as the graph of a text; None where that has no form either. `called`: what its
    computation `step` stands for."""
    from graph_compiler.hlo.text import parse_text

    module = parse_text(text)
    if called is not None:
        for computation in module.computations:
            for item in computation.instructions:
                item.called = [called if c.name == STEP else c for c in item.called]
    named, device = node.instruction, cast("DeviceProgram", scheduler.program)
    if named is not None and any(map(_is_loop, module.instructions())):
        device.notes.remark(named.name, "a loop, a round for each row, column or slice")
    simplifier = Simplifier(module)
    block = simplifier.block(module.entry)
    values = [scheduler.value(operand) for operand in node.operands]
    try:
        results = Scheduler(scheduler.program, simplifier, block, values).run()
    except NeuronError as error:
        if error.code == "hlo-not-compiled":
            return None  # and the instruction of the graph is named instead
        raise
    return results[0] if len(node.results) == 1 else results


def _is_loop(item: Instruction) -> bool:
    return item.opcode in _LOOPS


_LOOPS = frozenset({"while"})

STEP = "step"
"""The name of a computation that stands for one of the graph."""


def handler(expansion: Expansion) -> Callable[[Scheduler, Node], Any]:
    """How to schedule what has an expansion."""

    def handle(scheduler: Scheduler, node: Node) -> Any:
        text = expansion(node)
        return None if text is None else expanded(scheduler, node, text)

    return handle


def first_of(
    *handlers: Callable[[Scheduler, Node], Any],
) -> Callable[[Scheduler, Node], Any]:
    """The first of several ways that takes a node."""

    def handle(scheduler: Scheduler, node: Node) -> Any:
        for each in handlers:
            result = each(scheduler, node)
            if result is not None:
                return result
        return None

    return handle


# Batch normalisation


def _normalised(text: Text, x: str, vectors: Sequence[str], feature: int, epsilon: float) -> str:
    """(x - mean) * scale / sqrt(variance + epsilon) + offset; `vectors` are scale, offset, mean
    and variance."""
    dims = text.dims(x)
    scale, offset, mean, variance = vectors
    spread = text.apply("add", variance, text.number("f32", epsilon, text.dims(variance)))
    factor = text.apply("multiply", scale, text.apply("rsqrt", spread))
    mean, factor, offset = (text.spread(v, dims, [feature]) for v in (mean, factor, offset))
    return text.apply(
        "add", text.apply("multiply", text.apply("subtract", x, mean), factor), offset
    )


def _normalisation(node: Node) -> tuple[Text, list[str], int, float, list[int]]:
    item = node.instruction
    assert item is not None
    text = Text(node)
    feature, epsilon = item.attribute("feature_index"), item.attribute("epsilon")
    others = [axis for axis in range(len(node.operands[0].dims)) if axis != feature]
    return text, [text.convert(name, "f32") for name in text.operands], feature, epsilon, others


def batch_norm_inference(node: Node) -> str:
    text, (x, *vectors), feature, epsilon, _ = _normalisation(node)
    result = _normalised(text, x, vectors, feature, epsilon)
    return text.module([text.convert(result, node.type)])


def _mean(text: Text, x: str, axes: Sequence[int]) -> str:
    dims = text.dims(x)
    count = 1
    for axis in axes:
        count *= dims[axis]
    total = text.sum(x, axes)
    return text.apply("divide", total, text.number("f32", max(1, count), text.dims(total)))


def batch_norm_training(node: Node) -> str:
    text, (x, scale, offset), feature, epsilon, others = _normalisation(node)
    mean = _mean(text, x, others)
    centred = text.apply("subtract", x, text.spread(mean, text.dims(x), [feature]))
    variance = _mean(text, text.apply("multiply", centred, centred), others)
    result = _normalised(text, x, (scale, offset, mean, variance), feature, epsilon)
    type = node.operands[0].type
    return text.module([text.convert(name, type) for name in (result, mean, variance)])


def batch_norm_grad(node: Node) -> str:
    text, (x, scale, mean, variance, gradient), feature, epsilon, others = _normalisation(node)
    dims = text.dims(x)
    spread = text.apply("add", variance, text.number("f32", epsilon, text.dims(variance)))
    inverse = text.apply("rsqrt", spread)
    centred = text.apply("subtract", x, text.spread(mean, dims, [feature]))
    weighted = text.sum(text.apply("multiply", gradient, centred), others)
    slope = text.apply("divide", weighted, spread)
    size = 1
    for axis in others:
        size *= dims[axis]
    count = text.number("f32", max(1, size), text.dims(slope))
    total = text.sum(gradient, others)
    columns = [
        text.spread(text.apply("divide", vector, count), dims, [feature])
        for vector in (total, slope)
    ]
    inner = text.apply("subtract", gradient, columns[0])
    inner = text.apply("subtract", inner, text.apply("multiply", centred, columns[1]))
    factor = text.spread(text.apply("multiply", scale, inverse), dims, [feature])
    results = (
        text.apply("multiply", inner, factor),
        text.apply("multiply", weighted, inverse),
        total,
    )
    return text.module([text.convert(name, node.operands[0].type) for name in results])


# Padding


def pad(node: Node) -> str | None:
    """Negative edges: what is there is padded less, or cut behind."""
    from graph_compiler.hlo.operators.slicing import padding_of

    item = node.instruction
    assert item is not None
    text = Text(node)
    value, fill = text.operands
    edges = padding_of(item)
    grown = [(max(0, low), max(0, high), interior) for low, high, interior in edges]
    dims = [
        low + high + size + max(0, size - 1) * interior
        for size, (low, high, interior) in zip(node.operands[0].dims, grown)
    ]
    padding = "x".join(f"{low}_{high}_{interior}" for low, high, interior in grown)
    if grown == [tuple(edge) for edge in edges]:
        return None
    whole = text.add(node.type, dims, "pad", [value, fill], f"padding={padding}")
    parts = [(max(0, -low), size - max(0, -high), 1) for size, (low, high, _) in zip(dims, edges)]
    return text.module([text.slice(whole, parts)])


EXPANSIONS: dict[str, Expansion] = {
    "batch-norm-inference": batch_norm_inference,
    "batch-norm-training": batch_norm_training,
    "batch-norm-grad": batch_norm_grad,
    "pad": pad,
}
"""The text of each opcode."""
