"""The index of the reference pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from nki.row_pages.markdown import NOTE, page

PATH = "reference/index.md"


def index_page(found: Mapping[str, str]) -> str:
    """`docs/reference/index.md`: the tables, and the overviews of the families of pages."""
    folder = PurePosixPath(PATH).parent
    links = []
    for path, text in found.items():
        below = PurePosixPath(path)
        overview = below.name == "index.md"
        if (below.parent.parent if overview else below.parent) == folder:
            links.append(f"- [{_title(text)}]({below.relative_to(folder)})")
    origin = "Every page here is printed from the tables that the code itself uses."
    return page("# Tables", origin, "\n".join(sorted(links)))


def _title(text: str) -> str:
    """The first heading of a page."""
    lines = text.removeprefix(NOTE).strip().splitlines()
    return lines[0].removeprefix("# ")
