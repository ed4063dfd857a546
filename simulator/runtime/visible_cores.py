"""Settings of the runtime: which cores a process sees, by NEURON_RT_VISIBLE_CORES and
NEURON_RT_NUM_CORES, and how long ranks wait for each other.

SDK neuron-runtime/nrt-configurable-parameters.rst: a core, a range ("0-2") or a list of them
("3-5,6"), ascending without gaps, numbered from 0 within the process; it comes before the number of
cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from isa.target import TARGETS
from simulator.runtime.status import NrtError, Status
from simulator.watchdog import LIMITS

VARIABLE = "NEURON_RT_VISIBLE_CORES"
_COUNT = "NEURON_RT_NUM_CORES"


def visible_cores() -> list[int]:
    """NEURON_RT_VISIBLE_CORES: the cores that `simulator.runtime.nrtpy` sees, as in 0-2,3, else
    the first NEURON_RT_NUM_CORES; without either those of the largest device.

    Raises NrtError.

    >>> parsed("3-5,6")
    [3, 4, 5, 6]
    """
    text = os.environ.get(VARIABLE, "").strip()
    if text:
        return parsed(text)
    every = max(target.cores_per_device.value for target in TARGETS.values())
    count = os.environ.get(_COUNT, "").strip()
    if count and not count.isdecimal():
        raise _refused(f"{_COUNT} is {count!r}; it is a number of cores")
    return list(range(int(count or 0) or every))


def parsed(text: str) -> list[int]:
    """The cores of a list of numbers and ranges."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()):
            raise _refused(f"{VARIABLE} is {text!r}; it is numbers and ranges, as in 0-2,3")
        found += range(int(first), int(last) + 1)
    if not found or found != list(range(found[0], found[0] + len(found))):
        raise _refused(f"{VARIABLE} is {text!r}; cores ascend without gaps")
    return found


def set_visible_cores(cores: Iterable[int]) -> None:
    """Say which cores the runtime sees when it starts."""
    os.environ[VARIABLE] = ",".join(map(str, cores))


def clear_visible_cores() -> None:
    """Let the runtime see all cores."""
    os.environ.pop(VARIABLE, None)


def _refused(text: str) -> NrtError:
    return NrtError(Status.NRT_FAILURE, "Failed to initialize NRT runtime", text)


def execution_timeout() -> float:
    """Seconds that a rank waits for others: NEURON_RT_EXEC_TIMEOUT (SDK
    neuron-runtime/guides/configuration-guide.rst), else the limit of a run."""
    stated = os.environ.get("NEURON_RT_EXEC_TIMEOUT", "")
    return float(stated) if stated.isdecimal() else LIMITS.get().seconds
