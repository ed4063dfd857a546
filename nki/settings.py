"""The environment variables that this project reads; all of them are read here, at use."""

from __future__ import annotations

import os
from contextvars import ContextVar

from isa.errors import NeuronError
from isa.target import DEFAULT_TARGET, Target
from isa.target import resolve as resolve_target

_TARGET_VARIABLES = ("NKI_NC_VERSION", "NEURON_PLATFORM_TARGET_OVERRIDE")
"""Who names the target, the first that is set: NKI_NC_VERSION is what test harnesses set for one
test at a time, the other one is documented (SDK nki/api/nki/__init__.py, jit)."""


def target(name: str | None = None) -> Target:
    """The target to compile for: `name`, else NKI_NC_VERSION, else
    NEURON_PLATFORM_TARGET_OVERRIDE, else trn3.

    Raises unknown-target with the names that are accepted.
    """
    source = None if name else _target_variable()
    if source is None:
        return resolve_target(name)
    try:
        return resolve_target(os.environ[source])
    except NeuronError as error:
        what = f"{source} is {os.environ[source]!r}, which is no target"
        raise NeuronError(error.code, what, error.why, error.hint) from None


def target_source() -> str:
    """Where `target()` comes from, in words."""
    return _target_variable() or "the documented default"


def _target_variable() -> str | None:
    return next((name for name in _TARGET_VARIABLES if os.environ.get(name)), None)


OWN_FRAMES: ContextVar[bool] = ContextVar("own_frames", default=False)
"""Set by --traceback: errors keep this project's own frames."""


def traceback_wanted() -> bool:
    """NKI_TRACEBACK=1: show this project's own frames when an error is reported."""
    return OWN_FRAMES.get() or os.environ.get("NKI_TRACEBACK", "") not in ("", "0")


def completion_wanted() -> str:
    """NKI_COMPLETE: what a shell asks `nki` for while the user types. In its start-up file stands
    `eval "$(NKI_COMPLETE=bash_source nki)"`, with zsh_source or fish_source for those shells."""
    return os.environ.get("NKI_COMPLETE", "")


def checks_wanted() -> bool:
    """NKI_CHECKS=0 turns the run-time checks (uninitialised data, races) off. With native code they
    take a few percent of the time of a run, 8 at most in `benchmarks/native_speed.py --checks`."""
    value = os.environ.get("NKI_CHECKS") or "1"
    if value not in ("0", "1"):
        raise NeuronError("value-not-allowed", f"NKI_CHECKS is {value!r}; it is 0 or 1")
    return value == "1"


def unwritten_allowed() -> bool:
    """NKI_UNWRITTEN=allowed lets results hold, or depend on, elements that were never written, with
    a warning in place of the error: NaN, 4 in integers, as the vendor's simulator does. It is for
    kernels whose padding nobody reads. What else is wrong stays an error. The default is
    refused."""
    value = os.environ.get("NKI_UNWRITTEN") or "refused"
    if value not in ("allowed", "refused"):
        what = f"NKI_UNWRITTEN is {value!r}; it is allowed or refused"
        raise NeuronError("value-not-allowed", what)
    return value == "allowed"


def logical_core_size() -> int | None:
    """NEURON_LOGICAL_NC_CONFIG: the physical cores of a logical core that a plain call of a kernel
    must be launched on; None when it is not set. NKI_SIMULATOR=1 needs no reading: calls run on the
    simulator anyway."""
    value = os.environ.get("NEURON_LOGICAL_NC_CONFIG")
    if not value:
        return None
    if value not in ("1", "2"):
        raise NeuronError(
            "value-not-allowed", f"NEURON_LOGICAL_NC_CONFIG is {value!r}; it is 1 or 2"
        )
    return int(value)


def compile_cache() -> str | None:
    """NEURON_COMPILE_CACHE_URL: the folder in which `neuronx-cc` keeps the programs of graphs, by
    content and flags, and finds them again; None when it is not set, and nothing is kept."""
    return os.environ.get("NEURON_COMPILE_CACHE_URL") or None


PRECISE: ContextVar[bool | None] = ContextVar("precise", default=None)
"""What `nki.difference` says instead of NKI_PRECISE_FP."""


def precise_wanted() -> bool:
    """NKI_PRECISE_FP=0 keeps low-precision tensors as float32 (`nki.precision`)."""
    chosen = PRECISE.get()
    if chosen is not None:
        return chosen
    value = os.environ.get("NKI_PRECISE_FP") or "1"
    if value not in ("0", "1"):
        raise NeuronError("value-not-allowed", f"NKI_PRECISE_FP is {value!r}; it is 0 or 1")
    return value == "1"


def print_folder() -> str | None:
    """NEURON_RT_DEBUG_OUTPUT_DIR: the folder for what `nl.device_print` prints, as the runtime has
    it; None when it is not set."""
    return os.environ.get("NEURON_RT_DEBUG_OUTPUT_DIR") or None


def artifacts_folder() -> str | None:
    """NKI_ARTIFACTS_DIR: the folder for the program of the kernel that was compiled last, as
    kernel.neff, for `nki.load`; also where running it fails. None when it is not set."""
    return os.environ.get("NKI_ARTIFACTS_DIR") or None


def environment() -> dict[str, str]:
    """All of the environment: what a kernel that reads it itself depends on."""
    return dict(os.environ)


MODES = ("device", "reference", "eager")


def mode_wanted(asked: str | None, otherwise: str) -> str:
    """How kernels run where the program does not say: NKI_MODE, one of the modes of `nki.simulate`:
    device, reference, or eager (for `breakpoint()` and `print`).

    Raises unknown-mode.
    """
    mode = asked or os.environ.get("NKI_MODE") or otherwise
    if mode not in MODES:
        raise NeuronError("unknown-mode", f"mode {mode!r} is none of {', '.join(MODES)}")
    return mode


BACKENDS = ("native", "numpy")

BACKEND: ContextVar[str | None] = ContextVar("backend", default=None)
"""The backend that `nki.simulate` was told to use."""


def native_wanted() -> bool:
    """Whether compiled kernels compute (the default), or NumPy alone: `nki.simulate`'s `backend`,
    else NKI_BACKEND, which is native or numpy."""
    value = BACKEND.get() or os.environ.get("NKI_BACKEND") or BACKENDS[0]
    if value not in BACKENDS:
        raise NeuronError("value-not-allowed", f"The backend is {value!r}; it is native or numpy")
    return value == BACKENDS[0]


def loop_limit() -> int | None:
    """NKI_LOOP_LIMIT: how many instructions one engine may execute in loops, or iterations a loop
    may have in eager mode, before a run is taken for one without end. Without it 20,000,000
    instructions, and 1,000,000 iterations."""
    value = os.environ.get("NKI_LOOP_LIMIT")
    if not value:
        return None
    if not value.isdecimal() or not 1 <= int(value) < 2**40:
        raise NeuronError("value-not-allowed", f"NKI_LOOP_LIMIT is {value!r}; it is 1 to 2^40")
    return int(value)


def run_seconds() -> float:
    """NKI_RUN_SECONDS: how much wall time the run of a kernel may take; 600 without it."""
    from simulator.watchdog import RunLimits

    return _seconds("NKI_RUN_SECONDS", RunLimits().seconds)


def simulated_seconds() -> float:
    """NKI_SIMULATED_SECONDS: how long a kernel that is profiled may take on the device, as the
    timing model has it; 10 without it."""
    from simulator.watchdog import RunLimits

    return _seconds("NKI_SIMULATED_SECONDS", RunLimits().simulated)


def _seconds(name: str, otherwise: float) -> float:
    value = os.environ.get(name)
    if not value:
        return otherwise
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        what = f"{name} is {value!r}; it is a number of seconds"
        raise NeuronError("value-not-allowed", what)
    return seconds


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def memory_limit() -> int | None:
    """NKI_MEMORY_LIMIT: how much physical memory the process may hold while a kernel runs, in
    bytes, or in binary units as in 500M or 8G; three quarters of the machine's without it. Where
    the system does not tell (there is no /proc), nothing is limited."""
    value = os.environ.get("NKI_MEMORY_LIMIT")
    if not value:
        return None
    number = value.rstrip("KMG")
    unit = _UNITS.get(value[len(number) :])
    if unit is None or not number.isdecimal() or not 1 <= int(number) < 2**60:
        what = f"NKI_MEMORY_LIMIT is {value!r}; it is a number of bytes, or one with K, M or G"
        raise NeuronError("value-not-allowed", what)
    return int(number) * unit


def threads_wanted() -> int:
    """How many threads share the work of large instructions: NKI_NUM_THREADS, else 4, but not more
    than the process has CPUs. While other programs keep the machine busy, one does it all."""
    affinity = getattr(os, "sched_getaffinity", None)
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    value = os.environ.get("NKI_NUM_THREADS")
    if not value:
        return min(4, cpus)
    if not value.isdecimal() or not 1 <= int(value) <= 64:
        raise NeuronError("value-not-allowed", f"NKI_NUM_THREADS is {value!r}; it is 1 to 64")
    return min(int(value), cpus)


__all__ = [
    "BACKEND",
    "BACKENDS",
    "DEFAULT_TARGET",
    "MODES",
    "OWN_FRAMES",
    "PRECISE",
    "artifacts_folder",
    "checks_wanted",
    "compile_cache",
    "completion_wanted",
    "environment",
    "logical_core_size",
    "loop_limit",
    "memory_limit",
    "mode_wanted",
    "native_wanted",
    "precise_wanted",
    "print_folder",
    "run_seconds",
    "simulated_seconds",
    "target",
    "target_source",
    "threads_wanted",
    "traceback_wanted",
    "unwritten_allowed",
]
