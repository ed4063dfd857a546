"""Hypothesis strategies for instructions and programs, generated from the instruction table.

Nothing here knows any particular instruction: values follow the declarations of the fields.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from hypothesis import strategies as st

from isa.access import AccessPattern
from isa.affine import Symbol, ceil_division, minimum, polynomial
from isa.alu import ACTIVATIONS, ALU
from isa.array_tiles import ARRAY_TILES
from isa.dtypes import DTYPES
from isa.enums import SEQUENCERS, Memory
from isa.fields import ENUM_KINDS, Field, Kind, Operand
from isa.machine import MACHINE_INSTRUCTIONS
from isa.program import (
    CoreProgram,
    Guard,
    OnChipAllocation,
    Program,
    Queue,
    RegisterReference,
    SourceLocation,
    TensorDeclaration,
)
from isa.spec import Instruction

ROWS = sorted(MACHINE_INSTRUCTIONS.values(), key=lambda row: row.opcode)
SYMBOLS = {
    "M": Symbol("M", 8192, multiple_of=128),
    "rows": Symbol("rows", None, minimum=1),
}
_M, _ROWS = (polynomial(symbol) for symbol in SYMBOLS.values())

POLYNOMIALS = st.sampled_from(
    [
        _M,
        4 * _M * _ROWS + 12,
        _M // 256,
        -3 * _M + 1,
        minimum(_M, _ROWS),
        _ROWS % 7,
        ceil_division(_ROWS, 128) * 128,
        _ROWS * _ROWS,
    ]
)
WORDS = st.one_of(
    st.integers(-300, 70000), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, 2**40])
)
FLOATS = st.one_of(
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, 5e-324, 0.1]),
)
REGISTERS = st.builds(RegisterReference, st.integers(0, 63))
TEXTS = st.text(max_size=12)


@cache
def numbers(symbolic: bool) -> st.SearchStrategy[Any]:
    """Integers, and polynomials where asked for."""
    return st.one_of(WORDS, POLYNOMIALS) if symbolic else WORDS


@cache
def patterns(
    memories: tuple[Memory, ...], dtypes: tuple[str, ...], symbolic: bool, vector: bool = False
) -> st.SearchStrategy[AccessPattern]:
    word = numbers(symbolic)
    pairs = st.tuples(word, word)
    terms = st.lists(st.tuples(st.integers(0, 63), word), max_size=2).map(tuple)
    nothing = st.just(0)
    return st.builds(
        AccessPattern,
        memory=st.sampled_from(memories),
        dtype=st.sampled_from(dtypes),
        offset=word,
        dims=st.lists(pairs, max_size=5).map(tuple),
        start_partition=st.integers(0, 127),
        partitions=word,
        tensor=st.integers(-1, 1000),
        registers=terms,
        vector_offset=(
            st.none() | patterns((Memory.sbuf,), ("int32",), symbolic) if vector else st.none()
        ),
        vector_stride=word if vector else nothing,
        vector_bound=word if vector else nothing,
        limits=st.none() | st.tuples(word, word, terms),
    )


def values(field: Field, symbolic: bool, targets: int) -> st.SearchStrategy[Any]:
    """Values of one field; branch targets are at most `targets`."""
    if isinstance(field, Operand):
        memories = tuple(sorted(field.memories, key=lambda memory: memory.value))
        dtypes = tuple(sorted(field.dtypes or DTYPES))
        choice: st.SearchStrategy[Any] = patterns(memories, dtypes, symbolic, field.vector_offset)
        if field.immediate:
            choice |= FLOATS | WORDS
    elif field.kind in ENUM_KINDS:
        choice = st.sampled_from(list(ENUM_KINDS[field.kind]))
    else:
        choice = _attribute_values(symbolic, targets)[field.kind]
    return st.none() | choice if field.optional else choice


@cache
def _attribute_values(symbolic: bool, targets: int) -> dict[Kind, st.SearchStrategy[Any]]:
    word = numbers(symbolic)
    return {
        Kind.flag: st.booleans(),
        Kind.integer: word,
        Kind.float32: FLOATS,
        Kind.alu: st.sampled_from(list(ALU.values())),
        Kind.activation: st.sampled_from(list(ACTIVATIONS.values())),
        Kind.pattern: st.lists(st.tuples(word, word), min_size=1, max_size=4).map(tuple),
        Kind.integers: st.lists(st.integers(0, 7), max_size=4).map(tuple),
        Kind.register: REGISTERS,
        Kind.value: word | REGISTERS,
        Kind.target: st.integers(0, targets),
        Kind.accumulate: st.sampled_from([None, False, True]),
        Kind.number: WORDS | FLOATS,
        Kind.priority: st.sampled_from([None, 0, 1, 2, 3]),
        Kind.array_tile: st.sampled_from(ARRAY_TILES),
    }


SEMAPHORES = st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2**24 - 1)), max_size=12).map(
    tuple
)


@cache
def _uses(row: Any, symbolic: bool, engine: Any, targets: int) -> st.SearchStrategy[Instruction]:
    """Instructions of one row. Making a strategy takes longer than drawing from it."""
    return st.builds(
        Instruction,
        st.just(row),
        st.sampled_from(row.engines) if engine is None else st.just(engine),
        st.tuples(*[values(field, symbolic, targets) for field in row.fields.values()]),
        SEMAPHORES,
        SEMAPHORES,
        st.integers(0, 2**31 - 1),
    )


def instructions(
    rows: list[Any], symbolic: bool = False, engine: Any = None, targets: int = 0
) -> st.SearchStrategy[Instruction]:
    """Instructions of `rows`, on `engine` or on any engine that the row allows."""
    return st.sampled_from(rows).flatmap(lambda row: _uses(row, symbolic, engine, targets))


@cache
def streams(engine: Any, symbolic: bool) -> st.SearchStrategy[list[Instruction]]:
    rows = [row for row in ROWS if engine in row.engines]
    return st.lists(instructions(rows, symbolic, engine), max_size=3)


@cache
def cores(symbolic: bool) -> st.SearchStrategy[CoreProgram]:
    small = st.integers(0, 2**20)
    return st.builds(
        CoreProgram,
        st.fixed_dictionaries({}, optional={e: streams(e, symbolic) for e in SEQUENCERS}),
        st.lists(st.builds(Queue, TEXTS, st.sampled_from(SEQUENCERS)), max_size=2),
        st.lists(
            st.builds(
                OnChipAllocation,
                TEXTS,
                st.sampled_from(["sbuf", "psum"]),
                st.sampled_from(list(DTYPES)),
                st.lists(small, max_size=3).map(tuple),
                *[small] * 5,
            ),
            max_size=2,
        ),
    )


@st.composite
def programs(draw: Any, symbolic: bool | None = None) -> Program:
    """Programs whose every list may be empty; the instructions make no sense together."""
    with_symbols = draw(st.booleans()) if symbolic is None else symbolic
    small = st.integers(0, 999)
    locations = draw(
        st.lists(st.builds(SourceLocation, TEXTS, small, small, small, TEXTS, TEXTS), max_size=2)
    )
    places = st.integers(0, max(0, len(locations) - 1))
    tensors = draw(
        st.lists(
            st.builds(
                TensorDeclaration,
                TEXTS,
                st.sampled_from(list(DTYPES)),
                st.lists(numbers(with_symbols), max_size=3).map(tuple),
                st.sampled_from(["input", "output", "inout", "internal", "constant"]),
                st.sampled_from([None, 0, 1]),
                st.none() | st.binary(max_size=9),
                places,
            ),
            min_size=1,
            max_size=3,
        )
    )
    for part in draw(st.lists(st.sampled_from(tensors[1:]), max_size=2)) if tensors[1:] else ():
        part.within, part.offset = 0, draw(numbers(with_symbols))
    tensor = st.integers(0, len(tensors) - 1)
    parameters = draw(st.lists(tensor, max_size=3))
    name = st.lists(TEXTS, min_size=len(parameters), max_size=len(parameters))
    guards = st.lists(st.builds(Guard, POLYNOMIALS, TEXTS, places), max_size=2)
    return Program(
        draw(TEXTS),
        draw(st.sampled_from(["trn1", "trn2", "trn3"])),
        draw(st.lists(cores(with_symbols), max_size=2)),
        tensors,
        parameters,
        draw(name),
        draw(st.lists(tensor, max_size=2)),
        list(SYMBOLS.values()) if with_symbols else [],
        draw(guards) if with_symbols else [],
        locations,
    )
