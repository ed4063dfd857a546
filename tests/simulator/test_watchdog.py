"""Runs that do not end, end: with the loop's line, its register, and where the engines stand."""

from __future__ import annotations

import gc
import tracemalloc
import warnings

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import settings
from simulator import execute
from simulator.watchdog import RunLimits

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
    assert "register that" in error.hint
    if (kernel, mode) != (idle, "device"):  # which the proof finds ahead of a run
        assert "= 1" in "\n".join(error.notes)


def test_an_endless_loop_ends_in_eager_mode_without_a_setting(monkeypatch):
    """By the limit that the page of variables states; here a thousandth of it."""
    assert f"{RunLimits().iterations:,} iterations" in " ".join(settings.loop_limit.__doc__.split())
    monkeypatch.delenv("NKI_LOOP_LIMIT", raising=False)
    monkeypatch.setattr(RunLimits.__new__, "__defaults__", RunLimits()._replace(iterations=1000))
    with pytest.raises(nki.NeuronError, match="more than 1,000 iterations") as caught:
        nki.simulate(endless, mode="eager")(A)
    assert caught.value.code == "loop-limit"


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
    with pytest.raises(nki.NeuronError, match="loop-limit") as caught:
        nki.simulate(counted, mode=mode)(A)
    assert caught.value.hint.startswith("Check the bounds of the loop")


@MODES
def test_a_process_that_holds_too_much(monkeypatch, mode):
    monkeypatch.setenv("NKI_LOOP_LIMIT", str(2**39))
    monkeypatch.setenv("NKI_MEMORY_LIMIT", "1M")
    with pytest.raises(nki.NeuronError) as caught:
        nki.simulate(endless, mode=mode)(A)
    error = caught.value
    assert error.code == "memory-limit" and "more than 1" in error.what
    assert "nl.while_loop" in error.location.text and error.notes
    monkeypatch.setenv("NKI_MEMORY_LIMIT", "1024G")
    monkeypatch.setenv("NKI_LOOP_LIMIT", "20000")
    with pytest.raises(nki.NeuronError, match="loop-limit"):
        nki.simulate(endless, mode=mode)(A)


def test_a_profile_ends_in_simulated_time(monkeypatch):
    """600 rounds of a VectorE instruction, which takes at least 64 cycles of 1.4 GHz."""
    compiled = nki.compile(counted, nki.TensorSpec(A.shape, nl.float32), target="trn2")
    _, profile = compiled.profile(A)
    assert profile is not None
    monkeypatch.setenv("NKI_SIMULATED_SECONDS", "10e-6")
    with pytest.raises(nki.NeuronError) as caught:
        compiled.profile(A)
    error = caught.value
    assert error.code == "simulated-time-limit" and "1e-05 seconds" in error.what
    assert "nl.dynamic_range" in error.location.text
    assert error.notes and "round" in error.notes[0]


def looped(rounds):
    """A kernel whose loop leaves events in the control trace: the rows that a gather moves."""

    @nki.jit
    def kernel(a, table):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        chosen = nl.load(table)
        for _ in nl.dynamic_range(0, rounds, 1):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.0)
            nisa.dma_copy(dst=tile, src=a.ap([[8, 4], [1, 8]], 0, None, chosen, indirect_dim=0))
        nl.store(out, tile)
        return out

    return kernel


@pytest.mark.parametrize(
    ("mode", "backend", "rounds"),
    [
        ("device", "native", 20_000),
        ("reference", "native", 20_000),
        ("device", "numpy", 2_000),
        ("eager", "native", 1_500),
    ],
)
def test_memory_does_not_grow_with_iterations(monkeypatch, mode, backend, rounds):
    """Ten times the rounds, and the same peak of Python's own memory but for 8 KiB; each round has
    an event, so that a trace that is kept takes 14 KiB more or 144."""
    monkeypatch.setenv("NKI_BACKEND", backend)
    monkeypatch.setattr("simulator.streams.LOOK_EVERY", 256)
    table = np.arange(4, dtype=np.int32).reshape(4, 1)
    peaks = []
    for times in (rounds // 10, rounds):
        run = nki.simulate(looped(times), mode=mode)
        np.testing.assert_array_equal(run(A, table), A)
        tracemalloc.start()
        try:
            run(A, table)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + (8 << 10)


@pytest.mark.parametrize("alike", [False, True])
def test_two_eager_cores_keep_no_numbers_of_what_they_compute(alike):
    """Each iteration makes a value that was not there before, and writes it; the cores do not meet
    meanwhile. They write halves, or all of the result both."""

    def kernel(a, rounds):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        half, tile = nl.ds(2 * nl.program_id(0), 2), nl.load(a)
        half = nl.ds(0, 4) if alike else half

        def body(_):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.0)
            nl.store(out[half, :], tile[half, :])

        nl.fori_loop(0, rounds, body)
        return out

    peaks = []
    run = nki.simulate(nki.jit(kernel, target="trn2")[2], mode="eager")
    for rounds in (100, 100, 1000):
        tracemalloc.start()
        try:
            run(A, rounds)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[2] < peaks[1] + (16 << 10), peaks


@pytest.mark.parametrize("cores", [1, 2])
def test_eager_mode_keeps_nothing_of_iterations(cores):
    """Objects of this project that are alive after 40 iterations and after 10: tiles with addresses
    in SBUF, sums in PSUM, accesses to shared HBM between meetings."""
    alive = []

    @nki.jit(platform_target="trn2")
    def kernel(a, rounds):
        core = nl.program_id(0)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        half = slice(2 * core, 2 * core + 4 // nl.num_programs())
        for number in range(rounds):
            tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf, address=(0, 64))
            other = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf, address=(0, 64))
            nisa.dma_copy(dst=tile, src=a)
            nisa.dma_copy(dst=other, src=a)
            total = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=total, stationary=other, moving=other)
            nisa.memset(dst=other, value=float(number))
            nisa.dma_copy(dst=out[half], src=other[half])
            if nl.num_programs() > 1:
                nisa.core_barrier(out, (0, 1))
            if number in (9, rounds - 1):
                del tile, other, total
                gc.collect()
                modules = [str(type(found).__module__) for found in gc.get_objects()]
                alive.append(sum(m.startswith(("nki.", "simulator.")) for m in modules))
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.freeze()  # what is there already is not looked at
        try:
            nki.simulate(kernel[cores], mode="eager")(A, 40)
        finally:
            gc.unfreeze()
    assert len(alive) == 2 * cores and max(alive[cores:]) < max(alive[:cores]) + 20


def test_a_trace_that_timing_needs_is_whole():
    """Where the trace is kept, it has an event for every loop that began and every gather."""
    compiled = nki.compile(
        looped(3000), nki.TensorSpec(A.shape, nl.float32), nki.TensorSpec((4, 1), nl.int32)
    )
    table = np.arange(4, dtype=np.int32).reshape(4, 1)
    inputs = [A, table]
    program = compiled.program_for(inputs)
    for native in (True, False):
        trace = execute.run(program, inputs, native=native).trace
        counts = [value for events in trace.cores[0].values() for value in events]
        assert sorted(counts) == [4] * 3000 + [3000] * 2  # rows moved, and trips of two engines
    assert execute.LoadedProgram(program).run(inputs, traced=False).trace is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("NKI_LOOP_LIMIT", "0"), ("NKI_LOOP_LIMIT", "many"), ("NKI_RUN_SECONDS", "-1")),
        *(("NKI_MEMORY_LIMIT", "0"), ("NKI_MEMORY_LIMIT", "8T")),
        ("NKI_SIMULATED_SECONDS", "soon"),
    ],
)
def test_limits_are_numbers(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(nki.NeuronError, match=f"{name} is '{value}'"):
        nki.simulate(counted)(A)


@nki.jit
def one_core_goes_on(a):
    """Core 1 waits for core 0, which does not end."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    core, one, going = nl.program_id(0), nl.ndarray((1, 1), nl.int32, nl.sbuf), None
    tile = nl.load(a[nl.ds(core * 2, 2), :])
    nisa.memset(dst=one, value=1)

    def body(going):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.0)
        nisa.register_load(going, one)
        return going

    if core == 1:
        nisa.core_barrier(out, (0, 1))
        nl.store(out[nl.ds(core * 2, 2), :], tile)
        return out
    going = nisa.register_alloc(1)
    nl.while_loop(going, body)
    nisa.core_barrier(out, (0, 1))
    nl.store(out[nl.ds(core * 2, 2), :], tile)
    return out


@MODES
def test_the_text_of_a_run_that_was_ended_says_who_stands_where(monkeypatch, mode):
    monkeypatch.setenv("NKI_LOOP_LIMIT", "2000")
    with pytest.raises(nki.NeuronError) as caught:
        nki.simulate(one_core_goes_on[2], mode=mode)(A)
    text = str(caught.value)
    assert caught.value.code == "loop-limit" and "nl.while_loop" in caught.value.location.text
    assert "= 1" in text and "\n  core 0" in text and "\n  core 1" in text, text
