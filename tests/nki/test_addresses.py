"""Addresses of operands in the machine's terms: bytes, partitions, registers."""

import numpy as np

from isa.access import AccessPattern
from isa.affine import Affine
from isa.enums import Memory
from nki.ir.nodes import Access, Register, Tensor
from nki.passes.analysis.body import Accesses
from nki.passes.emit.addresses import Addresses

TILE = Tensor(0, "tile", Memory.sbuf, "float32", (4, 16))


HBM = Tensor(1, "a", Memory.private_hbm, "float32", (4, 16))


def addresses(place=(32, 256)):
    return Addresses({HBM: 5}, {TILE: place})


def test_a_view_on_chip_lies_where_its_tensor_does():
    view = Access(TILE, "float32", (2, 8), (16, 2), 16 + 3)
    found = addresses().pattern(view, {})
    expected = AccessPattern(Memory.sbuf, "float32", 256 + 3 * 4, ((2, 8),), 32 + 1, 2)
    assert found == expected


def test_a_view_of_another_dtype_counts_in_its_own_elements():
    view = Access(TILE, "bfloat16", (4, 8), (32, 1), 32 + 6)
    found = addresses().pattern(view, {})
    assert (found.start_partition, found.offset, found.dims) == (33, 256 + 12, ((1, 8),))


def test_a_view_in_hbm_names_its_tensor_and_counts_bytes():
    found = addresses().pattern(Access(HBM, "float32", (4, 8), (16, 1), 5), {})
    assert (found.tensor, found.offset, found.dims) == (5, 20, ((16, 4), (1, 8)))


def test_registers_have_the_numbers_of_their_engine_and_move_by_bytes():
    row = Register(9, "row")
    found = addresses().pattern(
        Access(HBM, "float32", (8,), (1,), Affine(3, ((row, 16),))), {row: 2}
    )
    assert (found.offset, found.registers) == (12, ((2, 64),))


def test_columns_of_operands_are_those_of_each():
    """Of plain views those that differ in where they begin only are one operand."""
    views = [
        Access(tensor, "float32", (2, 4), (16, 1), offset)
        for tensor in (TILE, HBM)
        for offset in (0, 4, 17)
    ]
    made = addresses()
    columns = made.columns(Accesses(views, np.arange(len(views))))
    for view, number, offset in zip(views, columns.number.tolist(), columns.offset.tolist()):
        operand = columns.different[number]
        alone = addresses().pattern(view, {})
        assert (operand.start_partition, operand.tensor) == (alone.start_partition, alone.tensor)
        assert (operand.dims, operand.dtype) == (alone.dims, alone.dtype)
        assert offset == alone.offset
    assert len(columns.different) == 3  # two partitions, and HBM
