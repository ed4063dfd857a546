"""The source map of a program while it is written."""

from __future__ import annotations

from typing import Any

from isa.program import SourceLocation


class LocationTable:
    """The source map of a program: a number for every traced location; 0 is "no line"."""

    def __init__(self) -> None:
        self.locations: list[Any] = [None]
        self._places: dict[int, dict[int, int]] = {}
        self._latest: Any = None
        self._latest_number = 0

    def index(self, location: Any) -> int:
        if location is not self._latest:  # most come several times in a row
            self._latest_number = self._number(location)
            self._latest = location
        return self._latest_number

    def _number(self, location: Any) -> int:
        if location is None:
            return 0
        if isinstance(location, SourceLocation):
            known, key = self._places.setdefault(-1, {}), hash(location)
        else:
            # The hash of a code object walks its constants; its identity is as good here.
            code, key = location[0], location[1]
            known = self._places.get(id(code)) or self._places.setdefault(id(code), {})
        number = known.get(key)
        if number is None:
            number = known[key] = len(self.locations)
            self.locations.append(location)
        return number
