"""Runs that do not end, end: with the loop's line, its register, and where the engines stand."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

A = np.ones((4, 8), np.float32)
MODES = pytest.mark.parametrize("mode", ["device", "reference", "eager"])


@nki.jit
def endless(a):
    """The body always loads 1."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    one = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=one, value=1)

    def body(going):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.0)
        nisa.register_load(going, one)
        return going

    going = nisa.register_alloc(1)
    nl.while_loop(going, body)
    nl.store(out, tile)
    return out


@nki.jit
def idle(a):
    """A loop in which no engine computes anything."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))

    def body(going):
        nisa.register_move(going, 1)
        return going

    nl.while_loop(nisa.register_alloc(1), body)
    return out


@nki.jit
def counted(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    for _ in nl.dynamic_range(0, 600, 1):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nl.store(out, tile)
    return out


@MODES
@pytest.mark.parametrize("kernel", [endless, idle])
def test_a_loop_that_does_not_end(monkeypatch, kernel, mode):
    monkeypatch.setenv("NKI_LOOP_LIMIT", "2000")
    with pytest.raises(nki.NeuronError) as caught:
        nki.simulate(kernel, mode=mode)(A)
    error = caught.value
    assert error.code == "loop-limit"
    assert error.location.file == __file__ and "nl.while_loop" in error.location.text
    if (kernel, mode) != (idle, "device"):  # which the proof finds ahead of a run
        assert "= 1" in "\n".join(error.notes)


def test_who_waits_for_whom(monkeypatch):
    monkeypatch.setenv("NKI_LOOP_LIMIT", "2000")
    with pytest.raises(nki.NeuronError) as caught:
        nki.simulate(endless, mode="device")(A)
    notes = "\n".join(caught.value.notes)
    assert "core 0, vector: " in notes and "waits for S[" in notes


@MODES
def test_a_run_that_takes_too_long(monkeypatch, mode):
    monkeypatch.setenv("NKI_LOOP_LIMIT", str(2**39))
    monkeypatch.setenv("NKI_RUN_SECONDS", "0.3")
    with pytest.raises(nki.NeuronError) as caught:
        nki.simulate(endless, mode=mode)(A)
    assert caught.value.code == "time-limit"
    assert "nl.while_loop" in caught.value.location.text


@MODES
def test_a_loop_that_ends_within_the_limit(monkeypatch, mode):
    monkeypatch.setenv("NKI_LOOP_LIMIT", "5000")
    np.testing.assert_array_equal(nki.simulate(counted, mode=mode)(A), A + 600)
    monkeypatch.setenv("NKI_LOOP_LIMIT", "500")
    with pytest.raises(nki.NeuronError, match="loop-limit"):
        nki.simulate(counted, mode=mode)(A)


@pytest.mark.parametrize(
    ("name", "value"),
    [("NKI_LOOP_LIMIT", "0"), ("NKI_LOOP_LIMIT", "many"), ("NKI_RUN_SECONDS", "-1")],
)
def test_limits_are_numbers(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(nki.NeuronError, match=f"{name} is '{value}'"):
        nki.simulate(counted)(A)
