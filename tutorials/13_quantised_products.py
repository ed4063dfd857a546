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
# # Tutorial 13: quantised and microscaled products
#
# Matrix products in 8 bits are faster and move half the bytes of bfloat16. What is lost is
# precision, and what keeps it are scales: one for a column, or one for every 32 elements, as the
# microscaling (MX) formats have it. Targets: trn2 for fp8, trn3 for MX.

# %%
import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

rng = np.random.default_rng(0)
K, M, N = 512, 128, 512


def on_chip(rows, columns, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray((rows, columns), dtype=dtype, buffer=buffer)


def relative(found, exact):
    """The root mean square of the error, against that of the result."""
    return np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean())


# Columns of very different size, as activations have.
left = rng.standard_normal((K, M)) * 2.0 ** rng.integers(-6, 7, (1, M))
right = rng.standard_normal((K, N)) * 2.0 ** rng.integers(-6, 7, (1, N))
exact = left.T @ right
errors = {}

# %% [markdown]
# ## A scale for each column
#
# The host divides each column by its largest magnitude over 240, the largest number of float8_e4m3,
# and rounds. The kernel multiplies what comes out of PSUM by the scales: those of the rows of the
# result are a column [M, 1], those of its columns a row that is on all partitions.


# %%
def quantised(matrix):
    scale = np.abs(matrix).max(axis=0, keepdims=True) / 240
    return (matrix / scale).astype(ml_dtypes.float8_e4m3), scale.astype(np.float32)


@nki.jit(target="trn2")
def product_fp8(left, left_scale, right, right_scale):
    """left [K, M] and right [K, N] in fp8; left_scale [M, 1] and right_scale [1, N]."""
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    columns = on_chip(M, N)
    nisa.dma_copy(dst=columns, src=right_scale.ap(pattern=[[0, M], [1, N]]))
    rows = nl.load(left_scale)
    sums = on_chip(M, N, buffer=nl.psum)
    for start in range(0, K, 128):
        here = nl.ds(start, 128)
        nisa.nc_matmul(dst=sums, stationary=nl.load(left[here, :]), moving=nl.load(right[here, :]))
    result = on_chip(M, N)
    nisa.scalar_tensor_tensor(
        dst=result, data=sums, op0=nl.multiply, operand0=rows, op1=nl.multiply, operand1=columns
    )
    nisa.dma_copy(dst=out, src=result)
    return out


# %%
(left8, left_scale), (right8, right_scale) = quantised(left), quantised(right)
out, fp8 = nki.profile(product_fp8)(left8, left_scale.T.copy(), right8, right_scale)
wanted = (left8.astype(float) * left_scale).T @ (right8.astype(float) * right_scale)
np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
errors["fp8, scaled columns"] = relative(out, exact)
plain = [matrix.astype(ml_dtypes.float8_e4m3).astype(float) for matrix in (left, right)]
with np.errstate(invalid="ignore"):  # without scales some values become infinite
    errors["fp8, no scales"] = relative(plain[0].T @ plain[1], exact)
low = [matrix.astype(ml_dtypes.bfloat16).astype(float) for matrix in (left, right)]
errors["bfloat16"] = relative(low[0].T @ low[1], exact)
print(fp8.text(lines=3))

# %% [markdown]
# ## Microscaling
#
# `nisa.quantize_mx` does on chip what the host did, with a power of two as the scale of each group
# of 32 elements: 8 partitions by 4 elements that stand beside each other. `nisa.nc_matmul_mx`
# multiplies such tiles. Each partition holds four elements of the contraction, so 128 partitions
# contract over 512.
#
# Row 4 p + j of a matrix [K, M] is element j of the groups of partition p.


# %%
def in_fours(matrix):
    """[K, M] as [K / 4, 4 M]: four rows beside each other, for each column."""
    rows, columns = matrix.shape
    fours = matrix.reshape(rows // 4, 4, columns).transpose(0, 2, 1)
    return fours.reshape(rows // 4, 4 * columns)


@nki.jit(target="trn3")
def product_mx(left, right):
    """left [K / 4, 4 M] and right [K / 4, 4 N] in bfloat16."""
    tiles = []
    for source in (left, right):
        partitions, columns = source.shape[0], source.shape[1] // 4
        data = on_chip(partitions, columns, nl.float8_e4m3fn_x4)
        scale = on_chip(partitions, columns, nl.uint8)
        nisa.quantize_mx(dst=data, src=nl.load(source), dst_scale=scale)
        tiles.append((data, scale))
    (stationary, stationary_scale), (moving, moving_scale) = tiles
    sums = on_chip(M, N, buffer=nl.psum)
    nisa.nc_matmul_mx(sums, stationary, moving, stationary_scale, moving_scale)
    result = on_chip(M, N)
    nisa.tensor_copy(dst=result, src=sums)
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=result)
    return out


# %%
fours = [in_fours(matrix).astype(ml_dtypes.bfloat16) for matrix in (left, right)]
out, mx = nki.profile(product_mx)(*fours)
errors["MXFP8, scaled groups of 32"] = relative(out, exact)
print(mx.text(lines=3))

# %% [markdown]
# Without scales the large columns exceed 240 and become NaN. Groups of 32 need no scale of a
# column, and follow what is large and small within it as well.

# %%
for name, error in errors.items():
    print(f"{name:30}{error:.2e}")
assert errors["bfloat16"] < errors["MXFP8, scaled groups of 32"] < 0.05
assert errors["fp8, scaled columns"] < 0.05
