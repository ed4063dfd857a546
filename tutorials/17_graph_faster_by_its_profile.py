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
# # Tutorial 17: a graph twice as fast, by its profile
#
# The compiler chooses engines, tiles and places. What you choose is the number format of weights
# and products, and how many cores share the work. The profile says which of them is worth changing.
#
# The graph is one block of a network: two products, a tanh between them, and a sum. It is written
# as HLO text, so that nothing else is needed. `graph_compiler.load(jax.jit(f).lower(...))` gives
# such a graph from a function of JAX. Target: trn2.

# %%
import ml_dtypes
import numpy as np

import graph_compiler
from graph_compiler import GraphOptions
from graph_compiler.hot_spots import hot_spots

TOKENS, WIDTH, HIDDEN = 256, 768, 3072


def block(dtype="f32"):
    """The graph. Weights lie as PyTorch keeps them, [outputs, inputs]."""
    text = f"""HloModule block
    ENTRY main {{
      x = {dtype}[{TOKENS},{WIDTH}] parameter(0)
      up = {dtype}[{HIDDEN},{WIDTH}] parameter(1)
      down = {dtype}[{WIDTH},{HIDDEN}] parameter(2)
      first = {dtype}[{TOKENS},{HIDDEN}] dot(x, up), lhs_contracting_dims={{1}},
        rhs_contracting_dims={{1}}
      active = {dtype}[{TOKENS},{HIDDEN}] tanh(first)
      second = {dtype}[{TOKENS},{WIDTH}] dot(active, down), lhs_contracting_dims={{1}},
        rhs_contracting_dims={{1}}
      ROOT sum = {dtype}[{TOKENS},{WIDTH}] add(x, second)
    }}"""
    return graph_compiler.load(text.encode())


random = np.random.default_rng(0)
x = random.standard_normal((TOKENS, WIDTH), np.float32)
up = random.standard_normal((HIDDEN, WIDTH), np.float32) / WIDTH**0.5
down = random.standard_normal((WIDTH, HIDDEN), np.float32) / HIDDEN**0.5
exact = x + np.tanh(x.astype(np.float64) @ up.T) @ down.T

times = {}


def measure(name, module, arrays, **options):
    """Compile and time; show what limits, what it would give to take that away, and the error."""
    compiled = graph_compiler.compile(module, "trn2", GraphOptions(**options))
    (result,), profile = compiled.profile(*arrays)
    times[name] = profile.total_us
    error = np.abs(result.astype(np.float64) - exact).max() / np.abs(exact).max()
    assert error < 0.01
    print(f"{name}: {profile.total_us:.1f} us, largest error {error:.0e} of the largest result")
    print(f"  bound by {profile.bound}: {profile.reason}")
    for limit in profile.limits[:2]:
        print(f"  with {limit.name}: {limit.saved_percent:.0f} % less")
    for spot in hot_spots(module, profile)[:3]:
        print(f"  {spot.path_percent:5.1f} %  {spot.name or '(other)'}")
    return profile


# %% [markdown]
# ## As it is

# %%
first = measure("fp32", block(), (x, up, down))

# %% [markdown]
# ## Products in bfloat16
#
# The tensor engine is the limit, and nearly all of the time belongs to the two products. A product
# of fp32 takes four passes of the tensor engine, one of bfloat16 takes one. `auto_cast="matmult"`
# rounds the operands of products to bfloat16. Their sums stay fp32, and so does everything else.
# (`neuronx-cc --auto-cast matmult` is the same.)
#
# The error grows to that of bfloat16, which has 8 bits. Whether a model can bear that is for its
# own tests to say.

# %%
second = measure("bf16 products", block(), (x, up, down), auto_cast="matmult")
assert second.total_us < 0.6 * first.total_us

# %% [markdown]
# ## Arrays in bfloat16
#
# Now the bandwidth of memory is the limit. What moves are the weights, 19 MB in fp32. The operands
# of the products are rounded to bfloat16 anyway, so the graph may keep them that way: half the
# bytes. Results are rounded once more.

# %%
halves = tuple(array.astype(ml_dtypes.bfloat16) for array in (x, up, down))
third = measure("bf16 arrays", block("bf16"), halves)
assert 2 * third.total_us < first.total_us

# %% [markdown]
# ## Two cores
#
# The tensor engine is the limit again, and it has only 16-bit work. What is left is a second one:
# two physical cores can form one logical core. Each step of the graph is cut in two, or done by one
# of the cores, whichever takes less time.

# %%
fourth = measure("two cores", block("bf16"), halves, logical_cores=2)

# %% [markdown]
# ## What is left
#
# A profile has lower bounds: the time that each engine, and HBM, would take if it never waited. The
# largest of them is as far as this program can come without less work.

# %%
for name, nanoseconds in sorted(third.lower_bounds_ns.items(), key=lambda item: -item[1])[:3]:
    print(f"one core, {name}: at least {nanoseconds / 1e3:.1f} us")
print(f"{'change':16}{'us':>8}{'x':>6}")
for name, microseconds in times.items():
    print(f"{name:16}{microseconds:8.1f}{times['fp32'] / microseconds:6.1f}")
assert times["two cores"] < times["bf16 arrays"] < times["bf16 products"]

# %% [markdown]
# The whole report of the last one, with `bound` and the critical path first:

# %%
print(fourth.text(lines=4))
