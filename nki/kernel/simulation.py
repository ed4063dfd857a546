"""Calls of a kernel run on this machine, in one of its modes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from isa.gc_pause import collection_paused
from nki import progress, settings
from nki.call_chains import explained
from nki.compiled import packed, run_settings, update
from nki.errors import user_frames
from nki.frameworks.arrays import as_numpy, like
from nki.frameworks.callables import stops_in_debugger
from nki.frameworks.compiled_functions import outside_graphs
from nki.jax_transforms import called_back, is_traced
from nki.kernel.kernel import Kernel, as_kernel, check_cores
from nki.torch_exports import exported_call, is_exported
from nki.trace.call import arrays_in, refuse_without_data, tensors_in

Runner = Callable[["Kernel", dict[str, Any]], Any]
"""A way of running a kernel on arguments by parameter name."""


@user_frames
def simulate(
    kernel: Any,
    *,
    target: str | None = None,
    mode: str | None = None,
    backend: str | None = None,
) -> Simulation:
    """A callable that runs the kernel on this machine, and launches on cores as a kernel does:
    `nki.simulate(kernel)[2](...)` is `nki.simulate(kernel[2])(...)`.

    `mode`: "device" compiles and runs the program, "reference" runs the tile IR, "eager" runs
    every operation as its line of Python executes (for `breakpoint()` and `print`). All three
    give the same bits. Calls with equal arguments run the kernel's Python once, but in eager mode,
    which runs it each time. None takes NKI_MODE, and without it "eager" for a kernel that calls
    `breakpoint()` itself, "device" for others. `backend`: "native" for compiled micro-kernels,
    "numpy" for the NumPy code that they are compared with; None takes NKI_BACKEND, and native
    without it. `target` goes before that of the kernel.

    Source: SDK nki/api/nki/__init__.py (simulate); target, modes and backends are ours.

    Raises unknown-mode, unknown-target.

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def reversed_signs(a):
    ...     tile = nl.load(a)
    ...     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=-1.0)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> a = np.array([[1, 2, 3]], np.float32)
    >>> for mode in ("device", "reference", "eager"):
    ...     print(nki.simulate(reversed_signs, mode=mode)(a))
    [[-1. -2. -3.]]
    [[-1. -2. -3.]]
    [[-1. -2. -3.]]
    """
    if mode is not None:
        settings.mode_wanted(mode, mode)
    return Simulation(as_kernel(kernel).on(target), mode, backend)


class Simulation:
    """What `nki.simulate` returns: call it, or launch it on cores with `[lnc]` first.

    >>> import numpy as np, nki, nki.language as nl
    >>> def halves(a):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.multiply(nl.load(a), 0.5))
    ...     return out
    >>> print(nki.simulate(halves, mode="eager")(np.ones((1, 2), np.float32)))
    [[0.5 0.5]]
    """

    def __init__(self, kernel: Kernel, mode: str | None = None, backend: str | None = None) -> None:
        functools.update_wrapper(self, kernel, updated=())
        self.kernel, self.mode, self.backend = kernel, mode, backend

    @user_frames
    def __getitem__(self, cores: int | tuple[int]) -> Simulation:
        return Simulation(self.kernel[cores], self.mode, self.backend)

    @user_frames
    @outside_graphs
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.backend is None:
            return _simulate(self.mode, self.kernel, args, kwargs)
        token = settings.BACKEND.set(self.backend)
        try:
            return _simulate(self.mode, self.kernel, args, kwargs)
        finally:
            settings.BACKEND.reset(token)


def _simulate(
    mode: str | None, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    own = "eager" if stops_in_debugger(kernel.function) else "device"
    chosen = settings.mode_wanted(mode, own)
    if "eager" in (own, chosen):
        progress.close()  # a debugger may need the terminal
    runner = _RUNNERS[chosen]
    arguments = kernel.bound(args, kwargs)
    refuse_without_data(tensors_in(arguments))

    def run(given: dict[str, Any]) -> Any:
        with explained(kernel.function, lambda: kernel.traced(given)):
            return runner(kernel, given)

    if not settings.precise_wanted():
        from nki.trace.in_fp32 import in_fp32

        run = functools.partial(in_fp32, run)
    if is_traced(arguments):
        return called_back(run, kernel, arguments)
    if is_exported(arguments):
        return exported_call(run, kernel, arguments)
    return run(arguments)


def _run_device(kernel: Kernel, arguments: dict[str, Any]) -> Any:
    if _has_replica_group(arguments):
        from nki.ranks.world import same_on_all_ranks

        return same_on_all_ranks(simulate(kernel, mode="eager"), arguments)
    with collection_paused():
        return kernel.compiled(arguments)(*arrays_in(arguments))


def _has_replica_group(arguments: dict[str, Any]) -> bool:
    """Whether a kernel is for several ranks, all of which get these arguments."""
    module = sys.modules.get("nki.ranks.group")
    return module is not None and any(
        isinstance(value, module.ReplicaGroup) for value in arguments.values()
    )


def _run_reference(kernel: Kernel, arguments: dict[str, Any]) -> Any:
    with collection_paused():
        return kernel.ordered(arguments)(*arrays_in(arguments))


def _run_eager(kernel: Kernel, arguments: dict[str, Any]) -> Any:
    from nki.eager.eager import run_eager

    target = settings.target(kernel.target)
    check_cores(kernel.cores, target)
    if kernel.schedule:
        kernel.traced(arguments)  # operations run in their order; edges must be right
    checked, native = settings.checks_wanted(), settings.native_wanted()
    with run_settings():
        outputs, after = run_eager(
            kernel.function, arguments, target, kernel.cores, checked, native
        )
    given = arrays_in(arguments)
    update([as_numpy(array) for array in given], after)
    return like(given, packed(outputs, outputs.container))


_RUNNERS: dict[str, Runner] = {
    "device": _run_device,
    "reference": _run_reference,
    "eager": _run_eager,
}
