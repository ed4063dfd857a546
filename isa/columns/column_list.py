"""A list that is in columns of integers until somebody looks at what is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSequence
from typing import Any, Generic, Protocol, TypeVar, overload

from isa.columns import Integers


class Ordered(Protocol):
    """Columns; `order` tells of each row what it is."""

    @property
    def order(self) -> Integers: ...


Item = TypeVar("Item")
Table = TypeVar("Table", bound=Ordered)


class ColumnList(MutableSequence[Item], Generic[Item, Table]):
    """What `expand` makes of columns, when somebody looks at it; a list from then on, as it may be
    changed."""

    __slots__ = ("_items", "_source")

    def __init__(self, columns: Table, expand: Callable[[Table], Iterable[Item]]) -> None:
        self._source: tuple[Table, Callable[[Table], Iterable[Item]]] | None = columns, expand
        self._items: list[Item] = []

    @property
    def columns(self) -> Table | None:
        """The columns as long as nobody has looked at an item."""
        source = self._source
        return None if source is None else source[0]

    def __len__(self) -> int:
        source = self._source
        return len(self._items) if source is None else source[0].order.size

    def _list(self) -> list[Item]:
        if self._source is not None:
            columns, expand = self._source
            self._items = list(expand(columns))
            self._source = None
        return self._items

    def __iter__(self) -> Iterator[Item]:
        return iter(self._list())

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        return self._list()[index]

    @overload
    def __setitem__(self, index: int, value: Item) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[Item]) -> None: ...
    def __setitem__(self, index: Any, value: Any) -> None:
        self._list()[index] = value

    def __delitem__(self, index: int | slice) -> None:
        del self._list()[index]

    def insert(self, index: int, value: Item) -> None:
        """Put an item before the one at `index`, as a list does."""
        self._list().insert(index, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (ColumnList, list)) and self._list() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._list())
