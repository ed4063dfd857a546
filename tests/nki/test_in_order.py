"""The reference executor on hand-written tile IR, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from in_order_text import kernel_of, normal, run_text
from reference_run import run_reference

from isa.enums import Engine
from isa.errors import NeuronError
from isa.spec import Instruction
from nki.reference.in_order import in_order
from simulator.execute import LoadedProgram
from simulator.native.codegen.library import library
from simulator.watchdog import RunLimits, limited

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
    lhs, rhs = normal(512, 128), normal(512, 256)
    (out,) = run_text(MATMUL, lhs, rhs)
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

    a = normal(rows, 64)
    (out,) = run_text(SYMBOLIC, a)
    expected = (a * np.float32(3) + np.float32(0.5)).astype(ml_dtypes.bfloat16)
    assert out.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("rows", [100, 1024, 1152])
def test_sizes_that_are_not_admitted_are_refused(rows: int) -> None:
    with pytest.raises(NeuronError) as caught:
        run_text(SYMBOLIC, normal(rows, 64))
    assert caught.value.code == "guard-refused"


def test_inputs_must_be_as_declared() -> None:
    with pytest.raises(NeuronError) as caught:
        run_text(MATMUL, normal(512, 128))
    assert caught.value.code == "input-mismatch"
    with pytest.raises(NeuronError) as caught:
        run_text(MATMUL, normal(512, 128), normal(512, 256).astype(np.float64))
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
    a, before = normal(8, 16), normal(8, 16)
    n = np.array([[count]], np.int32)
    expected = before.copy()
    for i in range(0, count, 2):
        expected[7 - i] = a[i]
    result = run_reference(kernel_of(DYNAMIC), [n, a, before])
    np.testing.assert_array_equal(result.outputs[0], expected)
    np.testing.assert_array_equal(result.inputs_after[2], expected)
    np.testing.assert_array_equal(result.inputs_after[1], a)


def test_dynamic_offsets_are_checked() -> None:
    with pytest.raises(NeuronError) as caught:
        run_text(DYNAMIC, np.array([[9]], np.int32), normal(8, 16), normal(8, 16))
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
    (out,) = run_text(WHILE, np.array([[count]], np.int32))
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
    (out,) = run_text(UNSET, np.array([[2, 5]], np.int32))
    assert out.tolist() == [[5]]
    with pytest.raises(NeuronError, match="is read before it holds a value") as caught:
        run_text(UNSET, np.array([[0, 5]], np.int32))
    assert caught.value.location.line == 21


def test_endless_while_is_an_error() -> None:
    with limited(RunLimits(100)), pytest.raises(NeuronError) as caught:
        run_text(WHILE, np.array([[-1]], np.int32))
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
    a, scattered = normal(50, 8), normal(50, 8)
    rows = np.random.default_rng(7).permutation(50)[:16].astype(np.int32).reshape(16, 1)
    kernel = kernel_of(GATHER.replace("MODE", "error"))
    result = run_reference(kernel, [a, rows, scattered])
    np.testing.assert_array_equal(result.outputs[0], a[rows[:, 0]])
    expected = scattered.copy()
    expected[rows[:, 0]] = a[rows[:, 0]]
    np.testing.assert_array_equal(result.inputs_after[2], expected)


def test_rows_outside_are_skipped_or_refused() -> None:
    a, scattered = normal(50, 8), normal(50, 8)
    rows = np.arange(40, 56, dtype=np.int32).reshape(16, 1)
    skipping = kernel_of(GATHER.replace("MODE", "skip"))
    (out,) = run_reference(skipping, [a, rows, scattered]).outputs
    np.testing.assert_array_equal(out[:10], a[40:])
    np.testing.assert_array_equal(out[10:], -1)
    with pytest.raises(NeuronError) as caught:
        run_reference(kernel_of(GATHER.replace("MODE", "error")), [a, rows, scattered])
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
    a = normal(2, 16)
    (out,) = run_text(CORES, a)
    np.testing.assert_array_equal(out[0], a[1] + np.float32(2))
    np.testing.assert_array_equal(out[1], a[0] + np.float32(1))


def test_a_barrier_that_one_core_lacks_is_a_deadlock() -> None:
    head, tail = CORES.rsplit("  core_barrier", 1)
    text = head + tail.split("\n", 1)[1]
    with pytest.raises(NeuronError) as caught:
        run_text(text, normal(2, 16))
    assert caught.value.code == "deadlock"
    assert "Core 0" in caught.value.what


@pytest.mark.skipif(library() is None, reason="needs llvmlite")
def test_loops_run_without_python(executed: list[Instruction]) -> None:
    ordered = in_order(kernel_of(MATMUL))
    (core,) = ordered.program.cores
    loaded = LoadedProgram(ordered.program, capacity=ordered.capacity)
    loaded.run([normal(512, 128), normal(512, 256)])
    first = len(executed)
    loaded.run([normal(512, 128), normal(512, 256)])
    # Python executes what moves or is new once, to learn where it lies, and nothing after that.
    assert first <= len(core.streams[Engine.unknown])
    assert len(executed) == first
