"""Exchanges between ranks, as the operator table has them."""

from __future__ import annotations

import pytest
from operator_values import module_text
from ranks_of_graphs import SUM, pieces, ranks_of

from isa.errors import NeuronError


def test_all_reduce_sums_over_groups_on_every_rank() -> None:
    text = module_text(
        "all-reduce", "f32[4]", ["f32[4]"], "replica_groups={{0,2},{1,3}}, to_apply=reducer", SUM
    )
    x = pieces(4)
    even, odd = (x[0] + x[2]).tolist(), (x[1] + x[3]).tolist()
    assert ranks_of(text, *x) == [even, odd, even, odd]


def test_all_gather_joins_in_the_order_of_the_group() -> None:
    text = module_text("all-gather", "f32[8]", ["f32[4]"], "replica_groups={{1,0}}, dimensions={0}")
    x = pieces(2)
    assert ranks_of(text, *x) == [[*x[1], *x[0]]] * 2


def test_reduce_scatter_keeps_the_part_of_the_rank() -> None:
    text = module_text(
        "reduce-scatter",
        "f32[2]",
        ["f32[4]"],
        "replica_groups={{0,1}}, dimensions={0}, to_apply=reducer",
        SUM,
    )
    x = pieces(2)
    total = (x[0] + x[1]).tolist()
    assert ranks_of(text, *x) == [total[:2], total[2:]]


def test_all_to_all_is_a_transposition_of_parts() -> None:
    text = module_text("all-to-all", "f32[4]", ["f32[4]"], "replica_groups={{0,1}}, dimensions={0}")
    x = pieces(2)
    assert ranks_of(text, *x) == [[*x[0][:2], *x[1][:2]], [*x[0][2:], *x[1][2:]]]


def test_collective_permute_gives_zeros_where_nobody_sends() -> None:
    text = module_text(
        "collective-permute", "f32[4]", ["f32[4]"], "source_target_pairs={{0,1},{1,2}}"
    )
    x = pieces(3)
    assert ranks_of(text, *x) == [[0.0] * 4, x[0].tolist(), x[1].tolist()]


def test_started_collectives_are_done() -> None:
    text = """HloModule start
ENTRY entry {
  x = f32[4] parameter(0)
  s = (f32[4], f32[8]) all-gather-start(x), replica_groups={{0,1}}, dimensions={0}
  ROOT d = f32[8] all-gather-done(s)
}
"""
    x = pieces(2)
    assert ranks_of(text, *x) == [[*x[0], *x[1]]] * 2


DIVERGENT = """HloModule divergent
reducer {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT z = f32[] add(a, b)
}
meets {
  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=reducer
}
stays {
  x = f32[4] parameter(0)
  ROOT r = f32[4] negate(x)
}
ENTRY entry {
  x = f32[4] parameter(0)
  i = u32[] replica-id()
  s = s32[] convert(i)
  ROOT c = f32[4] conditional(s, x, x), branch_computations={meets, stays}
}
"""


def test_a_collective_that_a_rank_does_not_reach_is_a_deadlock() -> None:
    with pytest.raises(NeuronError) as caught:
        ranks_of(DIVERGENT, *pieces(2))
    assert caught.value.code == "deadlock" and "all-reduce `r`" in caught.value.what
