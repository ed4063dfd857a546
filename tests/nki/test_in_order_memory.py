"""What memory holds in the reference executor: what was never written, views, registers."""

from __future__ import annotations

import numpy as np
import pytest
from in_order_text import kernel_of, normal, run_text
from reference_run import run_reference

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine
from isa.errors import NeuronError
from isa.machine.control import StorageBegin
from isa.target import TARGETS
from nki.reference.in_order import in_order
from simulator.device_state import Capacity

UNWRITTEN = """
kernel unwritten target=trn2
tensor %t0 "a": shared_hbm float32[4, 16] role=input
tensor %t1 "out": shared_hbm float32[4, 16] role=output
tensor %t2 "tile": sbuf float32[4, 16] core=0
input %t0 "a"
result %t1
core 0:
  storage_begin dst=%t2[4, 16 : 16, 1 @ 0]
  dma_copy dst=%t2[4, 8 : 16, 1 @ 0] src=%t0[4, 8 : 16, 1 @ 0]
  tensor_scalar dst=%t2[4, 16 : 16, 1 @ 0] data=%t2[4, 16 : 16, 1 @ 0] op0=multiply \
operand0=2.0 engine=vector loc=0
  dma_copy dst=%t1[4, COUNT : 16, 1 @ 0] src=%t2[4, COUNT : 16, 1 @ 0]
location 0 "unwritten.py" 12 4 40 "unwritten" "    nisa.tensor_scalar(tile)"
"""


def test_uninitialised_data_in_an_output_is_an_error() -> None:
    with pytest.raises(NeuronError) as caught:
        run_text(UNWRITTEN.replace("COUNT", "16"), normal(4, 16))
    assert caught.value.code == "uninitialised-output"
    assert caught.value.location.line == 12


def test_an_output_that_is_not_written_is_an_error() -> None:
    with pytest.raises(NeuronError) as caught:
        run_text(UNWRITTEN.replace("COUNT", "8"), normal(4, 16))
    assert caught.value.code == "output-not-written"


def test_reads_of_uninitialised_data_are_findings() -> None:
    text = UNWRITTEN.replace("COUNT", "8").replace(
        "float32[4, 16] role=output", "float32[4, 8] role=output"
    )
    text = text.replace("dst=%t1[4, 8 : 16, 1 @ 0]", "dst=%t1[4, 8 : 8, 1 @ 0]")
    a = normal(4, 16)
    result = run_reference(kernel_of(text), [a])
    np.testing.assert_array_equal(result.outputs[0], a[:, :8] * 2)
    (finding,) = result.findings
    assert finding.elements == 32
    assert run_reference(kernel_of(text), [a], check=False).findings == []


def test_storage_begins_afresh_in_every_iteration() -> None:
    text = """
kernel fresh target=trn2
tensor %t0 "a": shared_hbm float32[2, 16] role=input
tensor %t1 "out": shared_hbm float32[2, 16] role=output
tensor %t2 "tile": sbuf float32[1, 16] core=0
input %t0 "a"
result %t1
core 0:
  register %r0 "i" from 0 to 1
  loop %r0 = 0 to 2 step 1:
    storage_begin dst=%t2[1, 16 : 16, 1 @ 0]
    dma_copy dst=%t2[1, 8 : 16, 1 @ 8*%r0] src=%t0[1, 8 : 16, 1 @ 16*%r0]
    dma_copy dst=%t1[1, 16 : 16, 1 @ 16*%r0] src=%t2[1, 16 : 16, 1 @ 0]
"""
    with pytest.raises(NeuronError) as caught:
        run_text(text, normal(2, 16))
    assert caught.value.code == "uninitialised-output"
    assert "16 of its 32 elements" in caught.value.what


def test_views_of_other_dtypes_share_the_bytes() -> None:
    text = """
kernel reinterpret target=trn2
tensor %t0 "a": shared_hbm float32[4, 16] role=input
tensor %t1 "out": shared_hbm uint16[4, 16] role=output
tensor %t2 "tile": sbuf float32[4, 16] core=0
input %t0 "a"
result %t1
core 0:
  storage_begin dst=%t2[4, 16 : 16, 1 @ 0]
  dma_copy dst=%t2[4, 16 : 16, 1 @ 0] src=%t0[4, 16 : 16, 1 @ 0]
  dma_copy dst=%t1[4, 16 : 16, 1 @ 0] src=%t2[4, 16 : 32, 2 @ 1]:uint16
"""
    a = normal(4, 16)
    (out,) = run_text(text, a)
    np.testing.assert_array_equal(out, a.view(np.uint16)[:, 1::2])


def test_accumulate_registers_keep_their_sums_between_operations() -> None:
    text = """
kernel sums target=trn2
tensor %t0 "a": shared_hbm float32[4, 16] role=input
tensor %t1 "out": shared_hbm float32[2, 1] role=output
tensor %t2 "tile": sbuf float32[4, 16] core=0
tensor %t3 "sums": sbuf float32[2, 1] core=0
input %t0 "a"
result %t1
core 0:
  storage_begin dst=%t2[4, 16 : 16, 1 @ 0]
  dma_copy dst=%t2[4, 16 : 16, 1 @ 0] src=%t0[4, 16 : 16, 1 @ 0]
  activation dst=%t2[2, 16 : 16, 1 @ 0] op=copy data=%t2[2, 16 : 16, 1 @ 0] reduce_op=add \
reduce_cmd=reset_reduce
  storage_begin dst=%t3[2, 1 : 1, 1 @ 0]
  activation dst=%t2[2, 16 : 16, 1 @ 0] op=copy data=%t2[2, 16 : 16, 1 @ 0] scale=2.0 \
reduce_op=add reduce_res=%t3[2, 1 : 1, 1 @ 0] reduce_cmd=reduce
  dma_copy dst=%t1[2, 1 : 1, 1 @ 0] src=%t3[2, 1 : 1, 1 @ 0]
"""
    a = normal(4, 16)
    (out,) = run_text(text, a)
    np.testing.assert_allclose(out[:, 0], 3 * a[:2].sum(axis=1), rtol=1e-5)


def test_long_unrolled_kernels_do_not_keep_all_tiles() -> None:
    lines = []
    declarations = []
    for i in range(200):
        declarations.append(f'tensor %t{i + 2} "tile": sbuf float32[128, 512] core=0')
        lines.append(f"  storage_begin dst=%t{i + 2}[128, 512 : 512, 1 @ 0]")
        lines.append(
            f"  dma_copy dst=%t{i + 2}[128, 512 : 512, 1 @ 0] src=%t0[128, 512 : 512, 1 @ 0]"
        )
        lines.append(
            f"  dma_copy dst=%t1[128, 512 : 512, 1 @ 0] src=%t{i + 2}[128, 512 : 512, 1 @ 0]"
        )
    text = "\n".join(
        [
            "kernel long target=trn2",
            'tensor %t0 "a": shared_hbm float32[128, 512] role=input',
            'tensor %t1 "out": shared_hbm float32[128, 512] role=output',
            *declarations,
            'input %t0 "a"',
            "result %t1",
            "core 0:",
            *lines,
            "",
        ]
    )
    target = TARGETS["trn2"]
    assert Capacity.of(target).sbuf < 200 * 512 * 4
    assert in_order(kernel_of(text)).capacity == Capacity.of(target)


def test_a_tile_in_the_place_of_another_holds_nothing() -> None:
    text = """
kernel reused target=trn2
tensor %t0 "a": shared_hbm float32[4, 16] role=input
tensor %t1 "out": shared_hbm float32[8, 16] role=output
tensor %t2 "first": sbuf float32[4, 16] core=0
tensor %t3 "second": sbuf float32[4, 16] core=0
input %t0 "a"
result %t1
core 0:
  storage_begin dst=%t2[4, 16 : 16, 1 @ 0]
  dma_copy dst=%t2[4, 16 : 16, 1 @ 0] src=%t0[4, 16 : 16, 1 @ 0]
  dma_copy dst=%t1[4, 16 : 16, 1 @ 0] src=%t2[4, 16 : 16, 1 @ 0]
  storage_begin dst=%t3[4, 16 : 16, 1 @ 0]
  dma_copy dst=%t3[4, 8 : 16, 1 @ 0] src=%t0[4, 8 : 16, 1 @ 0]
  dma_copy dst=%t1[4, 16 : 16, 1 @ 64] src=%t3[4, 16 : 16, 1 @ 0] loc=0
location 0 "reused.py" 9 4 40 "reused" "    nisa.dma_copy(out, second)"
"""
    kernel = kernel_of(text)
    begins = [
        instruction.values[0]
        for instruction in in_order(kernel).program.cores[0].streams[Engine.unknown]
        if instruction.row is StorageBegin
    ]
    assert len(begins) == 2 and begins[0] == begins[1]
    with pytest.raises(NeuronError) as caught:
        run_reference(kernel, [normal(4, 16)])
    assert caught.value.code == "uninitialised-output" and caught.value.location.line == 9
    assert "32 of its 128 elements" in caught.value.what
    (out,) = run_reference(kernel, [np.ones((4, 16), np.float32)], check=False).outputs
    assert np.isnan(out[4:, 8:]).all() and (out[:4] == 1).all() and (out[4:, :8] == 1).all()


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_one_array_for_two_parameters_keeps_what_was_written(mode):
    @nki.jit(platform_target="trn2")
    def kernel(a, b):
        out = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.shared_hbm)
        five = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.memset(dst=five, value=5.0)
        nisa.dma_copy(dst=a, src=five)
        nisa.dma_copy(dst=out, src=b)
        return out

    x = np.ones((4, 8), np.float32)
    assert (nki.simulate(kernel, mode=mode)(x, x) == 1).all() and (x == 5).all()
