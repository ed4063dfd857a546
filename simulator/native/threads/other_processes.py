"""Load of the machine by other processes: whether threads of this one would find free CPUs.

What counts is CPU time that was spent (Linux: /proc/stat, https://docs.kernel.org/filesystems/
proc.html, section 1.7), less what this process itself spent: its own threads, at work or parked by
a library that has just used them, take no part. A decision holds for a while: CPU time is counted
in ticks of 10 ms, and what runs many times in a row is to run in one way. Threads change no result,
so neither does the decision.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

HOLD = 0.5
"""Seconds for which a decision holds."""

SHORTEST = 0.1
"""Seconds of the shortest stretch that is measured: ten ticks of each CPU. A decision that rests on
a stretch of more than `STALE`, or on none, holds no longer than this."""

STALE = 2.0
"""Seconds beyond which what others used on average says little of now."""

SLACK = 0.5
"""CPUs that others may use beside the threads: an editor, a browser, a monitor."""

_IDLE = frozenset({3, 4, 8, 9})
"""Columns of /proc/stat that are no work: idle, iowait, and guests, which user time holds too."""


class Sample(NamedTuple):
    """Seconds: of the clock, of CPU time of all processes and of this one."""

    clock: float
    everyone: float
    own: float


def cpu_seconds(text: str, cpus: frozenset[int], ticks: int) -> float:
    """The CPU time that was spent on some CPUs since the start, by the text of /proc/stat.

    >>> cpu_seconds("cpu  9 9 9 9\\ncpu0 100 0 50 999 7 0 10\\ncpu1 1 1 1 1", frozenset({0}), 100)
    1.6
    """
    total = 0
    for line in text.splitlines():
        name, *columns = line.split() or [""]
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cpus:
            total += sum(int(n) for at, n in enumerate(columns) if at not in _IDLE)
    return total / ticks


def sample() -> Sample | None:
    """What was spent up to now on the CPUs of this process; None where the system does not say."""
    try:
        cpus = frozenset(os.sched_getaffinity(0))
        spent = cpu_seconds(Path("/proc/stat").read_text(), cpus, os.sysconf("SC_CLK_TCK"))
    except (AttributeError, OSError, ValueError):
        return None
    return Sample(time.monotonic(), spent, time.process_time())


class OtherProcesses:
    """The CPUs that other processes use, by samples that are taken when somebody asks."""

    def __init__(self, read: Callable[[], Sample | None] = sample) -> None:
        self._read = read
        self._last = read()
        self._until = 0.0 if self._last is None else self._last.clock + SHORTEST
        self._used = 0.0
        self._order = threading.Lock()

    def used(self, now: float) -> float:
        """CPUs that others used in the last stretch of time; 0 where that is not known yet."""
        if now < self._until or not self._order.acquire(blocking=False):
            return self._used
        try:
            last, this = self._last, self._read()
            if last is None or this is None or this.clock <= last.clock:
                return self._used
            stretch = this.clock - last.clock
            spent = (this.everyone - last.everyone) - (this.own - last.own)
            self._used = max(0.0, spent / stretch)
            self._last = this
            self._until = this.clock + (HOLD if stretch <= STALE else SHORTEST)
            return self._used
        finally:
            self._order.release()


@cache
def _watch(process: int) -> OtherProcesses:
    """That of a process: a fork has spent nothing yet."""
    return OtherProcesses()


def others_use() -> float:
    """CPUs that other processes use now, as far as the system tells."""
    return _watch(os.getpid()).used(time.monotonic())


def leaves_too_few(used: float, cpus: int, threads: int) -> bool:
    """Whether others who use so many of the CPUs leave too few for this many threads.

    >>> leaves_too_few(0.3, 2, 2), leaves_too_few(0.9, 2, 2), leaves_too_few(0.9, 4, 2)
    (False, True, False)
    """
    return used > cpus - threads + SLACK


def busy(threads: int) -> bool:
    """Whether other processes leave too few CPUs for this many threads just now."""
    affinity = getattr(os, "sched_getaffinity", None)
    return affinity is not None and leaves_too_few(others_use(), len(affinity(0)), threads)
