"""The model files on the reference evaluator, against outputs of XLA:CPU.

By default the quick ones; all of them by

    python -m pytest tests/graph_compiler/test_conformance_models.py --all-conformance
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conformance_models import (
    MODELS,
    TOLERANCES,
    WITHOUT_GOLDEN,
    disagreement,
    inputs_of,
    judged,
    models,
)

import graph_compiler
from isa.errors import NeuronError

if not MODELS.exists():
    pytest.skip(f"no model files in {MODELS}", allow_module_level=True)

SLOW = frozenset(
    {
        "bert_base_infer_f32",
        "bert_mlm_train_adamw",
        "llama3_prefill_gqa_bf16",
        "llama_scan_train_adamw_bf16",
        "lstm_train_adam",
        "mixtral_dense_moe_bf16",
        "resnet50_train_sgd",
        "sd_unet_train_adamw",
        "vit_base_infer_bf16",
    }
)
"""Models that take longer than some seconds each; only in a complete run. By default most of them
run by the executor or on the device (`test_execute_conformance`, `test_device_conformance`)."""

with_golden = sorted(set(models()) - set(WITHOUT_GOLDEN))


@pytest.fixture
def chosen(request: pytest.FixtureRequest) -> Any:
    """The model of this test; skips the slow ones in a default run."""
    name = request.param
    if name in SLOW and not request.config.getoption("--all-conformance"):
        pytest.skip("slow: --all-conformance runs it")
    return models()[name]


@pytest.mark.parametrize("chosen", with_golden, indirect=True)
def test_a_model_agrees_with_its_golden_outputs(
    chosen: Any, report_table: Callable[[str], None]
) -> None:
    module = graph_compiler.load(chosen.path)
    inputs = inputs_of(chosen)
    start = time.perf_counter()
    outputs = graph_compiler.evaluate(module, *inputs)
    seconds = time.perf_counter() - start
    found, remark = judged(chosen, module, inputs, outputs)
    agreeing = len(outputs) - len(found)
    report_table(f"{chosen.name:<28} {agreeing:4} of {len(outputs):<4} {seconds:6.1f} s  {remark}")
    assert found == []


def float32(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(np.float32)


def gelu(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def normalised(x: np.ndarray[Any, Any], epsilon: float) -> np.ndarray[Any, Any]:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)


def close(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], tolerance: float) -> str:
    """As `disagreement`, with every element as the sample."""
    wide = expected.astype(np.float64).ravel()
    meta = np.array([1, wide.size, wide.mean(), wide.std(), 0])
    return disagreement(actual, wide, meta, tolerance)


def test_a_custom_call_of_a_kernel_runs_what_is_registered_for_it() -> None:
    model = models()["nki_customcall_block"]
    x, weight, down = inputs_of(model)

    def kernel(instruction: Any, operands: Any, context: Any) -> np.ndarray[Any, Any]:
        x, weight = operands
        return float32(normalised(x, 1e-6) * weight)

    module = graph_compiler.load(model.path)
    (output,) = graph_compiler.evaluate(
        module, x, weight, down, custom_calls={"AwsNeuronCustomNativeKernel": kernel}
    )
    assert close(output, gelu(kernel(None, (x, weight), None) @ down), model.tolerance) == ""


def test_a_custom_call_without_an_implementation_is_named() -> None:
    model = models()["nki_customcall_block"]
    with pytest.raises(NeuronError, match="AwsNeuronCustomNativeKernel"):
        graph_compiler.evaluate(graph_compiler.load(model.path), *inputs_of(model))


def tp_mlp_reasons(
    model: Any, inputs: list[np.ndarray[Any, Any]], outputs: list[np.ndarray[Any, Any]]
) -> list[str]:
    """Why outputs of `tp_mlp_shardmap_bf16` do not agree with NumPy. The mesh is 2 (dp) by 4 (tp),
    in rank order; x is split over dp, the weights over tp."""
    x, up, down, gain = (float32(array) for array in inputs)
    y = normalised(gelu(x @ up) @ down, 1e-5) * gain
    loss, shifted, exchanged, index = outputs
    # Each of the dp halves contributes its sum; the ranks of a half hold the same values.
    off = abs(float(loss) - y.sum() / 2) / np.abs(y).sum()
    # all-to-all: rank t of a half gets rows [16 t, 16 t + 16) of each of its (equal) partners.
    halves = y.reshape(2, 2, 4, 16, 512).transpose(0, 2, 1, 3, 4)
    expected = np.broadcast_to(halves[:, :, None], (2, 4, 4, 2, 16, 512)).reshape(64, 16, 512)
    return [
        f"the loss is off by {off}" if off > TOLERANCES["bfloat16", "inference"] else "",
        close(shifted, y, model.tolerance),
        close(exchanged, expected, model.tolerance),
        "" if index.tolist() == [0, 1, 2, 3] else f"indices {index.tolist()}",
    ]


def test_a_graph_for_several_devices_runs_on_simulated_ranks() -> None:
    model = models()["tp_mlp_shardmap_bf16"]
    module = graph_compiler.load(model.path)
    outputs = graph_compiler.evaluate(module, *inputs_of(model), ranks=8)
    assert tp_mlp_reasons(model, inputs_of(model), outputs) == [""] * 4


def test_a_graph_with_shardings_needs_a_partitioner_for_several_ranks() -> None:
    """On one rank it means what it says: a training step of a two-layer network."""
    model = models()["dp_train_gspmd_f32"]
    module = graph_compiler.load(model.path)
    up, down, x, y = inputs_of(model)
    with pytest.raises(NeuronError, match="partitioner"):
        graph_compiler.evaluate(module, up, down, x, y, ranks=8)
    outputs = graph_compiler.evaluate(module, up, down, x, y)
    expected = trained(up, down, x, y)
    reasons = [close(*pair, model.tolerance) for pair in zip(outputs, expected)]
    assert reasons == ["", "", ""]


def trained(
    up: np.ndarray[Any, Any],
    down: np.ndarray[Any, Any],
    x: np.ndarray[Any, Any],
    y: np.ndarray[Any, Any],
) -> list[Any]:
    """The step that `dp_train_gspmd_f32` takes: both weights, and the loss."""
    hidden = np.maximum(x @ up, 0)
    error = hidden @ down - y
    slope = 2 * error / error.size
    new_up = up - 0.1 * (x.T @ ((slope @ down.T) * (x @ up > 0)))
    return [new_up, down - 0.1 * (hidden.T @ slope), np.mean(error**2)]
