"""64-bit integers as pairs of 32-bit ones, the lower half and the upper half.

The engines compute with 32 bits at most. Here every node of a block that has 64-bit integers
becomes nodes of u32: moves are done to both halves, and arithmetic is a graph of others, written as
HLO text. In memory a 64-bit integer is its lower half and its upper half behind it, so that a
parameter u64[n] is u32[n, 2]. What `ranges.narrow` could make 32-bit integers of has none here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from graph_compiler.execute.nodes import Block, Node
from graph_compiler.execute.simplify import Simplifier
from graph_compiler.execute.views import MOVES
from graph_compiler.hlo.operators.row import subject
from graph_compiler.hlo.text import parse_text
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions import Text
from graph_compiler.lower.random_bits import GENERATORS, Halves, words_of_state
from isa.errors import NeuronError

HALF = "u32"
BITS = 32
WIDE = frozenset({"s64", "u64"})
"""Types that become pairs."""


class Pair(NamedTuple):
    """The halves of a value, of its type and dimensions."""

    low: Node
    high: Node
    type: str

    @property
    def dims(self) -> tuple[int, ...]:
        return self.low.dims

    @property
    def halves(self) -> tuple[Node, Node]:
        return self.low, self.high


Value = Node | Pair


def has_random_bits(block: Block) -> bool:
    """Whether a block makes random bits, whose state is of 64-bit integers."""
    return any(
        node.op in _GENERATORS or any(map(has_random_bits, node.blocks)) for node in block.nodes
    )


def as_pairs(block: Block) -> None:
    """Make pairs of the 64-bit integers of a block, and of those within it.

    Before: `r = u64[3] add(x, y)`; after: `low = u32[3] add(x0, y0)`, `carry = low < x0`,
    `high = u32[3] add(x1, y1, carry)`. Raises hlo-not-compiled for operations without a rule.
    """
    _Pairs(block).run(is_entry=True)


@dataclass
class _Pairs:
    """The pairs of one block."""

    block: Block
    known: dict[Node, Value] = field(default_factory=dict)
    parts: dict[Node, list[Value]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def run(self, *, is_entry: bool) -> None:
        block = self.block
        block.parameters = [
            made for node in block.parameters for made in self._parameter(node, is_entry)
        ]
        for node in block.nodes:
            self._node(node)
        results: list[Node] = []
        for result in block.results:
            value = self.value(result)
            if not isinstance(value, Pair):
                results.append(value)
            elif is_entry:
                results.append(self._joined(value))
            else:
                results += [value.low, value.high]
        block.results = results
        block.nodes = self.nodes

    def _parameter(self, node: Node, is_entry: bool) -> list[Node]:
        """What a parameter becomes: of the graph both halves in one array, else two."""
        if node.type not in WIDE:
            self.known[node] = node
            return [node]
        if not is_entry:
            made = [_parameter(node, node.dims) for _ in range(2)]
            self.known[node] = Pair(made[0], made[1], node.type)
            return made
        whole = _parameter(node, (*node.dims, 2))
        self.known[node] = self._apart(whole, node.type)
        return [whole]

    def value(self, node: Node) -> Value:
        """What stands for a node."""
        if node not in self.known:  # a constant, which no block lists
            self.known[node] = _constant_pair(node) if node.type in WIDE else node
        return self.known[node]

    def _node(self, node: Node) -> None:
        if node.op in _PICKS:
            parts = self.parts.get(node.operands[0])
            if parts is None:
                self.nodes.append(node)
            self.known[node] = node if parts is None else parts[node.value]
            return
        operands = [self.value(operand) for operand in node.operands]
        if node.blocks:
            self._control(node, operands)
            return
        types = {*(type for type, _ in node.results), *(value.type for value in operands)}
        if not types & WIDE:
            node.operands = self._plain(operands)
            self.nodes.append(node)
            self.known[node] = node
            return
        values = self._made(node, operands)
        if len(node.results) == 1:
            self.known[node] = values[0]
        else:
            self.parts[node] = values

    def _made(self, node: Node, operands: list[Value]) -> list[Value]:
        if node.op in _BOTH_HALVES and node.type in WIDE:
            return [self._each_half(node, operands)]
        rule = _RULES.get(node.op)
        made = [] if rule is None else self._text(node, operands, rule)
        if not made:
            assert node.instruction is not None
            type = next(t for t in (node.type, *(v.type for v in operands)) if t in WIDE)
            raise NeuronError(
                "hlo-not-compiled",
                f"{subject(node.instruction)} of {type}",
                why="The engines have no 64-bit integers, and no rule makes two of 32 bits here.",
                hint="Convert to s32, or graph_compiler.execute runs it on the host.",
            )
        return made

    def _each_half(self, node: Node, operands: list[Value]) -> Pair:
        """The operation on lower halves, and on upper halves."""
        first = _BOTH_HALVES[node.op]
        moved = [self._paired(value, node.type) for value in operands[first:]]
        halves = [
            Node(
                node.op,
                [(HALF, node.dims)],
                [*self._plain(operands[:first]), *(pair.halves[number] for pair in moved)],
                node.instruction,
            )
            for number in range(2)
        ]
        self.nodes += halves
        return Pair(halves[0], halves[1], node.type)

    def _plain(self, values: Sequence[Value]) -> list[Node]:
        return [value for value in values if isinstance(value, Node)]

    def _paired(self, value: Value, type: str) -> Pair:
        """A value as a pair, also one that was narrowed."""
        if isinstance(value, Pair):
            return value
        node = Node("convert", [(type, value.dims)], [value])
        (found,) = self._text(node, [value], _convert)
        assert isinstance(found, Pair)
        return found

    def _text(self, node: Node, operands: Sequence[Value], rule: Rule) -> list[Value]:
        """What a rule's text gives, with the operands as its parameters; nothing without a text."""
        given: list[Node] = []
        for value in operands:
            given += [value.low, value.high] if isinstance(value, Pair) else [value]
        text = Text(Node(node.op, node.results, given))
        names = iter(text.operands)
        values = [
            Halves(next(names), next(names), v.type) if isinstance(v, Pair) else next(names)
            for v in operands
        ]
        made = rule(text, node, values)
        if made is None:
            return []
        flat = [n for v in made for n in ((v.low, v.high) if isinstance(v, Halves) else (v,))]
        found = iter(self._spliced(text.module(flat), given, node))
        return [
            Pair(next(found), next(found), v.type) if isinstance(v, Halves) else next(found)
            for v in made
        ]

    def _spliced(self, text: str, given: Sequence[Node], node: Node) -> list[Node]:
        """The results of a text's graph, whose nodes become this block's."""
        module = parse_text(text)
        inner = Simplifier(module).block(module.entry)
        bound = dict(zip(inner.parameters, given))
        for one in inner.nodes:
            one.operands = [bound.get(operand, operand) for operand in one.operands]
            if one.instruction is not None and node.instruction is not None:
                one.instruction.metadata = node.instruction.metadata
        self.nodes += inner.nodes
        return [bound.get(result, result) for result in inner.results]

    def _apart(self, whole: Node, type: str) -> Pair:
        """Both halves of what lies in memory."""

        def rule(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
            return [_from_words(text, values[0], type)]

        (pair,) = self._text(Node("bitcast-convert", [(type, whole.dims[:-1])], []), [whole], rule)
        assert isinstance(pair, Pair)
        return pair

    def _joined(self, pair: Pair) -> Node:
        """Both halves as they lie in memory."""
        (whole,) = self._text(
            Node("bitcast-convert", [(HALF, (*pair.dims, 2))], []),
            [pair],
            lambda text, node, values: [_words(text, values[0])],
        )
        assert isinstance(whole, Node)
        return whole

    def _control(self, node: Node, operands: list[Value]) -> None:
        """Loops and branches: each pair is two values that go in and come out."""
        for inner in node.blocks:
            _Pairs(inner).run(is_entry=False)
        results = node.results
        flat: list[Node] = []
        for value in operands:
            flat += [value.low, value.high] if isinstance(value, Pair) else [value]
        node.operands = flat
        node.results = []
        for type, dims in results:
            node.results += [(HALF, dims)] * 2 if type in WIDE else [(type, dims)]
        self.nodes.append(node)
        if len(node.results) == 1:
            self.known[node] = node
            return
        picks = [Node("pick", [f], [node], value=i) for i, f in enumerate(node.results)]
        self.nodes += picks
        found = iter(picks)
        values: list[Value] = [
            Pair(next(found), next(found), type) if type in WIDE else next(found)
            for type, _ in results
        ]
        if len(results) == 1:
            node.type, node.dims = "", ()
            self.known[node] = values[0]
        else:
            self.parts[node] = values


_PICKS = frozenset({"pick"})
_GENERATORS = frozenset({"rng-bit-generator"})


def _parameter(node: Node, dims: tuple[int, ...]) -> Node:
    return Node("parameter", [(HALF, dims)], [], node.instruction, node.value)


def _constant_pair(node: Node) -> Pair:
    words = node.value.astype(np.uint64)
    halves = [(words & np.uint64(0xFFFFFFFF)), words >> np.uint64(BITS)]
    made = [
        Node("constant", [(HALF, node.dims)], [], node.instruction, half.astype(np.uint32))
        for half in halves
    ]
    return Pair(made[0], made[1], node.type)


_BOTH_HALVES = {**dict.fromkeys(MOVES, 0), "concatenate": 0, "pad": 0, "select": 1}
"""Operations that only move bits, and the first operand that they move."""


# Rules: the text of an operation, whose 64-bit operands and results are `Halves`

Rule = Callable[[Text, Node, Sequence[Any]], "list[Any] | None"]


def _wide(text: Text, value: Any, type: str) -> Halves:
    """A value as a pair: integers with their sign, and preds."""
    if isinstance(value, Halves):
        return value
    row = PRIMITIVE_TYPES[text.type(value)]
    dims = text.dims(value)
    if row.kind == "signed":
        whole = text.convert(value, "s32")
        sign = text.apply("shift-right-arithmetic", whole, text.number("s32", 31, dims))
        return Halves(text.convert(whole, HALF), text.convert(sign, HALF), type)
    return Halves(text.convert(value, HALF), text.number(HALF, 0, dims), type)


def _from_words(text: Text, whole: str, type: str) -> Halves:
    dims = text.dims(whole)[:-1]
    edges = [(0, size, 1) for size in dims]
    low, high = (text.reshape(text.slice(whole, [*edges, (n, n + 1, 1)]), dims) for n in range(2))
    return Halves(low, high, type)


def _words(text: Text, value: Halves) -> str:
    dims = text.dims(value.low)
    parts = [text.reshape(name, (*dims, 1)) for name in (value.low, value.high)]
    return text.concatenate(parts, len(dims))


def _added(text: Text, a: Halves, b: Halves) -> Halves:
    low = text.apply("add", a.low, b.low)
    carry = text.convert(text.compare("LT", low, a.low), HALF)
    return Halves(low, text.apply("add", text.apply("add", a.high, b.high), carry), a.type)


def _complement(text: Text, a: Halves) -> Halves:
    return Halves(text.apply("not", a.low), text.apply("not", a.high), a.type)


def _negative(text: Text, a: Halves) -> Halves:
    dims = text.dims(a.low)
    one = Halves(text.number(HALF, 1, dims), text.number(HALF, 0, dims), a.type)
    return _added(text, _complement(text, a), one)


def _multiplied(text: Text, a: Halves, b: Halves) -> Halves:
    high = text.apply("mulhi", a.low, b.low)
    for left, right in ((a.low, b.high), (a.high, b.low)):
        high = text.apply("add", high, text.apply("multiply", left, right))
    return Halves(text.apply("multiply", a.low, b.low), high, a.type)


def _bitwise(op: str) -> Callable[[Text, Halves, Halves], Halves]:
    def bitwise(text: Text, a: Halves, b: Halves) -> Halves:
        return Halves(text.apply(op, a.low, b.low), text.apply(op, a.high, b.high), a.type)

    return bitwise


def _less(text: Text, a: Halves, b: Halves) -> str:
    """Whether a < b: upper halves decide with their sign, lower ones where those are equal."""
    uppers = [a.high, b.high]
    if PRIMITIVE_TYPES[a.type].kind == "signed":
        uppers = [text.convert(name, "s32") for name in uppers]
    below = text.apply("and", text.compare("EQ", *uppers), text.compare("LT", a.low, b.low))
    return text.apply("or", text.compare("LT", *uppers), below)


def _equal(text: Text, a: Halves, b: Halves) -> str:
    return text.apply("and", text.compare("EQ", a.low, b.low), text.compare("EQ", a.high, b.high))


_COMPARISONS: dict[str, Callable[[Text, Halves, Halves], str]] = {
    "LT": _less,
    "GT": lambda text, a, b: _less(text, b, a),
    "GE": lambda text, a, b: text.apply("not", _less(text, a, b)),
    "LE": lambda text, a, b: text.apply("not", _less(text, b, a)),
    "EQ": _equal,
    "NE": lambda text, a, b: text.apply("not", _equal(text, a, b)),
}


def _compare(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
    assert node.instruction is not None
    type = next(value.type for value in values if isinstance(value, Halves))
    a, b = (_wide(text, value, type) for value in values)
    return [_COMPARISONS[node.instruction.attribute("comparison_direction")](text, a, b)]


def _chosen(text: Text, flag: str, a: Halves, b: Halves) -> Halves:
    low, high = (text.apply("select", flag, x, y) for x, y in ((a.low, b.low), (a.high, b.high)))
    return Halves(low, high, a.type)


def _maximum(text: Text, a: Halves, b: Halves) -> Halves:
    return _chosen(text, _less(text, a, b), b, a)


def _minimum(text: Text, a: Halves, b: Halves) -> Halves:
    return _chosen(text, _less(text, b, a), b, a)


def _absolute(text: Text, a: Halves) -> Halves:
    negative = text.compare("NE", _sign_bit(text, a), text.number(HALF, 0, text.dims(a.low)))
    return _chosen(text, negative, _negative(text, a), a)


def _sign_bit(text: Text, a: Halves) -> str:
    return text.apply("shift-right-logical", a.high, text.number(HALF, 31, text.dims(a.high)))


def _amount(text: Text, value: Halves) -> tuple[str, str, str]:
    """By how much to shift within 64 bits, how much more than 32 that is, and the rest to 32.
    Amounts of 64 and more leave nothing, as those of 32 and more do in 32 bits."""
    dims = text.dims(value.low)
    most = text.number(HALF, 2 * BITS, dims)
    small = text.compare("EQ", value.high, text.number(HALF, 0, dims))
    amount = text.apply("select", small, text.apply("minimum", value.low, most), most)
    width = text.number(HALF, BITS, dims)
    # Below zero both are large numbers, which shift everything out.
    return amount, text.apply("subtract", amount, width), text.apply("subtract", width, amount)


def _shifted(forward: str, backward: str, ahead: str) -> Callable[[Text, Halves, Halves], Halves]:
    """Bits moved `ahead`, towards the half of that name: what leaves the other half enters it."""

    def shift(text: Text, a: Halves, b: Halves) -> Halves:
        amount, beyond, rest = _amount(text, b)
        behind, front = (a.low, a.high) if ahead == "high" else (a.high, a.low)
        moved = text.apply(forward, front, amount)
        for by, op in ((rest, backward), (beyond, forward)):
            moved = text.apply("or", moved, text.apply(op, behind, by))
        left = text.apply(forward, behind, amount)
        parts = (left, moved) if ahead == "high" else (moved, left)
        return Halves(*parts, a.type)

    return shift


_left = _shifted("shift-left", "shift-right-logical", "high")
_right = _shifted("shift-right-logical", "shift-left", "low")


def _right_signed(text: Text, a: Halves, b: Halves) -> Halves:
    """Zeros would enter negative numbers, so their complements move."""
    sign = text.apply("negate", _sign_bit(text, a))
    mask = Halves(sign, sign, a.type)
    turn = _bitwise("xor")
    return turn(text, _right(text, turn(text, a, mask), b), mask)


def _convert(text: Text, node: Node, values: Sequence[Any]) -> list[Any] | None:
    (value,) = values
    if not isinstance(value, Halves):
        row = PRIMITIVE_TYPES[text.type(value)]
        return [_wide(text, value, node.type)] if row.is_integer or row.kind == "boolean" else None
    row = PRIMITIVE_TYPES[node.type]
    if node.type in WIDE:
        return [value._replace(type=node.type)]
    if row.kind == "boolean":
        some = text.apply("or", value.low, value.high)
        return [text.compare("NE", some, text.number(HALF, 0, text.dims(some)))]
    return [text.convert(value.low, node.type)] if row.is_integer else None


def _bitcast(text: Text, node: Node, values: Sequence[Any]) -> list[Any] | None:
    (value,) = values
    if isinstance(value, Halves):
        if node.type in WIDE:
            return [value._replace(type=node.type)]
        whole = _words(text, value)
        if PRIMITIVE_TYPES[node.type].bits == BITS:
            return [whole if node.type == HALF else text.bits_as(whole, node.type)]
        return None
    if PRIMITIVE_TYPES[text.type(value)].bits != BITS:
        return None
    whole = value if text.type(value) == HALF else text.bits_as(value, HALF)
    return [_from_words(text, whole, node.type)]


def _iota(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
    assert node.instruction is not None
    axis = node.instruction.attribute("dimensions")[0]
    low = text.add(HALF, node.dims, "iota", [], f"iota_dimension={axis}")
    return [Halves(low, text.number(HALF, 0, node.dims), node.type)]


def _random_bits(text: Text, node: Node, values: Sequence[Any]) -> list[Any] | None:
    assert node.instruction is not None
    generator = GENERATORS[node.instruction.attribute("rng_algorithm")]
    type, dims = node.results[1]
    state, words = generator(text, words_of_state(text, values[0]), dims, type)
    return [state, words]


def _binary(function: Callable[[Text, Halves, Halves], Halves]) -> Rule:
    def rule(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
        a, b = (_wide(text, value, node.type) for value in values)
        return [function(text, a, b)]

    return rule


def _unary(function: Callable[[Text, Halves], Halves]) -> Rule:
    return lambda text, node, values: [function(text, _wide(text, values[0], node.type))]


def _subtracted(text: Text, a: Halves, b: Halves) -> Halves:
    return _added(text, a, _negative(text, b))


_RULES: dict[str, Rule] = {
    "add": _binary(_added),
    "subtract": _binary(_subtracted),
    "multiply": _binary(_multiplied),
    "maximum": _binary(_maximum),
    "minimum": _binary(_minimum),
    **{op: _binary(_bitwise(op)) for op in ("and", "or", "xor")},
    "shift-left": _binary(_left),
    "shift-right-logical": _binary(_right),
    "shift-right-arithmetic": _binary(_right_signed),
    "not": _unary(_complement),
    "negate": _unary(_negative),
    "abs": _unary(_absolute),
    "compare": _compare,
    "convert": _convert,
    "bitcast-convert": _bitcast,
    "iota": _iota,
    "rng-bit-generator": _random_bits,
}
OPCODES = frozenset(_RULES)
"""Opcodes with a rule for 64-bit integers."""
