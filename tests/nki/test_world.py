"""Ranks that arguments imply, and runs in which all ranks get the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.ranks.group import ReplicaGroup
from nki.ranks.world import ranks_of, run_ranks, same_on_all_ranks
from simulator.ranks import place


def test_as_many_ranks_as_the_groups_name() -> None:
    assert ranks_of({"a": np.zeros(3), "n": 7}) == 1
    assert ranks_of({"g": ReplicaGroup([[0, 1], [4, 3]]), "h": ReplicaGroup([[0, 2]])}) == 5


def test_every_rank_gets_its_own_arguments() -> None:
    def run(a: Any) -> Any:
        rank, world = place()
        return a + sum(world.meet(rank, (0, 1, 2), "sum", a).values())

    parts = np.arange(6).reshape(3, 2)
    found = run_ranks(run, [{"a": part} for part in parts])
    assert np.array_equal(found, parts + parts.sum(axis=0))


def test_arrays_of_rank_0_change_in_place_and_those_of_others_are_copies() -> None:
    def run(a: Any, group: Any) -> list[Any]:
        rank, world = place()
        a += rank + 1
        return [b.tolist() for _, b in sorted(world.meet(rank, (0, 1), "all", a.copy()).items())]

    given = np.zeros(2)
    found = same_on_all_ranks(run, {"a": given, "group": ReplicaGroup([[0, 1]])})
    assert found == [[1, 1], [2, 2]] and given.tolist() == [1, 1]
