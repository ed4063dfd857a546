"""Packages of others that have the name of one of ours, as `isa` or `simulator`, and come first.

`import nki` looks for them, so that what imports one says which file is in the way; `nki doctor`
shows them all. Nothing else of this project is imported here, as it may be what is shadowed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

DISTRIBUTION = "opennki"
PACKAGES = ("nki", "isa", "simulator", "graph_compiler")

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
"""The folder of our packages."""


class ShadowedPackageError(ImportError):
    """An import finds a package of others that has the name of one of ours."""


class ShadowGuard:
    """An import finder that is asked first, and refuses what would load another's package."""

    def __init__(self, found: dict[str, str]) -> None:
        self.found = found

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """Raises ShadowedPackageError for a package that is shadowed; None for others."""
        package = name.partition(".")[0]
        if package in self.found:
            raise _refusal(package, self.found[package])


def guard() -> None:
    """Refuse packages that shadow ours, those that are loaded already at once."""
    found = {name: place for name in PACKAGES if (place := location(name)) and not is_ours(place)}
    for name, place in found.items():
        if name in sys.modules:
            raise _refusal(name, place)
    if found:
        sys.meta_path.insert(0, ShadowGuard(found))  # type: ignore[arg-type]


def location(package: str) -> str | None:
    """The folder or file that `import package` uses in this process, without importing it."""
    module = sys.modules.get(package)
    spec = _found(package) if module is None else module.__spec__
    if spec is None:
        return getattr(module, "__file__", None)
    if spec.submodule_search_locations:
        return next(iter(spec.submodule_search_locations))
    return spec.origin


def _found(package: str) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if not isinstance(finder, ShadowGuard) and hasattr(finder, "find_spec"):
            if (spec := finder.find_spec(package, None)) is not None:
                return spec
    return None


def is_ours(place: str) -> bool:
    """Whether a package's folder stands beside that of `nki`."""
    return os.path.dirname(os.path.realpath(place)) == ROOT and os.path.isdir(place)


def problem(package: str, place: str) -> str:
    """What is in the way."""
    ours = os.path.join(ROOT, package)
    return f"`import {package}` finds {place}, which is not ours: it shadows {ours}"


def way_out(package: str) -> str:
    """What to do about it."""
    from importlib import metadata

    owners = set(metadata.packages_distributions().get(package, [])) - {DISTRIBUTION}
    if owners:
        return f"Uninstall {', '.join(sorted(owners))}, or use separate environments."
    return (
        "Rename it, remove it from PYTHONPATH, or start Python elsewhere; `python -P` leaves the "
        "script's folder and the current one out of the path."
    )


def _refusal(package: str, place: str) -> ShadowedPackageError:
    what = f"{problem(package, place)}\n  try: {way_out(package)}\n  `nki doctor` checks again."
    return ShadowedPackageError(what, name=package, path=place)
