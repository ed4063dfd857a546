"""`nki.simulate` as harnesses call it: `simulate_kernel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nki.errors import user_frames
from nki.kernel import Simulation, simulate


@user_frames
def simulate_kernel(
    kernel: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    lnc: int = 1,
    *,
    _lnc: int | None = None,
) -> Any:
    """What the kernel (or a plain function) returns for these arguments on `lnc` cores.

    Results and errors are those of `nki.simulate`. `_lnc` is `lnc` as nki-library spells it.
    Source: vllm-neuron vllm_neuron/nki/nki_cpu_sim.py, nki-library test/utils/simulation_setup.py.

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> from nki.simulator import simulate_kernel
    >>> def copy(a):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nisa.dma_copy(dst=out, src=a)
    ...     return out
    >>> simulate_kernel(copy, (), {"a": np.ones((1, 3), np.float32)}, lnc=2)
    array([[1., 1., 1.]], dtype=float32)
    """
    launched = simulate(kernel)[lnc if _lnc is None else _lnc]
    return launched(*args, **(kwargs or {}))


__all__ = ["Simulation", "simulate_kernel"]
