"""Replica groups: which ranks are together, and what is no group."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.errors import NeuronError
from nki.ranks.group import ReplicaGroup


@given(st.permutations(range(12)), st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_every_rank_is_in_the_group_that_names_it(ranks: list[int], size: int) -> None:
    rows = np.array(ranks).reshape(-1, size)
    group = ReplicaGroup(rows.tolist())
    assert (group.size, group.ranks) == (size, 12)
    for rank in ranks:
        row, _ = np.argwhere(rows == rank)[0]
        assert group.group_of(rank) == tuple(rows[row])


@pytest.mark.parametrize(
    "groups", [[[0, 1], [1, 2]], [[0, 1], [2]], [[-1, 0]], [], [[]], 3, [0, 1], [[None]]]
)
def test_what_is_no_group_is_refused(groups: object) -> None:
    with pytest.raises(NeuronError) as caught:
        ReplicaGroup(groups)
    assert caught.value.code == "value-not-allowed" and caught.value.hint


def test_a_rank_of_no_group_is_named() -> None:
    with pytest.raises(NeuronError) as caught:
        ReplicaGroup([[0, 1]]).group_of(7)
    assert "Rank 7" in caught.value.why
