"""The index of the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from nki.row_pages.markdown import NOTE, page

_SECTIONS = {
    "": "Guides",
    "reference": "Tables",
    "reference/operations": "Operations (nki.isa)",
    "reference/machine": "Machine instructions",
    "reference/hlo": "HLO operators",
}


def index_page(found: Mapping[str, str]) -> str:
    """`docs/index.md`: every other page under its section, by title."""
    parts = ["# opennki"]
    for folder, title in _SECTIONS.items():
        paths = [p for p in found if _folder(p) == folder and not p.endswith("index.md")]
        overview = f"{folder}/index.md"
        head = f"[{title}]({overview})" if overview in found else title
        links = sorted((_title(found[path]), path) for path in paths)
        if not links:
            continue
        parts.append(f"## {head}\n\n" + "\n".join(f"- [{name}]({path})" for name, path in links))
    return page(*parts)


def _folder(path: str) -> str:
    folder = str(PurePosixPath(path).parent)
    return "" if folder == "." else folder


def _title(text: str) -> str:
    """The first heading of a page."""
    lines = text.removeprefix(NOTE).strip().splitlines()
    return lines[0].removeprefix("# ")
