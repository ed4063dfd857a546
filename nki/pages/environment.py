"""The page of the environment variables: what `nki.settings` says of each."""

from __future__ import annotations

import inspect
import re

from nki import settings
from nki.row_pages.markdown import code, page, table

_VARIABLE = re.compile(r"\b(?:NKI|NEURON)_[A-Z_]+\b")


def environment_pages() -> dict[str, str]:
    """Pages by path."""
    return {"reference/environment.md": _variables()}


def _variables() -> str:
    rows = []
    for name in settings.__all__:
        value = getattr(settings, name)
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
