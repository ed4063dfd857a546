"""Small kernels whose form after every stage of the compiler is kept as text."""

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

ROWS = nki.symbol("M", multiple_of=128, max=1024)


@nki.jit
def unrolled(a):
    """Python unrolls three iterations, which the scheduler interleaves."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for row in range(0, a.shape[0], 128):
        tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[nl.ds(row, 128), :])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out[nl.ds(row, 128), :], src=tile)
    return out


@nki.jit
def accumulated(a, b):
    """A loop over a launch symbol, in which an accumulation starts."""
    out = nl.ndarray((128, b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(a.shape[0] // 128):
        left = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.sbuf)
        right = nl.ndarray((128, b.shape[1]), dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a[nl.ds(k * 128, 128), :])
        nisa.dma_copy(dst=right, src=b[nl.ds(k * 128, 128), :])
        nisa.nc_matmul(dst=total, stationary=left, moving=right)
    tile = nl.ndarray((128, b.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=total)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def rotated(a):
    """A loop over ints that becomes several copies, and an iteration that is left."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)

    def body(row):
        tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[nl.ds(row, 128), :])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.dma_copy(dst=out[nl.ds(row, 128), :], src=tile)

    nl.fori_loop(0, a.shape[0], body, 128)
    return out


@nki.jit
def led(a, weights):
    """A loop whose state goes through HBM: the loads of its weights lead it."""
    state = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=state, src=a)

    def body(row):
        mine = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        own = nl.ndarray((128, weights.shape[1]), dtype=weights.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=mine, src=state)
        nisa.dma_copy(dst=own, src=weights[nl.ds(row, 128), :])
        nisa.tensor_tensor(dst=mine, data1=mine, data2=own[:, : a.shape[1]], op=nl.add)
        for _ in range(6):
            nisa.activation(dst=mine, op=nl.tanh, data=mine)
        nisa.dma_copy(dst=state, src=mine)

    nl.fori_loop(0, weights.shape[0], body, 128)
    return state


@nki.jit
def counted(a, count):
    """A loop whose count only the device knows, around one that reads what it writes."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    trips = nisa.register_alloc()
    nisa.register_load(trips, nl.load(count))

    def outer(i):
        row = nl.ndarray((1, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=out[nl.ds(i, 1), :])

        def inner(_):
            nisa.tensor_scalar(dst=row, data=row, op0=nl.multiply, operand0=2.0)

        nl.fori_loop(0, 3, inner)
        nisa.dma_copy(dst=out[nl.ds(i, 1), :], src=row)

    nisa.dma_copy(dst=out, src=tile)
    nl.fori_loop(0, trips, outer)
    return out


@nki.jit
def halved(a):
    """A `while` on data."""
    left = nl.load(a)
    going = nisa.register_alloc()
    nisa.register_load(going, left)

    def body(_):
        nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
        nisa.register_load(going, left)
        return going

    nl.while_loop(going, body)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=left)
    return out


@nki.jit
def halves(a):
    """Each of two cores has half of the rows, and reads the other's behind a barrier."""
    rows = a.shape[0] // 2
    core = nl.program_id(0)
    made = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((rows, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a[nl.ds(core * rows, rows), :])
    nisa.dma_copy(dst=made[nl.ds(core * rows, rows), :], src=tile)
    nisa.core_barrier(made, (0, 1))
    nisa.dma_copy(dst=tile, src=made[nl.ds((1 - core) * rows, rows), :])
    nisa.dma_copy(dst=out[nl.ds(core * rows, rows), :], src=tile)
    return out


CASES = {
    "unrolled": (unrolled, np.zeros((384, 64), np.float32)),
    "accumulated": (
        accumulated,
        nki.TensorSpec((ROWS, 128), nl.bfloat16),
        nki.TensorSpec((ROWS, 64), nl.bfloat16),
    ),
    "rotated": (rotated, np.zeros((33 * 128, 4096), np.float32)),
    "led": (led, np.zeros((128, 512), np.float32), np.zeros((32 * 128, 4096), np.float32)),
    "counted": (counted, np.zeros((8, 16), np.float32), np.zeros((1, 1), np.int32)),
    "halved": (halved, np.zeros((1, 1), np.int32)),
    "halves": (halves[2], np.zeros((8, 16), np.float32)),
}
