"""The first elements of rows that are sorted whole or in parts, some of them equal, by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import modelled_ns

from graph_compiler import compile, parse_text


def largest(rows: int, count: int, taken: int) -> Any:
    """A graph of the largest elements of rows, and where they are."""
    return parse_text(f"""HloModule largest
ENTRY e {{
 x = f32[{rows},{count}] parameter(0)
 ROOT r = (f32[{rows},{taken}], s32[{rows},{taken}]) topk(x), k={taken}, largest=true
}}""")


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_the_first_of_equal_elements_come_first(data: Any) -> None:
    rows, taken = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 40))
    count = data.draw(st.integers(2 * taken, 9000))
    different = data.draw(st.sampled_from([2, 50, 10**6]))
    rng = np.random.default_rng(count)
    x = rng.integers(-different, different, (rows, count)).astype(np.float32)
    values, places = compile(largest(rows, count, taken), "trn2")(x)
    wanted = np.argsort(-x, axis=1, kind="stable")[:, :taken]
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, 1))


@pytest.mark.parametrize("rows, count, taken, us", [(4, 32000, 50, 250), (1, 50000, 5, 35)])
def test_parts_of_few_long_rows_fill_the_partitions(
    rows: int, count: int, taken: int, us: float
) -> None:
    ns = modelled_ns(compile(largest(rows, count, taken), "trn2"))
    assert ns < 1000 * us  # 415 and 69 by parts of 4,096
