"""Attention in its forms, and its gradients."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from user_programs.drawing import Draw, program


def attend(q, k, v, mask=None, bias=None):
    """[..., queries, width] with [..., keys, width]."""
    scores = jnp.einsum("...qd,...kd->...qk", q, k) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = jnp.where(mask, scores, -1e30)
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(v.dtype)
    return jnp.einsum("...qk,...kd->...qd", weights, v)


def _operands(draw: Draw, dtype=None, keys=None):
    dtype = dtype or draw.float_type()
    batch, heads, width = draw.size(1, 3), draw.size(1, 4), draw.size(2, 40)
    queries = draw.size(1, 90)
    keys = keys or queries
    q = draw.normal(batch, heads, queries, width, dtype=dtype)
    k, v = (draw.normal(batch, heads, keys, width, dtype=dtype) for _ in range(2))
    return q, k, v


@program()
def causal_attention(draw: Draw):
    q, k, v = _operands(draw)
    return lambda q, k, v: attend(q, k, v, jnp.tril(jnp.ones((q.shape[2],) * 2, bool))), (q, k, v)


@program()
def causal_attention_gradients(draw: Draw):
    q, k, v = _operands(draw)

    def loss(q, k, v):
        out = attend(q, k, v, jnp.tril(jnp.ones((q.shape[2],) * 2, bool)))
        return jnp.sum(jnp.sin(out.astype(jnp.float32)))

    return jax.grad(loss, argnums=(0, 1, 2)), (q, k, v)


@program()
def sliding_window_attention(draw: Draw):
    q, k, v = _operands(draw)
    window = draw.size(1, 40)

    def function(q, k, v):
        row, column = jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])[None]
        return attend(q, k, v, (column <= row) & (column > row - window))

    return function, (q, k, v)


@program()
def grouped_query_attention(draw: Draw):
    dtype = draw.float_type()
    batch, groups, each, width = (draw.size(1, high) for high in (2, 3, 4, 48))
    queries, keys = draw.size(1, 60), draw.size(1, 80)
    q = draw.normal(batch, queries, groups * each, width, dtype=dtype)
    k, v = (draw.normal(batch, keys, groups, width, dtype=dtype) for _ in range(2))

    def function(q, k, v):
        q = q.reshape(*q.shape[:2], groups, each, width)
        scores = jnp.einsum("bqgrd,bkgd->bgrqk", q, k) * width**-0.5
        weights = jax.nn.softmax(scores, axis=-1)
        return jnp.einsum("bgrqk,bkgd->bqgrd", weights, v).reshape(batch, queries, -1)

    return function, (q, k, v)


@program()
def alibi_attention(draw: Draw):
    q, k, v = _operands(draw)

    def function(q, k, v):
        heads, length = q.shape[1:3]
        slopes = 2.0 ** (-8 * jnp.arange(1, heads + 1) / heads)
        distance = jnp.arange(length)[None] - jnp.arange(length)[:, None]
        bias = (slopes[:, None, None] * distance).astype(q.dtype)
        return attend(q, k, v, distance <= 0, bias)

    return function, (q, k, v)


def _rotated(x, positions, interleaved):
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    cosine, sine = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    if interleaved:
        a, b = x[..., ::2], x[..., 1::2]
        turned = jnp.stack([a * cosine - b * sine, a * sine + b * cosine], axis=-1)
        return turned.reshape(x.shape)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)


@program()
def rotary_attention(draw: Draw):
    dtype, interleaved = draw.float_type(), draw.chance(0.5)
    heads, length, width = draw.size(1, 4), draw.size(1, 70), 2 * draw.size(1, 20)
    q, k, v = (draw.normal(heads, length, width, dtype=dtype) for _ in range(3))

    def function(q, k, v, first):
        positions = first + jnp.arange(length, dtype=jnp.float32)
        return attend(_rotated(q, positions, interleaved), _rotated(k, positions, interleaved), v)

    return function, (q, k, v, jnp.float32(draw.size(0, 9)))


@program()
def rotary_gradient(draw: Draw):
    interleaved = draw.chance(0.5)
    length, width = draw.size(1, 70), 2 * draw.size(1, 20)

    def loss(x, y):
        return jnp.sum(_rotated(x, jnp.arange(length, dtype=jnp.float32), interleaved) * y)

    return jax.grad(loss), (draw.normal(2, length, width), draw.normal(2, length, width))


@program()
def cross_attention_with_padding(draw: Draw):
    q, k, v = _operands(draw, keys=draw.size(1, 120))
    lengths = draw.whole(1, k.shape[2] + 1, q.shape[0])

    def function(q, k, v, lengths):
        mask = jnp.arange(k.shape[2])[None] < lengths[:, None]
        return attend(q, k, v, mask[:, None, None])

    return function, (q, k, v, lengths)


@program()
def cached_decoding_step(draw: Draw):
    """One token: the cache takes its key and value, donated or not."""
    dtype = draw.float_type()
    batch, heads, room, width = (draw.size(1, high) for high in (3, 4, 100, 40))
    caches = [draw.normal(batch, heads, room, width, dtype=dtype) for _ in range(2)]
    news = [draw.normal(batch, heads, 1, width, dtype=dtype) for _ in range(3)]

    def function(caches, news, position):
        q, *new = news
        caches = [
            jax.lax.dynamic_update_slice(cache, one, (0, 0, position, 0))
            for cache, one in zip(caches, new)
        ]
        mask = jnp.arange(room) <= position
        return attend(q, *caches, mask), caches

    if draw.chance(0.5):
        function = jax.jit(function, donate_argnums=0)
    return function, (caches, news, draw.whole(0, room + 5))


@program()
def generation_loop(draw: Draw):
    """Tokens one after another by a scan over a cache; the best token follows."""
    room, width, words = draw.size(2, 12), draw.size(4, 32), draw.size(3, 60)
    table = draw.normal(words, width)
    weights = [draw.normal(width, width, scale=width**-0.5) for _ in range(3)]

    def function(table, weights, first):
        def step(carry, position):
            token, keys, values = carry
            x = table[token]
            q, k, v = (x @ w for w in weights)
            keys = jax.lax.dynamic_update_index_in_dim(keys, k, position, 0)
            values = jax.lax.dynamic_update_index_in_dim(values, v, position, 0)
            out = attend(q[None], keys, values, jnp.arange(room) <= position)[0]
            logits = table @ out
            return (jnp.argmax(logits).astype(jnp.int32), keys, values), (token, logits)

        empty = jnp.zeros((room, width))
        return jax.lax.scan(step, (first, empty, empty), jnp.arange(room))[1]

    return function, (table, weights, draw.whole(0, words))


@program()
def paged_cache(draw: Draw):
    dtype = draw.float_type()
    batch, pages, size, each = (draw.size(1, high) for high in (4, 12, 16, 5))
    heads, width = draw.size(1, 4), draw.size(1, 32)
    keys, values = (draw.normal(pages, size, heads, width, dtype=dtype) for _ in range(2))
    tables = draw.whole(0, pages, batch, each)
    lengths = draw.whole(1, size * each + 1, batch)
    q = draw.normal(batch, heads, width, dtype=dtype)

    def function(q, keys, values, tables, lengths):
        def one(q, table, length):
            k, v = (pool[table].reshape(-1, heads, width) for pool in (keys, values))
            scores = jnp.einsum("hd,khd->hk", q, k).astype(jnp.float32) * width**-0.5
            scores = jnp.where(jnp.arange(k.shape[0]) < length, scores, -jnp.inf)
            return jnp.einsum("hk,khd->hd", jax.nn.softmax(scores).astype(v.dtype), v)

        return jax.vmap(one)(q, tables, lengths)

    return function, (q, keys, values, tables, lengths)


@program()
def paged_write(draw: Draw):
    """New keys scattered to their places of pages; places beyond the last are dropped."""
    dtype = draw.float_type()
    pages, size, width, tokens = (draw.size(1, high) for high in (12, 16, 40, 30))
    slots = draw.random.permutation(pages * size + tokens)[:tokens].astype("int32")

    def function(pool, new, slots):
        flat = pool.reshape(pages * size, width).at[slots].set(new, mode="drop")
        return flat.reshape(pool.shape)

    pool, new = (
        draw.normal(pages, size, width, dtype=dtype),
        draw.normal(tokens, width, dtype=dtype),
    )
    return function, (pool, new, slots)


@program()
def speculative_verification(draw: Draw):
    """Draft tokens are accepted up to the first that chance refuses."""
    count, words = draw.size(1, 9), draw.size(2, 80)
    draft, target = draw.normal(count, words), draw.normal(count + 1, words)

    def function(draft, target, tokens, chance):
        p, q = jax.nn.softmax(target), jax.nn.softmax(draft)
        at = jnp.arange(count)
        ratio = p[at, tokens] / q[at, tokens]
        accepted = jnp.cumprod((chance < ratio).astype(jnp.int32)).sum()
        rest = jnp.maximum(p[:count] - q, 0)
        rest = rest / jnp.maximum(rest.sum(-1, keepdims=True), 1e-9)
        following = jnp.where(accepted < count, rest[jnp.minimum(accepted, count - 1)], p[count])
        return accepted, following

    return function, (draft, target, draw.whole(0, words, count), draw.uniform(count))


@program()
def blockwise_attention(draw: Draw):
    """A running maximum and sum over blocks of keys."""
    heads, queries, width = draw.size(1, 3), draw.size(1, 50), draw.size(1, 33)
    block, blocks = draw.size(1, 24), draw.size(1, 5)
    q = draw.normal(heads, queries, width)
    k, v = (draw.normal(blocks, heads, block, width) for _ in range(2))

    def function(q, k, v):
        def step(carry, kv):
            largest, total, out = carry
            scores = jnp.einsum("hqd,hkd->hqk", q, kv[0]) * width**-0.5
            new = jnp.maximum(largest, scores.max(-1))
            old, weights = jnp.exp(largest - new), jnp.exp(scores - new[..., None])
            total = total * old + weights.sum(-1)
            return (new, total, out * old[..., None] + weights @ kv[1]), None

        start = jnp.full((heads, queries), -jnp.inf), jnp.zeros((heads, queries)), jnp.zeros_like(q)
        (largest, total, out), _ = jax.lax.scan(step, start, (k, v))
        return out / total[..., None], largest + jnp.log(total)

    return function, (q, k, v)


@program()
def linear_attention(draw: Draw):
    q, k, v = _operands(draw, "float32")

    def function(q, k, v):
        q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
        states = jnp.cumsum(jnp.einsum("bhkd,bhke->bhkde", k, v), axis=2)
        norm = jnp.einsum("bhqd,bhqd->bhq", q, jnp.cumsum(k, axis=2))
        return jnp.einsum("bhqd,bhqde->bhqe", q, states) / norm[..., None]

    return function, (q[:, :, :20], k[:, :, :20], v[:, :, :20])


@program()
def relative_position_attention(draw: Draw):
    """T5's buckets of distances, from a table."""
    q, k, v = _operands(draw)
    heads = q.shape[1]

    def function(q, k, v, table):
        distance = jnp.abs(jnp.arange(q.shape[2])[:, None] - jnp.arange(k.shape[2])[None])
        far = 8 + (jnp.log(jnp.maximum(distance, 1) / 8 + 0.01) / 2).astype(jnp.int32)
        buckets = jnp.where(distance < 8, distance, jnp.clip(far, 8, 15))
        return attend(q, k, v, bias=table[buckets].transpose(2, 0, 1))

    return function, (q, k, v, draw.normal(16, heads, dtype=q.dtype))


@program()
def window_shift_attention(draw: Draw):
    """Swin: windows of a rolled image, with relative biases by a table of constants."""
    side, windows, width = draw.size(2, 4), draw.size(1, 3), draw.size(2, 24)
    x = draw.normal(side * windows, side * windows, width)
    shift = draw.size(0, side - 1)

    def function(x, weights, bias):
        x = jnp.roll(x, (-shift, -shift), (0, 1))
        parts = x.reshape(windows, side, windows, side, width).transpose(0, 2, 1, 3, 4)
        parts = parts.reshape(-1, side * side, width)
        q, k, v = jnp.split(parts @ weights, 3, axis=-1)
        out = attend(q, k, v, bias=bias).reshape(windows, windows, side, side, width)
        out = out.transpose(0, 2, 1, 3, 4).reshape(x.shape)
        return jnp.roll(out, (shift, shift), (0, 1))

    weights = draw.normal(width, 3 * width, scale=width**-0.5)
    return function, (x, weights, draw.normal(side * side, side * side))
