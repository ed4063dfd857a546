"""What `dir`, and so completion in notebooks and shells, offers of public objects."""

from __future__ import annotations

from typing import ClassVar


class _Listed(type):
    """A class of which `dir` lists what is public."""

    _internal: frozenset[str]

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if name not in cls._internal]


class Listed(metaclass=_Listed):
    """An object of which `dir` lists what is public, and so does its class. `_internal`:
    members without an underscore that the rest of the project uses."""

    __slots__ = ()
    _internal: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in self._internal]
