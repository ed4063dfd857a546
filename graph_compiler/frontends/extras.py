"""The optional libraries of the front-ends."""

from __future__ import annotations

import importlib
from types import ModuleType

from isa.errors import NeuronError


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import a library of an optional extra.

    Raises NeuronError `missing-extra`, which names the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, AttributeError, OSError) as error:
        # Not only absent: also made for other releases, or without its shared libraries.
        package = module.partition(".")[0]
        raise NeuronError(
            "missing-extra",
            f"{purpose} needs {package}, which cannot be imported here ({error})",
            hint=f"Run `pip install 'opennki[{extra}]'`.",
        ) from error
