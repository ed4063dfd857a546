"""Tables of functions by row."""

from __future__ import annotations

from typing import Any

import pytest

from isa.machine.elementwise import Memset, TensorCopy
from isa.machine.vector import TensorReduce
from simulator.row_table import RowTable


def test_a_function_serves_its_rows_and_no_other() -> None:
    table: RowTable[Any] = RowTable()

    @table.of(Memset, TensorCopy)
    def moved() -> str:
        return "moved"

    assert table["Memset"] is table["TensorCopy"] is moved and moved() == "moved"
    assert TensorReduce.name not in table


def test_a_row_has_one_function() -> None:
    table: RowTable[Any] = RowTable()
    table.of(Memset)(lambda: None)
    with pytest.raises(ValueError, match="Memset"):
        table.of(TensorReduce, Memset)(lambda: None)
