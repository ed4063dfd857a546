"""The stage of a long command, on one line of a terminal, from its second second on.

Code that takes time says what it begins: `stage("schedule (8 of 10)")`. A command line opens
`shown()`. If both standard output and standard error are a terminal, the line then names a stage
until the next one. It is gone when the command prints its results, fails or is interrupted.
Elsewhere `stage` does nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

DELAY = 1.0
"""Seconds before a command shows its progress."""

_PER_SECOND = 5
"""How often the line is drawn: rarely, as drawing takes time from what it shows."""


class Display:
    """The line of one command. It begins `DELAY` seconds after the first stage."""

    def __init__(self) -> None:
        self._stage = self._part = ""
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._live: Live | None = None
        self._ended = False

    def show(self, stage: str) -> None:
        """A stage begins."""
        self._stage = stage
        if self._timer is None and not self._ended:
            self._timer = threading.Timer(DELAY, self._begin)
            self._timer.daemon = True
            self._timer.start()

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        """Stages inside are shown behind the name of what they belong to, which goes with them."""
        before = self._part, self._stage
        self._part, self._stage = part, ""
        try:
            yield
        finally:
            self._part, self._stage = before

    def close(self) -> None:
        """Take the line away, for good."""
        with self._lock:
            self._ended = True
            if self._timer is not None:
                self._timer.cancel()
            if self._live is not None:
                self._live.stop()
                self._live = None

    def _begin(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            if self._ended:
                return
            self._live = Live(
                console=Console(stderr=True),
                get_renderable=self._line,
                refresh_per_second=_PER_SECOND,
                transient=True,
            )
            self._live.start(refresh=True)

    def _line(self) -> Text:
        """One line, cut where the terminal ends."""
        from rich.text import Text

        seconds = time.monotonic() - self._start
        words = ": ".join(filter(None, (self._part, self._stage)))
        styled = ((f"{seconds:4.0f} s", "cyan"), "  ", words)
        return Text.assemble(*styled, no_wrap=True, overflow="ellipsis")


_DISPLAY: ContextVar[Display | None] = ContextVar("progress_display", default=None)


def stage(name: str) -> None:
    """Say what begins now."""
    display = _DISPLAY.get()
    if display is not None:
        display.show(name)


@contextmanager
def part(name: str) -> Iterator[None]:
    """Stages inside belong to something larger, which the line names first."""
    display = _DISPLAY.get()
    if display is None:
        yield
    else:
        with display.within(name):
            yield


def close() -> None:
    """Take the line away: what comes now is what the user waited for, or the user's own turn."""
    display = _DISPLAY.get()
    if display is not None:
        display.close()


@contextmanager
def shown() -> Iterator[None]:
    """Show the stages inside, on a terminal."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield
        return
    display = Display()
    token = _DISPLAY.set(display)
    try:
        yield
    finally:
        display.close()
        _DISPLAY.reset(token)
