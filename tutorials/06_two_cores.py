# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Tutorial 6: two cores
#
# Two physical cores can form one logical core. `kernel[2](...)` runs the kernel function once on
# each; `nl.program_id(0)` tells which one it is on, `nl.num_programs(0)` how many there are. Each
# core has its own engines, SBUF and PSUM. HBM tensors in `nl.shared_hbm` belong to both. Target:
# trn3, which is taken where nothing else is said.

# %%
import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

rng = np.random.default_rng(0)

# %% [markdown]
# ## Work that splits
#
# Rows that have nothing to do with one another are shared out. Neither core needs to know what the
# other one does, and the same kernel still runs on one core.


# %%
def rows_of_core(rows):
    """The first row of every tile of 128 that this core works on."""
    each = rows // nl.num_programs(0)
    first = nl.program_id(0) * each
    return range(first, first + each, 128)


@nki.jit
def gelu(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for row in rows_of_core(a.shape[0]):
        tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[row : row + 128, :])
        nisa.activation(dst=tile, op=nl.gelu_apprx_tanh, data=tile)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


def gelu_numpy(a):
    x = a.astype(np.float64)
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


a = rng.standard_normal((2048, 1024), dtype=np.float32)
for cores in (1, 2):
    out, metrics = nki.profile(gelu[cores])(a)
    np.testing.assert_allclose(out, gelu_numpy(a), atol=2e-6)
    print(f"{cores} cores: {metrics.total_us:6.1f} us, {metrics.bound}")

# %% [markdown]
# ## Work that meets
#
# Sharing out K of a matrix product leaves two halves of a sum. Each core writes its half into a
# shared tensor; `nisa.core_barrier` waits until both have; then each adds up one half of the rows.


# %%
K_TILE = 128


@nki.jit
def split_k(lhsT, rhs, barrier=True):
    """lhsT [K, M] and rhs [K, N], M at most 128 and N at most 512: lhsT^T @ rhs on two cores."""
    k, m = lhsT.shape
    n = rhs.shape[1]
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    halves = nl.ndarray((2, m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(0)

    product = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
    for row in range(core * k // 2, (core + 1) * k // 2, K_TILE):
        left = nl.ndarray((K_TILE, m), dtype=lhsT.dtype, buffer=nl.sbuf)
        right = nl.ndarray((K_TILE, n), dtype=rhs.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=lhsT[row : row + K_TILE, :])
        nisa.dma_copy(dst=right, src=rhs[row : row + K_TILE, :])
        nisa.nc_matmul(dst=product, stationary=left, moving=right)
    half = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=half, src=product)
    nisa.dma_copy(dst=halves[core], src=half)

    if barrier:
        nisa.core_barrier(data=halves, cores=(0, 1))

    rows = nl.ds(core * m // 2, m // 2)
    one = nl.ndarray((m // 2, n), dtype=nl.float32, buffer=nl.sbuf)
    other = nl.ndarray((m // 2, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=one, src=halves[0, rows, :])
    nisa.dma_copy(dst=other, src=halves[1, rows, :])
    nisa.tensor_tensor(dst=one, data1=one, data2=other, op=nl.add)
    nisa.dma_copy(dst=out[rows, :], src=one)
    return out


lhsT = rng.standard_normal((4096, 128)).astype(ml_dtypes.bfloat16)
rhs = rng.standard_normal((4096, 512)).astype(ml_dtypes.bfloat16)
out, metrics = nki.profile(split_k[2])(lhsT, rhs)
expected = lhsT.astype(np.float64).T @ rhs.astype(np.float64)
np.testing.assert_allclose(out, expected, atol=1e-3)
print(metrics.text(lines=5))

# %% [markdown]
# ## What goes wrong without the barrier
#
# On a device the sums would be wrong on some runs, when one core happens to be late. Here the
# finished program is proven free of such races before it runs, and this one is not:

# %%
try:
    nki.compile(split_k[2], lhsT, rhs, barrier=False)
except nki.NeuronError as error:
    from nki.errors import explain

    print(explain(error))

# %% [markdown]
# ## Without the way through HBM
#
# `nisa.sendrecv` exchanges tiles in SBUF: what one core sends is what the other one receives, and
# neither goes on before both have come.


# %%
@nki.jit
def swap_halves(a):
    """The upper and the lower half of the rows, each read by one core, written by the other."""
    rows, columns = a.shape
    core = nl.program_id(0)
    here = nl.ds(core * rows // 2, rows // 2)
    mine = nl.ndarray((rows // 2, columns), dtype=a.dtype, buffer=nl.sbuf)
    theirs = nl.ndarray((rows // 2, columns), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=mine, src=a[here, :])
    nisa.sendrecv(dst=theirs, src=mine, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[here, :], src=theirs)
    return out


a = rng.standard_normal((256, 512), dtype=np.float32)
assert np.array_equal(swap_halves[2](a), np.roll(a, 128, axis=0))
