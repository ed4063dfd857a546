"""Random numbers of distributions: `rng`, from the generator of the vector engine.

The engine draws words of 32 bits; what they become is a graph of other operations. A program draws
the same numbers each time that it is run (`isa.operations.random`), and others at each place where
it draws.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions.expansions import Text
from graph_compiler.lower.nests.nest import PARTITIONS, numbers
from graph_compiler.lower.steps import FillStep
from graph_compiler.schedule.nodes import Node
from graph_compiler.schedule.schedule import Scheduler
from graph_compiler.schedule.simplify import Simplifier
from graph_compiler.schedule.steps import place_of
from graph_compiler.schedule.views import count_of

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

WORD = "u32"

COLUMNS = 1024
"""Words that are drawn for a partition at a time."""

_MANTISSA = 24
"""Bits of a number in [0, 1)."""


class DrawStep(FillStep):
    """A step: random words fill a buffer."""

    def emit(self, device: DeviceProgram) -> None:
        count = count_of(self.target.dims)
        columns = min(COLUMNS, -(-count // PARTITIONS))
        rows = min(PARTITIONS, count // columns)
        size = rows * columns
        for i in numbers(device.builder, count // size):
            self._drawn(device, rows, columns, i * size)
        left = count % size
        if left // columns:
            self._drawn(device, left // columns, columns, count - left)
        if left % columns:
            self._drawn(device, 1, left % columns, count - left % columns)

    def _drawn(self, device: DeviceProgram, rows: int, columns: int, first: Any) -> None:
        tile = device.tile((rows, columns), "uint32")
        device.builder.emit("rng", dst=tile)
        pattern = [(columns, rows), (1, columns)]
        device.copy(device.elements(place_of(self.target), WORD, pattern, first), tile)


def rng(scheduler: Scheduler, node: Node) -> Any:
    """Numbers of a distribution with two parameters; None of types that it does not draw."""
    from graph_compiler.hlo.text import parse_text

    item = node.instruction
    assert item is not None
    row = PRIMITIVE_TYPES[node.type]
    normal = item.attribute("distribution") == _NORMAL
    if row.bits > 32 or row.is_complex or 0 in node.dims:
        return None
    words = Node("parameter", [(WORD, (1 + normal, *node.dims))], [])
    text = Text(Node(node.op, node.results, [words, *node.operands]))
    form = _normal if normal else _uniform if row.is_float else _whole
    if row.kind == "boolean":
        form = _flag
    drawn, *bounds = text.operands
    module = parse_text(text.module([form(text, drawn, node, bounds)]))
    target = scheduler.program.buffer(*words.results[0])
    scheduler.program.steps.append(DrawStep(target))  # type: ignore[arg-type]
    values = [target, *(scheduler.value(operand) for operand in node.operands)]
    simplifier = Simplifier(module)
    block = simplifier.block(module.entry)
    return Scheduler(scheduler.program, simplifier, block, values).run()[0]


_NORMAL = "RNG_NORMAL"


def _part(text: Text, drawn: str, number: int, dims: tuple[int, ...]) -> str:
    """One word for each element."""
    edges = [(number, number + 1, 1), *((0, size, 1) for size in dims)]
    return text.reshape(text.slice(drawn, edges), dims)


def _fraction(text: Text, word: str) -> str:
    """Numbers in [0, 1), all multiples of 2^-24 alike."""
    dims = text.dims(word)
    kept = text.apply("shift-right-logical", word, text.number(WORD, 32 - _MANTISSA, dims))
    return text.apply("multiply", text.convert(kept, "f32"), text.number("f32", 0.5**24, dims))


def _spread(text: Text, bounds: list[str], dims: tuple[int, ...], type: str) -> list[str]:
    wide = [text.convert(bound, type) for bound in bounds]
    return [text.spread(bound, dims, ()) if dims else bound for bound in wide]


def _uniform(text: Text, drawn: str, node: Node, bounds: list[str]) -> str:
    """In [low, high): what rounding takes to the upper bound becomes the lower one."""
    low, high = _spread(text, bounds, node.dims, "f32")
    fraction = _fraction(text, _part(text, drawn, 0, node.dims))
    value = text.apply("multiply", fraction, text.apply("subtract", high, low))
    value = text.convert(text.apply("add", value, low), node.type)
    low, high = _spread(text, bounds, node.dims, node.type)
    return text.apply("select", text.compare("GE", value, high), low, value)


def _normal(text: Text, drawn: str, node: Node, bounds: list[str]) -> str:
    """A radius and an angle (G. E. P. Box and M. E. Muller, 1958)."""
    dims = node.dims
    mean, deviation = _spread(text, bounds, dims, "f32")
    first, second = (_fraction(text, _part(text, drawn, number, dims)) for number in range(2))
    size = text.apply("log", text.apply("subtract", text.number("f32", 1, dims), first))
    radius = text.apply("sqrt", text.apply("multiply", size, text.number("f32", -2, dims)))
    turn = text.apply("multiply", second, text.number("f32", math.tau, dims))
    value = text.apply("multiply", radius, text.apply("cosine", turn))
    value = text.apply("add", text.apply("multiply", value, deviation), mean)
    return text.convert(value, node.type)


def _whole(text: Text, drawn: str, node: Node, bounds: list[str]) -> str:
    """In [low, high), or low where that is empty: the upper half of a word times their distance."""
    dims = node.dims
    wide = "s32" if PRIMITIVE_TYPES[node.type].kind == "signed" else WORD
    low, high = _spread(text, bounds, dims, wide)
    span = text.convert(text.apply("subtract", high, low), WORD)
    moved = text.apply("mulhi", _part(text, drawn, 0, dims), span)
    value = text.apply("add", low, text.convert(moved, wide))
    value = text.apply("select", text.compare("GE", low, high), low, value)
    return text.convert(value, node.type)


def _flag(text: Text, drawn: str, node: Node, bounds: list[str]) -> str:
    """One of both bounds."""
    word = _part(text, drawn, 0, node.dims)
    half = text.number(WORD, 1 << 31, node.dims)
    low, high = _spread(text, bounds, node.dims, node.type)
    return text.apply("select", text.compare("GE", word, half), high, low)
