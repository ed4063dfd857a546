"""The verdict on kernels with a planted bottleneck: it names the bottleneck and its line, its first
advice takes it away, and the gain it predicts is the gain of the kernel without it."""

from __future__ import annotations

from functools import cache

import numpy as np
import planted_kernels as planted
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.profile import profile
from simulator.timing import simulate


def profiled(compiled):
    program = compiled.program
    timeline = simulate(program, keep_spans=False, keep_path=True)
    return profile(program, timeline, compiled.advisor(program, None, timeline))


@cache
def report_of(name, after=False):
    """The report of a planted kernel, or of what it is without its bottleneck."""
    return profiled(named(name).compiled(after=after))


def named(name):
    return next(case for case in planted.PLANTED if case.name == name)


@pytest.mark.parametrize("case", planted.PLANTED, ids=lambda case: case.name)
def test_the_verdict_names_what_was_planted(case):
    report = report_of(case.name)
    first = report.advice[0]
    assert report.bottleneck == first.bottleneck == case.bottleneck
    assert (first.file, first.line) == (planted.__file__, case.line)
    gain = report.total_ns - report_of(case.name, after=True).total_ns
    assert gain > 0.15 * report.total_ns, "it is worth naming"
    assert first.saved_ns == pytest.approx(gain, rel=0.10)
    text = report.text()
    assert f"{case.bottleneck} at planted_kernels.py:{case.line}" in text


@pytest.mark.parametrize("case", planted.PLANTED, ids=lambda case: case.name)
def test_little_is_left_to_say_about_it_afterwards(case):
    before = report_of(case.name).advice[0]
    advice = report_of(case.name, after=True).advice
    left = [one.saved_ns for one in advice if one.bottleneck == case.bottleneck]
    assert max(left, default=0) < 0.2 * before.saved_ns


@pytest.mark.parametrize("case", planted.PLANTED, ids=lambda case: case.name)
def test_percentages_add_up(case):
    report = report_of(case.name)
    assert sum(one.percent for one in report.path) == pytest.approx(100)
    assert sum(one.percent for one in report.path_lines) == pytest.approx(100)
    for line in report.path_lines:
        assert sum(line.causes.values()) == pytest.approx(line.ns)
    idle = {e.name for e in report.engines if not e.busy_ns and not e.sequencer_ns}
    assert not idle & {one.engine for one in report.path}


def test_all_forms_of_a_report_say_the_same():
    from io import StringIO

    from nki.report import Report, print_report

    report = report_of("hoistable")
    data = report.to_dict()
    assert [one["line"] for one in data["advice"]] == [one.line for one in report.advice]
    assert data["is_simulation"] and data["bottleneck"] == "hoistable load"
    assert data["path"][0]["cause"] == report.path[0].cause

    class Terminal(StringIO):
        def isatty(self):
            return True

    outputs = []
    for stream in (StringIO(), Terminal()):
        print_report(Report(data, report.sections()), False, stream)
        outputs.append("".join(c for c in stream.getvalue() if c.isalnum()))
    assert all(len(line) <= 100 for line in report.text().splitlines())
    for one in (*report.path, *report.limits):
        name = getattr(one, "cause", None) or one.name
        assert all("".join(c for c in name if c.isalnum()) in output for output in outputs)
    for one in report.advice[:5]:
        text = "".join(c for c in one.text if c.isalnum())
        assert all(text in output for output in outputs)


def test_lines_of_two_cores_stay_apart():
    @nki.jit
    def uneven(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        core = nl.program_id(0)
        for start in range(0, 512, 128):
            rows = nl.ds(512 * core + start, 128)
            x = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x, src=a[rows, :])
            nisa.activation(dst=x, op=nl.exp, data=x)
            nisa.dma_copy(dst=out[rows, :], src=x)
        return out

    compiled = nki.compile(uneven[2], nki.TensorSpec((1024, 512), nl.float32), target="trn2")
    report = profiled(compiled)
    exp = [one for one in report.lines if "activation" in one.text]
    assert sorted(one.core for one in exp) == [0, 1]
    assert exp[0].executed == exp[1].executed == 4
    assert "core" in report.text()
    assert sum(one.percent for one in report.path) == pytest.approx(100)


def test_calls_of_one_line_have_rows_of_their_own():
    @nki.jit(target="trn2")
    def kernel(a):
        x = nl.load(a)
        y = nl.ndarray(x.shape, x.dtype, nl.sbuf)
        nisa.activation(y, op=nl.exp, data=x); nisa.tensor_copy(x, y)  # fmt: skip  # noqa: E702
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    _, report = nki.profile(kernel)(np.ones((128, 512), np.float32))
    exp, copy = "nisa.activation(y, op=nl.exp, data=x)", "nisa.tensor_copy(x, y)"
    engines = {line.text: {*line.by_engine} - {"DMA"} for line in report.lines}
    assert engines[exp] == {"ScalarE"} and engines[copy] == {"VectorE"}
    lines = {one.text: one.line for one in report.path_lines}
    assert lines[exp] == lines[copy] == lines["x = nl.load(a)"] + 2
    rows = [row for row in report.text().splitlines() if f"test_verdict.py:{lines[exp]} " in row]
    assert {text for text in (exp[:28], copy) for row in rows if text in row} == {exp[:28], copy}
