"""What Python's own finders do not find below `nki`: modules of earlier versions, which are made;
modules of the vendor's `nki` that are not here, and names that later versions dropped, which say
what to use instead."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

from nki.superseded import EARLIER_MODULES, superseded_names

ABSENT: dict[str, tuple[str, str]] = {
    "nki.framework": (
        "makes kernels operators of PyTorch and JAX for the vendor's devices",
        "Call an @nki.jit kernel with tensors of PyTorch or arrays of JAX, also in torch.compile "
        "and jax.jit.",
    ),
    "nki.runtime": (
        "runs compiled kernels on the vendor's devices",
        "Run a container in the simulator: nki.load(path)(*arrays).",
    ),
    "nki.compiler.target": (
        "finds out which of the vendor's devices this machine has",
        "Name the target: NEURON_PLATFORM_TARGET_OVERRIDE, or target= of nki.compile.",
    ),
    "nki.compiler.backends": (
        "hands kernels to the vendor's compiler",
        "Compile with nki.compile(kernel, *arrays), which gives what can be called and saved.",
    ),
    "nki.experimental": (
        "held functions that have moved to nki.language",
        "Write nl.while_loop or nl.fori_loop.",
    ),
    "nki.compiler._internal": (
        "holds the MLIR dialects of the vendor's compiler",
        "nki.compiler.frontend gives tile IR, which prints itself; nki.compile compiles it.",
    ),
}
"""What each module is for, and what to use instead."""


class AbsentModules:
    """An import finder that is asked last, so only for what is not there."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Modules of earlier versions. Raise not-supported, as an ImportError, for a module of
        `ABSENT` and for a name that is gone; None for others. Python asks for a name when `from
        module import name` finds none."""
        if not name.startswith("nki."):
            return None

        if (found := earlier_module(name)) is not None:
            return found
        if name in ABSENT:
            purpose, instead = ABSENT[name]
            what = f"No module named {name!r}: it {purpose}, and is no part of opennki"
        elif (note := _note_on_gone(name)) is not None:
            first = note.partition(" ")[0]
            what = f"{name} is not part of this API"
            instead = note.replace(first, first.title() if first.isalpha() else first, 1)
        else:
            return None
        from isa.errors import NeuronError
        from nki.errors import annotate

        class AbsentModule(NeuronError, ModuleNotFoundError):
            """Programs that can do without the module catch a ModuleNotFoundError."""

        error = AbsentModule("not-supported", what, hint=instead)
        annotate(error)
        raise error


def _note_on_gone(name: str) -> str | None:
    """What to write for a name that an earlier version had."""
    from nki.superseded import note_on_superseded
    from nki.superseded.porting import note_on_name

    return note_on_name(name) or note_on_superseded(name)


def install() -> None:
    """Ask `AbsentModules` after every other finder, once in a process."""
    if AbsentModules not in sys.meta_path:
        sys.meta_path.append(AbsentModules)


class EarlierModule(Loader):
    """Makes a module whose names work with a hint."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own module object will do."""

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"`{module.__name__}` of earlier versions; see `nki.superseded`."
        module.__getattr__ = superseded_names(module.__name__)  # type: ignore[method-assign]


def earlier_module(name: str) -> ModuleSpec | None:
    """The module of a name if an earlier version had it, else None.

    >>> earlier_module("nki.dtype").name, earlier_module("nki.language")
    ('nki.dtype', None)
    """
    if name not in EARLIER_MODULES:
        return None
    package = any(other.startswith(f"{name}.") for other in EARLIER_MODULES)
    return ModuleSpec(name, EarlierModule(), is_package=package)
