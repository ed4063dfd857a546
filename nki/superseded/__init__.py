"""Spellings of earlier versions: `table` has what replaces each, `hints` tells the user so.

`isa_calls` understands earlier calls of operations, `absent` makes modules that are gone, and
`migration` rewrites files (`nki migrate`), with `porting` and `removed`.
"""

from nki.superseded.hints import (
    MigrationWarning,
    hint,
    hint_at_call,
    hint_at_number,
    note_on_superseded,
    superseded_names,
    warn_once,
)
from nki.superseded.table import (
    CALLS,
    EARLIER_MODULES,
    ENUMERATIONS,
    MEMORIES,
    MODULES,
    NUMBERS_SINCE,
    REMOVED,
    SUPERSEDED,
    Superseded,
)

__all__ = [
    "CALLS",
    "EARLIER_MODULES",
    "ENUMERATIONS",
    "MEMORIES",
    "MODULES",
    "MigrationWarning",
    "NUMBERS_SINCE",
    "REMOVED",
    "SUPERSEDED",
    "Superseded",
    "hint",
    "hint_at_call",
    "hint_at_number",
    "note_on_superseded",
    "superseded_names",
    "warn_once",
]
