"""A list schedule in which tensors take room, of operations that are made up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.columns import Lists, starts_of
from isa.enums import Engine
from isa.target import TARGETS
from nki.passes.analysis.steps import ENGINE_INDEX
from nki.passes.order.list_schedule import NEVER, StretchTensors, list_schedule
from nki.passes.order.schedule import timing_columns, waiting_ns

TRN2 = TARGETS["trn2"]
SIGNAL = TRN2.semaphore_ns.value


def lists(rows):
    flat = [value for row in rows for value in row]
    return Lists(starts_of(np.array([len(row) for row in rows])), np.array(flat, np.int64))


def listed(timings, before, after, uses, window, work=1):
    """The order of operations with some timings, and how long they take."""
    order = np.arange(len(timings))
    spent = list_schedule(
        *(work, np.array([0]), np.array([order.size]), order, *timing_columns(timings)),
        *(*before, *after, *waiting_ns(TRN2), NEVER, window, *uses, found := order.copy()),
    )
    return found.tolist(), spent


def ordered(operations, tensors=(), of=None, capacity=100, window=8, held=0, work=1):
    """The order of operations (engine, ns, those it follows), and how long it takes. `tensors` are
    (bytes, first operation, last), `of` the tensors of each operation."""
    count = len(operations)
    before = [list(follows) for *_, follows in operations]
    after = [[late for late in range(count) if early in before[late]] for early in range(count)]
    load = np.zeros((1, count + 1), np.int64)
    for size, first, last in tensors:
        load[0, max(first, 0) : last + 1] += size
    rows = [(0, *tensor) for tensor in tensors]
    room = load[:, :count], np.array([capacity]), np.array([held])
    uses = StretchTensors.of(of or [[] for _ in operations], rows, *room)
    timings = [[(engine, ns, ns, None, None)] for engine, ns, _ in operations]
    return listed(timings, lists(before), lists(after), uses, window, work)


def test_an_engine_takes_what_need_not_wait():
    chain = [(0, 100.0, []), (1, 100.0, [0]), (0, 100.0, [1]), (0, 100.0, [])]
    assert ordered(chain) == ([0, 3, 1, 2], 300.0 + 2 * SIGNAL)


def test_no_more_than_a_window_is_overtaken():
    chain = [(0, 100.0, []), (1, 100.0, [0]), (0, 100.0, [1]), (0, 100.0, [])]
    order, spent = ordered(chain, window=2)
    assert order.index(3) > order.index(1)
    assert ordered(chain, window=1) == ([0, 1, 2, 3], 400.0 + 2 * SIGNAL)
    assert spent <= 400.0 + 2 * SIGNAL


@pytest.mark.parametrize("work", [1, list_schedule.worth])
def test_what_follows_the_issue_of_an_operation_need_not_wait_until_it_is_over(work):
    """Operation 1 completes 100 ns after its engine is free; 2 follows that, 3 its issue."""
    timings = [[(0, 10.0, 10.0, None, None)], [(0, 10.0, 110.0, None, None)]]
    timings += [[(1, 10.0, 10.0, None, None)]] * 2
    follow = lists([[], [0], [1], [~1]]), lists([[1], [2, ~3], [], []])
    uses = StretchTensors.of([[]] * 4, [], np.zeros((1, 4), np.int64), *np.array([[100], [0]]))
    order, spent = listed(timings, *follow, uses, 8, work)
    assert order == [0, 1, 3, 2]
    assert spent == 130.0 + SIGNAL


@pytest.mark.parametrize("work", [1, list_schedule.worth])
@pytest.mark.parametrize("engine", [Engine.tensor, Engine.vector])
def test_products_do_not_wait_for_those_that_add_to_the_same_sums(engine, work):
    """Three operations of an engine, each after the one before, which completes 100 ns after its
    engine is free: products do not wait for that, nor for a signal. A fourth one, of another
    engine, waits for the last."""
    timings = [[(ENGINE_INDEX[engine], 10.0, 110.0, None, None)]] * 3
    timings.append([(ENGINE_INDEX[Engine.scalar], 10.0, 10.0, None, None)])
    follow = lists([[], [0], [1], [2]]), lists([[1], [2], [3], []])
    uses = StretchTensors.of([[]] * 4, [], np.zeros((1, 4), np.int64), *np.array([[100], [0]]))
    order, spent = listed(timings, *follow, uses, 8, work)
    apart = 10.0 if engine is Engine.tensor else 110.0 + SIGNAL
    assert (order, spent) == ([0, 1, 2, 3], 2 * apart + 110.0 + SIGNAL + 10.0)


@pytest.mark.parametrize(("capacity", "order"), [(100, [0, 1, 2, 3]), (120, [0, 2, 1, 3])])
def test_tensors_begin_where_there_is_room(capacity, order):
    """Two pairs, each with a tensor of 60 bytes: the second may begin early if both fit."""
    pairs = [(0, 100.0, []), (1, 100.0, [0]), (0, 100.0, []), (1, 100.0, [2])]
    of = [[0], [0], [1], [1]]
    found, _ = ordered(pairs, [(60, 0, 1), (60, 2, 3)], of, capacity)
    assert found == order


@pytest.mark.parametrize(("size", "begin"), [(20, 0.0), (50, 100.0), (60, 100.0), (90, 200.0)])
def test_room_that_is_taken_again_is_that_which_was_free_longest(size, begin):
    """Tensors of 40 bytes end at 100 and at 200 ns, and 20 bytes are free from the start."""
    operations = [(0, 100.0, []), (1, 200.0, []), (2, 150.0, [])]
    tensors = [(40, 0, 0), (40, 1, 1), (size, 2, 2)]
    _, spent = ordered(operations, tensors, [[0], [1], [2]], capacity=100)
    assert spent == max(200.0, begin + (SIGNAL if begin else 0.0) + 150.0)


def test_a_tensor_that_the_author_begins_later_must_leave_room_for_those_in_between():
    """The author has 90 of 100 bytes in use at the second operation, on an engine that is late."""
    operations = [(0, 100.0, []), (0, 100.0, []), (1, 10.0, [])]
    for size, expected in ((10, [0, 2, 1]), (20, [0, 1, 2])):
        tensors = [(50, -1, 3), (40, 1, 1), (size, 2, 2)]
        order, _ = ordered(operations, tensors, [[], [1], [2]], capacity=100, held=50)
        assert order == expected


durations = st.sampled_from([10.0, 60.0, 64.0, 200.0])
made = st.lists(
    st.tuples(st.integers(0, 2), durations, st.sets(st.integers(0, 12), max_size=2)),
    min_size=8,
    max_size=24,
)


@settings(max_examples=25, deadline=None)
@given(made, st.data())
def test_compiled_it_finds_the_same_order(rows, data):
    count = len(rows)
    operations = [
        (engine, ns, [number - 1 - back for back in sorted(distances) if back < number])
        for number, (engine, ns, distances) in enumerate(rows)
    ]
    spans = [sorted(data.draw(st.tuples(*[st.integers(0, count - 1)] * 2))) for _ in range(4)]
    tensors = [(data.draw(st.integers(1, 9)), *span) for span in spans]
    of = [[t for t, span in enumerate(spans) if number in span] for number in range(count)]
    most = max(sum(s for s, a, z in tensors if a <= at <= z) for at in range(count))
    capacity = most + data.draw(st.integers(0, 9))
    both = [
        ordered(operations, tensors, of, capacity, window=6, work=work)
        for work in (1, list_schedule.worth)
    ]
    assert both[0] == both[1]
    assert sorted(both[0][0]) == list(range(count))
