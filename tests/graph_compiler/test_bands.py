"""Prices of products and of turning pixels, against the table of costs of instructions; tiles of
neighbouring columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_compiler.lower.products.bands import (
    beside_cycles,
    column_tiles_of,
    output_parts,
    product_cycles,
    turning_passes,
)
from graph_compiler.lower.sizes import BIT_FOR_BIT
from isa.access import AccessPattern
from isa.array_tiles import WHOLE_ARRAY
from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.machine.tensor import MultiplyMoving, TransposeStationary
from isa.spec import Instruction
from isa.target import TARGETS


def cycles(row: Any, *values: object, target: str) -> float:
    return float(row.cost.cycles(Instruction(row, Engine.tensor, values), TARGETS[target]))


def columns(memory: Memory, count: int, dtype: str) -> AccessPattern:
    return AccessPattern(memory, dtype, 0, ((1, count),), 0, 128)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_turning_takes_what_instructions_cost(dtype: str, target: str) -> None:
    """Of fp32 two instructions where 16-bit halves pass as they are."""
    size, generation = DTYPES[dtype].size, TARGETS[target].generation
    own, count = dtype, 1
    if size == 4 and generation >= BIT_FOR_BIT:
        own, count = "uint16", 2
    turned = columns(Memory.psum, 128, own)
    each = cycles(TransposeStationary, turned, 0, generation < 3, target=target)
    assert turning_passes(size, TARGETS[target]) * 128 == count * each


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_take_what_instructions_cost(dtype: str, target: str) -> None:
    views = columns(Memory.psum, 512, "float32"), columns(Memory.sbuf, 512, dtype)
    each = cycles(MultiplyMoving, *views, True, WHOLE_ARRAY, target=target)
    found = product_cycles(TARGETS[target], 0, 512, DTYPES[dtype].size)
    assert found == pytest.approx(each, rel=0.02)


@pytest.mark.parametrize("target", TARGETS)
def test_products_beside_one_another_take_as_long_as_the_longest(target: str) -> None:
    one, all = (beside_cycles(TARGETS[target], 20, own, 4) for own in ([512], [512, 400, 512]))
    assert one <= all < 1.5 * one


@pytest.mark.parametrize("target", TARGETS)
@given(outputs=st.integers(1, 700), size=st.sampled_from([2, 4]))
def test_parts_are_all_outputs_and_fit_their_columns(target: str, outputs: int, size: int) -> None:
    parts = output_parts(outputs, TARGETS[target], size)
    found = [n for part in parts for n in range(part.start, part.start + part.size)]
    assert found == list(range(outputs))
    assert all(part.size <= 128 // part.beside for part in parts)


def test_outputs_that_are_left_take_a_part_of_the_array() -> None:
    """160 outputs occupy five quarters of it, on trn1, which has no quarters, three halves."""
    share = {
        target: sum(1 / part.beside for part in output_parts(160, TARGETS[target], 2))
        for target in ("trn1", "trn2")
    }
    assert share == {"trn1": 1.5, "trn2": 1.25}


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 300), st.integers(1, 9))
def test_every_pixel_is_in_one_tile_of_columns(
    images: int, rows: int, columns: int, beside: int
) -> None:
    seen = np.zeros((images, rows, columns), int)
    for (image, row, column), (deep, high, wide), pace, _ in column_tiles_of(
        images, rows, columns, min(beside, columns)
    ):
        assert deep * high * wide <= 128
        end = column + (wide - 1) * pace + 1
        seen[image : image + deep, row : row + high, column:end:pace] += 1
    assert (seen == 1).all()
