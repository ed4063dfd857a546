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
# # Tutorial 3: softmax and RMSNorm
#
# Rows that are normalised by something that depends on the whole row: the maximum, the sum, the
# mean of the squares. The work is element by element, so the question is which engine does it, how
# many times each element is read, and how much goes over the memory bus. Target: trn2.

# %%
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

rng = np.random.default_rng(0)
a = rng.standard_normal((512, 2048), dtype=np.float32) * 4


def measure(kernel, expected, *inputs):
    """Run on trn2, compare with NumPy in float64, and return the profile."""
    out, metrics = nki.compile(kernel, *inputs, target="trn2").profile(*inputs)
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=1e-7)
    return metrics


# %% [markdown]
# ## Softmax, one operation a line
#
# Rows lie on partitions, so that a reduction over a row is a reduction over the free dimension:
# VectorE does it with `tensor_reduce`. A `[128, 1]` tile of numbers, one a row, is an operand that
# `tensor_scalar` applies to all of its row.


# %%
def softmax_numpy(a):
    x = a.astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def tile_like(a, columns, dtype=nl.float32):
    return nl.ndarray((128, columns), dtype=dtype, buffer=nl.sbuf)


@nki.jit
def softmax_in_steps(a):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        here = nl.ds(start, 128)
        x = tile_like(a, columns)
        nisa.dma_copy(dst=x, src=a[here, :])
        largest = tile_like(a, 1)
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=x, axis=1)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.subtract, operand0=largest)
        nisa.activation(dst=x, op=nl.exp, data=x)
        total = tile_like(a, 1)
        nisa.tensor_reduce(dst=total, op=nl.add, data=x, axis=1)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[here, :], src=x)
    return out


steps = measure(softmax_in_steps, softmax_numpy(a), a)
print(steps.text())

# %% [markdown]
# VectorE reads every element four times and is the engine that all others wait for.
#
# ## Softmax, fused
#
# ScalarE computes `op(data * scale + bias)` with a bias for each row, and sums what it computes on
# the way (`activation_reduce`). So the subtraction and the sum cost nothing, once the maximum
# comes negated. Two reads by VectorE and one by ScalarE are left, and the engines work on
# different tiles at once.


# %%
@nki.jit
def softmax_fused(a):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        here = nl.ds(start, 128)
        x, minus_largest, total = (tile_like(a, n) for n in (columns, 1, 1))
        nisa.dma_copy(dst=x, src=a[here, :])
        nisa.tensor_reduce(dst=minus_largest, op=nl.maximum, data=x, axis=1, negate=True)
        nisa.activation_reduce(
            dst=x, op=nl.exp, data=x, bias=minus_largest, reduce_op=nl.add, reduce_res=total
        )
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[here, :], src=x)
    return out


fused = measure(softmax_fused, softmax_numpy(a), a)
print(f"{steps.total_us:.1f} -> {fused.total_us:.1f} us; {fused.verdict}")
assert fused.total_ns < steps.total_ns

# %% [markdown]
# ## RMSNorm
#
# `x / sqrt(mean(x^2) + eps) * weight`. The squares and their sum are one pass of ScalarE. The
# weights are the same for every row: a DMA with a partition step of zero puts them on all
# partitions, once. `scalar_tensor_tensor` then multiplies by the number of the row and by the
# weights in one pass.


# %%
def rmsnorm_numpy(a, weight):
    x = a.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6) * weight


def load_weights(weight):
    """[1, columns] in HBM to [128, columns], the same on every partition."""
    columns = weight.shape[1]
    weights = tile_like(weight, columns)
    nisa.dma_copy(dst=weights, src=weight.ap(pattern=[[0, 128], [1, columns]]))
    return weights


def normalise(x, weights):
    """RMSNorm of a tile, in place. A kernel may call functions: they are traced with it."""
    columns = x.shape[1]
    squares, scale = tile_like(x, columns), tile_like(x, 1)
    nisa.activation_reduce(dst=squares, op=nl.square, data=x, reduce_op=nl.add, reduce_res=scale)
    nisa.tensor_scalar(
        dst=scale, data=scale, op0=nl.multiply, operand0=1 / columns, op1=nl.add, operand1=1e-6
    )
    nisa.activation(dst=scale, op=nl.rsqrt, data=scale)
    nisa.scalar_tensor_tensor(
        dst=x, data=x, op0=nl.multiply, operand0=scale, op1=nl.multiply, operand1=weights
    )


@nki.jit
def rmsnorm(a, weight):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    weights = load_weights(weight)
    for start in range(0, a.shape[0], 128):
        here = nl.ds(start, 128)
        x = tile_like(a, a.shape[1])
        nisa.dma_copy(dst=x, src=a[here, :])
        normalise(x, weights)
        nisa.dma_copy(dst=out[here, :], src=x)
    return out


weight = rng.standard_normal((1, a.shape[1]), dtype=np.float32)
norm = measure(rmsnorm, rmsnorm_numpy(a, weight), a, weight)
print(f"{norm.total_us:.1f} us; {norm.verdict}")

# %% [markdown]
# ## Both in one kernel
#
# Two kernels, one after the other, write the intermediate matrix to HBM and read it again. One
# kernel that does both leaves it on chip.


# %%
@nki.jit
def rmsnorm_softmax(a, weight):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    weights = load_weights(weight)
    for start in range(0, rows, 128):
        here = nl.ds(start, 128)
        x, minus_largest, total = (tile_like(a, n) for n in (columns, 1, 1))
        nisa.dma_copy(dst=x, src=a[here, :])
        normalise(x, weights)
        nisa.tensor_reduce(dst=minus_largest, op=nl.maximum, data=x, axis=1, negate=True)
        nisa.activation_reduce(
            dst=x, op=nl.exp, data=x, bias=minus_largest, reduce_op=nl.add, reduce_res=total
        )
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[here, :], src=x)
    return out


both = measure(rmsnorm_softmax, softmax_numpy(rmsnorm_numpy(a, weight)), a, weight)

# %%
print(f"{'kernel':22}{'us':>8}{'MB moved':>10}   bound")
for name, metrics in {
    "softmax, in steps": steps,
    "softmax, fused": fused,
    "RMSNorm": norm,
    "RMSNorm and softmax": both,
}.items():
    moved = (metrics.dma.hbm_read_bytes + metrics.dma.hbm_write_bytes) / 1e6
    print(f"{name:22}{metrics.total_us:8.1f}{moved:10.1f}   {metrics.bound}")
assert both.total_ns < norm.total_ns + fused.total_ns
