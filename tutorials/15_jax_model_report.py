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
# # Tutorial 15: compile a JAX model and read its report
#
# A whole JAX function becomes one program for a NeuronCore. We compile a small network, run it, and
# look where its modelled time goes. (`pip install jax`; the CPU build is enough.)
#
# Target: trn2.

# %%
try:
    import jax
    import jax.numpy as jnp
except ModuleNotFoundError:
    raise SystemExit("This tutorial needs JAX: pip install jax") from None

import numpy as np

import graph_compiler
from graph_compiler.hot_spots import hot_spots

# %% [markdown]
# ## From a function to a program
#
# `jax.named_scope` names the parts of the model; the names are kept through compilation.


# %%
def network(x, w1, w2):
    with jax.named_scope("hidden"):
        hidden = jnp.tanh(x @ w1)
    with jax.named_scope("scores"):
        return jax.nn.softmax(hidden @ w2)


random = np.random.default_rng(0)
x, w1, w2 = (
    random.standard_normal(shape, np.float32) / 16 for shape in ((128, 256), (256, 512), (512, 64))
)
module = graph_compiler.load(jax.jit(network).lower(x, w1, w2))
compiled = graph_compiler.compile(module, "trn2")

# %% [markdown]
# ## Running and timing it
#
# The result agrees with JAX. The time is that of the timing model: no device is involved.

# %%
(scores,), profile = compiled.profile(x, w1, w2)
np.testing.assert_allclose(scores, network(x, w1, w2), rtol=1e-4, atol=1e-6)
print(f"{profile.total_us:.1f} us, limited by {profile.bound}")

# %% [markdown]
# ## The report of the program
#
# Engines, transfers and memory, as of any kernel; `bound` names what limits.

# %%
print(profile.text(lines=3))

# %% [markdown]
# ## Where the time goes
#
# By layer, then by instruction. `path_ns` is the part of the critical path, so that a column adds
# up to the whole time; what is short there is hidden behind something else.

# %%
for by in ("layer", "instruction"):
    spots = hot_spots(module, profile, by)
    assert abs(sum(spot.path_ns for spot in spots) - profile.total_ns) < 1
    print(f"\nby {by}")
    for spot in spots:
        print(f"  {spot.path_percent:5.1f} %  {spot.name or '(none)'}")

# %% [markdown]
# On the command line, `neuronx-cc compile model.hlo --framework XLA --target trn2 --report r.html`
# writes the same as a page.
