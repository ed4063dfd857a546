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
# # Tutorial 1: adding two tensors
#
# A kernel is a Python function that says which instructions a NeuronCore runs. It moves tiles from
# device memory (HBM) into the on-chip memory SBUF, computes there, and moves the result back. Here
# the whole of that is one addition. Nothing but this package is needed: the compiled program runs
# on a simulator of the engines. Target: trn2.

# %%
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

# %% [markdown]
# SBUF has 128 partitions; dimension 0 of every on-chip tensor runs over them. So a tall matrix is
# worked on in tiles of 128 rows.


# %%
@nki.jit(target="trn2")
def add(a, b):
    """a + b for matrices whose rows are a multiple of 128."""
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        here = nl.ds(start, 128)
        left = nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf)
        right = nl.ndarray((128, columns), dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a[here, :])
        nisa.dma_copy(dst=right, src=b[here, :])
        total = nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=total, data1=left, data2=right, op=nl.add)
        nisa.dma_copy(dst=out[here, :], src=total)
    return out


# %% [markdown]
# Calling the kernel with NumPy arrays compiles it for their shapes and runs the program.

# %%
rng = np.random.default_rng(0)
a = rng.standard_normal((512, 1024), dtype=np.float32)
b = rng.standard_normal((512, 1024), dtype=np.float32)
assert np.array_equal(add(a, b), a + b)

# %% [markdown]
# The same kernel runs in three modes, with the same bits: `device` (the compiled program),
# `reference` (the traced kernel, not lowered) and `eager` (each operation as its line executes, so
# that `print` and `breakpoint()` work inside the kernel).

# %%
for mode in ("device", "reference", "eager"):
    assert np.array_equal(nki.simulate(add, mode=mode)(a, b), a + b)

# %% [markdown]
# `nki.profile` also times the program. An addition does one operation for every twelve bytes that
# move, so the DMA queues are what limits it.

# %%
outputs, metrics = nki.profile(add)(a, b)
print(metrics.text())

# %% [markdown]
# In a notebook a profile, a kernel, a compiled program and a tensor in eager mode show themselves
# as pictures and tables. A profile draws its timeline: what engines and queues do at which time.

# %%
metrics

# %%
add

# %% [markdown]
# What runs on the device is the program: one stream of instructions an engine. Engines do not see
# each other; semaphores say who waits for whom. `$S[3]-=1` waits for a token of semaphore 3,
# `$S[3]+=1@complete` gives one when the instruction is done. Nobody has to write this: the compiler
# derives it from what the kernel reads and writes.
#
# Below is the program for one tile, a line an instruction. SyncE starts both loads (`DmaCopy`), the
# vector engine waits for them, adds, and tells the engine that starts the store. Lines that begin
# with a point describe tensors and queues.

# %%
from isa.files.text import disassemble  # noqa: E402

compiled = nki.compile(add, a[:128], b[:128])
print(disassemble(compiled.program))

# %% [markdown]
# A mistake is explained at the kernel's own line, before anything runs.


# %%
@nki.jit
def too_tall(a):
    tile = nl.ndarray((256, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    return a


try:
    too_tall(np.zeros((256, 64), np.float32))
except nki.NeuronError as error:
    from nki.errors import explain

    print(explain(error))
