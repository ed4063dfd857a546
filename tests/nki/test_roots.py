"""Tensors within others, before and after the pass, as text."""

import pytest
from tile_ir.parser import parse_kernel

from isa.errors import NeuronError
from nki.ir.text import print_kernel
from nki.passes.place.roots import ResolveRoots

HEAD = """kernel made_up target=trn2
tensor %t0 "arena": shared_hbm uint8[8192] role=inout
tensor %t1 "row": shared_hbm float32[4, 16] within=%t0 at={at}
tensor %t2 "tile": sbuf float32[4, 16] core=0
input %t0 "arena"
core 0:
  storage_begin dst=%t2[4, 16 : 16, 1 @ 0]
"""
COPY = "dma_copy dst=%t2[4, 16 : 16, 1 @ 0] src={src} dge_mode=none engine=sync"


def resolved(text):
    return print_kernel(ResolveRoots().run(parse_kernel(text)))


def copies(text):
    return [line.strip() for line in text.splitlines() if "dma_copy" in line]


def test_a_view_becomes_one_of_the_tensor_that_has_memory():
    text = resolved(HEAD.format(at=4096) + "  " + COPY.format(src="%t1[4, 16 : 16, 1 @ 0]"))
    assert copies(text) == [COPY.format(src="%t0[4, 16 : 16, 1 @ 1024]:float32")]


def test_a_kernel_without_such_tensors_stays():
    kernel = parse_kernel(
        'kernel made_up target=trn2\ntensor %t0 "a": private_hbm uint8[8] core=0\ncore 0:\n'
    )
    assert ResolveRoots().run(kernel) is kernel


def test_a_view_that_leaves_its_tensor_is_refused():
    text = HEAD.format(at=0) + "  " + COPY.format(src="%t1[4, 16 : 16, 1 @ 16]")
    with pytest.raises(NeuronError) as error:
        resolved(text)
    assert error.value.code == "out-of-bounds"
    assert "'row'" in error.value.what


@pytest.mark.parametrize("used", [False, True])
def test_a_tensor_begins_where_its_bytes_may_hold_something(used):
    begin = "  storage_begin dst=%t1[4, 16 : 16, 1 @ 0]\n"
    local = HEAD.replace(" role=inout", " core=0").replace('input %t0 "arena"\n', "")
    local = local.replace("shared_hbm", "private_hbm").replace("within=%t0", "core=0 within=%t0")
    row, tile = (f"%t{number}[4, 16 : 16, 1 @ 0]" for number in (1, 2))
    store = f"  dma_copy dst={row} src={tile} dge_mode=none engine=gpsimd\n"
    text = local.format(at=0) + begin + store + (begin + store if used else "")
    found = [line for line in resolved(text).splitlines() if "storage_begin dst=%t0" in line]
    assert len(found) == used
