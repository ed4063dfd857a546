"""Tiles whose partitions are neighbours in memory, against NumPy, to the bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from combinations import combined
from on_device import modelled_ns

from graph_compiler import compile, parse_text
from graph_compiler.lower.nests.turned import TurnedTile, turned_ns, turned_tile
from isa.target import TARGETS

TRN2 = TARGETS["trn2"]
DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}


def larger(type: str, rows: int, columns: int) -> str:
    """The larger one of each element and of that on the other side of the diagonal."""
    return f"""HloModule m
ENTRY e {{
 x = {type}[{rows},{columns}] parameter(0)
 y = {type}[{columns},{rows}] parameter(1)
 t = {type}[{rows},{columns}] transpose(y), dimensions={{1,0}}
 ROOT r = {type}[{rows},{columns}] maximum(x, t)
}}"""


@combined({"type": ["f32", "bf16"], "sizes": [(300, 517), (130, 64), (33, 1000), (5, 700)]})
def test_two_orders_of_dimensions_meet(type: str, sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal(n).astype(DTYPES[type]) for n in (sizes, sizes[::-1]))
    y[4, 3] = np.inf
    (found,) = compile(parse_text(larger(type, *sizes)), "trn2")(x, y)
    np.testing.assert_array_equal(np.asarray(found), np.maximum(x, y.T))


def test_it_is_not_turned_element_by_element() -> None:
    """Each element was a descriptor, or all was turned by way of memory: 70 us and more."""
    compiled = compile(parse_text(larger("f32", 600, 900)), "trn2")
    assert modelled_ns(compiled) < 35e3


@pytest.mark.parametrize("count", [1, 3, 127, 128, 129, 1000])
def test_rows_are_in_one_part_each(count: int) -> None:
    form = TurnedTile(64, count, 200, 1)
    found = [
        first + partition * each + place
        for first, rows, each in form.parts()
        for partition in range(rows)
        for place in range(each)
    ]
    assert sorted(found) == [*range(count)]


def test_few_elements_are_moved_as_they_are() -> None:
    assert turned_tile(TRN2, [(1, 128), (1000, 1)], 4) is None
    assert turned_tile(TRN2, [(1, 128), (1000, 2)], 4) is None
    assert turned_tile(TRN2, [(1, 128), (1000, 500)], 4) == TurnedTile(128, 500, 1000, 1)


def test_only_what_passes_bit_for_bit_is_turned() -> None:
    pattern = [(1, 128), (1000, 500)]
    assert turned_tile(TARGETS["trn1"], pattern, 4) is None
    assert turned_tile(TRN2, pattern, 1) is None
    assert turned_tile(TRN2, [(1, 128), (100, 500)], 4) is None  # partitions overlap


def test_whole_rows_are_long_runs() -> None:
    """Those that follow one another take less time than parts of longer ones."""
    whole, part = (turned_ns(TRN2, TurnedTile(64, 2000, step, 1), 4) for step in (64, 640))
    assert whole.transfers < 0.7 * part.transfers
    assert whole.tensor == part.tensor
