"""Where accesses on chip start, by addresses and offsets that NumPy's byte arithmetic confirms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isa.enums import Memory
from isa.rules import starts
from nki.ir.nodes import Access, Tensor

ROWS, COLUMNS = 128, 48


def view(
    offset: Any, dtype: str = "float32", address: Any = None, rows: int = ROWS, count: int = 32
) -> Access:
    """A column of a tile of fp32, at an offset in elements of `dtype`."""
    tensor = Tensor(0, "x", Memory.sbuf, "float32", (rows, COLUMNS), address=address)
    return Access(tensor, dtype, (count, 1), (COLUMNS * 4 // np.dtype(dtype).itemsize, 1), offset)


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8"])
@pytest.mark.parametrize("row", [0, 32, 96])
def test_a_view_starts_where_its_first_byte_lies(dtype: str, row: int) -> None:
    memory = np.arange(ROWS)[:, None] + np.zeros((1, COLUMNS * 4), int)  # of each byte its row
    width = np.dtype(dtype).itemsize
    offset = row * COLUMNS * 4 // width + 5
    assert memory.reshape(-1)[offset * width] == row
    access = view(offset, dtype)
    assert starts.start_partition(access) == starts.first_partition(access) == row
    assert tuple(starts.possible_starts(access)) == (row,)


def test_the_authors_address_moves_what_starts_behind_it() -> None:
    access = view(COLUMNS * 32, address=(64, 0), rows=64)
    assert starts.start_partition(access) == 32, "of its tensor"
    assert starts.first_partition(access) == 96, "of the memory"
    assert starts.starts_in_memory(access) == (96,)
    assert starts.base_partitions(access) == (64,)
    assert starts.has_address(view(0), access) and not starts.has_address(view(0))


@pytest.mark.parametrize(("rows", "bases"), [(32, (0, 32, 64, 96)), (64, (0, 64)), (128, (0,))])
def test_without_an_address_every_base_of_its_size_is_possible(
    rows: int, bases: tuple[int, ...]
) -> None:
    """SDK: accesses of up to 32 partitions start at any quadrant, of up to 64 at either half."""
    assert starts.starts_in_memory(view(0, rows=rows)) == bases


def test_accumulate_registers_lie_behind_a_result_by_the_difference_of_starts() -> None:
    dst, result = view(COLUMNS * 64), view(COLUMNS * 32)
    assert starts.lanes_behind(result, dst) == 32
    assert starts.lanes_behind(dst, result) == -32
    assert starts.lanes_behind(result, 0.5) == 0
