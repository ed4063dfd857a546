"""Generators of random bits as HLO text: ThreeFry-2x32-20 and Philox-4x32-10.

Both are those of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), with the
order of counters that XLA has; `graph_compiler.hlo.operators.randomness` is their reference.
Words are arrays of u32; a counter of 64 bits is its halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions.expansions import Dims, Text

WORD = "u32"
BITS = 32


class Halves(NamedTuple):
    """The names of both halves of 64-bit integers of a type."""

    low: str
    high: str
    type: str


Generator = Callable[[Text, list[Halves], Dims, str], tuple[Halves, "Halves | str"]]


def words_of_state(text: Text, state: Halves) -> list[Halves]:
    """The 64-bit words of a state, each as scalars."""

    def part(name: str, number: int) -> str:
        return text.reshape(text.slice(name, [(number, number + 1, 1)]), ())

    (size,) = text.dims(state.low)
    return [Halves(part(state.low, i), part(state.high, i), state.type) for i in range(size)]


def _state(text: Text, words: list[Halves]) -> Halves:
    def joined(names: list[str]) -> str:
        return text.concatenate([text.reshape(name, (1,)) for name in names], 0)

    low, high = joined([word.low for word in words]), joined([word.high for word in words])
    return Halves(low, high, words[0].type)


def _spread(text: Text, word: str, dims: Dims) -> str:
    return text.spread(word, dims, ()) if dims else word


def _carried(text: Text, sum: str, addend: str, upper: str) -> str:
    """The upper half with the carry of a sum that is below one of its addends."""
    return text.apply("add", upper, text.convert(text.compare("LT", sum, addend), WORD))


def _advanced(text: Text, counter: Halves, count: int) -> Halves:
    """A counter, `count` further on."""
    amount = text.number(WORD, count % (1 << BITS))
    low = text.apply("add", counter.low, amount)
    high = text.apply("add", counter.high, text.number(WORD, count >> BITS))
    return Halves(low, _carried(text, low, amount, high), counter.type)


def _counters(text: Text, counter: Halves, count: int) -> tuple[str, str]:
    """Both halves of so many counters that follow each other."""
    steps = text.add(WORD, (count,), "iota", [], "iota_dimension=0")
    low = text.apply("add", _spread(text, counter.low, (count,)), steps)
    return low, _carried(text, low, steps, _spread(text, counter.high, (count,)))


# ThreeFry

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def _rotated(text: Text, word: str, amount: int) -> str:
    dims = text.dims(word)
    left = text.apply("shift-left", word, text.number(WORD, amount, dims))
    right = text.apply("shift-right-logical", word, text.number(WORD, BITS - amount, dims))
    return text.apply("or", left, right)


def _threefry_words(text: Text, key: Halves, x: str, y: str) -> tuple[str, str]:
    """20 rounds on pairs of words."""
    dims = text.dims(x)
    third = text.apply("xor", text.apply("xor", key.low, key.high), text.number(WORD, _PARITY))
    scalars = (key.low, key.high, third)
    keys = [_spread(text, word, dims) for word in scalars]
    x, y = text.apply("add", x, keys[0]), text.apply("add", y, keys[1])
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = text.apply("add", x, y)
            y = text.apply("xor", _rotated(text, y, rotation), x)
        number = text.number(WORD, group + 1, dims)
        x = text.apply("add", x, keys[(group + 1) % 3])
        y = text.apply("add", text.apply("add", y, keys[(group + 2) % 3]), number)
    return x, y


def threefry(text: Text, state: list[Halves], dims: Dims, type: str) -> tuple[Halves, Halves | str]:
    """Of the state (key, counter). Words of 32 bits stand in pairs along the first even dimension,
    or the longest one."""
    key, counter = state
    if PRIMITIVE_TYPES[type].bits > BITS:
        count = math.prod(dims)
        words = _threefry_words(text, key, *_counters(text, counter, count))
        low, high = (text.reshape(word, dims) for word in words)
        return _state(text, [key, _advanced(text, counter, count)]), Halves(low, high, type)
    sizes = list(dims) or [1]
    even = [axis for axis, size in enumerate(sizes) if size % 2 == 0]
    axis = even[0] if even else sizes.index(max(sizes))
    half = [-(-size // 2) if i == axis else size for i, size in enumerate(sizes)]
    count = math.prod(half)
    words = _threefry_words(text, key, *_counters(text, counter, count))
    apart = [*half[: axis + 1], 1, *half[axis + 1 :]]
    both = text.concatenate([text.reshape(word, apart) for word in words], axis + 1)
    joined = text.reshape(both, [2 * n if i == axis else n for i, n in enumerate(half)])
    made = text.reshape(text.slice(joined, [(0, size, 1) for size in sizes]), dims)
    return _state(text, [key, _advanced(text, counter, count)]), _as_type(text, made, type)


# Philox

_FACTORS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def _philox_words(text: Text, key: Halves, words: list[str]) -> list[str]:
    """10 rounds on quadruples of words."""
    dims = text.dims(words[0])
    scalars = [key.low, key.high]
    factors = [text.number(WORD, factor, dims) for factor in _FACTORS]
    for _ in range(10):
        keys = [_spread(text, word, dims) for word in scalars]
        high = [text.apply("mulhi", words[2 * i], factors[i]) for i in range(2)]
        low = [text.apply("multiply", words[2 * i], factors[i]) for i in range(2)]
        words = [
            text.apply("xor", text.apply("xor", high[1], words[1]), keys[0]),
            low[1],
            text.apply("xor", text.apply("xor", high[0], words[3]), keys[1]),
            low[0],
        ]
        scalars = [
            text.apply("add", word, text.number(WORD, step))
            for word, step in zip(scalars, _KEY_STEPS)
        ]
    return words


def philox(text: Text, state: list[Halves], dims: Dims, type: str) -> tuple[Halves, Halves | str]:
    """Of the state (key, counter), whose key is the counter's upper half as well, or (key, counter,
    upper half)."""
    key, low, high = state[0], state[1], state[2] if len(state) > 2 else state[0]
    wide = PRIMITIVE_TYPES[type].bits > BITS
    elements = math.prod(dims)
    count = -(-elements // (2 if wide else 4))
    first, second = _counters(text, low, count)
    steps = _carry_of(text, low, (first, second))
    third = text.apply("add", _spread(text, high.low, (count,)), steps)
    fourth = _carried(text, third, steps, _spread(text, high.high, (count,)))
    words = _philox_words(text, key, [first, second, third, fourth])
    following = _advanced(text, low, count)
    carry = _carry_of(text, low, (following.low, following.high))
    upper = text.apply("add", high.low, carry)
    last = Halves(upper, _carried(text, upper, carry, high.high), high.type)
    state_words = [key, following, last][: len(state)]

    def flat(parts: list[str]) -> str:
        whole = text.concatenate([text.reshape(part, (count, 1)) for part in parts], 1)
        whole = text.reshape(whole, (count * len(parts),))
        return text.reshape(text.slice(whole, [(0, elements, 1)]), dims)

    if wide:
        return _state(text, state_words), Halves(flat(words[::2]), flat(words[1::2]), type)
    return _state(text, state_words), _as_type(text, flat(words), type)


def _carry_of(text: Text, start: Halves, sum: tuple[str, str]) -> str:
    """1 where a 64-bit sum is below the number that it started from."""
    low, high = sum
    dims = text.dims(low)
    a, b = _spread(text, start.low, dims), _spread(text, start.high, dims)
    equal = text.apply("and", text.compare("EQ", high, b), text.compare("LT", low, a))
    return text.convert(text.apply("or", text.compare("LT", high, b), equal), WORD)


def _as_type(text: Text, words: str, type: str) -> str:
    """The low bits of words, as elements of a type; a pred is the lowest one."""
    row = PRIMITIVE_TYPES[type]
    if row.kind == "boolean":
        dims = text.dims(words)
        lowest = text.apply("and", words, text.number(WORD, 1, dims))
        return text.compare("NE", lowest, text.number(WORD, 0, dims))
    if row.is_integer:
        return text.convert(words, type)
    narrow = text.convert(words, f"u{row.bits}")
    return text.bits_as(narrow, type)


GENERATORS: dict[str, Generator] = {
    "RNG_DEFAULT": philox,
    "RNG_THREE_FRY": threefry,
    "RNG_PHILOX": philox,
}
"""The generator of each algorithm; the default is Philox, as on XLA's CPU."""
