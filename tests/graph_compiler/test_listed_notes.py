"""The restrictions that `neuronx-cc list-operators` notes beside operators, none of which is ours.

SDK page "NeuronX Compiler operators"; later release notes took back the ones on Pow (2.3) and on
the seed of RngBitGenerator (2.9).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import evaluate, load

LEAST = """difference {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  d = f32[] subtract(a, b)
  ROOT m = f32[] abs(d)
}
"""


def run(line: str, *inputs: Any) -> Any:
    """The value of `line`, whose operands are p0, p1, ..."""
    arrays = [np.asarray(value) for value in inputs]
    types = {"f": "f32", "i": "s32", "u": "u64"}
    parameters = [
        f"  p{number} = {types[array.dtype.kind]}[{','.join(map(str, array.shape))}] "
        f"parameter({number})"
        for number, array in enumerate(arrays)
    ]
    text = "\n".join(["HloModule m", LEAST, "ENTRY e {", *parameters, f"  ROOT r = {line}", "}"])
    outputs = evaluate(load(text.encode()), *arrays)
    return outputs if len(outputs) > 1 else outputs[0]


def test_dynamic_update_slice_takes_an_index_that_is_computed() -> None:
    x, update = np.zeros(5, np.float32), np.float32([1, 2])
    for start, place in ((1, 1), (-3, 0), (9, 3)):
        found = run("f32[5] dynamic-update-slice(p0, p1, p2)", x, update, np.int32(start))
        expected = x.copy()
        expected[place : place + 2] = update
        assert np.array_equal(found, expected)


def test_gather_takes_start_dimensions_that_are_offset_dimensions_too() -> None:
    """Windows of two rows and columns, from rows and columns that the indices name."""
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    starts = np.int32([[0, 3], [2, 1]])
    found = run(
        "f32[2,2,2] gather(p0, p1), offset_dims={1,2}, collapsed_slice_dims={}, "
        "start_index_map={0,1}, index_vector_dim=1, slice_sizes={2,2}",
        x,
        starts,
    )
    assert np.array_equal(found, [x[r : r + 2, c : c + 2] for r, c in starts])


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_pow_takes_exponents_that_are_computed(kind: Any) -> None:
    base, exponent = np.array([2, 3, 5], kind), np.array([10, 3, 0], kind)
    name = "s32" if kind is np.int32 else "f32"
    found = run(f"{name}[3] power(p0, p1)", base, exponent)
    assert np.array_equal(found, base**exponent)


def test_reduce_takes_any_computation_and_initial_value() -> None:
    """|initial - element|, which is no sum, product, minimum or maximum."""
    found = run(
        "f32[2] reduce(p0, p1), dimensions={1}, to_apply=difference",
        np.float32([[1], [9]]),
        np.float32(2),
    )
    assert found.tolist() == [1, 7]


def test_the_seed_of_rng_bit_generator_counts() -> None:
    def bits(seed: int) -> bytes:
        line = "(u64[2], u32[64]) rng-bit-generator(p0), algorithm=rng_three_fry"
        return run(line, np.array([seed, 0], np.uint64))[1].tobytes()

    assert bits(1) == bits(1) != bits(2)
