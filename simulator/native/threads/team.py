"""Threads that share the parts of a job.

A job whose argument words name a range of rows or columns can be done in parts, each a range of its
own: what a part computes does not depend on the others, so that the results are the same for any
number of threads. The threads sleep between runs; during a run they wait for parts as
`simulator.native.threads.workers.Worker` does.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from typing import Any

from simulator.memory import LINE
from simulator.native.codegen.library import Function
from simulator.native.codegen.text import WORD
from simulator.native.plans.plan import Job
from simulator.native.plans.table import compiled
from simulator.native.threads.workers import MEMBER, MEMBER_BYTES, SPINS, TEAM, Worker

LEAST_WORK = 1 << 15
"""Elements below which a job is not worth the few hundred nanoseconds of sharing it."""


def parts(job: Job, threads: int) -> list[Any]:
    """The argument words of a job's parts, one for each thread; its own where it stays whole."""
    if threads < 2 or job.work < LEAST_WORK:
        return [job.words]
    for division in job.divisions:
        count = job.words[division.length]
        units = count // division.multiple
        if units < threads:
            continue
        bounds = [units * part // threads * division.multiple for part in range(threads)]
        found = []
        for first, last in zip(bounds, [*bounds[1:], count]):
            words = type(job.words).from_buffer_copy(job.words)
            words[division.length] = last - first
            for index, step in division.steps:
                words[index] += first * step
            found.append(words)
        return found
    return [job.words]


class Team:
    """`threads - 1` threads that help the one which runs a program. `address` is that of their
    `TEAM` structure, `process` the process that they belong to: a fork of it has none of them."""

    def __init__(self, threads: int) -> None:
        self.process = os.getpid()
        count = threads - 1
        room = (ctypes.c_int64 * (len(TEAM.names) + count * MEMBER_BYTES // WORD + LINE))()
        self._room = room  # the team writes there when it goes, after its threads have gone
        # Structures begin with a line of cache.
        self.address = -(-ctypes.addressof(room) // LINE) * LINE
        self._words = (ctypes.c_int64 * len(TEAM.names)).from_address(self.address)
        give_way = ctypes.CDLL(None).sched_yield
        team = TEAM.words(
            members_count=count,
            spins=SPINS,
            **{"yield": ctypes.cast(give_way, ctypes.c_void_p).value or 0},
        )
        self._words[:] = list[ctypes.c_int64 | int](team)
        self._starts = [threading.Semaphore(0) for _ in range(count)]
        self._ended = threading.Semaphore(0)
        self._order = threading.Lock()
        self._helpers: list[threading.Thread] = []
        worker = compiled(Worker())
        for number, start in enumerate(self._starts):
            place = self.address + TEAM.size + number * MEMBER_BYTES
            member = (ctypes.c_int64 * len(MEMBER.names)).from_address(place)
            words = MEMBER.words(team=self.address, number=number + 1)
            member[:] = list[ctypes.c_int64 | int](words)
            arguments = worker, member, start, self._ended, room
            helper = threading.Thread(target=_work, args=arguments, daemon=True)
            helper.start()
            self._helpers.append(helper)
        _TEAMS.add(self)

    def start(self) -> None:
        """Wake the threads: a run begins."""
        self._words[TEAM.indices["quit"]] = 0
        for start in self._starts:
            start.release()

    def stop(self) -> None:
        """The run has ended: the threads sleep."""
        self._words[TEAM.indices["quit"]] = 1
        # A lock orders what is written before and behind it, for the threads that look.
        with self._order:
            self._words[TEAM.indices["sequence"]] += 1
        for _ in self._starts:
            self._ended.acquire()

    def end(self) -> None:
        """The threads end, wherever an interrupt of `start` or `stop` has left them."""
        self._words[TEAM.indices["quit"]] = 2
        with self._order:
            self._words[TEAM.indices["sequence"]] += 1
        self.__del__()

    def __del__(self) -> None:
        self._words[TEAM.indices["quit"]] = 2
        for start in self._starts:
            start.release()


_TEAMS: weakref.WeakSet[Team] = weakref.WeakSet()

_LAST_SECONDS = 5
"""How long the end of the process waits for a thread."""


@atexit.register
def _end_threads() -> None:
    """Threads end before Python does: one that wakes while memory and code are given back would run
    into nothing."""
    for team in list(_TEAMS):
        if team.process == os.getpid():
            team.end()
            for helper in team._helpers:
                helper.join(_LAST_SECONDS)


def _work(
    worker: Function, member: Any, start: threading.Semaphore, ended: threading.Semaphore, room: Any
) -> None:
    """Until the team is gone: sleep, then take part in a run. `room` is the team's memory."""
    team = (ctypes.c_int64 * len(TEAM.names)).from_address(member[MEMBER.indices["team"]])
    while True:
        start.acquire()
        if team[TEAM.indices["quit"]] == 2:
            return
        worker(member)
        member[MEMBER.indices["seen"]] = team[TEAM.indices["sequence"]]
        ended.release()
