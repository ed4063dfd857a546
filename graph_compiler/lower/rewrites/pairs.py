"""64-bit integers as pairs of 32-bit ones, the lower half and the upper half.

The engines compute with 32 bits at most. Here every node of a block that has 64-bit integers
becomes nodes of u32: moves are done to both halves, and arithmetic is a graph of others, written as
HLO text (`pair_rules`). In memory a 64-bit integer is its lower half and its upper half behind it,
so that a parameter u64[n] is u32[n, 2]. What `ranges.narrow` could make 32-bit integers of has none
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from graph_compiler.hlo.graph import Computation
from graph_compiler.hlo.operators.row import subject
from graph_compiler.lower.expansions.expansions import Text
from graph_compiler.lower.rewrites.pair_numbers import BITS, HALF, WIDE
from graph_compiler.lower.rewrites.pair_rules import (
    EXACT,
    RULES,
    Rule,
    convert,
    from_words,
    index,
    words,
)
from graph_compiler.lower.rewrites.random_bits import Halves
from graph_compiler.lower.rewrites.written import spliced
from graph_compiler.schedule.nodes import Block, Node
from graph_compiler.schedule.simplify import Simplifier
from graph_compiler.schedule.views import MOVES
from isa.errors import NeuronError

OPCODES = frozenset(RULES)
"""Opcodes with a rule for 64-bit integers."""


class WordHalves(NamedTuple):
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


Value = Node | WordHalves


def is_wide(block: Block) -> bool:
    """Whether a block has 64-bit integers."""
    values = (*block.parameters, *block.results, *block.nodes)
    return any(
        any(type in WIDE for type, _ in node.results)
        or any(operand.type in WIDE for operand in node.operands)
        or any(map(is_wide, node.blocks))
        for node in values
    )


def has_random_bits(block: Block) -> bool:
    """Whether a block makes random bits, whose state is of 64-bit integers."""
    return any(
        node.op in _GENERATORS or any(map(has_random_bits, node.blocks)) for node in block.nodes
    )


def as_pairs(block: Block, simplifier: Simplifier, *, computed: bool) -> None:
    """Make pairs of the 64-bit integers of a block, and of those within it.

    Before: `r = u64[3] add(x, y)`; after: `low = u32[3] add(x0, y0)`, `carry = low < x0`,
    `high = u32[3] add(x1, y1, carry)`. `computed`: whether pairs are computed with; else they are
    only moved, compared and chosen, and results that may need 64 bits are refused. Raises
    hlo-not-compiled for these, and for operations without a rule.
    """
    _Pairs(block, simplifier, computed).run(is_entry=True)


@dataclass
class _Pairs:
    """The pairs of one block."""

    block: Block
    simplifier: Simplifier
    computed: bool
    known: dict[Node, Value] = field(default_factory=dict)
    parts: dict[Node, list[Value]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def run(self, *, is_entry: bool) -> None:
        block = self.block
        block.parameters = [
            made for node in block.parameters for made in self._parameter(node, is_entry)
        ]
        uses = block.uses()
        for node in block.nodes:
            if node in uses:
                self._node(node)
        results: list[Node] = []
        for result in block.results:
            value = self.value(result)
            if not isinstance(value, WordHalves):
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
            self.known[node] = WordHalves(made[0], made[1], node.type)
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
        indexed = _INDICES.get(node.op, slice(0, 0))
        operands[indexed] = [self._index(value) for value in operands[indexed]]
        is_wide = any(type in WIDE for type, _ in node.results)
        made: list[Value] = []
        if node.op in _MOVED:
            made = self._moved(node, operands)
        elif node.op in _APPLIED:
            made = self._applied(node, operands)
        elif node.op in RULES and (self.computed or not is_wide or node.op in EXACT):
            made = self._text(node, operands, RULES[node.op])
        if not made:
            raise self._refused(node, operands)
        return made

    def _refused(self, node: Node, operands: list[Value]) -> NeuronError:
        assert node.instruction is not None
        types = (*(type for type, _ in node.results), *(value.type for value in operands))
        type = next(type for type in types if type in WIDE)
        known = node.op in RULES or node.op in _APPLIED
        why = (
            "The engines have no 64-bit integers, and nothing shows that the results fit into 32."
            if known and not self.computed
            else "The engines have no 64-bit integers, and no rule makes two of 32 bits here."
        )
        hint = (
            "Compute in pairs (--native-int64 enabled, GraphOptions(native_int64='enabled'))."
            if known and not self.computed
            else "Convert to s32, or graph_compiler.execute runs it on the host."
        )
        what = f"{subject(node.instruction)} of {type}"
        return NeuronError("hlo-not-compiled", what, why=why, hint=hint)

    def _index(self, value: Value) -> Node:
        """A start index of 32 bits."""
        if not isinstance(value, WordHalves):
            return value
        (found,) = self._text(Node("convert", [("s32", value.dims)], []), [value], index)
        assert isinstance(found, Node)
        return found

    def _moved(self, node: Node, operands: list[Value]) -> list[Value]:
        """What only moves bits: both halves alike, or data of another type at indices."""
        if node.type in WIDE:
            return [self._each_half(node, operands, node.instruction)]
        node.operands = self._plain(operands)
        self.nodes.append(node)
        return [node]

    def _applied(self, node: Node, operands: list[Value]) -> list[Value]:
        """What applies a computation: the halves of an array are two arrays."""
        assert node.instruction is not None
        inner = self.simplifier.block(node.instruction.called[0])
        types = [parameter.type for parameter in inner.parameters]
        assigned = node.op == _SCATTER and inner.results == [inner.parameters[-1]]
        try:
            _Pairs(inner, self.simplifier, self.computed).run(is_entry=False)
        except NeuronError as error:
            if error.code == "hlo-not-compiled":
                return []  # and the operation is named instead
            raise
        if node.op in _ORDERING:
            inner.parameters = _side_by_side(inner.parameters, types)
        if assigned and node.type in WIDE and len(node.results) == 1:
            return [self._assigned(node, operands, inner)]
        forms = dict(_form_of_operands(node))
        flat: list[Node] = []
        for position, value in enumerate(operands):
            type = forms.get(position, value.type)
            pair = self._paired(value, type) if type in WIDE else value
            flat += pair.halves if isinstance(pair, WordHalves) else [pair]
        results = node.results
        made = Node(node.op, [], flat, self._calling(node, inner))
        for type, dims in results:
            made.results += [(HALF, dims)] * 2 if type in WIDE else [(type, dims)]
        self.nodes.append(made)
        if len(made.results) == 1:
            made.type, made.dims = made.results[0]
            return [made]
        picks = [Node("pick", [f], [made], value=i) for i, f in enumerate(made.results)]
        self.nodes += picks
        found = iter(picks)
        return [
            WordHalves(next(found), next(found), type) if type in WIDE else next(found)
            for type, _ in results
        ]

    def _assigned(self, node: Node, operands: list[Value], inner: Block) -> WordHalves:
        """A scatter whose updates take the place of what is there."""
        low, _, update, _ = inner.parameters
        inner.parameters, inner.results = [low, update], [update]
        return self._each_half(node, operands, self._calling(node, inner))

    def _calling(self, node: Node, inner: Block) -> Any:
        """The node's instruction with a computation of its own, which is this block."""
        assert node.instruction is not None
        (called, *_) = node.instruction.called
        own = Computation(called.name, called.instructions, called.root)
        self.simplifier.made[own] = inner
        instruction = copy(node.instruction)
        instruction.called = [own]
        return instruction

    def _each_half(self, node: Node, operands: list[Value], instruction: Any) -> WordHalves:
        """The operation on lower halves, and on upper halves."""
        places = range(len(operands))[_MOVED.get(node.op, _UPDATES)]
        moved = {place: self._paired(operands[place], node.type) for place in places}

        def half(number: int) -> Node:
            flat = [
                moved[place].halves[number] if place in moved else value
                for place, value in enumerate(operands)
            ]
            return Node(node.op, [(HALF, node.dims)], self._plain(flat), instruction)

        halves = half(0), half(1)
        self.nodes += halves
        return WordHalves(halves[0], halves[1], node.type)

    def _plain(self, values: Sequence[Value]) -> list[Node]:
        return [value for value in values if isinstance(value, Node)]

    def _paired(self, value: Value, type: str) -> WordHalves:
        """A value as a pair, also one that was narrowed."""
        if isinstance(value, WordHalves):
            return value
        node = Node("convert", [(type, value.dims)], [value])
        (found,) = self._text(node, [value], convert)
        assert isinstance(found, WordHalves)
        return found

    def _text(self, node: Node, operands: Sequence[Value], rule: Rule) -> list[Value]:
        """What a rule's text gives, with the operands as its parameters; nothing without a text."""
        given: list[Node] = []
        for value in operands:
            given += [value.low, value.high] if isinstance(value, WordHalves) else [value]
        text = Text(Node(node.op, node.results, given))
        names = iter(text.operands)
        values = [
            Halves(next(names), next(names), v.type) if isinstance(v, WordHalves) else next(names)
            for v in operands
        ]
        made = rule(text, node, values)
        if made is None:
            return []
        flat = [n for v in made for n in ((v.low, v.high) if isinstance(v, Halves) else (v,))]
        found = iter(spliced(text.module(flat), given, self.nodes, node))
        return [
            WordHalves(next(found), next(found), v.type) if isinstance(v, Halves) else next(found)
            for v in made
        ]

    def _apart(self, whole: Node, type: str) -> WordHalves:
        """Both halves of what lies in memory."""

        def rule(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
            return [from_words(text, values[0], type)]

        (pair,) = self._text(Node("bitcast-convert", [(type, whole.dims[:-1])], []), [whole], rule)
        assert isinstance(pair, WordHalves)
        return pair

    def _joined(self, pair: WordHalves) -> Node:
        """Both halves as they lie in memory."""
        (whole,) = self._text(
            Node("bitcast-convert", [(HALF, (*pair.dims, 2))], []),
            [pair],
            lambda text, node, values: [words(text, values[0])],
        )
        assert isinstance(whole, Node)
        return whole

    def _control(self, node: Node, operands: list[Value]) -> None:
        """Loops and branches: each pair is two values that go in and come out."""
        for inner in node.blocks:
            _Pairs(inner, self.simplifier, self.computed).run(is_entry=False)
        results = node.results
        flat: list[Node] = []
        for value in operands:
            flat += [value.low, value.high] if isinstance(value, WordHalves) else [value]
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
            WordHalves(next(found), next(found), type) if type in WIDE else next(found)
            for type, _ in results
        ]
        if len(results) == 1:
            node.type, node.dims = "", ()
            self.known[node] = values[0]
        else:
            self.parts[node] = values


_PICKS = frozenset({"pick"})
_GENERATORS = frozenset({"rng-bit-generator", "rng-get-and-update-state"})


def _parameter(node: Node, dims: tuple[int, ...]) -> Node:
    return Node("parameter", [(HALF, dims)], [], node.instruction, node.value)


def _constant_pair(node: Node) -> WordHalves:
    words = node.value.astype(np.uint64)
    halves = [(words & np.uint64(0xFFFFFFFF)), words >> np.uint64(BITS)]
    made = [
        Node("constant", [(HALF, node.dims)], [], node.instruction, half.astype(np.uint32))
        for half in halves
    ]
    return WordHalves(made[0], made[1], node.type)


_ALL, _FIRST, _UPDATES = slice(None), slice(0, 1), slice(0, None, 2)

_MOVED = {
    **dict.fromkeys(MOVES, _ALL),
    **dict.fromkeys(("concatenate", "pad"), _ALL),
    "select": slice(1, None),
    **dict.fromkeys(("dynamic-slice", "gather"), _FIRST),
    "dynamic-update-slice": slice(0, 2),
}
"""Operations that only move bits, and the operands that they move."""

_INDICES = {
    "dynamic-slice": slice(1, None),
    "gather": slice(1, None),
    "dynamic-update-slice": slice(2, None),
    "scatter": slice(1, 2),
}
"""Operands that are start indices; of a scatter of one array."""

_SCATTER = "scatter"
_ORDERING = frozenset({"sort"})
_APPLIED = frozenset({"reduce", "reduce-window", "scatter", "sort"})
"""Operations that apply a computation to arrays, and those whose computation puts in order."""


def _form_of_operands(node: Node) -> Iterator[tuple[int, str]]:
    """The positions of operands that are of the type of a result."""
    count = len(node.results)
    for number, (type, _) in enumerate(node.results):
        yield number, type
        if node.op not in _ORDERING:  # initial values, or updates behind the indices
            yield len(node.operands) - count + number, type


def _side_by_side(parameters: list[Node], types: list[str]) -> list[Node]:
    """Halves of two elements that are compared: both lower ones, then both upper ones."""
    found: list[Node] = []
    given = iter(parameters)
    for type in types[::2]:
        if type in WIDE:
            low, high, other_low, other_high = (next(given) for _ in range(4))
            found += [low, other_low, high, other_high]
        else:
            found += [next(given), next(given)]
    return found
