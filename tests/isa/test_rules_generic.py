"""Checks of field declarations against what the documents say, counted out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.operations import OPERATIONS
from isa.rules import check_call
from isa.spec import defaults
from isa.target import TARGETS
from nki.ir.nodes import Access, Tensor

TRN2 = TARGETS["trn2"]


def rows(tensor: Tensor, first: int, count: int) -> Access:
    """Some partitions of a tensor on chip."""
    pitch = tensor.pitch
    return Access(tensor, tensor.dtype, (count, pitch), (pitch, 1), first * pitch)


def tile(
    partitions: int, columns: int, dtype: str = "float32", memory: Any = Memory.sbuf
) -> Tensor:
    return Tensor(0, "t", memory, dtype, (partitions, columns))


def verdict(name: str, **given: Any) -> tuple[str, str | None] | None:
    row = OPERATIONS[name]
    values = defaults(row) | given
    found = check_call(row, tuple(values[field] for field in row.field_names), TRN2)
    return found and (found.code, found.operand)


@given(st.integers(0, 127), st.integers(1, 128))
def test_where_an_engine_may_start(start: int, count: int) -> None:
    """Up to 32 partitions from 0, 32, 64 or 96, up to 64 from 0 or 64, more from 0 (ARCH2)."""
    if start + count > 128:
        return
    step = next(size for size in (32, 64, 128) if count <= size)
    access = rows(tile(128, 4), start, count)
    found = verdict("memset", dst=access, value=1.0)
    assert (found is None) == (start % step == 0)
    assert found in (None, ("view-not-allowed", "dst"))


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32"])
@pytest.mark.parametrize("memory", [Memory.sbuf, Memory.psum])
@given(over=st.integers(-3, 3))
def test_how_much_a_partition_holds(dtype: str, memory: Memory, over: int) -> None:
    """192 KiB of SBUF and 16 KiB of PSUM on trn1, 224 and 16 on trn2."""
    capacity = {Memory.sbuf: 224 << 10, Memory.psum: 16 << 10}[memory]
    columns = capacity // DTYPES[dtype].size + over
    found = verdict("memset", dst=rows(tile(8, columns, dtype, memory), 0, 8), value=1)
    assert found == (None if over <= 0 else ("tile-limit", "dst"))


@given(st.integers(1, 300))
def test_how_many_partitions_there_are(count: int) -> None:
    found = verdict("memset", dst=rows(tile(count, 2), 0, count), value=1.0)
    assert found == (None if count <= 128 else ("partition-limit", "dst"))


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2, 2), (2, 2, 2, 2, 2, 2)])
def test_an_access_has_five_dimensions(sizes: tuple[int, ...]) -> None:
    tensor = tile(2, 4096)
    strides = (4096, *(2 ** (2 * i) for i in range(len(sizes) - 2, -1, -1)))
    found = verdict("memset", dst=Access(tensor, "float32", sizes, strides), value=1.0)
    assert found == (None if len(sizes) == 5 else ("view-not-allowed", "dst"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"value": 1.0}, None),
        ({"value": None}, ("missing-argument", "value")),
        ({"value": "1"}, ("value-not-allowed", "value")),
        ({"value": 1.0, "engine": Engine.tensor}, ("engine-not-allowed", "engine")),
        ({"value": 1.0, "engine": "vector"}, ("value-not-allowed", "engine")),
        ({"value": 1 << 70}, ("value-not-allowed", "value")),
    ],
)
def test_attributes(given: dict[str, Any], expected: Any) -> None:
    assert verdict("memset", dst=rows(tile(4, 4), 0, 4), **given) == expected


def test_what_is_no_tensor_and_what_is_missing() -> None:
    found = check_call(OPERATIONS["memset"], (None, 1.0, Engine.unknown), TRN2)
    assert found is not None and found.code == "missing-argument"
    assert verdict("memset", dst=3.0, value=1.0) == ("not-a-tensor", "dst")
    hbm = Tensor(0, "h", Memory.private_hbm, "float32", (4, 4))
    access = Access(hbm, "float32", (4, 4), (4, 1))
    assert verdict("memset", dst=access, value=1.0) == ("wrong-memory", "dst")
