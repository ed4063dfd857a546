"""`nki.dtype`: the data types under the module name of NKI 0.2 and 0.3; see `nki.language`."""

from __future__ import annotations

from nki.language import dtypes
from nki.superseded import hint


def __getattr__(name: str) -> str:
    if name not in dtypes.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    hint(f"{__name__}.{name}")
    value: str = getattr(dtypes, name)
    return value
