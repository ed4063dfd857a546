"""The Neuron kernel interface: write `@nki.jit` kernels, compile, run and time them anywhere.

import nki, nki.language as nl, nki.isa as nisa
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nki.absent import ABSENT, install

__version__ = "0.1.0"

_HOME = {
    "jit": "nki.kernel",
    "simulate": "nki.kernel",
    "compile": "nki.kernel",
    "profile": "nki.kernel",
    "load": "nki.compiled",
    "Kernel": "nki.kernel",
    "CompiledKernel": "nki.compiled",
    "TensorSpec": "nki.trace.call",
    "symbol": "nki.trace.call",
    "cpu_simulate": "nki.simulator",
    "NeuronError": "isa.errors",
}

_MODULES = (
    *("collectives", "compiler", "dtype", "isa", "language", "meta", "simulator", "tensor"),
    "typing",
)
"""Public modules below this one, which load when they are first named."""

__all__ = [
    "CompiledKernel",
    "Kernel",
    "NeuronError",
    "TensorSpec",
    "compile",
    "cpu_simulate",
    "jit",
    "load",
    "profile",
    "simulate",
    "symbol",
]

install()

if TYPE_CHECKING:
    from isa.errors import NeuronError
    from nki.compiled import CompiledKernel, load
    from nki.kernel import Kernel, compile, jit, profile, simulate
    from nki.simulator import cpu_simulate
    from nki.trace.call import TensorSpec, symbol


def __getattr__(name: str) -> Any:
    """Public names load their module at first use, so that `import nki` stays light."""
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"nki.{name}")
    if name not in _HOME:
        from nki.superseded import REMOVED

        _, instead = ABSENT.get(f"nki.{name}", ("", REMOVED.get(name)))
        advice = f": {instead}" if instead else ""
        raise AttributeError(f"module 'nki' has no attribute {name!r}{advice}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
