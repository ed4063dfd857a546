"""Random numbers of distributions on the device: their limits and their moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import GraphOptions, compile, parse_text


def drawn(type: str, distribution: str, first: Any, second: Any, **options: Any) -> list[Any]:
    """Two draws of one graph."""
    text = f"""HloModule m
    ENTRY e {{ a = {type}[] parameter(0)
      b = {type}[] parameter(1)
      x = {type}[300,170] rng(a, b), distribution=rng_{distribution}
      y = {type}[300,170] rng(a, b), distribution=rng_{distribution}
      ROOT t = ({type}[300,170], {type}[300,170]) tuple(x, y) }}"""
    module = parse_text(text)
    dtype = module.parameters[0].shape.numpy_dtype()
    bounds = [np.array(bound, dtype) for bound in (first, second)]
    return compile(module, "trn2", GraphOptions(**options))(*bounds)


@pytest.mark.parametrize("cores", [1, 2])
def test_uniform_numbers(cores: int) -> None:
    x, y = drawn("f32", "uniform", -2.0, 6.0, logical_cores=cores)
    assert x.min() >= -2 and x.max() < 6
    for number in (x, y):
        counts, _ = np.histogram(number, 10, (-2, 6))
        assert (abs(counts / number.size - 0.1) < 0.01).all()
    assert abs(np.corrcoef(x.ravel(), y.ravel())[0, 1]) < 0.02


def test_uniform_numbers_of_a_narrow_type_stay_below_the_bound() -> None:
    x, _ = drawn("bf16", "uniform", 1.0, 2.0)
    wide = x.astype(np.float32)
    assert wide.min() >= 1 and wide.max() < 2 and abs(wide.mean() - 1.5) < 0.01


def test_normal_numbers() -> None:
    x, y = drawn("f32", "normal", 3.0, 0.5)
    for number in ((x - 3) / 0.5, (y - 3) / 0.5):
        assert abs(number.mean()) < 0.02 and abs(number.std() - 1) < 0.02
        assert abs((number**4).mean() - 3) < 0.2
        assert abs((abs(number) < 1).mean() - 0.6827) < 0.01


@pytest.mark.parametrize(("type", "low", "high"), [("s32", -7, 5), ("u32", 0, 9), ("s8", -3, 3)])
def test_whole_numbers(type: str, low: int, high: int) -> None:
    x, y = drawn(type, "uniform", low, high)
    values, counts = np.unique(x, return_counts=True)
    assert values.tolist() == list(range(low, high))
    assert (abs(counts / x.size * (high - low) - 1) < 0.1).all()
    assert (x != y).any()
    equal, _ = drawn(type, "uniform", low, low)
    assert (equal == low).all()


def test_flags() -> None:
    x, _ = drawn("pred", "uniform", False, True)
    assert abs(x.mean() - 0.5) < 0.02


def test_the_generator_of_the_engine_gives_the_state_of_others() -> None:
    text = """HloModule m
    ENTRY e { s = u64[2] rng-get-and-update-state(), delta=1
      r = (u64[2], u32[4000]) rng-bit-generator(s), algorithm=rng_three_fry
      bits = u32[4000] get-tuple-element(r), index=1
      ROOT t = (u64[2], u32[4000]) tuple(s, bits) }"""
    from graph_compiler import evaluate

    state, bits = compile(parse_text(text), "trn2")()
    again = """HloModule m
    ENTRY e { s = u64[2] parameter(0)
      ROOT r = (u64[2], u32[4000]) rng-bit-generator(s), algorithm=rng_three_fry }"""
    np.testing.assert_array_equal(bits, evaluate(parse_text(again), state)[1])
    assert state[0] != state[1]
