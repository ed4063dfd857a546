"""Custom calls with a meaning of their own: by evaluator and device, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import compile, evaluate, parse_text
from isa.errors import NeuronError


def results(result: str, target: str, config: str, x: np.ndarray) -> list[list[Any]]:
    """What the evaluator and the device give for a call on an array of two dimensions."""
    shape = f"f32[{x.shape[0]},{x.shape[1]}]"
    text = (
        f"HloModule m\nENTRY e {{\n x = {shape} parameter(0)\n ROOT r = {result} custom-call(x), "
        f'custom_call_target="{target}", backend_config="{config}"\n}}'
    )
    module = parse_text(text)
    return [evaluate(module, x), compile(module, "trn2")(x)]


@pytest.fixture
def x() -> np.ndarray:
    drawn = np.random.default_rng(3).standard_normal((40, 60)).astype(np.float32)
    drawn[5, 7] = drawn[5, 30] = 9
    drawn[6, 7] = drawn[6, 30] = -9
    return drawn


@pytest.mark.parametrize(("config", "axis"), [("1", 1), ("0", 0), ("-1", 1)])
def test_softmax(config: str, axis: int, x: np.ndarray) -> None:
    powers = np.exp(x.astype(np.float64))
    expected = powers / powers.sum(axis, keepdims=True)
    for (found,) in results("f32[40,60]", "AwsNeuronSoftmax", config, x):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("target", ["AwsNeuronArgMax", "AwsNeuronArgMin"])
@pytest.mark.parametrize(("type", "axis"), [("u32", 1), ("s32", 0)])
def test_places_of_extremes(target: str, type: str, axis: int, x: np.ndarray) -> None:
    x[9, 3] = np.nan
    result = f"{type}[{x.shape[1 - axis]}]"
    expected = x.argmax(axis) if target.endswith("Max") else x.argmin(axis)
    for (found,) in results(result, target, str(axis), x):
        np.testing.assert_array_equal(found, expected)


def test_largest_elements(x: np.ndarray) -> None:
    expected = np.argsort(-x, axis=1, kind="stable")[:, :5]
    for values, places in results("(f32[40,5], u32[40,5])", "AwsNeuronTopK", "5", x):
        np.testing.assert_array_equal(places, expected)
        np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))


@pytest.mark.parametrize(("axis", "weights"), [(1, "f32"), (0, "bf16")])
def test_rms_norm_as_transformers_neuronx_calls_it(axis: int, weights: str, x: np.ndarray) -> None:
    """An array, weights that may have another type, and epsilon; the result is bf16."""
    size = x.shape[axis]
    text = f"""HloModule m
ENTRY e {{
  x = f32[40,60] parameter(0)
  w = {weights}[{size}] parameter(1)
  epsilon = f32[] constant(0.5)
  ROOT r = bf16[40,60] custom-call(x, w, epsilon), custom_call_target="AwsNeuronRmsNorm",
    backend_config="{axis}"
}}"""
    module = parse_text(text)
    weight = np.arange(size).astype(module.parameters[1].shape.numpy_dtype())
    wide = x.astype(np.float64)
    column = weight.astype(np.float64).reshape([-1, 1] if axis == 0 else [1, -1])
    expected = wide / np.sqrt((wide**2).mean(axis, keepdims=True) + 0.5) * column
    for run in (evaluate, lambda module, *inputs: compile(module, "trn2")(*inputs)):
        (found,) = run(module, x, weight)
        assert found.dtype.name == "bfloat16"
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("config", ["2", "-3", "", "one"])
def test_a_dimension_that_is_not_there(config: str, x: np.ndarray) -> None:
    with pytest.raises(NeuronError, match="names no dimension"):
        results("f32[40,60]", "AwsNeuronSoftmax", config, x)
