"""Stubs of the public namespaces, by which editors complete and type checkers judge calls.

`python -m nki.stubs --update` writes them beside the `__init__.py` of each package, and a test
keeps them true. What a module's `__all__` names is in its stub and nothing else: functions of
tables are written out from the signature and documentation that they have at run time. All others
are imported from the module that defines them: editors read its own types and docstrings.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from nki.stubs.names import Stub

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("nki", "nki.collectives", "nki.isa", "nki.language")


def stubs() -> dict[str, str]:
    """Every stub: path below the folder of the packages, and its text."""
    return {
        f"{name.replace('.', '/')}/__init__.pyi": Stub(importlib.import_module(name)).text()
        for name in PACKAGES
    }


def difference(folder: Path = ROOT) -> list[str]:
    """The stubs that are not as generated; empty when all are."""
    return [
        path
        for path, text in stubs().items()
        if not (folder / path).is_file() or (folder / path).read_text(encoding="utf-8") != text
    ]


def update(folder: Path = ROOT) -> None:
    """Write every stub."""
    for path, text in stubs().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


__all__ = ["PACKAGES", "ROOT", "difference", "stubs", "update"]
