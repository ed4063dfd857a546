"""Waits of small made-up bodies."""

import numpy as np
from test_rerolled import QUEUES, RandomStep, as_columns, semaphores

QUEUE = next(iter(QUEUES))


def waiting(*steps):
    """Of steps (stream, those it follows; ~n: the issue of n), in the author's order, by step: how
    many semaphores it waits for, and how many it tells."""
    made = [RandomStep(0, stream, (), (), (), (), 0, list(follows)) for stream, follows in steps]
    found, _ = semaphores(np.arange(len(made)), *as_columns(made), ())
    return [(len(waits), len(updates)) for waits, updates in found]


def test_an_engine_does_not_wait_for_itself():
    assert waiting((0, []), (0, [0]), (0, [0, 1])) == [(0, 0)] * 3


def test_an_engine_waits_for_another():
    assert waiting((0, []), (1, [0])) == [(0, 1), (1, 0)]


def test_what_is_known_is_not_waited_for_again():
    assert waiting((0, []), (1, [0]), (1, [0])) == [(0, 1), (1, 0), (0, 0)]


def test_what_another_engine_knows_is_known_with_it():
    assert waiting((0, []), (1, [0]), (2, [0, 1])) == [(0, 1), (1, 1), (1, 0)]


def test_the_last_of_an_engine_is_waited_for():
    assert waiting((0, []), (0, []), (1, [0, 1])) == [(0, 0), (0, 1), (1, 0)]


def test_an_engine_waits_for_the_transfers_it_issues():
    engine = QUEUES[QUEUE]
    assert waiting((QUEUE, []), (engine, [0])) == [(0, 1), (1, 0)]


def test_the_issue_of_a_transfer_is_no_event_for_its_own_engine():
    engine = QUEUES[QUEUE]
    assert waiting((QUEUE, []), (engine, [~0])) == [(0, 0)] * 2
