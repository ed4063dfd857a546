"""Streams of small kernels, and what they are made of: addresses, registers, declarations."""

import re

import numpy as np
from tile_ir.parser import parse_kernel

from isa.access import AccessPattern
from isa.affine import Affine
from isa.enums import Memory
from isa.files.text import disassemble
from isa.program import SourceLocation
from nki.ir.nodes import Access, Register, Tensor
from nki.passes.analysis.body import Accesses
from nki.passes.emit.addresses import Addresses
from nki.passes.emit.declarations import hbm_tensors, storage_records
from nki.passes.emit.location_table import LocationTable
from nki.passes.lower import lower
from nki.pipeline import optimise

TILE = Tensor(0, "tile", Memory.sbuf, "float32", (4, 16))
HBM = Tensor(1, "a", Memory.private_hbm, "float32", (4, 16))


def addresses(place=(32, 256)):
    return Addresses({HBM: 5}, {TILE: place})


# -- addresses ------------------------------------------------------------------------------------


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


# -- registers ------------------------------------------------------------------------------------


# -- source lines ---------------------------------------------------------------------------------


def test_source_lines_are_numbered_once():
    table, code = LocationTable(), compile("0", "made up", "eval")
    place = SourceLocation("file", 3, 0, 0, "", "")
    found = [table.index(one) for one in (None, (code, 2), (code, 4), (code, 2), place, place)]
    assert found == [0, 1, 2, 1, 3, 3]
    assert table.locations == [None, (code, 2), (code, 4), place]


# -- declarations ---------------------------------------------------------------------------------

KERNEL = """kernel made_up target=trn2
tensor %t0 "a": shared_hbm float32[4, 16] role=input
tensor %t1 "tile": sbuf float32[4, 16] core=0
tensor %t2 "tile.1": sbuf float32[4, 16] core=0
tensor %t3 "out": shared_hbm float32[4, 16] role=output
input %t0 "a"
result %t3
core 0:
  storage_begin dst=%t1[4, 16 : 16, 1 @ 0]
  dma_copy dst=%t1[4, 16 : 16, 1 @ 0] src=%t0[4, 16 : 16, 1 @ 0] dge_mode=none engine=sync
  storage_begin dst=%t2[4, 16 : 16, 1 @ 0]
  activation dst=%t2[4, 16 : 16, 1 @ 0] op=exp data=%t1[4, 16 : 16, 1 @ 0]
  dma_copy dst=%t3[4, 16 : 16, 1 @ 0] src=%t2[4, 16 : 16, 1 @ 0] dge_mode=none engine=gpsimd
"""


def test_programs_declare_what_lies_in_hbm_and_list_what_lies_on_chip():
    kernel = optimise(parse_kernel(KERNEL))
    assert {tensor.name: at for tensor, at in hbm_tensors(kernel).items()} == {"a": 0, "out": 1}
    records = storage_records(kernel.bodies[0], LocationTable(), kernel.placement)
    assert [(one.name, one.offset) for one in records] == [("tile", 0), ("tile.1", 64)]


STREAMS = """\
.stream scalar
StorageBegin $S[0]-=1 dst=float32@sbuf[p0+4]+0x40[1][16]
Activate dst=float32@sbuf[p0+4]+0x40[1][16] data=float32@sbuf[p0+4]+0x0[1][16] op=exp \
bias=absent scale=1.0 reduce_command=idle $S[1]+=1@complete
Halt
.stream gpsimd
DmaCopy $S[1]-=1 dst=float32@shared_hbm[t1]+0x0[1,16][16,4] src=float32@sbuf[p0+4]+0x40[1][16] \
queue=1 dge_mode=none oob_mode=error
Halt
.stream sync
StorageBegin dst=float32@sbuf[p0+4]+0x0[1][16]
DmaCopy dst=float32@sbuf[p0+4]+0x0[1][16] src=float32@shared_hbm[t0]+0x0[1,16][16,4] \
queue=0 dge_mode=none oob_mode=error $S[0]+=1@complete
Halt
"""


def test_streams_have_addresses_queues_and_semaphores():
    text = disassemble(lower(optimise(parse_kernel(KERNEL))))
    lines = re.sub(r"^ +\d+: | #0$", "", text, flags=re.MULTILINE).splitlines()
    streams = "\n".join(lines[lines.index(".stream tensor") :])
    idle = ".stream tensor\nHalt\n", ".stream vector\nHalt\n"
    for stream in idle:
        assert stream in streams
        streams = streams.replace(stream, "")
    assert streams.strip() == STREAMS.strip()
