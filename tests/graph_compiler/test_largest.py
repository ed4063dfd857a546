"""The largest elements of rows on the device, against NumPy's stable sort of keys."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_compiler import compile, parse_text

DTYPES: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
SPECIAL = np.float32(
    [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45, 1.0, 1.0 + 2**-23, 3e38, -3e38]
)
ORDER = """before { a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=DIRECTION }"""


def total_order(x: np.ndarray) -> np.ndarray:
    """Integers in the total order of floats."""
    integer = {2: np.int16, 4: np.int32}[x.dtype.itemsize]
    bits = x.view(integer)
    return np.where(bits < 0, bits ^ np.iinfo(integer).max, bits).astype(np.int64)


def check_largest(x: np.ndarray, type: str, taken: int, largest: bool) -> Any:
    sizes = ",".join(map(str, x.shape))
    rows = ",".join(map(str, x.shape[:-1]))
    compiled = compile(
        parse_text(
            f"HloModule m\nENTRY e {{\n x = {type}[{sizes}] parameter(0)\n"
            f" ROOT r = ({type}[{rows},{taken}], s32[{rows},{taken}]) topk(x), k={taken},"
            f" largest={str(largest).lower()}\n}}"
        ),
        "trn2",
    )
    values, places = compiled(x)
    keys = total_order(x)
    expected = np.argsort(-keys if largest else keys, axis=-1, kind="stable")[..., :taken]
    np.testing.assert_array_equal(places, expected)
    kept = np.take_along_axis(x, expected, -1)
    assert np.asarray(values).tobytes() == kept.tobytes()
    return compiled


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(sorted(DTYPES)),
    st.integers(1, 70),
    st.integers(1, 64),
    st.booleans(),
    st.sampled_from(["special", "near", "any"]),
    st.integers(0, 2**32 - 1),
)
def test_the_largest_elements_whatever_they_are(
    type: str, count: int, taken: int, largest: bool, values: str, seed: int
) -> None:
    """Equal ones in the order of their places; zeros, NaN and infinities in total order."""
    rng = np.random.default_rng(seed)
    shape = (3, count)
    x = {
        "special": lambda: rng.choice(SPECIAL, shape),
        "near": lambda: np.float32(1) + rng.integers(0, 9, shape).astype(np.float32) * 2.0**-23,
        "any": lambda: rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32),
    }[values]()
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = np.float32(x).astype(DTYPES[type])
    check_largest(narrow, type, min(taken, count), largest)


@pytest.mark.parametrize(("shape", "taken"), [((2, 65, 20), 5), ((1, 9000), 33), ((3, 4096), 64)])
def test_many_and_long_rows(shape: tuple[int, ...], taken: int) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    x[..., ::7] = 2.0
    check_largest(x, "f32", taken, True)


@pytest.mark.parametrize("direction", ["GT", "LT"])
@pytest.mark.parametrize("type", ["s32", "u32", "s8", "u16"])
def test_short_rows_of_integers_in_order(type: str, direction: str) -> None:
    """With a second array, along the first dimension."""
    dtype = np.dtype({"s32": "i4", "u32": "u4", "s8": "i1", "u16": "u2"}[type])
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(6)
    x = rng.integers(limits.min, limits.max, (40, 3), dtype=dtype, endpoint=True)
    x[5:20] = x[5]
    x[21:24] = [[limits.min], [limits.max], [limits.max - 1]]
    order = ORDER.replace("TYPE", type).replace("DIRECTION", direction)
    module = parse_text(
        f"HloModule m\n{order}\nENTRY e {{ x = {type}[40,3] parameter(0)\n"
        f" i = s32[40,3] iota(), iota_dimension=0\n"
        f" ROOT r = ({type}[40,3], s32[40,3]) sort(x, i), dimensions={{0}}, is_stable=true,"
        " to_apply=before }"
    )
    values, places = compile(module, "trn2")(x)
    keys = x.astype(np.int64)
    expected = np.argsort(-keys if direction == "GT" else keys, axis=0, kind="stable")
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 0))


@pytest.mark.parametrize(
    ("shape", "taken", "most"),
    [((128, 4096), 8, 56e3), ((128, 4096), 64, 260e3), ((64, 8), 2, 10e3)],
)
def test_few_elements_take_few_passes(shape: tuple[int, int], taken: int, most: float) -> None:
    """A full sort of the first takes 6.9 ms."""
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    assert check_largest(x, "f32", taken, True).profile(x)[-1].total_ns < most
