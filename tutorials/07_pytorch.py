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
# # Tutorial 7: kernels on PyTorch tensors
#
# A kernel takes PyTorch tensors as it takes NumPy arrays, and returns PyTorch tensors. This is the
# quickstart for those who come from PyTorch: call a kernel, use it in a module, give it a gradient,
# and see its cost. (`pip install torch`; the CPU build is enough.) Target: trn3, which is taken
# where nothing else is said.

# %%
try:
    import torch
except ModuleNotFoundError:
    raise SystemExit("This tutorial needs PyTorch: pip install torch") from None

import nki
import nki.isa as nisa
import nki.language as nl

torch.manual_seed(0)

# %% [markdown]
# ## Calling a kernel
#
# One tile of at most 128 rows. `nl.load` brings it to SBUF, `nl.store` back to HBM.


# %%
@nki.jit
def tensor_add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), nl.load(b)))
    return out


ones = torch.ones((4, 3), dtype=torch.float16)
result = tensor_add(ones, ones)
print(result)
assert isinstance(result, torch.Tensor) and result.dtype == torch.float16

# %% [markdown]
# bfloat16 is PyTorch's own: no conversion is needed on the way in or out.

# %%
left, right = torch.randn(128, 512).bfloat16(), torch.randn(128, 512).bfloat16()
assert torch.equal(tensor_add(left, right), left + right)

# %% [markdown]
# ## A tensor that the kernel writes to
#
# What a kernel stores in an input is in the tensor afterwards, like an in-place operation of
# PyTorch.


# %%
@nki.jit
def scale_in_place(a, factor):
    nl.store(a, nl.multiply(nl.load(a), factor))


weights = torch.ones(8, 4)
scale_in_place(weights, 0.5)
assert torch.equal(weights, torch.full((8, 4), 0.5))

# %% [markdown]
# ## In a module, with a gradient
#
# `torch.autograd.Function` joins a kernel and the kernel of its derivative. Rows are worked on 128
# at a time; the last tile may be shorter. In a function that `torch.compile` compiles, a kernel
# splits the graph and runs as it does elsewhere.


# %%
def rowwise(a, function):
    """function of every tile of 128 rows."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        rows = nl.ds(start, min(128, a.shape[0] - start))
        nl.store(out[rows, :], function(rows))
    return out


@nki.jit
def gelu(a):
    return rowwise(a, lambda rows: nl.gelu(nl.load(a[rows, :])))


@nki.jit
def gelu_gradient(a, upstream):
    return rowwise(
        a, lambda rows: nl.multiply(nl.gelu_dx(nl.load(a[rows, :])), nl.load(upstream[rows, :]))
    )


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return gelu(a)

    @staticmethod
    def backward(ctx, upstream):
        (a,) = ctx.saved_tensors
        return gelu_gradient(a, upstream.contiguous())


model = torch.nn.Linear(64, 96)
x = torch.randn(200, 64)
Gelu.apply(model(x)).square().mean().backward()
ours = model.weight.grad.clone()
model.zero_grad()
torch.nn.functional.gelu(model(x)).square().mean().backward()
torch.testing.assert_close(ours, model.weight.grad, rtol=1e-5, atol=1e-7)

# %% [markdown]
# ## What it costs
#
# `nki.profile` also tells where the cycles go, on the target that the program is compiled for.

# %%
_, metrics = nki.profile(gelu)(torch.randn(1024, 2048))
print(metrics.text())

# %% [markdown]
# ## Print and breakpoint
#
# In eager mode each operation computes as its line runs, so a tile can be looked at.


# %%
def looked_at(a):
    tile = nl.load(a)
    nisa.activation(dst=tile, op=nl.square, data=tile)
    print(tile)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


print(nki.simulate(looked_at, mode="eager")(torch.arange(3.0).reshape(1, 3)))
