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
# # Tutorial 11: debugging
#
# Three kernels that are wrong, each in another way, and how to find out. Target: trn2.

# %%
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.errors import explain

rng = np.random.default_rng(0)
a = rng.standard_normal((256, 300), dtype=np.float32)


def explained(kernel, *arguments):
    """Call a kernel that fails, and show what the error says."""
    try:
        kernel(*arguments)
    except nki.NeuronError as error:
        print(explain(error))
        return error.code
    raise AssertionError("no error")


# %% [markdown]
# ## 1. Elements that nothing wrote
#
# Sums of blocks of 128 columns. 300 columns are two blocks and 44 more, for which a whole tile is
# reduced. On a device the sum would hold whatever was in memory before, and may look right.


# %%
@nki.jit(target="trn2")
def block_sums(a):
    rows, columns = a.shape
    blocks = (columns + 127) // 128
    out = nl.ndarray((rows, blocks), dtype=a.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        sums = nl.ndarray((128, blocks), dtype=a.dtype, buffer=nl.sbuf)
        for block in range(blocks):
            width = min(128, columns - block * 128)
            tile = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile[:, :width], src=a[nl.ds(row, 128), nl.ds(block * 128, width)])
            nisa.tensor_reduce(dst=sums[:, nl.ds(block, 1)], op=nl.add, data=tile, axis=1)
        nisa.dma_copy(dst=out[nl.ds(row, 128), :], src=sums)
    return out


assert explained(block_sums, a) == "uninitialised-output"

# %% [markdown]
# The error names the line that reads them. The remedy is a view of what is there: `tile[:, :width]`
# in `tensor_reduce` too.
#
# ## 2. A wrong result
#
# The standard deviation of each row. It is wrong, and nothing complains: the program does what the
# kernel says.


# %%
@nki.jit(target="trn2")
def deviations(a, show=False):
    rows, columns = a.shape
    out = nl.ndarray((rows, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        here = nl.ds(row, 128)
        x = nl.load(a[here, :])
        total, result = (nl.ndarray((128, 1), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.tensor_reduce(dst=total, op=nl.add, data=x, axis=1)
        if show:
            print("sum", total[0:1, :])
        nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=1 / rows)
        if show:
            print("mean", total[0:1, :])
        nisa.tensor_scalar(dst=x, data=x, op0=nl.subtract, operand0=total)
        nisa.activation_reduce(dst=x, op=nl.square, data=x, reduce_op=nl.add, reduce_res=result)
        nisa.activation(dst=result, op=nl.sqrt, data=result, scale=1 / columns)
        nisa.dma_copy(dst=out[here, :], src=result)
    return out


shifted = a + 3
expected = shifted.std(axis=1, keepdims=True)
print("largest error:", np.abs(deviations(shifted) - expected).max())

# %% [markdown]
# In eager mode each line computes when it executes, so that values can be looked at: by `print`, by
# `breakpoint()`, or in a debugger. Here the kernel prints what it has for the first row, if asked.

# %%
nki.simulate(deviations, mode="eager")(shifted[:128], show=True)
print("the mean should be", shifted[0].mean())

# %% [markdown]
# The sum is right, the mean is not: it is divided by the number of rows, where `1 / columns` is
# right.
#
# ## 3. A race
#
# Two cores share out the rows of a sum over columns, and one adds up what both have. It reads
# before the other one has written: the compiler finds that no order is sure, whatever the data.


# %%
@nki.jit(target="trn2")
def total(a, barrier=False):
    partial = nl.ndarray((2, 128, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray((128, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    x = nl.load(a[nl.ds(core * 128, 128), :])
    sums = nl.ndarray((128, 1), dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=sums, op=nl.add, data=x, axis=1)
    nisa.dma_copy(dst=partial[core], src=sums)
    if barrier:
        nisa.core_barrier(data=partial, cores=(0, 1))
    if core == 0:
        both = nl.load(partial[0]), nl.load(partial[1])
        nisa.tensor_tensor(dst=sums, data1=both[0], data2=both[1], op=nl.add)
        nisa.dma_copy(dst=out, src=sums)
    return out


assert explained(total[2], a) == "race"

# %% [markdown]
# A barrier behind the store mends it. What it costs is in the profile.

# %%
sums, profile = nki.profile(total[2], target="trn2")(a, barrier=True)
np.testing.assert_allclose(sums[:, 0], a[:128].sum(1) + a[128:].sum(1), rtol=1e-4, atol=1e-4)
print(profile.text(lines=3))

# %% [markdown]
# ## What else there is
#
# - `nki diff file.py:kernel --input ...` compares what each instruction writes in two modes, and
#   shows the first difference. With `--modes device,fp32` it shows where rounding begins to matter.
# - `nl.device_print("name", tile)` prints when the device runs the line.
# - `nki ir file.py:kernel --input ... --after STAGE` shows what the compiler made of a kernel.
