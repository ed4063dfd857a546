"""Streams in columns: the instructions that they stand for, and what happens when these change."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from program_strategies import instructions

from isa.access import AccessPattern
from isa.columns import joined
from isa.enums import Engine, Memory
from isa.files.encoding import encode
from isa.files.stream import Stream, in_columns
from isa.machine import MACHINE_INSTRUCTIONS
from isa.machine.control import Nop
from isa.machine.elementwise import Memset
from isa.spec import Instruction

ROWS = [row for row in MACHINE_INSTRUCTIONS.values() if Engine.vector in row.engines]


def cleared(*offsets: int) -> list[Instruction]:
    return [
        Instruction(
            Memset,
            Engine.vector,
            (AccessPattern(Memory.sbuf, "float32", offset, ((1, 4),), 0, 128), 0),
            waits=((index % 2, 1),),
        )
        for index, offset in enumerate(offsets)
    ]


@settings(deadline=None, max_examples=30)
@given(st.lists(instructions(ROWS, False, Engine.vector), min_size=1, max_size=5), st.data())
def test_a_stream_is_its_instructions(distinct, data):
    order = data.draw(st.lists(st.integers(0, len(distinct) - 1), max_size=40))
    listed = [distinct[index] for index in order]
    stream = Stream(in_columns(listed))
    assert len(stream) == len(listed) == in_columns(stream).order.size
    assert list(map(encode, stream)) == list(map(encode, listed))
    assert stream == listed == stream


def test_what_is_the_same_but_for_offsets_and_semaphores_is_one_template():
    columns = in_columns(cleared(0, 64, 0, 128))
    assert len(columns.templates) == 1
    assert columns.order.tolist() == [0, 0, 0, 0]
    assert columns.semaphores == [(((0, 1),), ()), (((1, 1),), ())]
    assert columns.numbers[0].tolist() == [[0, 0], [1, 64], [0, 0], [1, 128]]
    assert [places.tolist() for places in columns.places()] == [[0, 1, 2, 3]]


def test_a_stream_changes_as_a_list_does():
    stream, listed = Stream(in_columns(cleared(0, 64, 128))), cleared(0, 64, 128)
    nop = Instruction(Nop, Engine.vector, ())
    for sequence in (stream, listed):
        sequence[1].waits = ((7, 2),)
        sequence[0] = nop
        sequence.insert(1, nop)
        del sequence[-1]
        sequence.append(nop)
    assert stream == listed
    assert stream[1:3] == listed[1:3]
    assert len(stream) == len(listed) == 4
    assert in_columns(stream).semaphores == in_columns(listed).semaphores


def test_equal_operands_of_several_streams_are_one_object():
    columns = in_columns(cleared(0, 64))
    moved = {}
    first, second = Stream(columns, moved), Stream(columns, moved)
    assert first[1].values[0] is second[1].values[0]


@given(
    st.lists(
        st.tuples(
            *[st.integers(0, 3) | st.sampled_from([2**40, 2**62, 2**62 + 1]) for _ in range(4)]
        ),
        min_size=1,
        max_size=30,
    )
)
def test_joined_columns_tell_rows_apart(rows):
    key = joined(list(np.array(rows, np.int64).T)).tolist()
    assert len(set(key)) == len(set(rows)) == len(set(zip(key, rows)))
