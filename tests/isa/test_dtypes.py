"""The dtype table against NumPy's and ml_dtypes' own descriptions of the formats."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from isa.dtypes import BY_CODE, CODE_BITS, DTYPES, DTypeKind, Overflow, dtype, normalise
from isa.errors import NeuronError

PUBLISHED = (
    "uint8 int8 uint16 int16 uint32 int32 float8_e4m3 float8_e5m2 float8_e4m3fn float8_e8m0fnu "
    "float16 bfloat16 tfloat32 float32 float8_e5m2_x4 float8_e4m3fn_x4 float4_e2m1fn_x4 bool"
)
RUNTIME_CODES = {
    "uint64": 0x1,
    "int8": 0x2,
    "uint8": 0x3,
    "int16": 0x4,
    "uint16": 0x5,
    "bfloat16": 0x6,
    "float16": 0x7,
    "int32": 0x8,
    "uint32": 0x9,
    "float32": 0xA,
    "int64": 0xC,
    "float8_e4m3": 0xE,
    "float8_e5m2": 0xF,
}
FLOATS = [row for row in DTYPES.values() if row.is_float]
STORED_AS_THEMSELVES = [row for row in FLOATS if row.storage == row.name]
INTEGERS = [row for row in DTYPES.values() if row.is_integer]


def named(row) -> str:
    return row.name


def test_names_are_the_published_ones_and_the_wide_integers():
    assert set(DTYPES) == {*PUBLISHED.split(), "int64", "uint64"}
    assert all(DTYPES[name].name == name for name in DTYPES)


def test_codes():
    assert len(BY_CODE) == len(DTYPES)
    assert all(0 < code < 1 << CODE_BITS for code in BY_CODE)
    for name, code in RUNTIME_CODES.items():
        assert DTYPES[name].code == DTYPES[name].runtime_code == code
    for row in DTYPES.values():
        assert row.runtime_code in RUNTIME_CODES.values()


@pytest.mark.parametrize("row", DTYPES.values(), ids=named)
def test_size_is_that_of_the_storage(row):
    assert row.numpy.itemsize == row.size
    assert row.bits == 8 * row.size


@pytest.mark.parametrize("row", INTEGERS, ids=named)
def test_integer_ranges(row):
    information = np.iinfo(row.numpy)
    assert (row.lowest, row.largest) == (information.min, information.max)
    assert type(row.largest) is int
    assert row.overflow is Overflow.saturate
    assert row.kind is (DTypeKind.signed if row.lowest < 0 else DTypeKind.unsigned)


@pytest.mark.parametrize("row", STORED_AS_THEMSELVES, ids=named)
def test_float_formats(row):
    information = ml_dtypes.finfo(row.numpy)
    assert row.largest == float(information.max)
    assert row.lowest == float(information.min)
    assert (row.exponent_bits, row.mantissa_bits) == (information.nexp, information.nmant)


@pytest.mark.parametrize("row", STORED_AS_THEMSELVES, ids=named)
def test_overflow_is_what_the_conversion_does(row):
    with np.errstate(over="ignore"):
        beyond = np.array([row.largest * 4], dtype=np.float64).astype(row.numpy).astype(float)[0]
    assert row.overflow is (Overflow.infinity if np.isinf(beyond) else Overflow.nan)
    assert row.has_infinity == np.isinf(beyond)
    assert row.has_nan


def test_tensor_float_is_stored_as_float32():
    row = DTYPES["tfloat32"]
    assert row.numpy == np.float32
    assert (row.exponent_bits, row.mantissa_bits) == (8, 10)
    low_bits = np.array([row.largest], np.float32).view(np.uint32)[0] & 0x1FFF
    assert low_bits == 0
    assert np.float32(row.largest) == row.largest


@pytest.mark.parametrize("name, size", [("float8_e5m2_x4", 4), ("float4_e2m1fn_x4", 2)])
def test_packed_types_hold_four_values(name, size):
    row = DTYPES[name]
    assert (row.packed_values, row.size, row.is_packed) == (4, size, True)
    assert row.words == np.dtype(f"uint{8 * size}")
    assert row.generations == (4,)
    assert hasattr(ml_dtypes, row.packed_type)


def test_wide_integers_are_for_dma_only():
    assert {row.name for row in DTYPES.values() if row.dma_only} == {"int64", "uint64"}


@pytest.mark.parametrize(
    "value, name",
    [
        ("float32", "float32"),
        ("bool_", "bool"),
        ("torch.bfloat16", "bfloat16"),
        (bool, "bool"),
        (np.bool_, "bool"),
        (np.float32, "float32"),
        (np.dtype("uint16"), "uint16"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.float8_e4m3), "float8_e4m3"),
        (ml_dtypes.float8_e8m0fnu, "float8_e8m0fnu"),
        (DTYPES["tfloat32"], "tfloat32"),
    ],
)
def test_normalise(value, name):
    assert normalise(value) == name
    assert dtype(value) is DTYPES[name]


@pytest.mark.parametrize("value", ["float64", np.float64, float, int, None, 3, "", np.complex64])
def test_what_is_no_dtype_is_refused(value):
    with pytest.raises(NeuronError) as caught:
        normalise(value)
    assert caught.value.code == "dtype-not-allowed"
    assert "bfloat16" in caught.value.why


@pytest.mark.parametrize("name, size", [("float8_e4m3fn_x4", 4), ("float4_e2m1fn_x4", 2)])
def test_packed_types_are_numpy_dtypes_of_their_own_name(name, size):
    """What other tools ask of them: the name, words by view, and no numbers."""
    row = DTYPES[name]
    array = row.array(np.arange(6).reshape(2, 3))
    assert str(array.dtype) == array.dtype.name == name and normalise(array.dtype) == name
    assert array.dtype == np.dtype(name) != np.dtype(f"u{size}")
    assert DTYPES["float8_e5m2_x4"].numpy != array.dtype
    assert (array.itemsize, array.dtype.alignment) == (size, size)
    with pytest.raises(TypeError):
        array.astype(np.float32)
    with pytest.raises(TypeError):
        np.ones(3, np.float32).astype(array.dtype)
    words = array.view(f"u{size}")
    np.testing.assert_array_equal(words, [[0, 1, 2], [3, 4, 5]])
    for same in (array.copy(), array.T.copy().T, np.asarray(array, dtype=name), array[::-1][::-1]):
        np.testing.assert_array_equal(np.ascontiguousarray(same).view(f"u{size}"), words)
    empty = np.zeros((2, 3), dtype=name)
    empty[...] = array
    empty[1, 2] = 77
    assert empty.tolist() == [[0, 1, 2], [3, 4, 77]] and array[1, 2] == 5
    assert np.frombuffer(empty.tobytes(), name)[5] == 77
    assert str(np.concatenate([array, empty]).dtype) == name


def test_naming_a_packed_type_registers_it():
    """In a fresh process, before anything ran."""
    code = (
        "import numpy as np, nki.language as nl\n"
        "print(np.zeros(2, nl.float8_e5m2_x4).dtype, nl.float4_e2m1fn_x4)"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["float8_e5m2_x4", "float4_e2m1fn_x4"]
