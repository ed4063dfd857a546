"""The on-chip allocations of a core in columns: the distinct ones, and which comes when and where.

Unrolled loops allocate the same few tiles again and again, at other bytes and with other numbers at
the end of their names. Those that differ in nothing else have one form; records are made when
somebody looks at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from isa.columns import Integers, numbered, places
from isa.columns.column_list import ColumnList
from isa.program import OnChipAllocation

UNNUMBERED = -1
"""The number of a name that does not end with one."""

_DIGITS = "0123456789"
_MOST_DIGITS = 16


class StorageForm(NamedTuple):
    """What a `OnChipAllocation` says but for its offset and the number at the end of its name."""

    stem: str
    memory: str
    dtype: str
    shape: tuple[int, ...]
    start_partition: int
    partitions: int
    bytes_per_partition: int
    location: int

    def record(self, number: int, offset: int) -> OnChipAllocation:
        """The allocation of this form with that number, which may be `UNNUMBERED`."""
        stem, memory, dtype, shape, start, partitions, size, location = self
        name = stem if number < 0 else f"{stem}{number}"
        return OnChipAllocation(
            name, memory, dtype, shape, start, partitions, offset, size, location
        )


class StorageColumns(NamedTuple):
    """Allocations in columns.

    `forms` are the different ones in the order of first use, `order` has the form of each
    allocation. `numbers` has for each form a row for each of its uses: the number at the end of the
    name, and the offset.
    """

    forms: list[StorageForm]
    order: Integers
    numbers: list[Integers]


class Storages(ColumnList[OnChipAllocation, StorageColumns]):
    """The allocations of a core, in columns until somebody looks at them.

    >>> tile = StorageForm("tile", "sbuf", "float32", (128, 4), 0, 128, 16, 0)
    >>> rows = np.array([[UNNUMBERED, 0], [1, 64]])
    >>> storages = Storages(StorageColumns([tile], np.zeros(2, np.int64), [rows]))
    >>> [(storage.name, storage.offset) for storage in storages]
    [('tile', 0), ('tile1', 64)]
    """

    __slots__ = ()

    def __init__(self, columns: StorageColumns) -> None:
        super().__init__(columns, _records)


def _records(columns: StorageColumns) -> Iterator[OnChipAllocation]:
    following = [iter(numbers.tolist()) for numbers in columns.numbers]
    for key in columns.order.tolist():
        yield columns.forms[key].record(*next(following[key]))


def in_columns(storages: Sequence[OnChipAllocation]) -> StorageColumns:
    """Allocations in columns."""
    if isinstance(storages, Storages) and storages.columns is not None:
        return storages.columns
    forms, rows = [], []
    for storage in storages:
        stem, number = numbered_name(storage.name)
        forms.append(
            StorageForm(
                stem,
                storage.memory,
                storage.dtype,
                storage.shape,
                storage.start_partition,
                storage.partitions,
                storage.bytes_per_partition,
                storage.location,
            )
        )
        rows.append((number, storage.offset))
    return of_forms(forms, np.arange(len(forms)), np.array(rows, np.int64).reshape(-1, 2))


def of_forms(forms: Sequence[StorageForm], which: Integers, rows: Integers) -> StorageColumns:
    """Columns of allocations: `which` form each has, and its row of numbers. Forms come in the
    order of first use, some maybe several times."""
    different, kind = numbered(forms)
    order = kind[which]
    numbers = [rows[mine] for mine in places(order, len(different))]
    return StorageColumns(list(different), order, numbers)


def numbered_name(name: str) -> tuple[str, int]:
    """A name and the number at its end, as Python prints it; -1 where there is none.

    >>> numbered_name("tile12"), numbered_name("tile"), numbered_name("t007")
    (('tile', 12), ('tile', -1), ('t00', 7))
    """
    stem = name.rstrip(_DIGITS)
    if len(name) - len(stem) > _MOST_DIGITS:
        stem = name[:-_MOST_DIGITS]
    digits = name[len(stem) :]
    number = digits.lstrip("0") or digits[-1:]
    return name[: len(name) - len(number)], int(number or UNNUMBERED)
