"""The operand table of an encoded stream: every distinct operand and number, stored once.

An entry is a 16-byte header and `words` signed 64-bit words, little-endian:

    byte 0     what it is (`Entry`)             byte 4       dimensions of an access pattern
    byte 1     memory of an access pattern      byte 5       its register terms
    byte 2     its dtype code                   bytes 6-7    words
    byte 3     its start partition;             bytes 8-11   its tensor (signed; -1 on chip)
               or the number of a register      bytes 12-15  code of its vector offset, 0: none

Words of an access pattern: offset, partitions, vector stride, vector bound, then (stride, count)
of every dimension, then (register, bytes) of every register term; where it has limits, these
follow: first byte, the one behind the last, and (register, bytes) of what moves them. Numbers,
registers and the tuples of iota patterns and core lists are entries too, so that a field of an
instruction is either a small code or a reference: 0 for nothing, else the position of the entry
counted from 1.

A word that is a polynomial in launch symbols holds 0, and a `Relocation` states the polynomial. The
form is canonical: no two entries are equal, and they come in the order of their first use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import pairwise
from operator import index
from struct import Struct
from typing import Any

from isa.access import AccessPattern
from isa.dtypes import BY_CODE, DTYPES
from isa.enums import Memory
from isa.errors import NeuronError
from isa.program import RegisterReference


class Entry(IntEnum):
    """What an entry of the table is."""

    pattern = 1  # isa.access.AccessPattern
    integer = 2
    float = 3
    register = 4
    pairs = 5  # ((step, count), ...)
    integers = 6


@dataclass(frozen=True, slots=True, order=True)
class Relocation:
    """Word `word` of entry `entry`, both from 0, is the polynomial that `text` denotes."""

    entry: int
    word: int
    text: str


Symbols = Mapping[str, Any]
"""Launch symbols (`isa.affine.Symbol`) by name, for reading relocations."""

REGISTERS = 64
_HEADER = Struct("<6BHiI")
_FLOAT = Struct("<d")
_NAN = _FLOAT.pack(math.nan)
_MEMORIES = tuple(Memory)
_MEMORY_CODES = {memory: code for code, memory in enumerate(_MEMORIES)}
_DTYPE_CODES = {name: row.code for name, row in DTYPES.items()}
_PATTERN_WORDS = 4


@cache
def _header_and_words(count: int) -> Struct:
    return Struct(f"{_HEADER.format}{count}q")


@cache
def _polynomial() -> type:
    from isa.affine import Polynomial

    return Polynomial


class OperandWriter:
    """Collects the operands of a stream; `reference` gives the code that stands for one.

    `kinds[code]` is the `Entry` of a code. What does not fit raises TypeError, ValueError, KeyError
    or struct.error; the encoder turns them into an error that names instruction and field.
    """

    def __init__(self) -> None:
        self.kinds: list[int] = [0]
        self.relocations: list[Relocation] = []
        self._entries: list[bytes] = []
        self._by_identity: dict[int, int] = {}
        self._by_content: dict[tuple[bytes, tuple[tuple[int, str], ...]], int] = {}
        self._alive: list[Any] = []  # an id is unique only while its object lives

    def reference(self, value: Any) -> int:
        """The code of `value`, which is entered unless an equal one is there already."""
        known = self._by_identity.get(id(value))
        if known is None:
            known = _WRITERS.get(type(value), OperandWriter._number)(self, value)
            self._by_identity[id(value)] = known
            self._alive.append(value)
        return known

    def data(self) -> bytes:
        """The encoded table."""
        return b"".join(self._entries)

    def _pattern(self, value: AccessPattern) -> int:
        vector = 0
        if value.vector_offset is not None:
            if value.vector_offset.vector_offset is not None:
                raise ValueError("a vector offset has no vector offset of its own")
            vector = self.reference(value.vector_offset)
        dims, registers = value.dims, value.registers
        words = [value.offset, value.partitions, value.vector_stride, value.vector_bound]
        for dim in dims:
            words += dim
        for register in registers:
            _register_number(register[0])
            words += register
        if value.limits is not None:
            first, last, moved = value.limits
            words += (first, last)
            for register in moved:
                _register_number(register[0])
                words += register
        return self._enter(
            words,
            Entry.pattern,
            _MEMORY_CODES[value.memory],
            _DTYPE_CODES[value.dtype],
            value.start_partition,
            len(dims),
            len(registers),
            len(words),
            value.tensor,
            vector,
        )

    def _register(self, value: RegisterReference) -> int:
        return self._enter((), Entry.register, 0, 0, _register_number(value.number))

    def _float(self, value: float) -> int:
        bits = _FLOAT.pack(value) if value == value else _NAN
        return self._add(Entry.float, _HEADER.pack(Entry.float, 0, 0, 0, 0, 0, 1, 0, 0) + bits, ())

    def _number(self, value: Any) -> int:
        """An integer or a float of any type, or a polynomial."""
        if isinstance(value, _polynomial()):
            return self._integer(value)
        if hasattr(value, "__index__"):
            return self._integer(index(value))
        if not hasattr(value, "__float__"):
            raise TypeError(f"{value!r} is neither an operand nor a number")
        return self._float(float(value))

    def _integer(self, value: Any) -> int:
        return self._enter((value,), Entry.integer, 0, 0, 0, 0, 0, 1)

    def _tuple(self, value: tuple[Any, ...]) -> int:
        if value and isinstance(value[0], tuple):
            words = [word for step, count in value for word in (step, count)]
            return self._enter(words, Entry.pairs, 0, 0, 0, 0, 0, len(words))
        return self._enter(value, Entry.integers, 0, 0, 0, 0, 0, len(value))

    def _enter(
        self,
        words: Sequence[Any],
        kind: int,
        memory: int = 0,
        dtype: int = 0,
        start: int = 0,
        dims: int = 0,
        registers: int = 0,
        count: int = 0,
        tensor: int = 0,
        vector: int = 0,
    ) -> int:
        pack = _header_and_words(count).pack
        header = (kind, memory, dtype, start, dims, registers, count, tensor, vector)
        try:
            return self._add(kind, pack(*header, *words), ())
        except NeuronError:  # a polynomial refuses to be an integer
            plain = [0 if isinstance(word, _polynomial()) else word for word in words]
        symbolic = [(i, str(w)) for i, w in enumerate(words) if isinstance(w, _polynomial())]
        return self._add(kind, pack(*header, *plain), tuple(symbolic))

    def _add(self, kind: int, content: bytes, symbolic: tuple[tuple[int, str], ...]) -> int:
        known = self._by_content.get((content, symbolic))
        if known is None:
            entry = len(self._entries)
            self._entries.append(content)
            self.kinds.append(kind)
            self.relocations.extend([Relocation(entry, word, text) for word, text in symbolic])
            known = self._by_content[content, symbolic] = entry + 1
        return known


_WRITERS: dict[type, Callable[[OperandWriter, Any], int]] = {
    AccessPattern: OperandWriter._pattern,
    RegisterReference: OperandWriter._register,
    float: OperandWriter._float,
    int: OperandWriter._integer,
    tuple: OperandWriter._tuple,
}


def _register_number(number: int) -> int:
    if not 0 <= number < REGISTERS:
        raise ValueError(f"register {number} is not one of 0..{REGISTERS - 1}")
    return number


def _register_terms(words: Sequence[Any]) -> tuple[tuple[int, Any], ...]:
    for number in words[::2]:
        if type(number) is not int:
            raise ValueError("symbolic register number")
        _register_number(number)
    return tuple(zip(words[::2], words[1::2]))


class OperandReader:
    """A decoded table. Code c stands for `values[c]`, which is an entry of kind `kinds[c]`.

    Raises ValueError (or KeyError, struct.error) when the bytes are not a canonical table.
    """

    def __init__(self, data: bytes, relocations: Sequence[Relocation], symbols: Symbols) -> None:
        self.kinds: list[int] = [0]
        self.values: list[Any] = [None]
        self.vectors: list[int] = [0]
        self._used = 0
        pending = _relocated_words(relocations, symbols)
        texts = {(r.entry, r.word): r.text for r in relocations}
        seen: set[Any] = set()
        position = 0
        while position < len(data):
            header = _HEADER.unpack_from(data, position)
            end = position + _HEADER.size + 8 * header[6]
            content = data[position:end]
            words: Sequence[Any] = _header_and_words(header[6]).unpack(content)[9:]
            entry = len(self.values) - 1
            key: Any = content
            if pending:
                symbolic = {}
                for word in range(len(words)):
                    if (entry, word) in pending:
                        symbolic[word] = pending.pop((entry, word))
                if symbolic:
                    key = content, tuple((i, texts[entry, i]) for i in symbolic)
                    words = _with_polynomials(words, symbolic, header[0])
            if key in seen:
                raise ValueError(f"operand {entry} is stored twice")
            seen.add(key)
            self._append(header, words, content)
            position = end
        if pending:
            raise ValueError("a relocation outside the operand table")

    def use(self, code: int) -> None:
        """Note the use of `code` by the next instruction; entries come in order of first use."""
        if code <= self._used:
            return
        vector = self.vectors[code]
        if vector > self._used:
            self._used += 1
            if vector != self._used:
                raise ValueError(f"operand {vector} is out of order")
        self._used += 1
        if code != self._used:
            raise ValueError(f"operand {code} is out of order")

    def finish(self) -> None:
        """Check that every entry has been used."""
        if self._used != len(self.values) - 1:
            raise ValueError("the operand table holds operands that no instruction uses")

    def _append(self, header: tuple[int, ...], words: Sequence[Any], content: bytes) -> None:
        value = _READERS[header[0]](self, header, words, content)
        self.kinds.append(header[0])
        self.values.append(value)
        self.vectors.append(header[8] if header[0] == Entry.pattern else 0)

    def _pattern(self, header: tuple[int, ...], words: Sequence[Any], _: bytes) -> AccessPattern:
        memory, dtype, start, dims, registers, count, tensor, vector = header[1:]
        first_register = _PATTERN_WORDS + 2 * dims
        own = first_register + 2 * registers
        if count != own and (count < own + 2 or (count - own) % 2):
            raise ValueError("access pattern of wrong size")
        if memory >= len(_MEMORIES) or dtype not in BY_CODE:
            raise ValueError("access pattern with an unknown memory or dtype")
        nested = None
        if vector:
            if vector >= len(self.values) or self.kinds[vector] != Entry.pattern:
                raise ValueError("vector offset that is no earlier access pattern")
            nested = self.values[vector]
            if nested.vector_offset is not None:
                raise ValueError("vector offset with a vector offset")
        limits = None
        if count > own:
            limits = words[own], words[own + 1], _register_terms(words[own + 2 :])
        return AccessPattern(
            _MEMORIES[memory],
            BY_CODE[dtype].name,
            words[0],
            tuple(zip(words[_PATTERN_WORDS:first_register:2], words[5:first_register:2])),
            start,
            words[1],
            tensor,
            _register_terms(words[first_register:own]),
            nested,
            words[2],
            words[3],
            limits,
        )

    def _integer(self, header: tuple[int, ...], words: Sequence[Any], _: bytes) -> Any:
        _require(header, 1)
        return words[0]

    def _float(self, header: tuple[int, ...], words: Sequence[Any], content: bytes) -> float:
        _require(header, 1)
        bits = content[_HEADER.size :]
        value: float = _FLOAT.unpack(bits)[0]
        if value != value:
            if bits != _NAN:
                raise ValueError("NaN that is not the canonical one")
            return math.nan  # this very object: containers compare it by identity
        return value

    def _register(self, header: tuple[int, ...], words: Sequence[Any], _: bytes) -> Any:
        number = _register_number(header[3])
        _require((*header[:3], 0, *header[4:]), 0)
        return RegisterReference(number)

    def _pairs(self, header: tuple[int, ...], words: Sequence[Any], _: bytes) -> Any:
        _require(header, header[6])
        if not words or len(words) % 2:
            raise ValueError("pattern of wrong size")
        return tuple(zip(words[::2], words[1::2]))

    def _integers(self, header: tuple[int, ...], words: Sequence[Any], _: bytes) -> Any:
        _require(header, header[6])
        return tuple(words)


_READERS: dict[int, Callable[..., Any]] = {
    Entry.pattern: OperandReader._pattern,
    Entry.integer: OperandReader._integer,
    Entry.float: OperandReader._float,
    Entry.register: OperandReader._register,
    Entry.pairs: OperandReader._pairs,
    Entry.integers: OperandReader._integers,
}


def _require(header: tuple[int, ...], words: int) -> None:
    """Refuse fields that the entry's kind does not have."""
    if header[6] != words or any(header[1:6]) or any(header[7:]):
        raise ValueError("operand with fields that its kind does not have")


def _relocated_words(
    relocations: Sequence[Relocation], symbols: Symbols
) -> dict[tuple[int, int], Any]:
    from isa.affine import parse_form

    if not all(a < b for a, b in pairwise(relocations)):
        raise ValueError("relocations out of order")
    forms = {}
    for relocation in relocations:
        if [type(x) for x in (relocation.entry, relocation.word, relocation.text)] != [
            int,
            int,
            str,
        ]:
            raise ValueError("relocation of wrong type")
        form = parse_form(relocation.text, symbols, {})
        if not isinstance(form, _polynomial()) or str(form) != relocation.text:
            raise ValueError(f"relocation {relocation.text!r} is not in its printed form")
        forms[relocation.entry, relocation.word] = form
    if len(forms) != len(relocations):
        raise ValueError("two relocations of one word")
    return forms


def _with_polynomials(words: Sequence[int], symbolic: Mapping[int, Any], kind: int) -> list[Any]:
    if kind == Entry.float or any(words[i] for i in symbolic):
        raise ValueError("relocation of a word that holds a value")
    return [symbolic.get(i, word) for i, word in enumerate(words)]
