"""Places with all live ranges in view."""

import pytest
from test_sweep import life

from isa.enums import Memory
from nki.ir.nodes import Tensor
from nki.passes.place.live_ranges import Life
from nki.passes.place.packing import largest_first, side_by_side, solve, solver_is_installed


def named(*rows):
    return [life(*row) for row in rows]


def offsets(found, lives):
    return None if found is None else [found[one] for one in lives]


def test_the_largest_lie_lowest():
    lives = named((0, 9, 16), (0, 9, 64), (0, 9, 32))
    assert offsets(largest_first(lives, [], 112, 0, 16), lives) == [96, 0, 64]


def test_bytes_are_taken_again_by_what_lives_later():
    lives = named((0, 4, 64), (5, 9, 64), (3, 6, 16))
    assert offsets(largest_first(lives, [], 80, 0, 16), lives) == [0, 0, 64]


def test_authors_addresses_stay():
    lives = named((0, 9, 32))
    fixed = [life(5, 6, 16, address=(0, 0))]
    assert offsets(largest_first(lives, fixed, 48, 0, 16), lives) == [16]
    assert largest_first(lives, fixed, 32, 0, 16) is None


def test_nothing_crosses_a_bank():
    lives = [Life(Tensor(0, "t", Memory.psum, "uint8", (128, size)), 0, 9) for size in (48, 48, 16)]
    assert offsets(largest_first(lives, [], 128, 64, 16), lives) == [0, 64, 48]


def test_another_order_is_tried_where_the_largest_first_leave_no_gap():
    """The largest first put 48 bytes at 0 and the long-lived 32 above; 32 below fits."""
    lives = named((0, 2, 48), (2, 5, 32), (5, 7, 48), (3, 4, 32))
    assert largest_first(lives, [], 80, 0, 16) is not None
    assert largest_first(lives, [], 64, 0, 16) is None


def test_tensors_of_few_rows_lie_side_by_side():
    few = [Life(Tensor(n, "t", Memory.sbuf, "uint8", (64, 32)), 0, 9) for n in range(2)]
    whole = Life(Tensor(2, "t", Memory.sbuf, "uint8", (128, 32)), 0, 9)
    movable = {one.tensor for one in few}
    found = side_by_side([*few, whole], [], 64, 16, movable)
    assert found is not None
    assert sorted(found[one] for one in few) == [(0, 0), (64, 0)]
    assert found[whole] == (0, 32)
    assert side_by_side([*few, whole], [], 64, 16, set()) is None


@pytest.mark.skipif(not solver_is_installed(), reason="needs the `solver` extra")
def test_the_exact_search_finds_what_the_greedy_orders_do_not():
    lives = named((0, 3, 32), (2, 7, 16), (4, 9, 32), (0, 1, 16), (8, 9, 16))
    found = solve(lives, [], 48, 0, 16)
    assert found is not None
    for number, one in enumerate(lives):
        for other in lives[:number]:
            if one.first <= other.last and other.first <= one.last:
                assert found[one] + one.size <= found[other] or (
                    found[other] + other.size <= found[one]
                )
    assert solve(lives, [], 32, 0, 16) is None
