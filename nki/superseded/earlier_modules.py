"""Modules of earlier versions whose names are all elsewhere now, made when they are imported.

No file stands for them, so that no editor offers them; `nki.superseded` has what they hold.
"""

from __future__ import annotations

from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

from nki.superseded import EARLIER_MODULES, superseded_names


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
