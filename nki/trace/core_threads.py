"""Cores of an eager run: threads of which one at a time runs, up to a barrier."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context

from nki.reference import Arrival


class _Stopped(BaseException):
    """Unwinds a core that another core's failure leaves waiting."""


class CoreThread(Iterator[Arrival]):
    """A core in a thread of its own that runs only while `next` waits for it.

    Gives the barriers that the core reaches; it goes on behind one at the `next` after it.
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
