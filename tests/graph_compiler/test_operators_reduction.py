"""Reductions and scans of the operator table."""

from __future__ import annotations

import numpy as np
from operator_values import module_text, run
from random_operations import REDUCERS, reducer


def test_a_cumulated_sum_takes_few_steps() -> None:
    """A window as long as the array, over 100,000 elements: not 10^10 additions."""
    count = 100_000
    x = np.random.default_rng(1).integers(-99, 99, count).astype(np.int32)
    window = f"window={{size={count} pad={count - 1}_0}}, to_apply=reducer"
    text = module_text(
        "reduce-window",
        f"s32[{count}]",
        [f"s32[{count}]", "s32[]"],
        window,
        reducer("s32", REDUCERS["add"]),
    )
    (found,) = run(text, x, np.int32(0))
    np.testing.assert_array_equal(found, np.cumsum(x))


def test_sums_of_floats_round_once() -> None:
    x = np.concatenate([np.full(1000, 0.1), [1e8], np.full(1000, -0.1), [-1e8]]).astype(np.float32)
    text = module_text(
        "reduce",
        "f32[]",
        [f"f32[{len(x)}]", "f32[]"],
        "dimensions={0}, to_apply=reducer",
        reducer("f32", REDUCERS["add"]),
    )
    (found,) = run(text, x, np.float32(0))
    assert found == np.float32(x.astype(np.float64).sum())


def test_a_scan_hands_on_its_carry() -> None:
    body = (
        "step {\n  x = s32[2] parameter(0)\n  c = s32[2] parameter(1)\n"
        "  s = s32[2] add(x, c)\n  d = s32[2] multiply(s, s)\n"
        "  ROOT t = (s32[2], s32[2]) tuple(d, s)\n}\n"
    )
    x = np.int32([[1, 2, 3], [4, 5, 6]])
    text = module_text(
        "scan",
        "(s32[2,3], s32[2])",
        ["s32[2,3]", "s32[2]"],
        "dimensions={1}, num_carries=1, to_apply=step",
        body,
    )
    stacked, last = run(text, x, np.int32([0, 0]))
    assert stacked.tolist() == (np.cumsum(x, 1) ** 2).tolist()
    assert last.tolist() == [6, 15]
