"""The reference pages under `docs/`, generated from the tables.

Packages beside `nki` add pages by entry points (`nki.extensions`).

`pages()` gives every generated page; `python -m nki.pages` compares them with the files,
`python -m nki.pages --update` rewrites the files.

Each other module has the pages of what it is named after; `tables` has those of dtypes, targets and
operators, `language` also that of collectives.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from nki.row_pages.markdown import NOTE, page

_INDEX = "reference/index.md"


def pages() -> dict[str, str]:
    """Every generated page: path below `docs/`, and its Markdown. The same on every machine."""
    from nki.errors import catalogue_page
    from nki.extensions import PAGES, extensions
    from nki.pages.command_line import command_line_page
    from nki.pages.environment import environment_pages
    from nki.pages.language import collective_pages, language_pages
    from nki.pages.tables import table_pages
    from nki.row_pages.machine import machine_pages
    from nki.row_pages.operations import operation_pages

    found = {
        "errors.md": catalogue_page(),
        "command-line.md": command_line_page(),
        **operation_pages(),
        **machine_pages(),
        **language_pages(),
        **collective_pages(),
        **environment_pages(),
        **table_pages(),
    }
    for entry in extensions(PAGES, own=True).values():
        found |= entry.load()()
    return {_INDEX: _index_page(found), **found}


def difference(folder: Path) -> list[str]:
    """What tells the files in a `docs` folder from the generated pages; empty when nothing does.

    Files below `reference/` that no page belongs to count, other files do not.
    """
    found = []
    wanted = pages()
    for path, text in wanted.items():
        file = folder / path
        if not file.is_file():
            found.append(f"{path} is missing")
        elif file.read_text(encoding="utf-8") != text:
            found.append(f"{path} differs")
    for file in sorted(folder.glob("reference/**/*.md")):
        path = file.relative_to(folder).as_posix()
        if path not in wanted:
            found.append(f"{path} belongs to no table row")
    return found


def update(folder: Path) -> None:
    """Write every page, and delete those below `reference/` that no table row is left for."""
    wanted = pages()
    for file in folder.glob("reference/**/*.md"):
        if file.relative_to(folder).as_posix() not in wanted:
            file.unlink()
    for path, text in wanted.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _index_page(found: Mapping[str, str]) -> str:
    """`docs/reference/index.md`: the tables, and the overviews of the families of pages."""
    folder = PurePosixPath(_INDEX).parent
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


__all__ = ["difference", "pages", "update"]
