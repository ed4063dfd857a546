"""Instructions that stand for others, counted one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isa.enums import Engine
from isa.files.stream import Stream, in_columns
from isa.files.text import assemble
from isa.machine.control import StorageBegin
from isa.spec import Instruction
from simulator.profile.representatives import Representatives, needing, representatives, signals

PROGRAM = """
.program "sums" target=trn2
.core
.storage "a" sbuf float32[128,64] p0+128 offset=0x0 bytes=256 location=0
.stream vector
  Memset dst=float32@sbuf[p0+128]+0x0[1][16] value=1.0 $S[0]+=1@complete
  Memset dst=float32@sbuf[p0+128]+0x40[1][16] value=1.0 $S[0]+=1@complete
  Memset dst=float32@sbuf[p0+128]+0x80[1][16] value=1.0 $S[1]+=1@complete
  Memset dst=float32@sbuf[p0+128]+0xc0[1][16] value=2.0
  Halt
"""


def stream() -> list[Instruction]:
    return list(assemble(PROGRAM).cores[0].streams[Engine.vector])


def test_each_of_a_list_stands_for_itself() -> None:
    plain = stream()
    found = representatives(plain)
    assert found.instructions == plain and found.order.tolist() == [0, 1, 2, 3, 4]


def test_those_of_columns_differ_in_offsets_and_semaphores_only() -> None:
    plain = stream()
    found = representatives(Stream(in_columns(plain)))
    assert len(found.instructions) < len(plain)
    for one, place in zip(plain, found.order):
        other = found.instructions[place]
        assert (one.row, one.engine) == (other.row, other.engine)
        assert one.fields.get("value") == other.fields.get("value")


def test_signals_are_the_updates_that_there_are() -> None:
    plain = stream()
    listed = [updates for _, updates in signals(plain)]
    columns = [updates for _, updates in signals(Stream(in_columns(plain)))]
    assert listed == [((0, 1),), ((0, 1),), ((1, 1),)]
    assert sorted(set(listed)) == sorted(columns)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_a_wait_of_an_allocation_is_for_what_follows(begins: list[bool]) -> None:
    rows: tuple[Any, ...] = (StorageBegin, None)
    kinds = [Instruction(row, Engine.vector, ()) for row in rows]
    order = np.array([0 if begin else 1 for begin in begins])
    last = len(begins) - 1
    expected = [
        next((at for at in range(place, last + 1) if not begins[at]), last)
        for place in range(len(begins))
    ]
    assert needing(Representatives(kinds, order)).tolist() == expected
