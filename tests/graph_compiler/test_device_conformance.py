"""Graphs compiled for a device: the StableHLO conformance cases and the model files.

By default a sample of the cases and the quick models; all of them by

    python -m pytest tests/graph_compiler/test_device_conformance.py --all-conformance
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from conformance_cases import DATA, Case, Outcome, cases, judge, passed, protos, table
from conformance_models import MODELS, WITHOUT_GOLDEN, disagreements, inputs_of, models
from test_conformance_stablehlo import EXPLAINED
from test_execute_conformance import constants_as_parameters

import graph_compiler
from isa.errors import NeuronError

SAMPLE = 16
"""In a default run every so many cases."""

TARGET = "trn2"

QUICK = frozenset({"clip_infer_f32", "mamba_scan_infer_f32", "lstm_train_adam"})
"""Models of a default run."""

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
@pytest.mark.parametrize(
    "name", sorted(set(models()) - set(WITHOUT_GOLDEN)) if MODELS.exists() else []
)
def test_a_model_agrees_with_its_golden_outputs(name: str, pytestconfig: pytest.Config) -> None:
    if name not in QUICK and not pytestconfig.getoption("--all-conformance"):
        pytest.skip("slow: --all-conformance runs it")
    model = models()[name]
    compiled = graph_compiler.compile(graph_compiler.load(model.path), TARGET)
    assert disagreements(model, compiled(*inputs_of(model))) == []
