"""Graphs compiled for a device: the StableHLO conformance cases and the model files.

By default a sample of the cases and the quick models; all of them, every model for every target at
-O1 and -O2, for one core and for two where a logical core may have them, by

    python -m pytest tests/graph_compiler/test_device_conformance.py --all-conformance
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest
from combinations import combined
from conformance_cases import DATA, Case, Outcome, cases, judge, passed, protos, table
from conformance_models import FORMS, MODELS, WITHOUT_GOLDEN, inputs_of, judged, models
from test_conformance_models import close, trained
from test_conformance_stablehlo import EXPLAINED
from test_execute_conformance import constants_as_parameters

import graph_compiler
from graph_compiler.options import GraphOptions
from isa.errors import NeuronError

SAMPLE = 16
"""In a default run every so many cases."""

TARGET = "trn2"
QUICK = {
    (1, 2): frozenset({"clip_infer_f32", "mamba_scan_infer_f32"}),
    (2, 1): frozenset({"lstm_train_adam"}),
}
"""Models of a default run, by the number of cores and the level of optimisation."""

LEAST = 0.98
"""The share of cases that pass, of those that the device has the types for."""


def outcome_of(case: Case, proto: bytes) -> Outcome | str:
    """What became of a case; a text for one that is refused."""
    module = graph_compiler.load(proto)
    inputs = constants_as_parameters(module)
    try:
        compiled = graph_compiler.compile(module, TARGET)
    except NeuronError as error:
        return f"{error.code}: {error.what}"
    return judge(case, compiled(*inputs))


@pytest.mark.skipif(not DATA.exists(), reason=f"no conformance data in {DATA}")
def test_stablehlo_cases(pytestconfig: pytest.Config, report_table: Callable[[str], None]) -> None:
    chosen = [case for case in cases() if case.category == "core"]
    if not pytestconfig.getoption("--all-conformance"):
        chosen = chosen[::SAMPLE]
    found = [(case, outcome_of(case, proto)) for case, proto in protos(chosen)]
    outcomes = [outcome for _, outcome in found if isinstance(outcome, Outcome)]
    refused = {case.name: text for case, text in found if isinstance(text, str)}
    lines = [f"refused  {name}: {text}" for name, text in refused.items()]
    report_table("\n".join([f"device ({TARGET})", table(outcomes), *lines]))
    wrong = {o.case.name: o.reason for o in outcomes if o.reason}
    assert {name: reason for name, reason in wrong.items() if name not in EXPLAINED} == {}
    good, _ = passed(outcomes)["core"]
    assert good >= LEAST * len(found), Counter(refused.values())


@pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(("target", "cores"), FORMS)
@pytest.mark.parametrize(
    "name", sorted(set(models()) - set(WITHOUT_GOLDEN)) if MODELS.exists() else []
)
def test_a_model_agrees_with_its_golden_outputs(
    name: str,
    target: str,
    cores: int,
    level: int,
    pytestconfig: pytest.Config,
    report_table: Callable[[str], None],
) -> None:
    quick = target == TARGET and name in QUICK.get((cores, level), ())
    if not quick and not pytestconfig.getoption("--all-conformance"):
        pytest.skip("slow: --all-conformance runs it")
    model = models()[name]
    module, inputs = graph_compiler.load(model.path), inputs_of(model)
    options = GraphOptions(optimisation=level, logical_cores=cores, emulate_fp8_e4m3fn=True)
    start = time.perf_counter()
    compiled = graph_compiler.compile(module, target, options)
    seconds = time.perf_counter() - start
    found, remark = judged(model, module, inputs, compiled(*inputs))
    report_table(
        f"device {target} x{cores} -O{level} {name:<28} compiled in {seconds:.1f} s  {remark}"
    )
    assert found == []


@pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")
@combined({"target, cores": FORMS, "level": [1, 2]})
def test_a_training_step_with_shardings_agrees_with_numpy(
    target: str, cores: int, level: int
) -> None:
    """On one rank, where shardings say nothing."""
    model = models()["dp_train_gspmd_f32"]
    module, inputs = graph_compiler.load(model.path), inputs_of(model)
    options = GraphOptions(optimisation=level, logical_cores=cores)
    found = graph_compiler.compile(module, target, options)(*inputs)
    reasons = [close(one, wanted, model.tolerance) for one, wanted in zip(found, trained(*inputs))]
    assert reasons == ["", "", ""]
