"""Streams of small kernels, their registers and declarations."""

import re

from tile_ir.parser import parse_kernel

from isa.files.text import disassemble
from nki.passes.emit.declarations import hbm_tensors, storage_records
from nki.passes.emit.location_table import LocationTable
from nki.passes.lower import lower
from nki.pipeline import optimise

# -- addresses ------------------------------------------------------------------------------------


# -- registers ------------------------------------------------------------------------------------


# -- source lines ---------------------------------------------------------------------------------


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
