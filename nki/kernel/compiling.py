"""Traced tile IR compiled: by the passes, or as it is, in the author's order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from isa.errors import NeuronError
from isa.gc_pause import collection_paused
from isa.program import Program
from nki import progress, settings
from nki.compiled import CompiledKernel
from nki.ir.nodes import TracedKernel as TracedKernel


def compile_traced(
    traced: TracedKernel, observe: Callable[[str, Any], None] | None = None
) -> CompiledKernel:
    """Lower traced tile IR and, unless NKI_CHECKS=0, prove that the program has no race.

    `observe(stage, product)` sees what each stage makes (`nki.pipeline.STAGES`).

    Raises race, hbm-overflow, and what the passes raise.

    >>> import nki, nki.language as nl
    >>> def kernel(a):
    ...     nl.store(a[0:128, :], nl.load(a[128:256, :]))
    >>> traced = nki.jit(kernel).trace(nki.TensorSpec((256, 8), nl.float32))
    >>> compile_traced(traced).program.name
    'kernel'
    """
    from nki.pipeline import compile_kernel
    from nki.verification.hbm_capacity import check_hbm

    with collection_paused():
        program = compile_kernel(traced, observe)
        check_hbm(program)
        if settings.checks_wanted():
            progress.stage("proof that nothing races")
            from nki.verification import verify_program

            verify_program(program)
            if observe is not None:
                observe("verify", program)
    keep(program)
    return CompiledKernel(program, container=_container(traced.results), traced=traced)


def order_traced(traced: TracedKernel) -> CompiledKernel:
    """Traced tile IR as it is, ready to run in the author's order.

    Raises race (of several cores), hbm-overflow.

    >>> import nki, nki.language as nl
    >>> def kernel(a):
    ...     nl.store(a[0:128, :], nl.load(a[128:256, :]))
    >>> traced = nki.jit(kernel).trace(nki.TensorSpec((256, 8), nl.float32))
    >>> import numpy as np
    >>> a = np.arange(256 * 8, dtype=np.float32).reshape(256, 8)
    >>> order_traced(traced)(a)
    >>> a[0, 0].item()
    1024.0
    """
    from nki.reference.in_order import in_order
    from nki.verification.hbm_capacity import check_hbm

    ordered = in_order(traced)
    check_hbm(ordered.program)
    if settings.checks_wanted() and len(ordered.program.cores) > 1:
        from nki.verification import verify_program

        verify_program(ordered.program)
    return CompiledKernel(ordered.program, ordered.capacity, _container(traced.results))


def _container(results: Any) -> type | None:
    """What a kernel returns its results in (`nki.ir.builder.results.Results`)."""
    return getattr(results, "container", None)


NAME = "kernel.neff"
"""SDK neuron-runtime/nrtpy/nrtpy-troubleshooting.rst, "NEFF file not found after compilation"."""


def keep(program: Program) -> None:
    """Write a compiled program to NKI_ARTIFACTS_DIR, where that is set; `nki.load` reads it."""
    folder = settings.artifacts_folder()
    if folder is None:
        return
    from isa.files.container import save

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NeuronError(
            "not-writable",
            f"NKI_ARTIFACTS_DIR is {folder!r}: {error.strerror}",
            hint="Name a folder that can be made or written to, or leave the variable out.",
        ) from error
    save(program, Path(folder) / NAME)
