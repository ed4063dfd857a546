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
# # Tutorial 10: hiding latency
#
# A chain of operations, each of which needs the result of the one before it, leaves engines idle:
# an engine has a pipeline, and a result that crosses from one engine to another pays for a
# semaphore, too. What helps is other work in between. Target: trn2.

# %%
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

rng = np.random.default_rng(0)
TARGET = "trn2"


def on_chip(rows, columns):
    return nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)


# %% [markdown]
# ## A chain between two engines
#
# Newton's iteration for the reciprocal of a square root: ScalarE squares, VectorE multiplies and
# subtracts, and each needs what the other one made. On small tiles the way from engine to engine
# takes longer than the work.

# %%
STEPS = 6


def step(x, y, square, correction):
    """y * (1.5 - x * y^2 / 2), in place."""
    nisa.activation(dst=square, op=nl.square, data=y)
    nisa.scalar_tensor_tensor(
        dst=correction, data=square, op0=nl.multiply, operand0=-0.5, op1=nl.multiply, operand1=x
    )
    nisa.scalar_tensor_tensor(
        dst=y, data=correction, op0=nl.add, operand0=1.5, op1=nl.multiply, operand1=y
    )


@nki.jit(target=TARGET)
def one_chain(a):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x, y, square, correction = (on_chip(rows, columns) for _ in range(4))
    nisa.dma_copy(dst=x, src=a)
    nisa.memset(dst=y, value=1.0)
    for _ in range(STEPS):
        step(x, y, square, correction)
    nisa.dma_copy(dst=out, src=y)
    return out


# %%
a = rng.uniform(0.5, 1.5, (128, 256)).astype(np.float32)
out, alone = nki.profile(one_chain)(a)
np.testing.assert_allclose(out, a**-0.5, rtol=1e-5)
print(alone.text(lines=4))

# %% [markdown]
# ## Chains that take turns
#
# The tile in two halves gives two chains that need nothing of each other. While one waits, the
# other works. It is enough to write them one after the other in each step; the compiler orders the
# instructions of an engine by when their operands are ready.


# %%
def chains(count):
    @nki.jit(target=TARGET)
    def kernel(a):
        rows, columns = a.shape
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        width = columns // count
        tiles = [[on_chip(rows, width) for _ in range(4)] for _ in range(count)]
        for part, (x, y, _, _) in enumerate(tiles):
            nisa.dma_copy(dst=x, src=a[:, nl.ds(part * width, width)])
            nisa.memset(dst=y, value=1.0)
        for _ in range(STEPS):
            for tile in tiles:
                step(*tile)
        for part, (_, y, _, _) in enumerate(tiles):
            nisa.dma_copy(dst=out[:, nl.ds(part * width, width)], src=y)
        return out

    return kernel


# %%
times = {}
for count in (1, 2, 4, 8):
    out, profile = nki.profile(chains(count))(a)
    np.testing.assert_allclose(out, a**-0.5, rtol=1e-5)
    times[count] = profile.total_us
    print(f"{count} chains: {profile.total_us:6.2f} us, {profile.bound}")
assert times[2] < times[1]

# %% [markdown]
# More chains are not always better: each instruction has a fixed cost of some 64 cycles, which
# narrow tiles do not fill.
#
# ## Who starts the transfers
#
# The compiler lets SyncE start transfers, which has nothing else to do. With descriptors that the
# hardware makes, `engine=` names another one. ScalarE computes here, so it starts them late.


# %%
def loads_by(engine):
    choice = {} if engine is None else {"engine": engine, "dge_mode": nisa.dge_mode.hwdge}

    @nki.jit(target=TARGET)
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for row in range(0, a.shape[0], 128):
            here = nl.ds(row, 128)
            tile = on_chip(128, a.shape[1])
            nisa.dma_copy(dst=tile, src=a[here, :], **choice)
            nisa.activation(dst=tile, op=nl.exp, data=tile)
            nisa.dma_copy(dst=out[here, :], src=tile)
        return out

    return kernel


# %%
a = rng.standard_normal((2048, 256), dtype=np.float32)
started = {}
for engine in (nisa.engine.scalar, nisa.engine.sync, None):
    out, profile = nki.profile(loads_by(engine))(a)
    np.testing.assert_allclose(out, np.exp(a), rtol=1e-5)
    name = "the compiler's choice" if engine is None else engine.name
    started[name] = profile.total_us
    print(f"{name:22}{profile.total_us:7.2f} us")
assert started["the compiler's choice"] < started["scalar"]
