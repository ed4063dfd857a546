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
# # Tutorial 9: three times faster, by the profile alone
#
# A gated activation, `silu(a) * b * weight`, with one weight a column. The first version computes
# what the formula says, one operation a line. Each step reads what the profile says, changes that,
# and measures again. Target: trn2.

# %%
import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

rng = np.random.default_rng(0)
ROWS, COLUMNS = 512, 2048
a, b = rng.standard_normal((2, ROWS, COLUMNS)).astype(ml_dtypes.bfloat16)
weight = rng.standard_normal((1, COLUMNS)).astype(ml_dtypes.bfloat16)


def gated_numpy(a, b, weight):
    x, y, w = (array.astype(np.float64) for array in (a, b, weight))
    return x / (1 + np.exp(-x)) * y * w


times = {}


def measure(kernel):
    """Run, compare with NumPy in float64, and show the head of the report and its advice."""
    out, profile = nki.profile(kernel, target="trn2")(a, b, weight)
    expected = gated_numpy(a, b, weight)
    error = np.abs(out.astype(np.float64) - expected) / np.maximum(np.abs(expected), 1e-2)
    assert error.max() < 2**-6, error.max()
    times[kernel.__name__] = profile.total_us
    print(f"{kernel.__name__}: {profile.total_us:.1f} us, {profile.bound}: {profile.reason}")
    for advice in profile.advice[:3]:
        print(f"  {advice.bottleneck} at line {advice.line}: {advice.text}")
    return profile


# %% [markdown]
# ## As the formula says
#
# Tiles of 128 rows and 128 columns, in fp32 on chip. The tile of weights is the same on all
# partitions: a partition step of zero reads one row 128 times.


# %%
def on_chip(columns, dtype=nl.float32):
    return nl.ndarray((128, columns), dtype=dtype, buffer=nl.sbuf)


def load_weights(weight, start, columns, dtype=nl.float32):
    tile = on_chip(columns, dtype)
    every_partition = weight.ap(pattern=[[0, 128], [1, columns]], offset=start)
    nisa.dma_copy(dst=tile, src=every_partition)
    return tile


@nki.jit
def as_written(a, b, weight, width=128):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        for column in range(0, columns, width):
            here = nl.ds(row, 128), nl.ds(column, width)
            x, y, e = (on_chip(width) for _ in range(3))
            nisa.dma_copy(dst=x, src=a[here])
            nisa.dma_copy(dst=y, src=b[here])
            weights = load_weights(weight, column, width)
            nisa.activation(dst=e, op=nl.exp, data=x, scale=-1.0)
            nisa.tensor_scalar(dst=e, data=e, op0=nl.add, operand0=1.0)
            nisa.reciprocal(dst=e, data=e)
            nisa.tensor_tensor(dst=x, data1=x, data2=e, op=nl.multiply)
            nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.multiply)
            result = on_chip(width, a.dtype)
            nisa.tensor_tensor(dst=result, data1=x, data2=weights, op=nl.multiply)
            nisa.dma_copy(dst=out[here], src=result)
    return out


first = measure(as_written)

# %% [markdown]
# The whole report. Its first table is what counts: the critical path by cause. What is not on it
# costs nothing, however busy it looks further down.

# %%
print(first.text(lines=5))

# %% [markdown]
# ## Fewer, longer transfers
#
# The advice is about transfers: weights that are loaded again for every tile, and rows of 128
# elements, 256 bytes, for each of which DMA pays a descriptor. Weights move out of the loop, and
# tiles get as wide as the matrix.


# %%
@nki.jit
def long_transfers(a, b, weight):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    weights = load_weights(weight, 0, columns)
    for row in range(0, rows, 128):
        here = nl.ds(row, 128)
        x, y, e = (on_chip(columns) for _ in range(3))
        nisa.dma_copy(dst=x, src=a[here, :])
        nisa.dma_copy(dst=y, src=b[here, :])
        nisa.activation(dst=e, op=nl.exp, data=x, scale=-1.0)
        nisa.tensor_scalar(dst=e, data=e, op0=nl.add, operand0=1.0)
        nisa.reciprocal(dst=e, data=e)
        nisa.tensor_tensor(dst=x, data1=x, data2=e, op=nl.multiply)
        nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.multiply)
        result = on_chip(columns, a.dtype)
        nisa.tensor_tensor(dst=result, data1=x, data2=weights, op=nl.multiply)
        nisa.dma_copy(dst=out[here, :], src=result)
    return out


second = measure(long_transfers)

# %% [markdown]
# ## Work that VectorE need not do
#
# Now VectorE is what everything waits for: five passes over each element. ScalarE has `silu` as
# one function, so the sum, the reciprocal and a product go.


# %%
@nki.jit
def one_function(a, b, weight, dtype=nl.float32):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    weights = load_weights(weight, 0, columns, dtype)
    for row in range(0, rows, 128):
        here = nl.ds(row, 128)
        x, y = on_chip(columns, dtype), on_chip(columns, dtype)
        nisa.dma_copy(dst=x, src=a[here, :])
        nisa.dma_copy(dst=y, src=b[here, :])
        nisa.activation(dst=x, op=nl.silu, data=x)
        nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.multiply)
        result = on_chip(columns, a.dtype)
        nisa.tensor_tensor(dst=result, data1=x, data2=weights, op=nl.multiply)
        nisa.dma_copy(dst=out[here, :], src=result)
    return out


third = measure(one_function)

# %% [markdown]
# ## 16 bits on chip
#
# What comes from HBM in bfloat16 may stay so: VectorE takes 16-bit operands faster, and a transfer
# that converts is no longer one. Each product is rounded once more, which the check admits.


# %%
@nki.jit
def sixteen_bits(a, b, weight):
    return one_function(a, b, weight, dtype=a.dtype)


fourth = measure(sixteen_bits)

# %% [markdown]
# What is left is the bandwidth of HBM: three matrices have to move, whatever is done on chip. No
# advice can take that away.

# %%
print(f"{'kernel':16}{'us':>8}{'x':>6}")
for name, microseconds in times.items():
    print(f"{name:16}{microseconds:8.1f}{times['as_written'] / microseconds:6.1f}")
assert 3 * times["sixteen_bits"] < times["as_written"]
print(fourth.text(lines=3))
