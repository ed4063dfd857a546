"""A dictionary by identity, for keys that have no hash, as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")

_NOTHING: Any = object()


class ByIdentity(Generic[Value]):
    """Values by the objects that they belong to, which may be equal and are others all the same.

    It keeps its keys alive, so that no later object can take the place of one of them.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[object, Value]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return id(key) in self._entries

    def __getitem__(self, key: object) -> Value:
        return self._entries[id(key)][1]

    def __setitem__(self, key: object, value: Value) -> None:
        self._entries[id(key)] = key, value

    def setdefault(self, key: object, value: Value) -> Value:
        """As of a dictionary."""
        return self._entries.setdefault(id(key), (key, value))[1]

    def pop(self, key: object, otherwise: Value = _NOTHING) -> Value:
        """As of a dictionary."""
        if id(key) not in self._entries and otherwise is not _NOTHING:
            return otherwise
        return self._entries.pop(id(key))[1]

    def values(self) -> Iterator[Value]:
        """As of a dictionary."""
        return (value for _, value in self._entries.values())
