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
# # Tutorial 14: backward passes
#
# The derivative of a kernel is a kernel, too. Here are those of layer norm and of attention, first
# against NumPy, then as gradients of functions in JAX and PyTorch, where these are installed.
# Target: trn2.

# %%
import importlib.util

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

rng = np.random.default_rng(0)
TARGET = "trn2"


def on_chip(rows, columns, buffer=nl.sbuf):
    return nl.ndarray((rows, columns), dtype=nl.float32, buffer=buffer)


# %% [markdown]
# ## Layer norm
#
# With `n = (x - mean) * r`, `r = 1 / sqrt(variance + eps)` and `g = dy * weight`:
#
# - `dx = r * (g - mean(g) - n * mean(g * n))`, means over a row;
# - `dweight = sum(dy * n)` and `dbias = sum(dy)` over all rows.
#
# Sums over a row stay within a partition. Those over rows go across partitions: a product with
# ones, which adds up all tiles in PSUM.


# %%
def everywhere(row, columns):
    """A row [1, columns] in HBM on all partitions."""
    tile = on_chip(128, columns)
    nisa.dma_copy(dst=tile, src=row.ap(pattern=[[0, 128], [1, columns]]))
    return tile


def normalised(x, eps=1e-5):
    """(x - mean) / deviation in place; returns 1 / deviation."""
    columns = x.shape[1]
    mean, scale, squares = on_chip(128, 1), on_chip(128, 1), on_chip(128, columns)
    nisa.tensor_reduce(dst=mean, op=nl.add, data=x, axis=1)
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1 / columns)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.subtract, operand0=mean)
    nisa.activation_reduce(dst=squares, op=nl.square, data=x, reduce_op=nl.add, reduce_res=scale)
    nisa.tensor_scalar(
        dst=scale, data=scale, op0=nl.multiply, operand0=1 / columns, op1=nl.add, operand1=eps
    )
    nisa.activation(dst=scale, op=nl.rsqrt, data=scale)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=scale)
    return scale


@nki.jit(target=TARGET)
def layer_norm(x, weight, bias):
    """x [rows, columns], rows a multiple of 128; weight and bias [1, columns]."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weights, biases = everywhere(weight, columns), everywhere(bias, columns)
    for start in range(0, rows, 128):
        tile = nl.load(x[nl.ds(start, 128), :])
        normalised(tile)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=weights, op=nl.multiply)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=biases, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(start, 128), :], src=tile)
    return out


def row_mean(product, left, right):
    """product = left * right; returns the mean of each row, with a minus."""
    mean = on_chip(128, 1)
    nisa.tensor_tensor(dst=product, data1=left, data2=right, op=nl.multiply)
    nisa.tensor_reduce(dst=mean, op=nl.add, data=product, axis=1)
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=-1 / product.shape[1])
    return mean


@nki.jit(target=TARGET)
def layer_norm_backward(x, weight, dy):
    """dx, dweight and dbias; at most 512 columns, as sums over rows lie in one bank of PSUM."""
    rows, columns = x.shape
    dx = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    dweight, dbias = (nl.ndarray((1, columns), x.dtype, nl.shared_hbm) for _ in range(2))
    weights, ones = everywhere(weight, columns), on_chip(128, 1)
    nisa.memset(dst=ones, value=1.0)
    weight_sums, bias_sums = (on_chip(1, columns, nl.psum) for _ in range(2))
    for start in range(0, rows, 128):
        n, upstream = nl.load(x[nl.ds(start, 128), :]), nl.load(dy[nl.ds(start, 128), :])
        scale = normalised(n)
        g, product = on_chip(128, columns), on_chip(128, columns)
        nisa.tensor_tensor(dst=product, data1=upstream, data2=n, op=nl.multiply)
        nisa.nc_matmul(dst=weight_sums, stationary=ones, moving=product)
        nisa.nc_matmul(dst=bias_sums, stationary=ones, moving=upstream)
        mean_g = row_mean(g, upstream, weights)
        mean_gn = row_mean(on_chip(128, columns), g, n)
        nisa.scalar_tensor_tensor(
            dst=n, data=n, op0=nl.multiply, operand0=mean_gn, op1=nl.add, operand1=g
        )
        nisa.tensor_scalar(
            dst=n, data=n, op0=nl.add, operand0=mean_g, op1=nl.multiply, operand1=scale
        )
        nisa.dma_copy(dst=dx[nl.ds(start, 128), :], src=n)
    for sums, out in ((weight_sums, dweight), (bias_sums, dbias)):
        row = on_chip(1, columns)
        nisa.tensor_copy(dst=row, src=sums)
        nisa.dma_copy(dst=out, src=row)
    return dx, dweight, dbias


# %% [markdown]
# Against the formula in float64:

# %%
x, dy = rng.standard_normal((2, 256, 384), dtype=np.float32)
weight, bias = rng.standard_normal((2, 1, 384), dtype=np.float32)
wide = x.astype(np.float64)
deviation = np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
n, g = (wide - wide.mean(axis=1, keepdims=True)) / deviation, dy * weight.astype(np.float64)
means = g.mean(axis=1, keepdims=True), (g * n).mean(axis=1, keepdims=True)
wanted = (g - means[0] - n * means[1]) / deviation, (dy * n).sum(0), dy.sum(0, dtype=np.float64)

np.testing.assert_allclose(layer_norm(x, weight, bias), n * weight + bias, rtol=1e-4, atol=1e-4)
found, profile = nki.profile(layer_norm_backward)(x, weight, dy)
for one, exact in zip(found, wanted):
    np.testing.assert_allclose(one, exact.reshape(one.shape), rtol=1e-3, atol=1e-3)
print(profile.text(lines=5))

# %% [markdown]
# ## Attention
#
# With `P = softmax(s Q K^T)` and `O = P V`:
#
# - `dV = P^T dO` and `dP = dO V^T`;
# - `dS = P * (dP - sum(dP * P))`, the sum over a row;
# - `dQ = s dS K` and `dK = s dS^T Q`.
#
# P is computed again rather than kept: it is as large as all scores. TensorE contracts over
# partitions, so `A^T B` needs no transposition, and `A B^T` needs both.


# %%
def product(stationary, moving):
    """stationary^T moving, in SBUF."""
    result = on_chip(stationary.shape[1], moving.shape[1])
    sums = on_chip(*result.shape, nl.psum)
    nisa.nc_matmul(dst=sums, stationary=stationary, moving=moving)
    nisa.tensor_copy(dst=result, src=sums)
    return result


def turned(tile):
    result, columns = on_chip(tile.shape[1], tile.shape[0]), on_chip(*tile.shape[::-1], nl.psum)
    nisa.nc_transpose(dst=columns, data=tile)
    nisa.tensor_copy(dst=result, src=columns)
    return result


def probabilities(q, k, scale):
    """softmax(scale q k^T) of turned q and k."""
    scores, lowest, total = product(q, k), on_chip(q.shape[1], 1), on_chip(q.shape[1], 1)
    nisa.tensor_reduce(dst=lowest, op=nl.maximum, data=scores, axis=1)
    nisa.tensor_scalar(dst=lowest, data=lowest, op0=nl.multiply, operand0=-scale)
    nisa.activation_reduce(
        dst=scores,
        op=nl.exp,
        data=scores,
        scale=scale,
        bias=lowest,
        reduce_op=nl.add,
        reduce_res=total,
    )
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=scores, data=scores, op0=nl.multiply, operand0=total)
    return scores


@nki.jit(target=TARGET)
def attention(q, k, v):
    """One head of at most 128 tokens: q, k, v [tokens, d]."""
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    p = probabilities(turned(nl.load(q)), turned(nl.load(k)), q.shape[1] ** -0.5)
    nisa.dma_copy(dst=out, src=product(turned(p), nl.load(v)))
    return out


@nki.jit(target=TARGET)
def attention_backward(q, k, v, do):
    scale = q.shape[1] ** -0.5
    tiles = [nl.load(one) for one in (q, k, v, do)]
    q_turned, k_turned, v_turned, do_turned = (turned(tile) for tile in tiles)
    p = probabilities(q_turned, k_turned, scale)
    dv = product(p, tiles[3])
    ds, weighted, total = product(do_turned, v_turned), on_chip(*p.shape), on_chip(p.shape[0], 1)
    nisa.tensor_tensor(dst=weighted, data1=ds, data2=p, op=nl.multiply)
    nisa.tensor_reduce(dst=total, op=nl.add, data=weighted, axis=1)
    nisa.scalar_tensor_tensor(
        dst=ds, data=ds, op0=nl.subtract, operand0=total, op1=nl.multiply, operand1=p
    )
    nisa.tensor_scalar(dst=ds, data=ds, op0=nl.multiply, operand0=scale)
    results = product(turned(ds), tiles[1]), product(ds, tiles[0]), dv
    outs = tuple(nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm) for _ in results)
    for out, result in zip(outs, results):
        nisa.dma_copy(dst=out, src=result)
    return outs


# %%
q, k, v, do = rng.standard_normal((4, 128, 64), dtype=np.float32)
wide_q, wide_k, wide_v, wide_do = (one.astype(np.float64) for one in (q, k, v, do))
scores = wide_q @ wide_k.T / 8
p = np.exp(scores - scores.max(axis=1, keepdims=True))
p /= p.sum(axis=1, keepdims=True)
dp = wide_do @ wide_v.T
ds = p * (dp - (dp * p).sum(axis=1, keepdims=True)) / 8
np.testing.assert_allclose(attention(q, k, v), p @ wide_v, rtol=1e-4, atol=1e-4)
found, profile = nki.profile(attention_backward)(q, k, v, do)
for one, exact in zip(found, (ds @ wide_k, ds.T @ wide_q, p.T @ wide_do)):
    np.testing.assert_allclose(one, exact, rtol=1e-3, atol=1e-3)
print(f"attention backward: {profile.total_us:.1f} us, {profile.bound}")

# %% [markdown]
# ## As gradients in JAX
#
# `jax.custom_vjp` joins a kernel with that of its derivative. What JAX computes without kernels is
# the reference.

# %%
if importlib.util.find_spec("jax"):
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def head(q, k, v):
        return attention(q, k, v)

    @jax.custom_vjp
    def norm(x, weight, bias):
        return layer_norm(x, weight, bias)

    head.defvjp(lambda *qkv: (head(*qkv), qkv), lambda qkv, do: attention_backward(*qkv, do))
    norm.defvjp(
        lambda x, weight, bias: (norm(x, weight, bias), (x, weight)),
        lambda kept, dy: layer_norm_backward(*kept, dy),
    )

    def plain_head(q, k, v):
        return jax.nn.softmax(q @ k.T / 8) @ v

    def plain_norm(x, weight, bias):
        centred = x - x.mean(axis=1, keepdims=True)
        return centred / jnp.sqrt(x.var(axis=1, keepdims=True) + 1e-5) * weight + bias

    for kernels, plain, inputs in (
        (head, plain_head, (q, k, v)),
        (norm, plain_norm, (x, weight, bias)),
    ):
        ours, theirs = (
            jax.grad(lambda *args, of=of: jnp.sin(of(*args)).sum(), (0, 1, 2))(*inputs)
            for of in (kernels, plain)
        )
        for one, exact in zip(ours, theirs):
            np.testing.assert_allclose(one, exact, rtol=1e-3, atol=1e-3)
    print("gradients of JAX agree")

# %% [markdown]
# ## As gradients in PyTorch
#
# `torch.autograd.Function` does the same there.

# %%
if importlib.util.find_spec("torch"):
    import torch

    class LayerNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            return layer_norm(x, weight, bias)

        @staticmethod
        def backward(ctx, upstream):
            return layer_norm_backward(*ctx.saved_tensors, upstream.contiguous())

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.save_for_backward(q, k, v)
            return attention(q, k, v)

        @staticmethod
        def backward(ctx, upstream):
            return attention_backward(*ctx.saved_tensors, upstream.contiguous())

    def plain_layer_norm(x, weight, bias):
        return torch.nn.functional.layer_norm(x, (384,), weight[0], bias[0])

    for function, plain, arrays in (
        (LayerNorm, plain_layer_norm, (x, weight, bias)),
        (Attention, torch.nn.functional.scaled_dot_product_attention, (q, k, v)),
    ):
        inputs = [torch.from_numpy(one.copy()).requires_grad_() for one in arrays]
        ours, theirs = (
            torch.autograd.grad(of(*inputs).sin().sum(), inputs) for of in (function.apply, plain)
        )
        for one, exact in zip(ours, theirs):
            torch.testing.assert_close(one, exact, rtol=1e-3, atol=1e-3)
    print("gradients of PyTorch agree")
