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
# # Tutorial 4: one kernel, many shapes
#
# Calling a kernel with arrays compiles it for their shapes. A server that sees many batch sizes
# does not want a program for each. A *launch symbol* stands for a size that is known only when
# the program is started: the kernel is compiled once, and its loops stay loops. Target: trn2.

# %%
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

rng = np.random.default_rng(0)

# %% [markdown]
# ## A symbol for the rows
#
# The kernel is written as for plain sizes, with `nl.affine_range` instead of Python's `range`:
# over plain integers it unrolls like `range`, over a symbol it stays one loop on the device.


# %%
@nki.jit
def double(a):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        here = nl.ds(i * 128, 128)
        tile = nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[here, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[here, :], src=tile)
    return out


M = nki.symbol("M", multiple_of=128, max=8192)
compiled = nki.compile(double, a=nki.TensorSpec((M, 512), nl.float32), target="trn2")

for rows in (128, 1024, 8192):
    a = rng.standard_normal((rows, 512), dtype=np.float32)
    out, metrics = compiled.profile(a)
    assert np.array_equal(out, 2 * a)
    print(f"M={rows:5}: {metrics.total_us:7.1f} us, {metrics.instructions} instructions")

# %% [markdown]
# The program is the same for every size: only the trip count of its loop changes. Its tiles take
# turns in two buffers, so that the next one is loaded while this one is computed on, and what it
# needs of SBUF does not depend on M.

# %%
from isa.files.text import disassemble  # noqa: E402

text = disassemble(compiled.program)
print("\n".join(line for line in text.splitlines() if "Loop" in line or ".stream" in line))

# %% [markdown]
# A size that the symbol does not admit is refused before anything runs.

# %%
try:
    compiled(np.zeros((200, 512), np.float32))
except nki.NeuronError as error:
    from nki.errors import explain

    print(explain(error))

# %% [markdown]
# ## Any number of rows
#
# Without `multiple_of` the last tile may be smaller. A view that is clamped to its tensor's end (as
# slices are) has fewer rows there; the compiler splits the last iteration off.


# %%
@nki.jit
def double_any(a):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range((rows + 127) // 128):
        source = a[i * 128 : (i + 1) * 128, :]
        height = source.shape[0]
        tile = nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[0:height, :], src=source)
        nisa.tensor_scalar(
            dst=tile[0:height, :], data=tile[0:height, :], op0=nl.multiply, operand0=2.0
        )
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, :], src=tile[0:height, :])
    return out


R = nki.symbol("R", max=8192)
compiled = nki.compile(double_any, a=nki.TensorSpec((R, 512), nl.float32), target="trn2")
for rows in (1, 128, 200, 1000):
    a = rng.standard_normal((rows, 512), dtype=np.float32)
    assert np.array_equal(compiled(a), 2 * a)

# %% [markdown]
# ## Sizes that only the device knows
#
# How many rows count may itself be data: the tokens that an expert got, say. `nisa.register_load`
# reads it into a register, and `nl.fori_loop` loops up to it. Nothing on the host waits for it.


# %%
@nki.jit
def double_first(a, count):
    """The first count[0, 0] blocks of 128 rows, doubled; zeros behind them."""
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    zeros = nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=zeros, value=0.0)
    for start in range(0, rows, 128):
        nisa.dma_copy(dst=out[start : start + 128, :], src=zeros)
    blocks = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=blocks, src=count)
    stop = nisa.register_alloc()
    nisa.register_load(stop, blocks)
    # A dynamic start is added to a view as register times step: blocks of 128 rows here.
    source, target = (x.reshape((rows // 128, 128 * columns)) for x in (a, out))

    def double_block(i):
        tile = nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf)
        block = nl.ds(i, 1)
        nisa.dma_copy(dst=tile, src=source[block, :].reshape((128, columns)))
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=target[block, :].reshape((128, columns)), src=tile)

    nl.fori_loop(0, stop, double_block)
    return out


a = rng.standard_normal((1024, 512), dtype=np.float32)
for blocks in (0, 3, 8):
    expected = np.where(np.arange(1024)[:, None] < 128 * blocks, 2 * a, 0)
    out, metrics = nki.profile(double_first, target="trn2")(a, np.array([[blocks]], np.int32))
    assert np.array_equal(out, expected)
print(metrics.text(lines=4))
