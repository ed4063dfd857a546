"""The host executor on the StableHLO conformance cases and on the model files.

Constants of a case become parameters, so that nothing is computed while compiling. By default a
sample of the cases and the quick models; all of them by

    python -m pytest tests/graph_compiler/test_execute_conformance.py --all-conformance
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conformance_cases import DATA, Case, Outcome, cases, judge, passed, protos, table
from conformance_models import MODELS, WITHOUT_GOLDEN, inputs_of, judged, models
from test_conformance_stablehlo import EXPLAINED, SHARES

import graph_compiler
from graph_compiler.execute.executable import Executable

SAMPLE = 16
"""In a default run every so many cases."""


QUICK = frozenset(
    {"clip_infer_f32", "mamba_scan_infer_f32", "fp8_int8_mlp_infer", "mnist_cnn_train_nnx"}
    | {"lstm_train_adam", "gpt2_generate_loop_f32", "llama_prefill_bf16"}
)
"""Models of a default run."""

needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"no conformance data in {DATA}")


def constants_as_parameters(module: graph_compiler.Module) -> list[np.ndarray[Any, Any]]:
    """Turns the entry's constants into parameters, in place; the inputs for them."""
    inputs: list[np.ndarray[Any, Any]] = []
    for item in module.entry.instructions:
        literal = item.attributes.get("literal")
        if item.opcode == "constant" and isinstance(literal, np.ndarray):
            item.opcode, item.attributes, item.parameter_number = "parameter", {}, len(inputs)
            inputs.append(literal)
    module.entry.attributes.pop("program_shape", None)
    module.attributes.pop("host_program_shape", None)
    return inputs


def outcome_of(case: Case, proto: bytes) -> Outcome:
    try:
        module = graph_compiler.load(proto)
        inputs = constants_as_parameters(module)
        results = Executable(module)(inputs)
    except Exception as error:
        return Outcome(case, f"{type(error).__name__}: {error}")
    return judge(case, results)


@needs_data
def test_stablehlo_cases(pytestconfig: pytest.Config, report_table: Callable[[str], None]) -> None:
    complete = pytestconfig.getoption("--all-conformance")
    chosen = cases() if complete else cases()[::SAMPLE]
    outcomes = [outcome_of(case, proto) for case, proto in protos(chosen)]
    report_table("host executor\n" + table(outcomes))
    counts = passed(outcomes)
    shares = {category: counts[category][0] / counts[category][1] for category in SHARES}
    assert {name: share for name, share in shares.items() if share < SHARES[name]} == {}
    failed = {outcome.case.name: outcome.reason for outcome in outcomes if outcome.reason}
    assert {name: reason for name, reason in failed.items() if name not in EXPLAINED} == {}


@pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")
@pytest.mark.parametrize(
    "name", sorted(set(models()) - set(WITHOUT_GOLDEN)) if MODELS.exists() else []
)
def test_a_model_agrees_with_its_golden_outputs(
    name: str, pytestconfig: pytest.Config, report_table: Callable[[str], None]
) -> None:
    if name not in QUICK and not pytestconfig.getoption("--all-conformance"):
        pytest.skip("slow: --all-conformance runs it")
    model = models()[name]
    module = graph_compiler.load(model.path)
    inputs = inputs_of(model)
    start = time.perf_counter()
    executable = Executable(module)
    compiled = time.perf_counter()
    outputs = executable(inputs)
    seconds = time.perf_counter() - compiled
    found, remark = judged(model, module, inputs, outputs)
    report_table(
        f"host executor {name:<28} {len(outputs) - len(found):4} of {len(outputs):<4} compiled in"
        f" {compiled - start:.2f} s, first run {seconds:.2f} s  {remark}"
    )
    assert found == []
