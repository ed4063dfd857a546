"""A list schedule in which tensors take room, of operations that are made up."""

import numpy as np
import pytest

from isa.columns import Lists, starts_of
from isa.target import TARGETS
from nki.passes.order.lookahead import Lookahead, Room, StretchTensors

TRN2 = TARGETS["trn2"]
SIGNAL = TRN2.semaphore_ns.value


def lists(rows):
    flat = [value for row in rows for value in row]
    return Lists(starts_of(np.array([len(row) for row in rows])), np.array(flat, np.int64))


def ordered(operations, tensors=(), of=None, capacity=100, window=8):
    """The order of operations (engine, ns, those it follows), and how long it takes. `tensors` are
    (bytes, first operation, last), `of` the tensors of each operation."""
    count = len(operations)
    before = [list(follows) for *_, follows in operations]
    after = [[late for late in range(count) if early in before[late]] for early in range(count)]
    load = np.zeros(count + 1, np.int64)
    for size, first, last in tensors:
        load[first : last + 1] += size
    uses = StretchTensors(of or [[] for _ in operations], [(0, *tensor) for tensor in tensors])
    timings = [[(engine, ns, ns, None, None)] for engine, ns, _ in operations]
    rooms = [Room(capacity, load, 0)]
    return Lookahead(timings, lists(before), lists(after), uses, rooms, TRN2, window).run()


def test_an_engine_takes_what_need_not_wait():
    chain = [(0, 100.0, []), (1, 100.0, [0]), (0, 100.0, [1]), (0, 100.0, [])]
    assert ordered(chain) == ([0, 3, 1, 2], 300.0 + 2 * SIGNAL)


def test_no_more_than_a_window_is_overtaken():
    chain = [(0, 100.0, []), (1, 100.0, [0]), (0, 100.0, [1]), (0, 100.0, [])]
    order, spent = ordered(chain, window=2)
    assert order.index(3) > order.index(1)
    assert ordered(chain, window=1) == ([0, 1, 2, 3], 400.0 + 2 * SIGNAL)
    assert spent <= 400.0 + 2 * SIGNAL


@pytest.mark.parametrize(("capacity", "order"), [(100, [0, 1, 2, 3]), (120, [0, 2, 1, 3])])
def test_tensors_begin_where_there_is_room(capacity, order):
    """Two pairs, each with a tensor of 60 bytes: the second may begin early if both fit."""
    pairs = [(0, 100.0, []), (1, 100.0, [0]), (0, 100.0, []), (1, 100.0, [2])]
    of = [[0], [0], [1], [1]]
    found, _ = ordered(pairs, [(60, 0, 1), (60, 2, 3)], of, capacity)
    assert found == order


def test_room_that_is_taken_again_is_that_which_was_free_longest():
    room = Room(100, np.zeros(4, np.int64), held=40)
    assert room.available(60) == 0.0
    room.begin(0, 0, 60)
    room.end(0, -1, 30, when=7.0)
    room.end(0, -1, 30, when=9.0)
    assert [room.available(size) for size in (1, 30, 31, 60)] == [7.0, 7.0, 9.0, 9.0]


def test_a_tensor_that_the_author_begins_later_must_leave_room_for_those_in_between():
    room = Room(100, np.array([50, 90, 50, 50]), held=0)
    assert room.fits(0, 1, 50)
    assert not room.fits(0, 2, 20)
    assert room.fits(0, 2, 10)
