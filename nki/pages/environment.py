"""The page of the environment variables: what says of each who reads it."""

from __future__ import annotations

import inspect
import re

from nki import settings
from nki.row_pages.markdown import code, page, table
from simulator.runtime import visible_cores

_VARIABLE = re.compile(r"\b(?:NKI|NEURON)_[A-Z_]+\b")


def environment_pages() -> dict[str, str]:
    """Pages by path."""
    return {"reference/environment.md": _variables()}


def _variables() -> str:
    rows = []
    readers = [getattr(settings, name) for name in settings.__all__]
    for value in (*readers, visible_cores.visible_cores):
        text = (inspect.getdoc(value) or "") if inspect.isfunction(value) else ""
        contract = text.partition("\n\n")[0]
        found = dict.fromkeys(_VARIABLE.findall(contract))
        if found:
            rows.append((", ".join(map(code, found)), contract))
    return page(
        "# Environment variables",
        "They are read when a kernel is traced, compiled or run, not at import.",
        table(("variable", "meaning"), sorted(rows)),
    )
