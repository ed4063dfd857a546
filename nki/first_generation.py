"""What importing `neuronxcc.nki` says when it is not installed: the name of its replacement."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAMES = ("neuronxcc", "neuronxcc.nki")


class FirstGeneration:
    """An import finder that finds nothing. Asked last, so only for what is not installed."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for the first-generation API; None for anything else."""
        if name not in _NAMES:
            return None
        raise ModuleNotFoundError(
            f"No module named {name!r}: neuronxcc.nki is the first generation of NKI, which "
            "opennki does not run. Write `import nki` (nki.language, nki.isa) instead; "
            "`nki migrate FILE` lists what to change (SDK nki/migration/index.rst)",
            name=name,
        )


def install() -> None:
    """Ask `FirstGeneration` after every other finder, once in a process."""
    if FirstGeneration not in sys.meta_path:
        sys.meta_path.append(FirstGeneration)


__all__ = ["FirstGeneration", "install"]
