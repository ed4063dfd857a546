"""Many measurements at once, in processes that a caller gives or that are started here."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

from isa.errors import NeuronError
from nki.kernel import Kernel
from nki.tuning import stored_times
from nki.tuning.measure import Measurement, measure

Call = tuple[Kernel, tuple[Any, ...], dict[str, Any]]
"""A kernel with the arguments that all settings have in common."""

_CALL: list[Call] = []
"""In a process started here: what it measures. It comes with the process, so that kernels need no
name by which another process could find them."""


def measure_all(
    call: Call, settings: Sequence[dict[str, Any]], executor: Executor | None, processes: int | None
) -> list[Measurement]:
    """A measurement for each setting, in their order; those that were kept are not made again.

    A setting that cannot be compiled has the error. Other exceptions are raised.
    """
    keys = [_key(call, setting) for setting in settings]
    found = {
        number: Measurement(**values, setting=settings[number])
        for number, key in enumerate(keys)
        if (values := stored_times.read(key)) is not None
    }
    left = [number for number in range(len(settings)) if number not in found]
    workers = min(processes or os.cpu_count() or 1, len(left))
    with _progress(len(left)) as advance:
        for number, one in _measured(call, settings, left, executor, workers):
            found[number] = one
            values = one.to_dict()
            for name in ("setting", "device_ns", "is_simulation"):
                del values[name]
            stored_times.write(keys[number], values)
            advance()
    return [found[number] for number in range(len(settings))]


def _measured(
    call: Call,
    settings: Sequence[dict[str, Any]],
    left: Sequence[int],
    executor: Executor | None,
    workers: int,
) -> Iterator[tuple[int, Measurement]]:
    """Numbers of settings and their measurements, as they come."""
    if executor is not None:
        given = {executor.submit(_one, call, settings[number]): number for number in left}
        yield from _completed(given)
    elif workers > 1 and "fork" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(workers, context, _start, (call,)) as pool:
            yield from _completed({pool.submit(_held, settings[n]): n for n in left})
    else:
        for number in left:
            yield number, _one(call, settings[number])


def _completed(given: dict[Future[Measurement], int]) -> Iterator[tuple[int, Measurement]]:
    try:
        for future in as_completed(given):
            yield given[future], future.result()
    finally:
        for future in given:
            future.cancel()


def _start(call: Call) -> None:
    _CALL[:] = [call]


def _held(setting: dict[str, Any]) -> Measurement:
    return _one(_CALL[0], setting)


def _one(call: Call, setting: dict[str, Any]) -> Measurement:
    kernel, args, kwargs = call
    try:
        return measure(kernel, kernel.bound(args, {**kwargs, **setting}), setting)
    except (NeuronError, AssertionError) as error:
        from nki import settings

        text = str(error).partition("\n")[0]
        target = settings.target(kernel.target).name
        return Measurement(kernel.function.__name__, target, setting, error=text or "assertion")


def _key(call: Call, setting: dict[str, Any]) -> Any:
    kernel, args, kwargs = call
    return stored_times.content(kernel, kernel.bound(args, {**kwargs, **setting}), "time")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """A bar on stderr where that is a terminal, nothing elsewhere."""
    if not total or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("settings", total=total)
        yield lambda: progress.advance(task)
