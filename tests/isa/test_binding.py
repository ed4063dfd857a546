"""Binding of launch symbols, against Python's own evaluation of the printed polynomials."""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_strategies import SYMBOLS, programs

from isa.access import AccessPattern
from isa.affine import Polynomial, Symbol, polynomial
from isa.alu import ALU
from isa.binding import bind, is_bound
from isa.enums import Engine, Memory
from isa.errors import NeuronError
from isa.machine.control import DrainQueue, Halt
from isa.machine.elementwise import TensorTensor
from isa.program import CoreProgram, Guard, Program, TensorDeclaration
from isa.spec import Instruction

M = Symbol("M", 8192, multiple_of=128)
SIZE = polynomial(M)


def _value(item: object, sizes: dict[str, int]) -> object:
    """The expected value of anything in a program: polynomials are evaluated as Python text."""
    if isinstance(item, Polynomial):
        return eval(str(item), {"min": min, "max": max}, sizes)
    if isinstance(item, AccessPattern):
        return AccessPattern(*(_value(getattr(item, name), sizes) for name in _ARGUMENTS))
    if isinstance(item, tuple):
        return tuple(_value(part, sizes) for part in item)
    return item


_ARGUMENTS = AccessPattern.__init__.__code__.co_varnames[1:13]


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(programs(symbolic=True), st.integers(1, 64), st.integers(1, 5000))
def test_every_field_gets_its_value(program, blocks, rows):
    sizes = {"M": 128 * blocks, "rows": rows}
    program.guards = []
    before = copy.copy(program)
    bound = bind(program, sizes)
    assert program == before
    assert is_bound(bound) and not bound.symbols
    assert [t.shape for t in bound.tensors] == [_value(t.shape, sizes) for t in program.tensors]
    assert [t.offset for t in bound.tensors] == [_value(t.offset, sizes) for t in program.tensors]
    for core, original in zip(bound.cores, program.cores, strict=True):
        assert core.queues == original.queues
        assert core.storages == original.storages
        assert list(core.streams) == list(original.streams)
        for engine, stream in core.streams.items():
            expected = [
                Instruction(
                    i.row, i.engine, _value(i.values, sizes), i.waits, i.updates, i.location
                )
                for i in original.streams[engine]
            ]
            assert stream == expected


def _tile(offset: object) -> AccessPattern:
    return AccessPattern(Memory.sbuf, "float32", offset, ((1, 4),), 0, 128)


def _program(**options: object) -> Program:
    operands = (_tile(0), _tile(SIZE), _tile(2 * SIZE - 256), ALU["add"])
    vector = [
        Instruction(TensorTensor, Engine.vector, operands, waits=((1, 2),), location=4),
        Instruction(TensorTensor, Engine.vector, (_tile(8), _tile(8), _tile(8), ALU["add"])),
        Instruction(Halt, Engine.vector, ()),
    ]
    sync = [Instruction(DrainQueue, Engine.sync, (SIZE,))]
    cores = [CoreProgram({Engine.vector: vector, Engine.sync: sync}, [])]
    tensors = [TensorDeclaration("a", "float32", (SIZE, 4), "input")]
    return Program("k", "trn2", cores, tensors, [0], ["a"], [0], [M], **options)


def test_what_does_not_change_is_shared_and_equal_operands_are_one_object():
    program = _program()
    bound = bind(program, {"M": 256})
    old, new = (p.cores[0].streams[Engine.vector] for p in (program, bound))
    assert new[0] is not old[0]
    assert new[1] is old[1] and new[2] is old[2]
    assert new[0].values[0] is old[0].values[0]
    assert new[0].values[1] is new[0].values[2]
    assert (new[0].waits, new[0].location) == (((1, 2),), 4)
    assert program.tensors[0].shape == (SIZE, 4)


def test_a_bound_program_is_returned_itself():
    bound = bind(_program(), {"M": 128})
    assert bind(bound, {}) is bound


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({}, "no value for launch symbol M"),
        ({"M": 128, "K": 1, "B": 2}, "no launch symbol B, K"),
        ({"M": 100}, "M must be a multiple of 128"),
        ({"M": 0}, "at least 128"),
        ({"M": 8320}, "at most 8192"),
        ({"M": 128}, "k does not admit M=128: it needs M > 128"),
    ],
)
def test_sizes_that_the_program_does_not_admit(sizes, words):
    program = _program(guards=[Guard(SIZE - 129, "M > 128")])
    with pytest.raises(NeuronError) as caught:
        bind(program, sizes)
    assert caught.value.code == "guard-refused"
    assert words in caught.value.what


def test_a_guard_holds_at_zero():
    program = _program(guards=[Guard(SIZE - 256, "M >= 256")])
    assert bind(program, {"M": 256}).guards == []


def test_a_program_without_symbols_takes_no_values():
    bound = bind(_program(), {"M": 128})
    with pytest.raises(NeuronError, match="no launch symbol M"):
        bind(bound, {"M": 128})


def test_the_strategies_cover_both_symbols():
    assert set(SYMBOLS) == {"M", "rows"}
