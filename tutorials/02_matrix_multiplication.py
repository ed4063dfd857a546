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
# # Tutorial 2: the matrix-multiplication ladder
#
# Five kernels compute the same product. Each step moves less data for the same work; the simulator
# shows what that does to the cycles and to the timeline. The kernels are in `matmul_kernels.py`
# beside this file. Target: trn2.

# %%
import ml_dtypes
import numpy as np
from matmul_kernels import blocked, blocked_free, hoisted, matmul_numpy, one_tile, tiled

import nki

rng = np.random.default_rng(0)


def matrix(*shape):
    return rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16)


def measure(kernel, lhsT, rhs, target="trn2"):
    """Compile for trn2, run, compare with NumPy, and return the profile."""
    compiled = nki.compile(kernel, lhsT, rhs, target=target)
    out, metrics = compiled.profile(lhsT, rhs)
    expected = matmul_numpy(lhsT, rhs)
    error = np.abs(out.astype(np.float32) - expected).max()
    assert error <= 2**-7 * np.abs(expected).max()
    return metrics


# %% [markdown]
# ## Step 1: one tile
#
# The tensor engine multiplies a stationary tile [K, M] (K and M up to 128) by a moving tile [K, N]
# (N up to 512) and leaves the sum over K in PSUM. For one product everything waits in turn: the
# loads, the product, the copy out of PSUM, the store. Latency is all there is.

# %%
print(measure(one_tile, matrix(128, 128), matrix(128, 512)).text())

# %% [markdown]
# ## Step 2: many tiles
#
# Three loops. Every product loads both of its tiles, 160 KiB for 16.8 million multiply-adds: the
# DMA engines cannot keep up, and the tensor engine waits.

# %%
lhsT, rhs = matrix(1024, 1024), matrix(1024, 1024)
profiles = {"tiled": measure(tiled, lhsT, rhs)}
print(profiles["tiled"].text())

# %% [markdown]
# ## Step 3: loads out of the inner loop
#
# A column of `lhsT` serves a whole row of output tiles, so it is loaded once a row.

# %%
profiles["hoisted"] = measure(hoisted, lhsT, rhs)

# %% [markdown]
# ## Step 4: blocks of the free dimensions
#
# With blocks of 2 x 2 output tiles each loaded column is used twice, in longer rows, which DMA
# moves at a better rate.

# %%
profiles["blocked_free"] = measure(blocked_free, lhsT, rhs)

# %% [markdown]
# ## Step 5: blocks of K
#
# Partial sums wait in SBUF while K is worked off in blocks. What must fit on chip is a block, not a
# column, so the blocks of M and N can grow and the traffic shrinks again.

# %%
profiles["blocked"] = measure(blocked, lhsT, rhs)

# %% [markdown]
# What each step changed:

# %%
print(f"{'kernel':14}{'us':>8}{'MB moved':>10}{'TensorE':>9}{'DMA':>6}   bound")
for name, metrics in profiles.items():
    row = metrics.to_dict()
    moved = sum(row["dma"]["bytes"].values()) / 1e6
    tensor = row["engines"][0]["active_percent"]
    print(
        f"{name:14}{row['total_ns'] / 1e3:8.1f}{moved:10.1f}{tensor:8.0f}%"
        f"{row['dma']['active_percent']:5.0f}%   {row['bound']}"
    )
times = [metrics.to_dict()["total_ns"] for metrics in profiles.values()]
assert times[0] > times[1] > times[2]
