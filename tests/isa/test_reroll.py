"""Re-rolling streams: expanding gives the stream again; size follows the source."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_strategies import instructions

from isa.access import AccessPattern
from isa.alu import ALU
from isa.columns.rolled import RolledRows
from isa.enums import Engine, Memory
from isa.errors import NeuronError
from isa.files.archive import program_files, read_files
from isa.files.encoding import encode
from isa.files.reroll import expand, outline, reroll
from isa.machine import MACHINE_INSTRUCTIONS
from isa.machine.control import Branch, Halt, Nop
from isa.machine.elementwise import Memset, TensorTensor
from isa.program import CoreProgram, OnChipAllocation, Program
from isa.spec import Instruction

QUICK = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
ROWS = [row for row in MACHINE_INSTRUCTIONS.values() if Engine.vector in row.engines]


def tile(offset: int, **options: object) -> AccessPattern:
    return AccessPattern(Memory.sbuf, "float32", offset, ((1, 512),), 0, 128, **options)


def add(*offsets: int, **options: object) -> Instruction:
    operands = [tile(offset) for offset in offsets]
    return Instruction(TensorTensor, Engine.vector, (*operands, ALU["add"]), **options)


def unrolled(rounds: int) -> list[Instruction]:
    """Two loops of a body of two instructions, whose addresses and semaphores move."""
    stream = []
    for m in range(rounds):
        for k in range(16):
            waits = ((3, 1),) if k == 0 else ()
            stream.append(add(2048 * k, 32768 + 64 * m, 0, waits=waits, location=1))
            stream.append(add(0, 0, 32768 + 64 * m, updates=((5, 1 + k % 2),), location=2))
    return [*stream, Instruction(Halt, Engine.vector, ())]


def program(stream: list[Instruction], storages: list[OnChipAllocation] | None = None) -> Program:
    core = CoreProgram({Engine.vector: stream}, [], storages or [])
    return Program("unrolled", "trn2", [core], [], [], [], [])


def round_trip(program: Program) -> Program:
    return read_files(program_files(program, {})).program


@QUICK
@given(st.lists(instructions(ROWS, False, Engine.vector), min_size=1, max_size=5), st.data())
def test_expanding_gives_the_stream_again(distinct, data):
    stream = [
        distinct[index]
        for index in data.draw(st.lists(st.integers(0, len(distinct) - 1), max_size=40))
    ]
    assert expand(reroll(stream)) == stream


def test_the_size_follows_the_source():
    rolled = reroll(unrolled(50))
    assert [len(rolled.templates), len(rolled.semaphores)] == [3, 4]
    assert expand(rolled) == unrolled(50)
    sizes = [
        sum(map(len, program_files(program(unrolled(rounds)), {}).values())) for rounds in (50, 500)
    ]
    assert sizes[1] - sizes[0] < 20


def test_what_differs_in_the_bits_only_is_kept_apart():
    """0.0 and -0.0 and 0 are equal to Python, not to the machine."""
    numbers = [0.0, -0.0, 0, 1, 1.0, math.nan]
    stream = [Instruction(Memset, Engine.vector, (tile(0), number)) for number in numbers]
    assert [encode(i) for i in expand(reroll(stream))] == [encode(i) for i in stream]
    assert len(reroll(stream).templates) == len(numbers)


def test_operands_that_differ_in_one_field_only_are_kept_apart():
    vector = AccessPattern(Memory.sbuf, "int32", 0, ((1, 1),), 0, 128)
    changed = [
        {},
        {"vector_offset": vector},
        {"vector_offset": tile(64)},
        {"vector_bound": 1},
        {"vector_stride": 1},
        {"registers": ((0, 0),)},
        {"registers": ((1, 0),)},
        {"tensor": 0},
    ]
    stream = [
        Instruction(Memset, Engine.vector, (tile(offset, **options), 0))
        for offset in (0, 64)
        for options in changed
    ]
    assert expand(reroll(stream)) == stream
    assert len(reroll(stream).templates) == len(changed)


def test_equal_operands_are_one_object():
    first, second = expand(reroll([add(0, 64, 64), add(64, 0, 128)]))
    assert first.values[0] is second.values[1]
    assert first.values[1] is first.values[2] is second.values[0]


@pytest.mark.parametrize(
    ("instruction", "named"),
    [
        (add(0, 2**63, 0), "instruction 1, TensorTensor: data1="),
        (add(0, 0, 0, waits=((256, 1),)), "instruction 1, .*256, 1"),
        (Instruction(Halt, Engine.sync, ()), "instruction 1, Halt, .* belongs to sync"),
        (Instruction(Nop, Engine.vector, (1,)), "instruction 1, Nop: 1 values for 0 fields"),
    ],
)
def test_the_instruction_that_cannot_be_written_is_named(instruction, named):
    with pytest.raises(NeuronError, match=named) as caught:
        program_files(program([add(0, 0, 0), instruction]), {})
    assert caught.value.code == "not-encodable"


def test_branches_reach_the_end_of_the_stream_and_no_further():
    from isa.enums import Condition

    def branching(target: int) -> Program:
        branch = Instruction(Branch, Engine.vector, (Condition.always, 0, 0, target))
        return program([*[add(0, 0, 0)] * 9, branch])

    assert round_trip(branching(10)) == branching(10)
    with pytest.raises(NeuronError, match="target 11 in a stream of 10"):
        program_files(branching(11), {})


NAMES = st.from_regex(r"\A[a-z.]{0,2}0{0,2}[0-9]{0,18}\Z") | st.text(max_size=5)


@QUICK
@given(st.lists(st.tuples(NAMES, st.integers(0, 2**40)), max_size=20))
def test_allocations_keep_their_names(rows):
    storages = [
        OnChipAllocation(name, "sbuf", "float32", (128, 4), 0, 128, offset, 16, 0)
        for name, offset in rows
    ]
    assert round_trip(program([], storages)).cores[0].storages == storages


def test_parts_that_do_not_fit_are_refused():
    rolled = reroll(unrolled(2))
    uses = rolled.uses
    broken = [
        {"templates": rolled.templates[:-1]},
        {"templates": [add(0, 64, 0), *rolled.templates[1:]]},
        {"templates": [add(0, 0, 0, waits=((1, 1),)), *rolled.templates[1:]]},
        {"semaphores": rolled.semaphores[:-1]},
        {"uses": RolledRows(uses.order, [column[:-1] for column in uses.columns])},
        {"uses": RolledRows(uses.order, [[[-1] * 32, *uses.columns[0][1:]], *uses.columns[1:]])},
        {"uses": RolledRows(uses.order[:-1], uses.columns)},
    ]
    for change in broken:
        with pytest.raises((ValueError, IndexError)):
            expand(dataclasses.replace(rolled, **change))


def test_streams_that_could_not_be_read_again_are_not_written(monkeypatch):
    monkeypatch.setattr("isa.columns.rolled.LIMIT", 8)
    assert round_trip(program([add(0, 0, 0)] * 8)) == program([add(0, 0, 0)] * 8)
    with pytest.raises(NeuronError, match="has 9 instructions; a container holds at most 8"):
        program_files(program([add(0, 0, 0)] * 9), {})


def test_the_outline_shows_the_loops():
    lines = list(outline(reroll(unrolled(50))))
    assert [line.split("=")[0] for line in lines] == [
        "800 times:",
        "  TensorTensor dst",
        "  TensorTensor dst",
        "Halt #0",
    ]
    stream = [Instruction(Memset, Engine.vector, (tile(0), n)) for n in (1, 2, 3, 4, 5)]
    printed = [line.rpartition("value=")[2] for line in outline(reroll(stream))]
    assert printed == ["1 #0", "2 #0", "3 #0", "4 #0", "5 #0"]
