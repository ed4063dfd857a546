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
# # Tutorial 8: kernels on JAX arrays
#
# A kernel takes JAX arrays as it takes NumPy arrays, and returns JAX arrays. This is the quickstart
# for those who come from JAX: call a kernel, use it inside `jax.jit`, give it a gradient, and see
# its cost. (`pip install jax`; the CPU build is enough.) Target: trn3, which is taken where nothing
# else is said.

# %%
try:
    import jax
    import jax.numpy as jnp
except ModuleNotFoundError:
    raise SystemExit("This tutorial needs JAX: pip install jax") from None

import nki
import nki.language as nl

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


ones = jnp.ones((4, 3), dtype=jnp.float16)
result = tensor_add(ones, ones)
print(result)
assert isinstance(result, jax.Array) and result.dtype == jnp.float16

# %% [markdown]
# JAX arrays never change. A kernel that writes to an input returns the input as it is afterwards.


# %%
@nki.jit
def scaled(a, factor):
    nl.store(a, nl.multiply(nl.load(a), factor))
    return a


weights = jnp.ones((8, 4))
assert (scaled(weights, 0.5) == 0.5).all() and (weights == 1).all()

# %% [markdown]
# ## Inside `jax.jit`, with a gradient
#
# A compiled function calls back to the kernel when it runs, and `jax.custom_vjp` joins a kernel
# with that of its derivative. Rows are worked on 128 at a time; the last tile may be shorter.


# %%
def rowwise(a, function):
    """function of every tile of 128 rows."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        rows = nl.ds(start, min(128, a.shape[0] - start))
        nl.store(out[rows, :], function(rows))
    return out


@nki.jit
def gelu_kernel(a):
    return rowwise(a, lambda rows: nl.gelu(nl.load(a[rows, :])))


@nki.jit
def gradient_kernel(a, upstream):
    return rowwise(
        a, lambda rows: nl.multiply(nl.gelu_dx(nl.load(a[rows, :])), nl.load(upstream[rows, :]))
    )


@jax.custom_vjp
def gelu(a):
    return gelu_kernel(a)


gelu.defvjp(lambda a: (gelu(a), a), lambda a, upstream: (gradient_kernel(a, upstream),))


def loss(function, weights, x):
    return jnp.square(function(x @ weights)).mean()


key = jax.random.key(0)
weights = jax.random.normal(key, (64, 96)) / 8
x = jax.random.normal(jax.random.fold_in(key, 1), (200, 64))
ours = jax.jit(jax.grad(lambda w: loss(gelu, w, x)))(weights)
theirs = jax.grad(lambda w: loss(lambda a: jax.nn.gelu(a, approximate=False), w, x))(weights)
assert jnp.allclose(ours, theirs, rtol=1e-4, atol=1e-6)

# %% [markdown]
# ## What it costs
#
# `nki.profile` also tells where the cycles go, on the target that the program is compiled for.

# %%
_, metrics = nki.profile(gelu_kernel)(jax.random.normal(key, (1024, 2048)))
print(metrics.text())

# %% [markdown]
# ## Where the vendor's simulator stops
#
# With `NKI_SIMULATOR=1` in the environment the vendor's package runs kernels on the CPU, but not of
# JAX arrays. Here every call does, with or without the variable; `mode="eager"` computes each
# operation as its line runs, for `print` and `breakpoint()`.

# %%
print(nki.simulate(tensor_add, mode="eager")(ones, ones))
