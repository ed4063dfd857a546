"""The reference executor on hand-written tile IR, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference_run import run_reference
from tile_ir.parser import parse_kernel
from tile_ir.verify import verify

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine
from isa.errors import NeuronError
from isa.machine.control import StorageBegin
from isa.spec import Instruction
from isa.target import TARGETS
from nki.ir.nodes import TracedKernel
from nki.reference.in_order import in_order
from simulator.device_state import Capacity
from simulator.execute import LoadedProgram
from simulator.native.codegen.library import library
from simulator.watchdog import RunLimits, limited

_RNG = np.random.default_rng(7)


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return _RNG.standard_normal(shape).astype(np.float32)


def _kernel(text: str) -> TracedKernel:
    kernel = parse_kernel(text)
    verify(kernel)
    return kernel


def _run(text: str, *inputs: Any, **binding: int) -> list[np.ndarray[Any, Any]]:
    return run_reference(_kernel(text), list(inputs), binding).outputs


MATMUL = """
kernel matmul target=trn2
tensor %t0 "lhsT": shared_hbm float32[512, 128] role=input
tensor %t1 "rhs": shared_hbm float32[512, 256] role=input
tensor %t2 "out": shared_hbm float32[128, 256] role=output
tensor %t3 "stationary": sbuf float32[128, 128] core=0
tensor %t4 "moving": sbuf float32[128, 256] core=0
tensor %t5 "sum": psum float32[128, 256] core=0
tensor %t6 "result": sbuf float32[128, 256] core=0
input %t0 "lhsT"
input %t1 "rhs"
result %t2
core 0:
  register %r0 "k" from 0 to 3
  storage_begin dst=%t5[128, 256 : 256, 1 @ 0]
  loop %r0 = 0 to 4 step 1:
    storage_begin dst=%t3[128, 128 : 128, 1 @ 0]
    dma_copy dst=%t3[128, 128 : 128, 1 @ 0] src=%t0[128, 128 : 128, 1 @ 16384*%r0]
    storage_begin dst=%t4[128, 256 : 256, 1 @ 0]
    dma_copy dst=%t4[128, 256 : 256, 1 @ 0] src=%t1[128, 256 : 256, 1 @ 32768*%r0]
    nc_matmul dst=%t5[128, 256 : 256, 1 @ 0] stationary=%t3[128, 128 : 128, 1 @ 0] \
moving=%t4[128, 256 : 256, 1 @ 0] accumulate=[%r0 > 0]
  storage_begin dst=%t6[128, 256 : 256, 1 @ 0]
  tensor_copy dst=%t6[128, 256 : 256, 1 @ 0] src=%t5[128, 256 : 256, 1 @ 0] engine=vector
  dma_copy dst=%t2[128, 256 : 256, 1 @ 0] src=%t6[128, 256 : 256, 1 @ 0]
"""


def test_accumulation_over_a_rolled_loop() -> None:
    lhs, rhs = _normal(512, 128), _normal(512, 256)
    (out,) = _run(MATMUL, lhs, rhs)
    exact = lhs.astype(np.float64).T @ rhs.astype(np.float64)
    np.testing.assert_allclose(out, exact, rtol=0, atol=512 * 2**-23 * 16)


SYMBOLIC = """
kernel scale target=trn2
symbol M min=128 max=1024 multiple_of=128
guard (-M + 896) "M is at most 896"
tensor %t0 "a": shared_hbm float32[M, 64] role=input
tensor %t1 "out": shared_hbm bfloat16[M, 64] role=output
tensor %t2 "tile": sbuf float32[128, 64] core=0
tensor %t3 "half": sbuf bfloat16[128, 64] core=0
input %t0 "a"
result %t1
core 0:
  register %r0 "i" from 0 to (M//128 - 1)
  loop %r0 = 0 to (M//128) step 1 unroll:
    storage_begin dst=%t2[128, 64 : 64, 1 @ 0]
    dma_copy dst=%t2[128, 64 : 64, 1 @ 0] src=%t0[128, 64 : 64, 1 @ 8192*%r0]
    storage_begin dst=%t3[128, 64 : 64, 1 @ 0]
    tensor_scalar dst=%t3[128, 64 : 64, 1 @ 0] data=%t2[128, 64 : 64, 1 @ 0] op0=multiply \
operand0=3.0 op1=add operand1=0.5 engine=vector
    dma_copy dst=%t1[128, 64 : 64, 1 @ 8192*%r0] src=%t3[128, 64 : 64, 1 @ 0]
"""


@pytest.mark.parametrize("rows", [128, 384, 896])
def test_launch_symbols_follow_from_the_inputs(rows: int) -> None:
    import ml_dtypes

    a = _normal(rows, 64)
    (out,) = _run(SYMBOLIC, a)
    expected = (a * np.float32(3) + np.float32(0.5)).astype(ml_dtypes.bfloat16)
    assert out.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("rows", [100, 1024, 1152])
def test_sizes_that_are_not_admitted_are_refused(rows: int) -> None:
    with pytest.raises(NeuronError) as caught:
        _run(SYMBOLIC, _normal(rows, 64))
    assert caught.value.code == "guard-refused"


def test_inputs_must_be_as_declared() -> None:
    with pytest.raises(NeuronError) as caught:
        _run(MATMUL, _normal(512, 128))
    assert caught.value.code == "input-mismatch"
    with pytest.raises(NeuronError) as caught:
        _run(MATMUL, _normal(512, 128), _normal(512, 256).astype(np.float64))
    assert caught.value.code == "input-mismatch"


DYNAMIC = """
kernel prefix target=trn2
tensor %t0 "n": shared_hbm int32[1, 1] role=input
tensor %t1 "a": shared_hbm float32[8, 16] role=input
tensor %t2 "out": shared_hbm float32[8, 16] role=inout
tensor %t3 "count": sbuf int32[1, 1] core=0
tensor %t4 "row": sbuf float32[1, 16] core=0
input %t0 "n"
input %t1 "a"
input %t2 "out"
result %t2
core 0:
  register %r0 "limit"
  register %r1 "i" from 0
  storage_begin dst=%t3[1, 1 : 1, 1 @ 0]
  dma_copy dst=%t3[1, 1 : 1, 1 @ 0] src=%t0[1, 1 : 1, 1 @ 0]
  register_load dst=%r0 src=%t3[1, 1 : 1, 1 @ 0]
  loop %r1 = 0 to %r0 step 2:
    storage_begin dst=%t4[1, 16 : 16, 1 @ 0]
    dma_copy dst=%t4[1, 16 : 16, 1 @ 0] src=%t1[1, 16 : 16, 1 @ 16*%r1]
    dma_copy dst=%t2[1, 16 : 16, 1 @ -16*%r1 + 112] src=%t4[1, 16 : 16, 1 @ 0]
"""


@pytest.mark.parametrize("count", [0, 1, 5, 8])
def test_dynamic_loops_and_offsets(count: int) -> None:
    a, before = _normal(8, 16), _normal(8, 16)
    n = np.array([[count]], np.int32)
    expected = before.copy()
    for i in range(0, count, 2):
        expected[7 - i] = a[i]
    result = run_reference(_kernel(DYNAMIC), [n, a, before])
    np.testing.assert_array_equal(result.outputs[0], expected)
    np.testing.assert_array_equal(result.inputs_after[2], expected)
    np.testing.assert_array_equal(result.inputs_after[1], a)


def test_dynamic_offsets_are_checked() -> None:
    with pytest.raises(NeuronError) as caught:
        _run(DYNAMIC, np.array([[9]], np.int32), _normal(8, 16), _normal(8, 16))
    assert caught.value.code == "dynamic-out-of-bounds"
    assert "'a'" in caught.value.what and "element 128" in caught.value.what


WHILE = """
kernel countdown target=trn2
tensor %t0 "n": shared_hbm int32[1, 1] role=input
tensor %t1 "out": shared_hbm int32[1, 1] role=output
tensor %t2 "count": sbuf int32[1, 1] core=0
tensor %t3 "sum": sbuf int32[1, 1] core=0
tensor %t4 "one": sbuf int32[1, 1] core=0
input %t0 "n"
result %t1
core 0:
  register %r0 "flag"
  storage_begin dst=%t2[1, 1 : 1, 1 @ 0]
  dma_copy dst=%t2[1, 1 : 1, 1 @ 0] src=%t0[1, 1 : 1, 1 @ 0]
  storage_begin dst=%t3[1, 1 : 1, 1 @ 0]
  memset dst=%t3[1, 1 : 1, 1 @ 0] value=0 engine=vector
  storage_begin dst=%t4[1, 1 : 1, 1 @ 0]
  memset dst=%t4[1, 1 : 1, 1 @ 0] value=1 engine=vector
  register_load dst=%r0 src=%t2[1, 1 : 1, 1 @ 0]
  while %r0:
    tensor_tensor dst=%t3[1, 1 : 1, 1 @ 0] data1=%t3[1, 1 : 1, 1 @ 0] \
data2=%t2[1, 1 : 1, 1 @ 0] op=add engine=gpsimd
    tensor_tensor dst=%t2[1, 1 : 1, 1 @ 0] data1=%t2[1, 1 : 1, 1 @ 0] \
data2=%t4[1, 1 : 1, 1 @ 0] op=subtract engine=gpsimd
    register_load dst=%r0 src=%t2[1, 1 : 1, 1 @ 0]
  register_move dst=%r0 src=7
  register_alu dst=%r0 op=multiply left=%r0 right=-2
  register_store dst=%t2[1, 1 : 1, 1 @ 0] src=%r0
  tensor_tensor dst=%t3[1, 1 : 1, 1 @ 0] data1=%t3[1, 1 : 1, 1 @ 0] \
data2=%t2[1, 1 : 1, 1 @ 0] op=add engine=gpsimd
  dma_copy dst=%t1[1, 1 : 1, 1 @ 0] src=%t3[1, 1 : 1, 1 @ 0]
"""


@pytest.mark.parametrize("count", [0, 1, 6])
def test_while_ends_on_data(count: int) -> None:
    (out,) = _run(WHILE, np.array([[count]], np.int32))
    assert out.tolist() == [[count * (count + 1) // 2 - 14]]


UNSET = """
kernel unset target=trn2
tensor %t0 "n": shared_hbm int32[1, 2] role=input
tensor %t1 "out": shared_hbm int32[1, 1] role=output
tensor %t2 "count": sbuf int32[1, 2] core=0
tensor %t3 "value": sbuf int32[1, 1] core=0
input %t0 "n"
result %t1
core 0:
  register %r0 "trips"
  register %r1 "value"
  register %r2 "i" from 0
  storage_begin dst=%t2[1, 2 : 2, 1 @ 0]
  dma_copy dst=%t2[1, 2 : 2, 1 @ 0] src=%t0[1, 2 : 2, 1 @ 0]
  register_load dst=%r0 src=%t2[1, 1 : 2, 1 @ 0]
  loop %r2 = 0 to %r0 step 1:
    register_load dst=%r1 src=%t2[1, 1 : 2, 1 @ 1]
  storage_begin dst=%t3[1, 1 : 1, 1 @ 0]
  register_store dst=%t3[1, 1 : 1, 1 @ 0] src=%r1 loc=0
  dma_copy dst=%t1[1, 1 : 1, 1 @ 0] src=%t3[1, 1 : 1, 1 @ 0]
location 0 "unset.py" 21 4 40 "unset" "    nisa.register_store(value, register)"
"""


def test_a_register_that_a_loop_without_iterations_left_unset_is_refused() -> None:
    (out,) = _run(UNSET, np.array([[2, 5]], np.int32))
    assert out.tolist() == [[5]]
    with pytest.raises(NeuronError, match="is read before it holds a value") as caught:
        _run(UNSET, np.array([[0, 5]], np.int32))
    assert caught.value.location.line == 21


def test_endless_while_is_an_error() -> None:
    with limited(RunLimits(100)), pytest.raises(NeuronError) as caught:
        _run(WHILE, np.array([[-1]], np.int32))
    assert caught.value.code == "loop-limit"


GATHER = """
kernel gather target=trn2
tensor %t0 "a": shared_hbm float32[50, 8] role=input
tensor %t1 "rows": shared_hbm int32[16, 1] role=input
tensor %t2 "out": shared_hbm float32[16, 8] role=output
tensor %t3 "scattered": shared_hbm float32[50, 8] role=inout
tensor %t4 "index": sbuf int32[16, 1] core=0
tensor %t5 "tile": sbuf float32[16, 8] core=0
input %t0 "a"
input %t1 "rows"
input %t3 "scattered"
result %t2
core 0:
  storage_begin dst=%t4[16, 1 : 1, 1 @ 0]
  dma_copy dst=%t4[16, 1 : 1, 1 @ 0] src=%t1[16, 1 : 1, 1 @ 0]
  storage_begin dst=%t5[16, 8 : 8, 1 @ 0]
  memset dst=%t5[16, 8 : 8, 1 @ 0] value=-1.0 engine=vector
  dma_copy dst=%t5[16, 8 : 8, 1 @ 0] src=%t0[16, 8 : 8, 1 @ 0] \
rows(%t4[16, 1 : 1, 1 @ 0] * 8 < 50) oob_mode=MODE
  dma_copy dst=%t2[16, 8 : 8, 1 @ 0] src=%t5[16, 8 : 8, 1 @ 0]
  dma_copy dst=%t3[16, 8 : 8, 1 @ 0] rows(%t4[16, 1 : 1, 1 @ 0] * 8 < 50) \
src=%t5[16, 8 : 8, 1 @ 0] oob_mode=MODE
"""


def test_gather_and_scatter_by_rows() -> None:
    a, scattered = _normal(50, 8), _normal(50, 8)
    rows = _RNG.permutation(50)[:16].astype(np.int32).reshape(16, 1)
    kernel = _kernel(GATHER.replace("MODE", "error"))
    result = run_reference(kernel, [a, rows, scattered])
    np.testing.assert_array_equal(result.outputs[0], a[rows[:, 0]])
    expected = scattered.copy()
    expected[rows[:, 0]] = a[rows[:, 0]]
    np.testing.assert_array_equal(result.inputs_after[2], expected)


def test_rows_outside_are_skipped_or_refused() -> None:
    a, scattered = _normal(50, 8), _normal(50, 8)
    rows = np.arange(40, 56, dtype=np.int32).reshape(16, 1)
    skipping = _kernel(GATHER.replace("MODE", "skip"))
    (out,) = run_reference(skipping, [a, rows, scattered]).outputs
    np.testing.assert_array_equal(out[:10], a[40:])
    np.testing.assert_array_equal(out[10:], -1)
    with pytest.raises(NeuronError) as caught:
        run_reference(_kernel(GATHER.replace("MODE", "error")), [a, rows, scattered])
    assert caught.value.code == "dynamic-out-of-bounds"


CORES = """
kernel swap target=trn2
tensor %t0 "a": shared_hbm float32[2, 16] role=input
tensor %t1 "middle": shared_hbm float32[2, 16]
tensor %t2 "out": shared_hbm float32[2, 16] role=output
tensor %t3 "x": sbuf float32[1, 16] core=0
tensor %t4 "y": sbuf float32[1, 16] core=1
input %t0 "a"
result %t2
core 0:
  storage_begin dst=%t1[2, 16 : 16, 1 @ 0]
  storage_begin dst=%t3[1, 16 : 16, 1 @ 0]
  dma_copy dst=%t3[1, 16 : 16, 1 @ 0] src=%t0[1, 16 : 16, 1 @ 0]
  tensor_scalar dst=%t3[1, 16 : 16, 1 @ 0] data=%t3[1, 16 : 16, 1 @ 0] op0=add operand0=1.0 \
engine=vector
  dma_copy dst=%t1[1, 16 : 16, 1 @ 0] src=%t3[1, 16 : 16, 1 @ 0]
  core_barrier data=%t1[2, 16 : 16, 1 @ 0] cores=(0, 1) engine=gpsimd
  dma_copy dst=%t3[1, 16 : 16, 1 @ 0] src=%t1[1, 16 : 16, 1 @ 16]
  dma_copy dst=%t2[1, 16 : 16, 1 @ 0] src=%t3[1, 16 : 16, 1 @ 0]
core 1:
  storage_begin dst=%t1[2, 16 : 16, 1 @ 0]
  storage_begin dst=%t4[1, 16 : 16, 1 @ 0]
  dma_copy dst=%t4[1, 16 : 16, 1 @ 0] src=%t0[1, 16 : 16, 1 @ 16]
  tensor_scalar dst=%t4[1, 16 : 16, 1 @ 0] data=%t4[1, 16 : 16, 1 @ 0] op0=add operand0=2.0 \
engine=vector
  dma_copy dst=%t1[1, 16 : 16, 1 @ 16] src=%t4[1, 16 : 16, 1 @ 0]
  core_barrier data=%t1[2, 16 : 16, 1 @ 0] cores=(0, 1) engine=gpsimd
  dma_copy dst=%t4[1, 16 : 16, 1 @ 0] src=%t1[1, 16 : 16, 1 @ 0]
  dma_copy dst=%t2[1, 16 : 16, 1 @ 16] src=%t4[1, 16 : 16, 1 @ 0]
"""


def test_cores_exchange_through_shared_memory_after_a_barrier() -> None:
    a = _normal(2, 16)
    (out,) = _run(CORES, a)
    np.testing.assert_array_equal(out[0], a[1] + np.float32(2))
    np.testing.assert_array_equal(out[1], a[0] + np.float32(1))


def test_a_barrier_that_one_core_lacks_is_a_deadlock() -> None:
    head, tail = CORES.rsplit("  core_barrier", 1)
    text = head + tail.split("\n", 1)[1]
    with pytest.raises(NeuronError) as caught:
        _run(text, _normal(2, 16))
    assert caught.value.code == "deadlock"
    assert "Core 0" in caught.value.what


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
        _run(UNWRITTEN.replace("COUNT", "16"), _normal(4, 16))
    assert caught.value.code == "uninitialised-output"
    assert caught.value.location.line == 12


def test_an_output_that_is_not_written_is_an_error() -> None:
    with pytest.raises(NeuronError) as caught:
        _run(UNWRITTEN.replace("COUNT", "8"), _normal(4, 16))
    assert caught.value.code == "output-not-written"


def test_reads_of_uninitialised_data_are_findings() -> None:
    text = UNWRITTEN.replace("COUNT", "8").replace(
        "float32[4, 16] role=output", "float32[4, 8] role=output"
    )
    text = text.replace("dst=%t1[4, 8 : 16, 1 @ 0]", "dst=%t1[4, 8 : 8, 1 @ 0]")
    a = _normal(4, 16)
    result = run_reference(_kernel(text), [a])
    np.testing.assert_array_equal(result.outputs[0], a[:, :8] * 2)
    (finding,) = result.findings
    assert finding.elements == 32
    assert run_reference(_kernel(text), [a], check=False).findings == []


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
        _run(text, _normal(2, 16))
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
    a = _normal(4, 16)
    (out,) = _run(text, a)
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
    a = _normal(4, 16)
    (out,) = _run(text, a)
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
    assert in_order(_kernel(text)).capacity == Capacity.of(target)


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
    kernel = _kernel(text)
    begins = [
        instruction.values[0]
        for instruction in in_order(kernel).program.cores[0].streams[Engine.unknown]
        if instruction.row is StorageBegin
    ]
    assert len(begins) == 2 and begins[0] == begins[1]
    with pytest.raises(NeuronError) as caught:
        run_reference(kernel, [_normal(4, 16)])
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


@pytest.mark.skipif(library() is None, reason="needs llvmlite")
def test_loops_run_without_python(executed: list[Instruction]) -> None:
    ordered = in_order(_kernel(MATMUL))
    (core,) = ordered.program.cores
    loaded = LoadedProgram(ordered.program, capacity=ordered.capacity)
    loaded.run([_normal(512, 128), _normal(512, 256)])
    first = len(executed)
    loaded.run([_normal(512, 128), _normal(512, 256)])
    # Python executes what moves or is new once, to learn where it lies, and nothing after that.
    assert first <= len(core.streams[Engine.unknown])
    assert len(executed) == first
