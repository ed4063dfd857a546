"""Threads share large jobs: the same results for any number of them."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError
from nki import settings
from simulator.execute import LoadedProgram
from simulator.native.codegen.library import library
from simulator.native.loop import program as native_program
from simulator.native.threads import team

Array = np.ndarray[Any, Any]

needs_native = pytest.mark.skipif(library() is None, reason="there is no native code here")


@nki.jit
def softmax_of_product(a, b):
    """softmax(a.T @ b) by rows, and the largest of each row."""
    rows, columns = a.shape[1], b.shape[1]
    out = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    largest = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    product = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=left, moving=right)
    low = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=low, op=nl.maximum, data=product, axis=1, negate=True)
    powers = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.sbuf)
    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(
        dst=powers, op=nl.exp, data=product, reduce_op=nl.add, reduce_res=total, bias=low
    )
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=powers, data=powers, op0=nl.multiply, operand0=total)
    nisa.dma_copy(dst=out, src=powers)
    nisa.dma_copy(dst=largest, src=low)
    return out, largest


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_results_do_not_depend_on_threads(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    inputs = [rng.uniform(-1, 1, shape).astype(dtype) for shape in ((96, 127), (96, 509))]
    compiled = nki.compile(softmax_of_product, *inputs, target="trn2")
    program = compiled.program_for(inputs)
    # All of them take part, however busy the machine is, and in small jobs too.
    monkeypatch.setattr(native_program, "busy", lambda threads: False)
    monkeypatch.setattr(team, "LEAST_WORK", 64)
    found = []
    for threads in (1, 2, 4):
        loaded = LoadedProgram(program, threads=threads)
        for _ in range(3):
            found.append([out.tobytes() for out in loaded.run(inputs).outputs])
    assert all(outputs == found[0] for outputs in found)
    numpy = LoadedProgram(program, native=False).run(inputs).outputs
    assert np.isclose(numpy[0].astype(np.float32).sum(), 127, rtol=1e-2)


@needs_native
def test_a_busy_machine_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)]
    program = nki.compile(softmax_of_product, *inputs, target="trn2").program_for(inputs)
    monkeypatch.setattr(native_program, "busy", lambda threads: True)
    monkeypatch.setattr(native_program, "Team", None)
    (out, largest) = LoadedProgram(program, threads=4).run(inputs).outputs
    assert (out == np.float32(1 / 512)).all() and (largest == -128).all()


@needs_native
@pytest.mark.parametrize("begun", (0, 1, 3))
@pytest.mark.parametrize("step", ("start", "stop"))
def test_an_interrupt_between_threads(
    step: str, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it comes, the threads end, and the next run has others."""
    monkeypatch.setattr(native_program, "busy", lambda threads: False)
    inputs = [np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)]
    program = nki.compile(softmax_of_product, *inputs, target="trn2").program_for(inputs)
    others = set(threading.enumerate())
    loaded = LoadedProgram(program, threads=4)
    expected = loaded.run(inputs).outputs[0].tobytes()
    helpers = set(threading.enumerate()) - others
    assert len(helpers) == 3
    calls: list[str] = []

    def interrupted(semaphore: Any, done: Any) -> Any:
        def call() -> None:
            if len(calls) == begun:
                calls.append("interrupt")
                raise KeyboardInterrupt
            calls.append(step)
            done()

        return call

    assert loaded._compiled is not None and loaded._compiled._team is not None
    working = loaded._compiled._team
    if step == "start":
        for semaphore in working._starts:
            monkeypatch.setattr(semaphore, "release", interrupted(semaphore, semaphore.release))
    else:
        ended = working._ended
        monkeypatch.setattr(ended, "acquire", interrupted(ended, ended.acquire))
    if begun == 3:
        assert loaded.run(inputs).outputs[0].tobytes() == expected
    with pytest.raises(KeyboardInterrupt):
        loaded.run(inputs)
    for thread in helpers:
        thread.join(60)
        assert not thread.is_alive()
    assert loaded.run(inputs).outputs[0].tobytes() == expected


@needs_native
def test_parts_cover_the_whole_once() -> None:
    from simulator.native.plans.plan import Division, Job, words_type

    words = words_type(3)(1000, 10_000, 77)
    job = Job(lambda words: None, words, divisions=(Division(2, ((0, 4), (1, 2)), 8),), work=10**6)
    for threads in (2, 3, 4):
        found = [list(part) for part in team.parts(job, threads)]
        assert len(found) == threads and sum(count for _, _, count in found) == 77
        begins = [(first - 1000) // 4 for first, _, _ in found]
        assert begins == [(second - 10_000) // 2 for _, second, _ in found]
        counts = [count for _, _, count in found]
        assert begins == [sum(counts[:part]) for part in range(threads)]
        assert all(begin % 8 == 0 for begin in begins)
    assert team.parts(job._replace(work=10), 2) == [words]


@needs_native
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of its parent are not there: waiting for them would never end."""
    monkeypatch.setattr(native_program, "busy", lambda threads: False)
    inputs = [np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)]
    program = nki.compile(softmax_of_product, *inputs, target="trn2").program_for(inputs)
    loaded = LoadedProgram(program, threads=2)
    expected = loaded.run(inputs).outputs[0].tobytes()
    child = os.fork()
    if not child:
        os._exit(loaded.run(inputs).outputs[0].tobytes() != expected)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)


@needs_native
def test_a_team_owns_its_memory_to_its_end() -> None:
    """It writes there when it is given back, which may be after its threads have ended."""
    own = team.Team(3)
    before = weakref.ref(own._room)
    own.end()
    for helper in own._helpers:
        helper.join(60)
        assert not helper.is_alive()
    gc.collect()
    room = before()
    assert room is not None
    begin = ctypes.addressof(room)
    assert begin <= own.address < begin + ctypes.sizeof(room)


_USED_AT_EXIT = """
import atexit, threading
atexit.register(lambda: print("threads", threading.active_count()))  # called last
from simulator.native.threads.team import Team
team = Team(3)
team.start()
team.stop()
print("threads", threading.active_count())
"""


@needs_native
def test_threads_end_before_python_does() -> None:
    """One that wakes while Python gives back memory and code may end the process with a signal."""
    done = subprocess.run([sys.executable, "-c", _USED_AT_EXIT], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split("\n")[:2]) == (0, ["threads 3", "threads 1"]), done


def test_the_number_of_threads_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for cpus, given, threads in (
        (8, "3", 3),
        (8, None, 4),
        (8, "", 4),
        (2, None, 2),
        (2, "64", 2),
        (1, "2", 1),
    ):
        available = set(range(cpus))
        monkeypatch.setattr(os, "sched_getaffinity", {0: available}.get, raising=False)
        monkeypatch.delenv("NKI_NUM_THREADS", raising=False)
        if given is not None:
            monkeypatch.setenv("NKI_NUM_THREADS", given)
        assert settings.threads_wanted() == threads
    for wrong in ("0", "65", "two", "-1", "²", "1.5"):
        monkeypatch.setenv("NKI_NUM_THREADS", wrong)
        with pytest.raises(NeuronError) as caught:
            settings.threads_wanted()
        assert caught.value.code == "value-not-allowed" and repr(wrong) in caught.value.what
