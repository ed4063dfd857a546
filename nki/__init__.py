"""The Neuron kernel interface: write `@nki.jit` kernels, compile, run and time them anywhere.

import nki, nki.language as nl, nki.isa as nisa
"""

from nki.shadowed import guard as _guard
from nki.superseded.absent import install as _install

__version__ = "0.1.0"

_HOME = {
    "jit": "nki.kernel",
    "simulate": "nki.kernel",
    "compile": "nki.kernel",
    "profile": "nki.kernel",
    "autotune": "nki.tuning",
    "benchmark": "nki.tuning",
    "sweep": "nki.tuning",
    "load": "nki.compiled",
    "Kernel": "nki.kernel",
    "CompiledKernel": "nki.compiled",
    "TensorSpec": "nki.trace.call",
    "symbol": "nki.trace.call",
    "NeuronError": "isa.errors",
}

_MODULES = ("collectives", "compiler", "isa", "language", "simulator", "typing")
"""Public modules below this one, which load when they are first named."""

__all__ = [
    "CompiledKernel",
    "Kernel",
    "NeuronError",
    "TensorSpec",
    "autotune",
    "benchmark",
    "compile",
    "jit",
    "load",
    "profile",
    "simulate",
    "sweep",
    "symbol",
    *_MODULES,
]

_guard()
_install()


def __getattr__(name: str) -> object:
    """Public names load their module at first use, so that `import nki` stays light."""
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"nki.{name}")
    if name not in _HOME:
        return _earlier_name(name)
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def _earlier_name(name: str) -> object:
    """A name of earlier versions. Raises AttributeError, with what to write for what is gone."""
    from nki.superseded import REMOVED, superseded_names
    from nki.superseded.absent import ABSENT

    _, instead = ABSENT.get(f"nki.{name}", ("", REMOVED.get(name)))
    if instead:
        raise AttributeError(f"module 'nki' has no attribute {name!r}: {instead}")
    return superseded_names("nki")(name)


def __dir__() -> list[str]:
    return sorted(__all__)
