"""The page of `nki.collectives`: every function with its contract and an example that runs."""

from __future__ import annotations

import inspect
from typing import Any

import nki.collectives as ncc
from nki.row_pages.markdown import page


def collective_pages() -> dict[str, str]:
    """Pages by path."""
    return {"reference/collectives.md": _collectives()}


def _collectives() -> str:
    return page(
        "# Collectives (nki.collectives)",
        "Communication between the ranks of a distributed kernel. `simulate_ranks` runs them in "
        "one process, a thread each; a compiled program is for one rank and has no collectives.",
        *(_section(name, getattr(ncc, name)) for name in sorted(ncc.__all__)),
    )


def _section(name: str, value: Any) -> str:
    """Heading, contract and example of one name; docstrings end with the example."""
    contract, mark, example = (inspect.getdoc(value) or "").partition(">>> ")
    shown = f"\n\n```pycon\n{(mark + example).strip()}\n```" if mark else ""
    return f"## {name}{_parameters(value)}\n\n{contract.strip()}{shown}"


def _parameters(value: Any) -> str:
    """Names and defaults, as they are written."""
    shown = []
    for parameter in inspect.signature(value).parameters.values():
        missing = parameter.default is parameter.empty
        shown.append(parameter.name if missing else f"{parameter.name}={parameter.default!r}")
    return f"({', '.join(shown)})"
