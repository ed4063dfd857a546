"""Mutated graphs, one for each seed: of what a damaged or hostile file may hold.

Sources are an example of every opcode, random graphs with loops, random structured operations and,
where they are, the small StableHLO conformance cases. A mutant is a change of a graph's structure
(attributes, shapes, operands, calls, opcodes, types), of the bytes of its proto, or of the
characters of its text.
"""

from __future__ import annotations

import pickle
import random
import re
from collections import defaultdict
from contextlib import suppress
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from conformance_cases import DATA, cases, protos
from random_graphs import seeded
from random_operations import FAMILIES
from random_steps import random_graph

from graph_compiler import parse_text
from graph_compiler.hlo import PRIMITIVE_TYPES, Module, Record, Shape
from graph_compiler.hlo.operators import OPERATORS
from graph_compiler.hlo.operators.examples import example_module, has_example
from graph_compiler.hlo.proto import MALFORMED, from_proto, to_proto
from graph_compiler.hlo.text import print_text
from isa.errors import NeuronError

SMALL = 2048
"""Bytes up to which a conformance case is a source: most are of one operation."""

NUMBERS = (-1, 0, 1, 2, 3, 7, 1 << 20, 1 << 31, (1 << 40) + 1, (1 << 62) + 1, -(1 << 40))


class Mutator:
    """Changes a graph in ways that a damaged or hostile file can."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, value: Any) -> Any:
        """Another value in the place of one of an attribute's."""
        choose = self.random.choice
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return choose((*NUMBERS, value + 1, value - 1))
        if isinstance(value, float):
            return choose((0.0, -1.0, float("nan"), 1e300))
        if isinstance(value, str):
            return choose(("", "BOGUS", value + "X"))
        if isinstance(value, tuple) and value:
            place = self.random.randrange(len(value))
            changed = (*value[:place], self.value(value[place]), *value[place + 1 :])
            return choose((value[:-1], (*value, value[-1]), changed, changed, changed))
        if isinstance(value, Record) and value.values:
            name = choose(sorted(value.values))
            if self.random.random() < 0.15:
                rest = {key: inner for key, inner in value.values.items() if key != name}
                return Record(value.message, value.unknown, **rest)
            return value.replace(**{name: self.value(value.values[name])})
        return self.shape(value) if isinstance(value, Shape) else value

    def shape(self, shape: Shape) -> Shape:
        kinds = ("f32", "s32", "pred", "u8", "bf16", "c64", "token", "s4", "f64", "f8e4m3fn")
        if shape.tuple_shapes:
            parts = list(shape.tuple_shapes)
            place = self.random.randrange(len(parts))
            parts[place] = self.shape(parts[place])
            return Shape.tuple_of(parts)
        sizes = list(shape.dimensions)
        if sizes:
            place = self.random.randrange(len(sizes))
            sizes[place] = self.value(sizes[place])
        return self.random.choice(
            (
                Shape(shape.element_type, tuple(sizes)),
                Shape(shape.element_type, (*shape.dimensions, self.random.choice(NUMBERS))),
                Shape(self.random.choice(kinds), shape.dimensions),
                Shape.tuple_of([shape, shape]),
            )
        )

    def graph(self, module: Module) -> None:
        """One to two changes: of an attribute, a shape, an operand, a called computation."""
        items = list(module.instructions())
        for _ in range(self.random.choice((1, 1, 2))):
            item = self.random.choice(items)
            names = [name for name in item.attributes if not name.startswith("literal")]
            kind = self.random.random()
            if kind < 0.6 and names:
                name = self.random.choice(names)
                item.attributes[name] = self.value(item.attributes[name])
                if self.random.random() < 0.1:
                    del item.attributes[name]
            elif kind < 0.75:
                item.shape = self.shape(item.shape)
            elif item.operands and kind < 0.85:
                place = self.random.randrange(len(item.operands))
                item.operands[place] = self.random.choice(items)
            elif item.operands and kind < 0.9:
                item.operands.pop()
            elif item.called:
                item.called.append(item.called[0])
            elif item.operands:
                item.operands[0].shape = self.shape(item.operands[0].shape)


@cache
def sources() -> tuple[bytes, ...]:
    """Protos of graphs that are right."""
    texts = [example_module(row.opcode) for row in OPERATORS.values() if has_example(row)]
    texts += [random_graph(seeded(seed)).text for seed in range(20)]
    for make in FAMILIES.values():
        texts += [make(np.random.default_rng(seed))[0] for seed in range(6)]
    found = [to_proto(parse_text(text)) for text in texts]
    if DATA.exists():
        found += [data for _, data in protos(cases()) if len(data) <= SMALL]
    return tuple(found)


def mutant(seed: int) -> bytes:
    """The bytes of one mutated graph: the same for the same seed and sources.

    Raises NeuronError where a changed structure has no proto.
    """
    chosen = random.Random(seed)
    number = chosen.choices(range(len(sources())), cum_weights=_shares())[0]
    kind = chosen.random()
    if kind < 0.6:
        module = pickle.loads(_pickled(number))
        if kind < 0.45:
            Mutator(seed).graph(module)
        if kind > 0.25:
            _renamed(chosen, module)
        if kind > 0.1:
            _settled(module)
        return to_proto(module)
    if kind < 0.7:
        return _retyped(chosen, _text(number, exact=True)).encode()
    if kind < 0.8:
        return _changed_bytes(chosen, sources()[number])
    text = _text(number, exact=chosen.random() < 0.3)
    return _changed_text(chosen, text).encode(errors="surrogateescape")


@cache
def _pickled(number: int) -> bytes:
    """A source as a graph: copied so, it is there in a third of the time that reading takes."""
    return pickle.dumps(from_proto(sources()[number]), pickle.HIGHEST_PROTOCOL)


@cache
def _text(number: int, exact: bool) -> str:
    """A source as text."""
    return print_text(from_proto(sources()[number]), exact)


@cache
def _shares() -> list[float]:
    """How often sources are chosen, added up: one of a tenth of the bytes about three times as
    often. A mutant of a large graph takes longer, and is as often refused for one change."""
    return [*accumulate(len(data) ** -0.5 for data in sources())]


def _renamed(chosen: random.Random, module: Module) -> None:
    """Another opcode, which takes as many operands, for one or two instructions."""
    items = [item for item in module.instructions() if item.operands and not item.called]
    for item in chosen.sample(items, min(len(items), chosen.choice((1, 2)))):
        item.opcode = chosen.choice(_by_arity()[len(item.operands)] or [item.opcode])


@cache
def _by_arity() -> dict[int, list[str]]:
    """Opcodes without called computations by how many operands they take."""
    found: dict[int, list[str]] = defaultdict(list)
    for row in OPERATORS.values():
        least, most = row.arity
        for count in range(least, min(most or 4, 4) + 1):
            if row.calls[0] == 0:
                found[count].append(row.opcode)
    return found


def _settled(module: Module) -> None:
    """The shapes that follow from the operands, where they do: many mutants are right then."""
    for item in module.instructions():
        with suppress(NeuronError, *MALFORMED):
            item.shape = OPERATORS[item.opcode].infer(item)


def _retyped(chosen: random.Random, text: str) -> str:
    """One element type for another throughout, but for literals that do not fit."""
    old = chosen.choice(sorted(set(_TYPE.findall(text))) or ["f32"])
    return text.replace(f"{old}[", f"{chosen.choice(_TYPES)}[")


_TYPES = [row.name for row in PRIMITIVE_TYPES.values() if row.is_array and row.number > 0]
_TYPE = re.compile(r"\b([a-z]+\d\w*|pred)\[")


def _changed_bytes(chosen: random.Random, data: bytes) -> bytes:
    """One to three changes: a byte, a bit, a piece gone, twice or elsewhere, an end."""
    changed = bytearray(data)
    for _ in range(chosen.choice((1, 1, 2, 3))):
        place = chosen.randrange(len(changed) or 1)
        length = chosen.choice((1, 2, 8, 40))
        kind = chosen.randrange(6)
        piece = changed[place : place + length]
        if kind == 0:
            changed[place : place + 1] = bytes([chosen.randrange(256)])
        elif kind == 1:
            changed[place : place + 1] = bytes(b ^ 1 << chosen.randrange(8) for b in piece[:1])
        elif kind == 2:
            del changed[place : place + length]
        elif kind == 3:
            changed[place:place] = piece
        elif kind == 4:
            other = chosen.randrange(len(changed) or 1)
            changed[other : other + length] = piece
        elif chosen.random() < 0.3:
            del changed[place:]
    return bytes(changed)


_WORDS = (
    *("f32", "s32", "pred", "u8", "bf16", "c64", "token", "s4", "f64", "f8e4m3fn", "f4e2m1fn"),
    *("{", "}", "(", ")", "[", "]", ",", "=", "%", "/*", "*/", '"', "\\", "\n", "\0", "\udcff"),
    *("ROOT", "ENTRY", "add", "while", "parameter", "to_apply=", "nan", "inf", "-", "1e999"),
    *map(str, NUMBERS),
)


def _changed_text(chosen: random.Random, text: str) -> str:
    """One to three changes: words of the text for others of it or of `_WORDS`, lines moved."""
    for _ in range(chosen.choice((1, 1, 2, 3))):
        place = chosen.randrange(len(text) or 1)
        kind = chosen.random()
        if kind < 0.5:
            words = list(_WORD.finditer(text))
            if words:
                word = chosen.choice(words)
                new = chosen.choice((chosen.choice(_WORDS), chosen.choice(words).group()))
                text = text[: word.start()] + new + text[word.end() :]
        elif kind < 0.75:
            text = text[:place] + chosen.choice(_WORDS) + text[place + chosen.choice((0, 0, 1)) :]
        elif kind < 0.95:
            lines = text.split("\n")
            here, there = chosen.randrange(len(lines)), chosen.randrange(len(lines))
            lines[here], lines[there] = lines[there], lines[here]
            text = "\n".join(lines[: len(lines) - (chosen.random() < 0.2)])
        else:
            text = text[:place]
    return text


_WORD = re.compile(r"[\w.-]+")
