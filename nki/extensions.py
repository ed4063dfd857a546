"""What packages beside `nki` add to it, by entry points of their distributions.

- Group `nki.commands`: a `click.Command`, which becomes `nki NAME`.
- Group `nki.pages`: a function that gives reference pages, as `nki.pages.pages` does.

The names come from metadata; a module is imported when its entry is first used.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

COMMANDS, PAGES = "nki.commands", "nki.pages"
"""The groups."""

DISTRIBUTION = "opennki"
"""The distribution that the `docs/` pages are about."""


def extensions(group: str, own: bool = False) -> dict[str, EntryPoint]:
    """The entries of a group by name, sorted. With `own`, only those of this distribution.

    >>> extensions("nki.commands", own=True)["hlo"].value
    'graph_compiler.cli:hlo_command'
    """
    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    return {entry.name: entry for entry in found if not own or _is_own(entry)}


def _is_own(entry: EntryPoint) -> bool:
    return entry.dist is not None and entry.dist.name == DISTRIBUTION
