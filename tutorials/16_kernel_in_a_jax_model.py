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
# # Tutorial 16: a kernel of your own inside a JAX model
#
# The compiler makes one program of a whole JAX function. Some algorithms cannot be said in such a
# function, but in one instruction of the machine. You write that part as an NKI kernel, and call it
# like any other function. (`pip install jax`; the CPU build is enough.)
#
# The part here is a gated recurrence, as in state-space models: `h[t] = gate[t] * h[t-1] + x[t]`,
# for each channel. Target: trn2.

# %%
try:
    import jax
    import jax.numpy as jnp
except ModuleNotFoundError:
    raise SystemExit("This tutorial needs JAX: pip install jax") from None

import numpy as np

import graph_compiler
import nki
import nki.isa as nisa
import nki.language as nl
from graph_compiler.frontends.jax import trace
from graph_compiler.hot_spots import hot_spots

CHANNELS, TOKENS = 128, 512
random = np.random.default_rng(0)
x = random.standard_normal((CHANNELS, TOKENS), np.float32)
gates, inputs = random.standard_normal((2, CHANNELS, CHANNELS), np.float32) / 16

# %% [markdown]
# ## The model without a kernel
#
# JAX has no recurrence along a row. `associative_scan` computes one by halves: in each of 9 steps
# pairs of values are combined, so that all tokens take part at once.


# %%
def recurrence(gate, value):
    def combined(first, second):
        return first[0] * second[0], second[0] * first[1] + second[1]

    return jax.lax.associative_scan(combined, (gate, value), axis=1)[1]


def model(recur, x, gates, inputs):
    with jax.named_scope("projections"):
        gate, value = jax.nn.sigmoid(gates @ x), inputs @ x
    with jax.named_scope("recurrence"):
        states = recur(gate, value)
    return jnp.tanh(states)


# %% [markdown]
# `trace` takes a function of JAX and arguments, and gives the graph. `hot_spots` sums up the time
# by the scopes of the model.


# %%
def measured(recur):
    module = trace(lambda *arrays: model(recur, *arrays), x, gates, inputs)
    (result,), profile = graph_compiler.compile(module, "trn2").profile(x, gates, inputs)
    expected = model(recurrence, x, gates, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)
    print(f"{profile.total_us:.1f} us, bound by {profile.bound}")
    for spot in hot_spots(module, profile, "layer"):
        print(f"  {spot.path_percent:5.1f} %  {spot.name or '(other)'}")
    return module, profile


_, plain = measured(recurrence)

# %% [markdown]
# ## The kernel
#
# The vector engine has an instruction that carries a value along a row: `tensor_tensor_scan`
# computes `(data0[t] op0 result[t-1]) op1 data1[t]`. With 128 channels, one a partition, one
# instruction is the whole recurrence.


# %%
@nki.jit(target="trn2")
def recurrence_kernel(gate, value):
    """At most 128 channels: gate and value [channels, tokens]."""
    gate_tile, value_tile = nl.load(gate), nl.load(value)
    states = nl.ndarray(gate.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor_scan(
        dst=states,
        data0=gate_tile,
        data1=value_tile,
        initial=0.0,
        op0=nl.multiply,
        op1=nl.add,
    )
    out = nl.ndarray(gate.shape, dtype=gate.dtype, buffer=nl.shared_hbm)
    nl.store(out, states)
    return out


# %% [markdown]
# First alone, on arrays of JAX. A kernel that is wrong here is wrong in the model, too, and here it
# is easier to look at.

# %%
gate, value = jax.nn.sigmoid(gates @ x), jnp.asarray(inputs @ x)
np.testing.assert_allclose(
    recurrence_kernel(gate, value), recurrence(gate, value), rtol=1e-4, atol=1e-5
)

# %% [markdown]
# ## The model with the kernel
#
# Nothing else changes: the model calls the kernel where it called the function. `trace` finds the
# kernels that a function calls, and keeps them with the graph. The compiler puts the kernel's
# operations into the program of the graph: there is one launch, and engines go on from one to the
# other.

# %%
module, joined = measured(recurrence_kernel)
print("kernels of the graph:", ", ".join(module.kernels))
assert 2 * joined.total_us < plain.total_us

# %% [markdown]
# In the report lines of the kernel stand beside instructions of the graph.

# %%
print(joined.text(lines=6))

# %% [markdown]
# ## When a kernel pays
#
# Arrays go through HBM between the graph and a kernel, and the kernel's own loads and stores take
# some two microseconds each. So a kernel gains nothing for work that the compiler already keeps on
# chip, such as a softmax. It pays where an algorithm is not in the graph at all: a recurrence,
# attention that leaves out what a mask hides (tutorial 5), a router of experts (tutorial 12),
# products in MX formats (tutorial 13). Compare both times, as here, before you keep one.

# %%
print(f"compiled by itself {plain.total_us:.1f} us, with the kernel {joined.total_us:.1f} us")

# %% [markdown]
# In a graph that comes from a file, kernels are custom calls with the target
# `AwsNeuronCustomNativeKernel`. `graph_compiler.compile(module, kernels={"name": kernel})` says
# which kernel is meant by which name.
