"""Whether threads are worth while: by the CPU time that other processes use, held for a while."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from simulator.native.threads import other_processes
from simulator.native.threads.other_processes import (
    HOLD,
    SHORTEST,
    STALE,
    OtherProcesses,
    Sample,
    cpu_seconds,
    leaves_too_few,
)

STAT = """cpu  3000 20 500 90000 400 0 30 70 0 0
cpu0 1000 20 200 40000 100 0 30 50 0 0
cpu1 2000 0 300 50000 300 0 0 20 600 0
intr 1 2 3
"""


def test_cpu_time_is_what_is_not_idle() -> None:
    """Guests are within user time; CPUs that the process may not use are left out."""
    assert cpu_seconds(STAT, frozenset({0, 1}), 100) == (1300 + 2320) / 100
    assert cpu_seconds(STAT, frozenset({1}), 100) == 23.2
    assert cpu_seconds(STAT, frozenset({7}), 100) == cpu_seconds("", frozenset({0}), 100) == 0


class Machine:
    """CPUs on which this process and others use so much at a time; `clock` goes on by hand."""

    def __init__(self) -> None:
        self.now = self.everyone = self.own = 0.0
        self.reads = 0

    def passes(self, seconds: float, own: float, others: float) -> None:
        self.now += seconds
        self.own += seconds * own
        self.everyone += seconds * (own + others)

    def read(self) -> Sample:
        self.reads += 1
        return Sample(self.now, self.everyone, self.own)


def test_own_threads_do_not_count() -> None:
    machine = Machine()
    others = OtherProcesses(machine.read)
    for own, used in ((2.0, 0.0), (0.0, 0.0), (8.0, 0.25), (1.0, 1.0), (0.0, 2.0), (2.0, 0.0)):
        machine.passes(HOLD, own, used)
        assert others.used(machine.now) == pytest.approx(used)


def test_a_decision_holds_for_a_while() -> None:
    machine = Machine()
    others = OtherProcesses(machine.read)
    assert others.used(machine.now) == 0 and machine.reads == 1
    machine.passes(SHORTEST, 1, 1)
    assert others.used(machine.now) == pytest.approx(1)
    for _ in range(9):
        machine.passes(HOLD / 10, 1, 0)
        assert others.used(machine.now) == pytest.approx(1)
    assert machine.reads == 2
    machine.passes(HOLD / 10, 1, 0)
    assert others.used(machine.now) == pytest.approx(0)


def test_what_was_measured_long_ago_holds_for_less() -> None:
    machine = Machine()
    others = OtherProcesses(machine.read)
    machine.passes(100 * STALE, 0, 2)
    assert others.used(machine.now) == pytest.approx(2)
    machine.passes(SHORTEST, 1, 0)
    assert others.used(machine.now) == pytest.approx(0)


def test_a_system_that_does_not_say_leaves_all_cpus() -> None:
    assert OtherProcesses(lambda: None).used(1e9) == 0
    samples: Iterator[Sample | None] = itertools.chain([Sample(0, 0, 0)], itertools.repeat(None))
    assert OtherProcesses(lambda: next(samples)).used(1e9) == 0


@pytest.mark.parametrize(
    ("used", "cpus", "threads", "expected"),
    [(0, 2, 2, False), (0.4, 2, 2, False), (1, 2, 2, True), (1, 4, 2, False), (3, 4, 2, True)],
)
def test_threads_need_cpus_that_others_leave(
    used: float, cpus: int, threads: int, expected: bool
) -> None:
    assert leaves_too_few(used, cpus, threads) is expected


def test_the_decision_is_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_processes.os, "sched_getaffinity", lambda process: {0, 1})
    for used in (0.0, 2.0):
        monkeypatch.setattr(other_processes, "others_use", lambda used=used: used)
        assert other_processes.busy(2) is (used > 1)
