"""Cores of an eager run: threads of which one at a time runs, up to a barrier."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context

from isa.errors import STANDING, NeuronError
from nki.ir import locations
from nki.ir.nodes import Op
from simulator.exchange import absent_cores
from simulator.prepare import Barriers

Arrival = tuple[Op, int]
"""Where a core waits for others: an operation, and how often the core has come to its meeting."""


class _Stopped(BaseException):
    """Unwinds a core that another core's failure leaves waiting."""


class CoreThread(Iterator[Arrival]):
    """A core in a thread of its own that runs only while `next` waits for it.

    Each `next` runs the core up to its next barrier, and gives that barrier.
    """

    def __init__(self, run: Callable[[Callable[[Arrival], None]], None], core: int) -> None:
        self._run = run
        self._go = threading.Semaphore(0)
        self._arrived = threading.Semaphore(0)
        self._barrier: Arrival | None = None
        self._error: BaseException | None = None
        self._stopping = False
        context = copy_context()
        self._thread = threading.Thread(
            target=lambda: context.run(self._main), name=f"core {core}", daemon=True
        )

    def __next__(self) -> Arrival:
        if self._thread.ident is None:
            self._thread.start()
        self._barrier = None
        self._go.release()
        self._arrived.acquire()
        if self._error is not None:
            raise self._error
        if self._barrier is None:
            raise StopIteration
        return self._barrier

    def stop(self) -> None:
        """End the thread, wherever it is."""
        if self._thread.is_alive():
            self._stopping = True
            self._go.release()
            self._thread.join()

    def _main(self) -> None:
        self._go.acquire()
        try:
            if not self._stopping:
                self._run(self._wait)
        except _Stopped:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._arrived.release()

    def _wait(self, arrival: Arrival) -> None:
        """At a barrier: hand over, and go on when it is this core's turn again."""
        self._barrier = arrival
        self._arrived.release()
        self._go.acquire()
        if self._stopping:
            raise _Stopped


def step_cores(cores: Sequence[Iterator[Arrival]], barriers: Barriers) -> None:
    """Run cores one after the other, each until it ends or has to wait for others.

    Raises NeuronError deadlock when all that have not ended wait.
    """
    waiting: dict[int, Arrival] = {}
    running = list(range(len(cores)))
    while running:
        moved = False
        for core in list(running):
            if core in waiting:
                op, sequence = waiting[core]
                if not barriers.passed(op.row.meeting(op.values, core), sequence):
                    continue
                del waiting[core]
            moved = True
            try:
                reached = next(cores[core], None)
            except NeuronError as error:
                if error.code in STANDING:
                    error.notes += _standing(core, len(cores), running, waiting)
                raise
            if reached is None:
                running.remove(core)
            else:
                waiting[core] = reached
        if not moved:
            core, (op, _) = next(iter(waiting.items()))
            raise deadlock(core, op)


def _standing(
    core: int, cores: int, running: Sequence[int], waiting: Mapping[int, Arrival]
) -> tuple[str, ...]:
    """Where the other cores of a core are whose run was ended."""
    lines = []
    for other in range(cores):
        if other in waiting:
            op, _ = waiting[other]
            place = locations.resolve(op.location)
            line = "" if place is None else f", {place.file}:{place.line}"
            lines.append(f"core {other}: {op.row.name} waits for the other cores{line}")
        elif other != core:
            turn = f"begins when core {core} waits or ends" if other in running else "has ended"
            lines.append(f"core {other}: {turn}")
    return tuple(lines)


def deadlock(core: int, op: Op) -> NeuronError:
    """The error of a core that waits for others which never come."""
    meeting, place = op.row.meeting(op.values, core), locations.resolve(op.location)
    return absent_cores(op.row.name, meeting, core, place)
