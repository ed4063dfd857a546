"""Ranks in one process: who gets what at a meeting, and meetings that never come about."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from time import sleep

import numpy as np
import pytest

from isa.errors import NeuronError
from simulator.ranks import World, place, run_world


def meeting(members: tuple[int, ...], rounds: int) -> dict[int, int]:
    """What a rank has after it met the others so often, with sums as messages."""
    rank, world = place()
    total = {rank: rank}
    for _ in range(rounds):
        brought = world.meet(rank, members, "sum", sum(total.values()))
        total = dict(brought)
    return total


@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_messages_do_not_depend_on_speed(in_turns: bool, seed: int) -> None:
    """Two groups of two that sum three times: each sum is that of a matrix product."""
    random = Random(seed)

    def run(rank: int) -> dict[int, int]:
        sleep(random.random() / 200)
        return meeting((0, 2) if rank % 2 == 0 else (1, 3), 3)

    found = run_world(World(4, in_turns), [partial(run, rank) for rank in range(4)])
    together = np.kron(np.ones((2, 2), int), np.eye(2, dtype=int))
    values = np.linalg.matrix_power(together, 2) @ np.arange(4)
    for rank, brought in enumerate(found):
        assert brought == {other: values[other] for other in (rank % 2, rank % 2 + 2)}


def test_outside_of_a_world_there_is_one_rank() -> None:
    rank, world = place()
    assert (rank, world.size) == (0, 1)
    assert world.meet(0, (0,), "alone", "message") == {0: "message"}
    with pytest.raises(NeuronError) as caught:
        world.meet(0, (0, 1), "gather", None)
    assert caught.value.code == "value-not-allowed" and "1 rank runs" in caught.value.what


def stops(rank: int) -> None:
    if rank == 0:
        place().world.meet(0, (0, 1), "gather", None)


def crosses(rank: int) -> None:
    world = place().world
    for what in ("first", "second") if rank == 0 else ("second", "first"):
        world.meet(rank, (0, 1), what, None)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (stops, "rank 0 waits in gather, rank 1 does not come"),
        (crosses, "rank 0 waits in first for rank 1, which waits in second"),
    ],
)
def test_a_meeting_that_never_comes_about_is_a_deadlock(
    body: Callable[[int], None], what: str
) -> None:
    with pytest.raises(NeuronError) as caught:
        run_world(World(2), [partial(body, 0), partial(body, 1)])
    assert (caught.value.code, caught.value.what) == ("deadlock", what)


def test_the_error_of_the_rank_that_failed_comes_before_those_of_who_waited() -> None:
    def body(rank: int) -> None:
        if rank == 1:
            raise ZeroDivisionError("rank 1")
        place().world.meet(0, (0, 1), "gather", None)

    with pytest.raises(ZeroDivisionError, match="rank 1"):
        run_world(World(2), [partial(body, 0), partial(body, 1)])
