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
# # Tutorial 12: gather, scatter, and a router for experts
#
# Where data goes may depend on data. Rows of a tensor in HBM are picked by indices in SBUF, one
# row a partition; DMA reads them (gather) or writes them (scatter). A mixture of experts needs
# both: a router chooses two experts for each token, an expert gathers its tokens, and their results
# go back. Target: trn2.

# %%
import warnings

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

rng = np.random.default_rng(0)
TOKENS, WIDTH, EXPERTS = 128, 128, 8


def on_chip(rows, columns, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray((rows, columns), dtype=dtype, buffer=buffer)


# %% [markdown]
# ## Gather and scatter
#
# `vector_select(0, index)` is a view of the rows that `index` names. As a source it gathers, as a
# destination it scatters. Indices of a scatter should differ from each other: of rows that go to
# one place any may stay, as no order of the two writes is sure.


# %%
@nki.jit(target="trn2")
def moved(table, rows, places):
    """out[places[i]] = table[rows[i]]; rows that no place names are 0."""
    count, width = rows.shape[0], table.shape[1]
    out = nl.ndarray((count, width), dtype=table.dtype, buffer=nl.shared_hbm)
    tile = on_chip(count, width)
    nisa.dma_copy(dst=tile, src=table.vector_select(0, nl.load(rows)))
    nisa.dma_copy(dst=out.vector_select(0, nl.load(places)), src=tile)
    return out


table = rng.standard_normal((1000, WIDTH), dtype=np.float32)
rows = rng.integers(0, 1000, (TOKENS, 1), dtype=np.int32)
places = rng.permutation(TOKENS).astype(np.int32)[:, None]
expected = np.zeros((TOKENS, WIDTH), np.float32)
expected[places[:, 0]] = table[rows[:, 0]]
assert np.array_equal(moved(table, rows, places), expected)

# %% [markdown]
# An index outside of the table is an error, and a place that comes twice a warning. Both say the
# value. Here one place comes 128 times, so that other rows of the result stay unwritten: an error.

# %%
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    for bad in ((np.full_like(rows, 1000), places), (rows, np.zeros_like(places))):
        try:
            moved(table, *bad)
        except nki.NeuronError as error:
            print(error.code, "-", error.what)
for warning in found:
    print(warning.message)

# %% [markdown]
# ## The router
#
# Scores of each token for each expert are a product. `max8` gives the eight largest of a row in
# order, `nc_find_index8` says where they are. The weights are a softmax over the two largest.


# %%
def choose(scores):
    """Of scores [tokens, experts] the two best experts [tokens, 8, the first two count] and their
    weights [tokens, 2]."""
    best, where = on_chip(TOKENS, 8), on_chip(TOKENS, 8, nl.uint32)
    nisa.max8(dst=best, src=scores)
    nisa.nc_find_index8(dst=where, data=scores, vals=best)
    weights, lowest, total = on_chip(TOKENS, 2), on_chip(TOKENS, 1), on_chip(TOKENS, 1)
    nisa.tensor_scalar(dst=lowest, data=best[:, 0:1], op0=nl.multiply, operand0=-1.0)
    nisa.activation_reduce(
        dst=weights, op=nl.exp, data=best[:, 0:2], bias=lowest, reduce_op=nl.add, reduce_res=total
    )
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=weights, data=weights, op0=nl.multiply, operand0=total)
    return where, weights


@nki.jit(target="trn2")
def route(x_turned, router):
    """x_turned [width, tokens], router [width, experts]: (experts [tokens, 2], weights)."""
    product, scores = on_chip(TOKENS, EXPERTS, buffer=nl.psum), on_chip(TOKENS, EXPERTS)
    nisa.nc_matmul(dst=product, stationary=nl.load(x_turned), moving=nl.load(router))
    nisa.tensor_copy(dst=scores, src=product)
    where, weights = choose(scores)
    chosen = nl.ndarray((TOKENS, 2), dtype=nl.uint32, buffer=nl.shared_hbm)
    shares = nl.ndarray((TOKENS, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=chosen, src=where[:, 0:2])
    nisa.dma_copy(dst=shares, src=weights)
    return chosen, shares


# %%
x = rng.standard_normal((TOKENS, WIDTH), dtype=np.float32)
router = rng.standard_normal((WIDTH, EXPERTS), dtype=np.float32)
chosen, shares = route(np.ascontiguousarray(x.T), router)
scores = x.astype(np.float64) @ router
order = np.argsort(-scores, axis=1)[:, :2]
assert np.array_equal(chosen, order)
top = np.take_along_axis(scores, order, axis=1)
gates = np.exp(top - top[:, :1])
np.testing.assert_allclose(shares, gates / gates.sum(axis=1, keepdims=True), rtol=1e-4)

# %% [markdown]
# ## An expert gathers its tokens
#
# Which tokens chose expert e is a mask over partitions; a list of them needs the mask in one
# partition. The way round leads through HBM. `nonzero_with_count` makes the list, padded here with
# TOKENS, one past the last row: gathers and scatters skip what lies outside
# (`oob_mode.skip`), so tiles stay whole.


# %%
@nki.jit(target="trn2")
def expert(x, chosen, weights, number):
    """x[tokens of an expert] @ weights at the rows of these tokens, 0 elsewhere."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mask = on_chip(TOKENS, 2)
    nisa.tensor_scalar(dst=mask, data=nl.load(chosen), op0=nl.equal, operand0=float(number))
    either = on_chip(TOKENS, 1)
    nisa.tensor_reduce(dst=either, op=nl.maximum, data=mask, axis=1)
    line = nl.ndarray((TOKENS, 1), dtype=nl.float32, buffer=nl.private_hbm)
    nisa.dma_copy(dst=line, src=either)
    flags, found = on_chip(16, TOKENS), on_chip(16, TOKENS + 1, nl.int32)
    nisa.memset(dst=flags, value=0.0)
    nisa.dma_copy(dst=flags[0:1, :], src=line.reshape((1, TOKENS)))
    nisa.memset(dst=found, value=TOKENS)
    nisa.nonzero_with_count(dst=found, src=flags, padding_val=TOKENS)
    listed = nl.ndarray((1, TOKENS), dtype=nl.int32, buffer=nl.private_hbm)
    nisa.dma_copy(dst=listed, src=found[0:1, 0:TOKENS])
    index = on_chip(TOKENS, 1, nl.int32)
    nisa.dma_copy(dst=index, src=listed.reshape((TOKENS, 1)))

    mine = on_chip(TOKENS, WIDTH)
    nisa.memset(dst=mine, value=0.0)
    nisa.dma_copy(dst=out, src=mine)
    nisa.dma_copy(dst=mine, src=x.vector_select(0, index), oob_mode=nisa.oob_mode.skip)
    turned = on_chip(WIDTH, TOKENS, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=mine)
    stationary, product = on_chip(WIDTH, TOKENS), on_chip(TOKENS, WIDTH, buffer=nl.psum)
    nisa.tensor_copy(dst=stationary, src=turned)
    nisa.nc_matmul(dst=product, stationary=stationary, moving=nl.load(weights))
    result = on_chip(TOKENS, WIDTH)
    nisa.tensor_copy(dst=result, src=product)
    nisa.dma_copy(dst=out.vector_select(0, index), src=result, oob_mode=nisa.oob_mode.skip)
    return out


# %%
weights = rng.standard_normal((EXPERTS, WIDTH, WIDTH), dtype=np.float32)
mixed = np.zeros((TOKENS, WIDTH))
for number in range(EXPERTS):
    part, profile = nki.profile(expert)(x, chosen, weights[number], number)
    mine = (chosen == number).any(axis=1)
    np.testing.assert_allclose(part, mine[:, None] * (x @ weights[number]), rtol=1e-4, atol=1e-3)
    mixed += (shares * (chosen == number)).sum(axis=1, keepdims=True) * part
dense = np.einsum("tw,ewv->tev", x, weights)
wanted = (np.take_along_axis(dense, order[:, :, None], axis=1) * shares[:, :, None]).sum(axis=1)
np.testing.assert_allclose(mixed, wanted, rtol=1e-3, atol=1e-3)

# %% [markdown]
# What one expert costs: most of it is the way of the list through HBM.

# %%
print(profile.text(lines=5))
