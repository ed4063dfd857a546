"""The threads that share the calls of programs: one team for each number of threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from simulator.native.threads.other_processes import busy
from simulator.native.threads.team import Team


class _Place:
    """A team, which one run at a time has."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.team: Team | None = None


@cache
def _place(threads: int, process: int) -> _Place:
    """That of a process: a fork has none of the threads of its parent."""
    return _Place()


@contextmanager
def taken(threads: int) -> Iterator[int]:
    """The address of the `TEAM` that helps with a run; 0 where this thread is to be alone: other
    programs keep the machine busy, or another run has the team."""
    place = _place(threads, os.getpid())
    if busy(threads) or not place.lock.acquire(blocking=False):
        yield 0
        return
    try:
        team = place.team = place.team or Team(threads)
        try:
            team.start()
            yield team.address
            team.stop()
        except BaseException:
            place.team = None
            team.end()
            raise
    finally:
        place.lock.release()
