"""What `neuronx-cc` says: a log file, messages by level, and the time of each stage."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Self

from isa.errors import NeuronError
from nki import progress

_FORM = logging.Formatter("%(asctime)s %(levelname)s: %(message)s")


class _Shown(logging.Handler):
    """Prints messages on a stream of `sys` as it is then: a progress line puts its own there."""

    def __init__(self, stream: str) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=getattr(sys, self._stream))


class Journal:
    """The messages of one run. `level`: the least one that is shown; `file_level`: that is kept.

    Messages of levels debug and info go to the standard output, others to standard error. Use as a
    context: the file is closed, and the progress line removed, at its end.
    """

    def __init__(self, path: str, level: str, file_level: str | None = None) -> None:
        self._logger = logging.Logger("neuronx-cc", logging.DEBUG)
        shown = logging.getLevelNamesMapping()[level.upper()]
        kept = file_level or ("debug" if shown <= logging.DEBUG else "info")
        try:
            file = logging.FileHandler(path, mode="w", encoding="utf-8")
        except OSError as error:
            raise NeuronError("not-writable", f"{path}: {error.strerror}") from None
        file.setFormatter(_FORM)
        file.setLevel(kept.upper())
        self._logger.addHandler(file)
        out, err = _Shown("stdout"), _Shown("stderr")
        out.addFilter(lambda record: record.levelno < logging.WARNING)
        out.setLevel(shown)
        err.setLevel(max(shown, logging.WARNING))
        for handler in (out, err):
            self._logger.addHandler(handler)
        self._display = progress.shown()
        self._before = time.perf_counter()

    def debug(self, message: str) -> None:
        self._logger.debug(message)

    def info(self, message: str) -> None:
        self._logger.info(message)

    def warning(self, message: str) -> None:
        self._logger.warning(message)

    def error(self, message: str) -> None:
        progress.close()
        self._logger.error(message)

    def critical(self, message: str) -> None:
        progress.close()
        self._logger.critical(message)

    def begun(self, stage: str) -> None:
        """A stage begins: it is what the progress line shows."""
        self._before = time.perf_counter()
        progress.stage(stage)

    def ended(self, stage: str, following: str = "") -> None:
        """A stage ended, in the time since the last one did; another one follows."""
        self.info(f"{stage}: {time.perf_counter() - self._before:.3f} s")
        self.begun(following)

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._display.__exit__(kind, error, at)
        for handler in list(self._logger.handlers):
            handler.close()
