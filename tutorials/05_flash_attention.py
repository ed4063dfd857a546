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
# # Tutorial 5: flash attention
#
# `softmax(Q K^T / sqrt(d)) V` for one head. Written out, the scores are a matrix of S x S numbers
# that would go to HBM and back twice. Flash attention keeps a block of them on chip: it walks
# over the keys, and corrects what it has summed so far whenever a larger score turns up.
#
# All five engines have something to do: TensorE multiplies, ScalarE computes exponentials, VectorE
# takes maxima and corrects, and DMA queues load what comes next. Target: trn2.

# %%
import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

rng = np.random.default_rng(0)


def attention_numpy(q, k, v, causal):
    """In float64; q, k, v are [S, d]."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.T / np.sqrt(q.shape[1])
    if causal:
        scores[np.triu_indices_from(scores, 1)] = -np.inf
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ v


# %% [markdown]
# ## Layouts
#
# TensorE sums over partitions: `nc_matmul(stationary [K, M], moving [K, N])` gives `[M, N]`. For
# the scores K is d, so Q and K come transposed, `[d, S]`. For the second product K runs over
# keys, so V comes as it is, and the probabilities `[queries, keys]` have to be turned round on
# chip, 128 keys at a time.
#
# ## The kernel


# %%
QUERIES = 128
KEYS = 512
LOWEST = -30000.0


def on_chip(shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def scores_of(q, k, first_query, first_key, causal):
    """Scores of 128 queries against a block of keys, in SBUF; keys after a query are masked."""
    products = on_chip((QUERIES, KEYS), buffer=nl.psum)
    nisa.nc_matmul(dst=products, stationary=q, moving=k)
    scores = on_chip((QUERIES, KEYS))
    nisa.tensor_copy(dst=scores, src=products)
    if causal and first_key + KEYS > first_query:
        # Keep where (first_query + partition) - (first_key + column) >= 0.
        nisa.affine_select(
            dst=scores,
            pattern=[[-1, KEYS]],
            offset=first_query - first_key,
            channel_multiplier=1,
            on_true_tile=scores,
            on_false_value=LOWEST,
            cmp_op=nl.greater_equal,
        )
    return scores


def weighted_values(weights, v, columns):
    """[queries, keys] times [keys, d]: 128 keys at a time, summed in PSUM."""
    result = on_chip((QUERIES, columns), buffer=nl.psum)
    for part in range(KEYS // 128):
        turned = on_chip((128, QUERIES), dtype=weights.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=weights[:, nl.ds(part * 128, 128)])
        stationary = on_chip((128, QUERIES), dtype=weights.dtype)
        nisa.tensor_copy(dst=stationary, src=turned)
        nisa.nc_matmul(dst=result, stationary=stationary, moving=v[part])
    return result


@nki.jit
def flash_attention(q, k, v, causal=False):
    """Attention of one head: q and k [d, S], v [S, d]; returns [S, d]."""
    columns, length = q.shape
    scale = columns**-0.5
    out = nl.ndarray((length, columns), dtype=q.dtype, buffer=nl.shared_hbm)
    for first_query in range(0, length, QUERIES):
        queries = on_chip((columns, QUERIES), q.dtype)
        nisa.dma_copy(dst=queries, src=q[:, nl.ds(first_query, QUERIES)])
        largest, total, summed = (on_chip((QUERIES, n)) for n in (1, 1, columns))
        nisa.memset(dst=largest, value=LOWEST)
        nisa.memset(dst=total, value=0.0)
        nisa.memset(dst=summed, value=0.0)
        last = first_query + QUERIES if causal else length
        for first_key in range(0, last, KEYS):
            keys = on_chip((columns, KEYS), k.dtype)
            nisa.dma_copy(dst=keys, src=k[:, nl.ds(first_key, KEYS)])
            values = []
            for part in range(KEYS // 128):
                values.append(on_chip((128, columns), v.dtype))
                nisa.dma_copy(dst=values[-1], src=v[nl.ds(first_key + part * 128, 128), :])
            scores = scores_of(queries, keys, first_query, first_key, causal)

            # The largest score so far, and by how much the old sums are too large.
            block, highest, minus, shrink = (on_chip((QUERIES, 1)) for _ in range(4))
            nisa.tensor_reduce(dst=block, op=nl.maximum, data=scores, axis=1)
            nisa.tensor_tensor(dst=highest, data1=largest, data2=block, op=nl.maximum)
            nisa.tensor_scalar(dst=minus, data=highest, op0=nl.multiply, operand0=-scale)
            nisa.activation(dst=shrink, op=nl.exp, data=largest, scale=scale, bias=minus)
            largest = highest

            # exp(scale * (score - largest)), and its sum on the way.
            weights, added = on_chip((QUERIES, KEYS), q.dtype), on_chip((QUERIES, 1))
            nisa.activation_reduce(
                dst=weights,
                op=nl.exp,
                data=scores,
                scale=scale,
                bias=minus,
                reduce_op=nl.add,
                reduce_res=added,
            )
            nisa.scalar_tensor_tensor(
                dst=total, data=total, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=added
            )
            nisa.scalar_tensor_tensor(
                dst=summed,
                data=summed,
                op0=nl.multiply,
                operand0=shrink,
                op1=nl.add,
                operand1=weighted_values(weights, values, columns),
            )
        inverse, result = on_chip((QUERIES, 1)), on_chip((QUERIES, columns), q.dtype)
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=result, data=summed, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[nl.ds(first_query, QUERIES), :], src=result)
    return out


# %% [markdown]
# ## Against NumPy

# %%
S, D = 1024, 128
q, k, v = (rng.standard_normal((S, D)).astype(ml_dtypes.bfloat16) for _ in range(3))
turned = [np.ascontiguousarray(x.T) for x in (q, k)]

profiles = {}
for causal in (False, True):
    compiled = nki.compile(flash_attention, *turned, v, causal, target="trn2")
    out, profiles[causal] = compiled.profile(*turned, v)
    expected = attention_numpy(q, k, v, causal)
    error = np.abs(out.astype(np.float64) - expected).max()
    assert error < 2**-7 * np.abs(expected).max(), error

# %% [markdown]
# What limits it? Half of the products of TensorE only turn tiles round, and VectorE reads each
# score three times: out of PSUM, for the maximum, and (with a mask) to select.

# %%
print(profiles[False].text())

# %% [markdown]
# ## Full and causal attention
#
# In full attention each query sees all keys. In a causal model a token must not see those that
# come after it, so query i sees the keys up to i: of the S x S scores only the lower triangle
# counts. The kernel treats the blocks of keys in three ways:
#
# - blocks below the diagonal are computed as in full attention;
# - blocks that the diagonal crosses are computed, and scores above it become very small, so that
#   their exponentials are 0 (`affine_select`);
# - blocks above the diagonal are never computed: the kernel's Python decides that while it is
#   traced, as `last` ends the loop over keys.
#
# Nearly half of the work goes, and not quite half of the time: blocks on the diagonal are whole.

# %%
for causal, metrics in profiles.items():
    print(f"causal={causal!s:5}  {metrics.total_us:7.1f} us   {metrics.bound}")
assert profiles[True].total_ns < profiles[False].total_ns
