"""Views that walk backwards: what they touch is ordered like any other."""

import numpy as np
import pytest
from reference_run import run_reference
from tile_ir.parser import parse_kernel

import nki
import nki.isa as nisa
import nki.language as nl
from isa.binding import bind
from nki.pipeline import compile_kernel
from simulator.execute import run
from simulator.races.happens_before import check

HBM = """kernel flip target=trn2
tensor %t0 "a": shared_hbm float32[4] role=input
tensor %t1 "b": shared_hbm float32[4] role=output
tensor %t2 "c": private_hbm float32[4] role=local
input %t0 "a"
result %t1
core 0:
  dma_copy dst=%t2[4 : -1 @ 3] src=%t0[4 : 1 @ 0] engine=gpsimd
  dma_copy dst=%t1[2 : 1 @ 0] src=%t2[2 : 1 @ 0] engine=sync
  dma_copy dst=%t1[2 : 1 @ 2] src=%t2[2 : 1 @ 2] engine=sync
"""
SBUF = """kernel flip target=trn2
tensor %t0 "a": shared_hbm float32[4] role=input
tensor %t1 "b": shared_hbm float32[4] role=output
tensor %t2 "c": sbuf float32[1,4] role=local
input %t0 "a"
result %t1
core 0:
  storage_begin dst=%t2[1,4 : 4,1 @ 0]
  dma_copy dst=%t2[1,4 : 4,-1 @ 3] src=%t0[1,4 : 4,1 @ 0] engine=gpsimd
  dma_copy dst=%t1[1,2 : 4,1 @ 0] src=%t2[1,2 : 4,1 @ 0] engine=sync
  dma_copy dst=%t1[1,2 : 4,1 @ 2] src=%t2[1,2 : 4,1 @ 2] engine=sync
"""


@pytest.mark.parametrize("text", [HBM, SBUF], ids=["hbm", "sbuf"])
def test_what_a_backward_view_writes_is_waited_for(text):
    kernel = parse_kernel(text)
    a = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run_reference(kernel, [a]).outputs[0], a[::-1])
    program = bind(compile_kernel(kernel), {})
    assert check(program) == []
    np.testing.assert_array_equal(run(program, [a]).outputs[0], a[::-1])


ROWS, COLUMNS = 8, 16


def backwards(tile):
    return tile.ap(pattern=[[COLUMNS, ROWS], [-1, COLUMNS]], offset=COLUMNS - 1)


def stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def fresh(rows=ROWS, buffer=nl.sbuf):
    return nl.ndarray((rows, COLUMNS), dtype=nl.float32, buffer=buffer)


@nki.jit
def turned(a, b):
    x, y = nl.load(a), nl.load(b)
    copied, subtracted, negated, rows, scanned = (fresh() for _ in range(5))
    nisa.tensor_copy(dst=copied, src=backwards(x))
    nisa.tensor_tensor(dst=subtracted, data1=backwards(x), data2=y, op=nl.subtract)
    nisa.activation(dst=backwards(negated), op=nl.copy, data=x, scale=-1.0)
    nisa.dma_copy(dst=rows, src=backwards(a))
    nisa.tensor_tensor_scan(scanned, y, backwards(x), 0.0, op0=nl.multiply, op1=nl.add)
    greatest = nl.ndarray((ROWS, COLUMNS // 4), dtype=nl.float32, buffer=nl.sbuf)
    fours = x.ap(pattern=[[COLUMNS, ROWS], [-4, COLUMNS // 4], [-1, 4]], offset=COLUMNS - 1)
    nisa.tensor_reduce(dst=greatest, op=nl.maximum, data=fours, axis=2)
    sums = fresh(COLUMNS, nl.psum)
    nisa.nc_matmul(dst=sums, stationary=backwards(x), moving=backwards(y))
    product = fresh(COLUMNS)
    nisa.tensor_copy(dst=product, src=sums)
    nisa.memset(x.ap(pattern=[[COLUMNS, ROWS], [-2, COLUMNS // 2]], offset=COLUMNS - 1), 7.0)
    results = copied, subtracted, negated, rows, scanned, greatest, product, x
    return tuple(stored(tile) for tile in results)


A = np.random.default_rng(0).integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32)
B = np.random.default_rng(1).integers(-1, 2, (ROWS, COLUMNS)).astype(np.float32)


def turned_by_numpy():
    back, sevens = A[:, ::-1], A.copy()
    sevens[:, 1::2] = 7.0
    scanned = np.zeros_like(A)
    for column in range(COLUMNS):
        before = scanned[:, column - 1] if column else 0.0
        scanned[:, column] = before * B[:, column] + back[:, column]
    greatest = back.reshape(ROWS, -1, 4).max(2)
    return back, back - B, -back, back, scanned, greatest, back.T @ B[:, ::-1], sevens


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_patterns_step_down_as_slices_of_numpy_do(mode):
    for result, expected in zip(nki.simulate(turned, mode=mode)(A, B), turned_by_numpy()):
        np.testing.assert_array_equal(result, expected)


def test_a_container_keeps_steps_down(tmp_path):
    nki.compile(turned, A, B).save(tmp_path / "turned.neff")
    for result, expected in zip(nki.load(tmp_path / "turned.neff")(A, B), turned_by_numpy()):
        np.testing.assert_array_equal(result, expected)
