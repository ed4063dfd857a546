"""Attention of current models: kernels in blocks with their gradients, sinks, several positions,
indexers, and the parts of a sequence that are computed elsewhere."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program

COMPLEX = ("hlo-not-compiled",)
"""Devices have no complex numbers."""


@program(slack=10)
def attention_in_blocks_with_own_gradient(draw: Draw):
    """Softmax kept as a maximum and a sum; the gradient computes the weights again by blocks."""
    block, blocks, heads, width = (draw.size(1, n) for n in (12, 4, 3, 16))
    length = block * blocks

    def scores_of(q, k, at, other):
        rows, columns = at * block + jnp.arange(block), other * block + jnp.arange(block)
        scores = jnp.einsum("hqd,hkd->hqk", q, k) / width**0.5
        return jnp.where(rows[:, None] >= columns, scores, -1e30)

    def split(x):
        return x.reshape(heads, blocks, block, width).swapaxes(0, 1)

    def forward(q, k, v):
        keys, values = split(k), split(v)

        def row(at, q):
            def step(state, one):
                top, total, out = state
                k, v, other = one
                scores = scores_of(q, k, at, other)
                new = jnp.maximum(top, scores.max(-1))
                p, old = jnp.exp(scores - new[..., None]), jnp.exp(top - new)
                out = out * old[..., None] + jnp.einsum("hqk,hkd->hqd", p, v)
                return (new, total * old + p.sum(-1), out), None

            begin = (
                jnp.full((heads, block), -1e30),
                jnp.zeros((heads, block)),
                jnp.zeros((heads, block, width)),
            )
            state, _ = jax.lax.scan(step, begin, (keys, values, jnp.arange(blocks)))
            top, total, out = state
            return out / total[..., None], top + jnp.log(total)

        out, logs = jax.lax.map(lambda one: row(*one), (jnp.arange(blocks), split(q)))
        return out.swapaxes(0, 1).reshape(heads, length, width), logs

    @jax.custom_vjp
    def attention(q, k, v):
        return forward(q, k, v)[0]

    def forward_rule(q, k, v):
        out, logs = forward(q, k, v)
        return out, (q, k, v, out, logs)

    def backward_rule(kept, given):
        q, k, v, out, logs = kept
        inner = split(jnp.broadcast_to((out * given).sum(-1, keepdims=True), out.shape))[..., 0]
        queries, given = split(q), split(given)

        def column(dq, one):
            k, v, other = one

            def row(state, one):
                dk, dv = state
                q, given, inner, logs, at = one
                p = jnp.exp(scores_of(q, k, at, other) - logs[..., None])
                dv = dv + jnp.einsum("hqk,hqd->hkd", p, given)
                ds = p * (jnp.einsum("hqd,hkd->hqk", given, v) - inner[..., None]) / width**0.5
                dk = dk + jnp.einsum("hqk,hqd->hkd", ds, q)
                return (dk, dv), jnp.einsum("hqk,hkd->hqd", ds, k)

            begin = jnp.zeros_like(k), jnp.zeros_like(v)
            rows = queries, given, inner, logs, jnp.arange(blocks)
            state, more = jax.lax.scan(row, begin, rows)
            return dq + more, state

        dq, (dk, dv) = jax.lax.scan(
            column, jnp.zeros_like(queries), (split(k), split(v), jnp.arange(blocks))
        )
        return tuple(x.swapaxes(0, 1).reshape(heads, length, width) for x in (dq, dk, dv))

    attention.defvjp(forward_rule, backward_rule)

    def function(q, k, v):
        loss = lambda *given: jnp.sum(jnp.sin(attention(*given)))  # noqa: E731
        return attention(q, k, v), jax.grad(loss, argnums=(0, 1, 2))(q, k, v)

    return function, (draw.normal(heads, length, width) for _ in range(3))


@program(slack=5)
def learned_sinks(draw: Draw):
    """A learned score a head that takes weight and gives nothing, in every second layer a window,
    with the gradients of the sinks."""
    batch, length, heads, width, window = (draw.size(1, n) for n in (2, 30, 4, 16, 9))

    def layer(q, k, v, sinks, local):
        rows = jnp.arange(length)
        near = (rows[:, None] >= rows) & (~local | (rows[:, None] - rows < window))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
        scores = jnp.where(near, scores / width**0.5, -jnp.inf)
        beside = jnp.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1))
        p = jax.nn.softmax(jnp.concatenate([scores, beside], -1))[..., :-1]
        return jnp.einsum("bhqk,bkhd->bqhd", p.astype(v.dtype), v)

    def function(q, k, v, sinks):
        def loss(sinks):
            first = layer(q, k, v, sinks[0], True)
            second = layer(first, k, v, sinks[1], False)
            return jnp.sum(jnp.sin(second.astype(jnp.float32))), second

        return jax.value_and_grad(loss, has_aux=True)(sinks)

    dtype = draw.float_type()
    qkv = (draw.normal(batch, length, heads, width, dtype=dtype) for _ in range(3))
    return function, (*qkv, draw.normal(2, heads))


@program(slack=5)
def parts_of_a_sequence_merged(draw: Draw):
    """Attention over parts of the keys, as several ranks have them, merged by their log sums."""
    parts, part, heads, length, width = (draw.size(1, n) for n in (5, 14, 3, 10, 16))

    def function(q, k, v, lengths):
        open = jnp.arange(part) < lengths[:, None]
        scores = jnp.einsum("qhd,pkhd->phqk", q, k) / width**0.5
        scores = jnp.where(open[:, None, None], scores, -1e30)
        logs = jax.nn.logsumexp(scores, axis=-1)
        outputs = jnp.einsum("phqk,pkhd->pqhd", jnp.exp(scores - logs[..., None]), v)

        def merge(state, one):
            out, log = state
            more, log_more = one
            both = jnp.logaddexp(log, log_more)
            weigh = lambda x, log: x * jnp.exp(log - both).T[..., None]  # noqa: E731
            return (weigh(out, log) + weigh(more, log_more), both), None

        state, _ = jax.lax.scan(merge, (outputs[0], logs[0]), (outputs[1:], logs[1:]))
        return state

    lengths = draw.whole(1, part + 1, parts)
    cache = parts, part, heads, width
    return function, (
        *(draw.normal(length, heads, width), draw.normal(*cache), draw.normal(*cache)),
        lengths,
    )


@program(slack=5)
def rotary_of_three_positions(draw: Draw):
    """Parts of a head turn by time, row and column of an image's patch; in text all are equal."""
    length, heads = draw.size(1, 40), draw.size(1, 4)
    parts = tuple(draw.size(1, 6) for _ in range(3))
    half = sum(parts)

    def function(q, k, positions):
        base = 1e4 ** (-jnp.arange(half) / half)
        angles = positions[..., None].astype(jnp.float32) * base
        pieces = jnp.split(angles, np.cumsum(parts)[:-1], axis=-1)
        angles = jnp.concatenate([piece[axis] for axis, piece in enumerate(pieces)], -1)
        sine, cosine = (
            f(jnp.concatenate([angles, angles], -1))[:, None] for f in (jnp.sin, jnp.cos)
        )

        def turned(x):
            first, second = jnp.split(x, 2, axis=-1)
            return x * cosine + jnp.concatenate([-second, first], -1) * sine

        return jnp.einsum("qhd,khd->hqk", turned(q), turned(k))

    q, k = (draw.normal(length, heads, 2 * half) for _ in range(2))
    return function, (q, k, draw.whole(0, 60, 3, length))


@program(slack=5, refusals=COMPLEX)
def rotary_over_images(draw: Draw):
    """Complex factors of rows and columns, for a part of the width, with gradients."""
    rows, columns, heads, quarter, rest = (draw.size(1, n) for n in (7, 7, 3, 5, 8))
    length = rows * columns

    def function(x, w):
        speeds = 1.0 / 100 ** (jnp.arange(quarter) / quarter)
        y, z = jnp.divmod(jnp.arange(length), columns)
        angles = jnp.concatenate([jnp.outer(y, speeds), jnp.outer(z, speeds)], -1)
        factor = jax.lax.complex(jnp.cos(angles), jnp.sin(angles))[:, None]

        def output(x):
            turned, kept = x[..., : 4 * quarter], x[..., 4 * quarter :]
            pairs = turned.reshape(length, heads, 2 * quarter, 2)
            pairs = jax.lax.complex(pairs[..., 0], pairs[..., 1]) * factor
            pairs = jnp.stack([pairs.real, pairs.imag], -1).reshape(turned.shape)
            return jnp.concatenate([pairs, kept], -1)

        return output(x), jax.grad(lambda x: jnp.sum(jnp.tanh(output(x) * w)))(x)

    shape = length, heads, 4 * quarter + rest
    return function, (draw.normal(*shape), draw.normal(*shape))


@program(slack=10)
def indexed_sparse_attention(draw: Draw):
    """A small indexer scores all keys by rectified products; attention sees the best only."""
    length, heads, small, rank, width = (draw.size(2, n) for n in (30, 4, 3, 16, 12))
    kept = draw.size(1, min(length, 8))

    def function(order, q, latents, up):
        rows = jnp.arange(length)
        scores = jnp.where(rows[:, None] >= rows, order, -1e9)
        _, chosen = jax.lax.top_k(scores, kept)
        open = jnp.take_along_axis(rows[:, None] >= rows, chosen, 1)
        few = latents[chosen]
        absorbed = jnp.einsum("qhd,hdr->qhr", q, up)
        scores = jnp.einsum("qhr,qkr->qhk", absorbed, few) / width**0.5
        p = jax.nn.softmax(jnp.where(open[:, None], scores, -1e30))
        return jnp.einsum("qhk,qkr->qhr", p, few)

    def indexer(q, k, weights):
        return jnp.einsum("hqk,qh->qk", jax.nn.relu(jnp.einsum("qhd,kd->hqk", q, k)), weights)

    def whole(q_small, k_small, weights, order, q, latents, up):
        return indexer(q_small, k_small, weights), function(order, q, latents, up)

    return whole, (
        *(draw.normal(length, small, 8), draw.normal(length, 8), draw.normal(length, small)),
        draw.distinct(length, length),
        *(draw.normal(length, heads, width), draw.normal(length, rank)),
        draw.normal(heads, width, rank, scale=0.3),
    )


@program(slack=10)
def compressed_and_window_branches(draw: Draw):
    """Attention to averages of blocks and to a window, mixed by gates of the token."""
    block, blocks, heads, width = (draw.size(1, n) for n in (6, 6, 3, 12))
    length, window = block * blocks, draw.size(1, 8)

    def function(q, k, v, places, mixer, gate):
        def compressed(x):
            parts = x.reshape(blocks, block, heads, width) + places[:, None]
            return jax.nn.silu(jnp.einsum("nbhd,be->nehd", parts, mixer))[:, 0]

        rows = jnp.arange(length)

        def attend(k, v, open):
            scores = jnp.where(open, jnp.einsum("qhd,khd->hqk", q, k) / width**0.5, -1e30)
            p = jnp.where(open, jax.nn.softmax(scores), 0)
            return jnp.einsum("hqk,khd->qhd", p, v)

        ended = rows[:, None] >= (jnp.arange(blocks) + 1) * block - 1
        near = (rows[:, None] >= rows) & (rows[:, None] - rows < window)
        gates = jax.nn.sigmoid(jnp.einsum("qhd,dg->qhg", q, gate))
        far = attend(compressed(k), compressed(v), ended)
        return gates[..., :1] * far + gates[..., 1:] * attend(k, v, near)

    return function, (
        *(draw.normal(length, heads, width) for _ in range(3)),
        *(draw.normal(block, width), draw.normal(block, 2), draw.normal(width, 2)),
    )


@program(slack=10)
def latent_attention_training(draw: Draw):
    """MLA as it trains: keys and values from a normalised latent, one rotary key for all heads."""
    length, model, rank, heads, width, rope = (draw.size(1, n) for n in (24, 32, 12, 4, 10, 4))

    def function(x, weights):
        def normed(x):
            return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-3)

        def turned(x):
            angles = jnp.arange(length)[:, None] * 1e3 ** (-jnp.arange(rope) / rope)
            sine, cosine = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
            a, b = x[..., ::2], x[..., 1::2]
            return jnp.stack([a * cosine - b * sine, a * sine + b * cosine], -1).reshape(x.shape)

        def loss(weights):
            down_q, up_q, down, up, out = weights
            q = (normed(x @ down_q) @ up_q).reshape(length, heads, width + 2 * rope)
            q_plain, q_rope = q[..., :width], turned(q[..., width:])
            latent, k_rope = jnp.split(x @ down, [rank], axis=-1)
            k_rope = turned(k_rope[:, None])
            k, v = jnp.split((normed(latent) @ up).reshape(length, heads, 2 * width), 2, axis=-1)
            scores = jnp.einsum("qhd,khd->hqk", q_plain, k)
            scores = scores + jnp.einsum("qhd,kod->hqk", q_rope, k_rope)
            scores = scores / (width + 2 * rope) ** 0.5
            causal = jnp.tril(jnp.ones((length, length), bool))
            p = jax.nn.softmax(jnp.where(causal, scores, -1e30))
            found = jnp.einsum("hqk,khd->qhd", p, v).reshape(length, -1) @ out
            return jnp.mean((x + found) ** 2)

        return jax.value_and_grad(loss)(weights)

    def matrix(rows, columns):
        return draw.normal(rows, columns, scale=rows**-0.5)

    weights = (
        matrix(model, rank),
        matrix(rank, heads * (width + 2 * rope)),
        matrix(model, rank + 2 * rope),
        matrix(rank, heads * 2 * width),
        matrix(heads * width, model),
    )
    return function, (draw.normal(length, model), weights)


@program(slack=10)
def triangles_of_pairs(draw: Draw):
    """Pairs of residues updated by the triangles they are in, then attention with their bias."""
    length, channels, heads = draw.size(2, 14), draw.size(1, 12), draw.size(1, 3)

    def function(pair, single, w, outgoing):
        def normed(x):
            x = x - x.mean(-1, keepdims=True)
            return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-2)

        z = normed(pair)
        a = jax.nn.sigmoid(z @ w["gate_a"]) * (z @ w["a"])
        b = jax.nn.sigmoid(z @ w["gate_b"]) * (z @ w["b"])
        along = jnp.einsum("ikc,jkc->ijc", a, b)
        against = jnp.einsum("kic,kjc->ijc", a, b)
        mixed = jnp.where(outgoing, along, against) / length
        pair = pair + jax.nn.sigmoid(z @ w["gate"]) * (normed(mixed) @ w["out"])
        q, k, v = (
            (single @ w[name]).reshape(length, heads, -1) for name in ("query", "key", "value")
        )
        bias = jnp.einsum("ijc,ch->hij", normed(pair), w["bias"])
        p = jax.nn.softmax(jnp.einsum("ihd,jhd->hij", q, k) / 2 + bias)
        return pair, jnp.einsum("hij,jhd->ihd", p, v).reshape(length, -1)

    w = {
        name: draw.normal(channels, channels, scale=0.4) for name in ("a", "b", "gate_a", "gate_b")
    }
    w |= {name: draw.normal(channels, channels, scale=0.4) for name in ("gate", "out")}
    w |= {name: draw.normal(channels, 4 * heads, scale=0.4) for name in ("query", "key", "value")}
    w["bias"] = draw.normal(channels, heads)
    pair, single = draw.normal(length, length, channels), draw.normal(length, channels)
    return function, (pair, single, w, np.bool_(draw.chance(0.5)))


@program(slack=5)
def few_queries_of_many(draw: Draw):
    """Latents that read a long input by cross attention, then each other, shared weights, twice."""
    inputs, latents, width, heads = (draw.size(1, n) for n in (70, 9, 6, 3))
    wide = width * heads

    def function(x, z, weights):
        def attend(z, x, weights):
            q, k, v = (
                (one @ w).reshape(len(one), heads, width) for one, w in zip((z, x, x), weights)
            )
            p = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, k) / width**0.5)
            return z + jnp.einsum("hqk,khd->qhd", p, v).reshape(len(z), wide)

        def block(z, _):
            z = attend(z, x, weights[0])
            return attend(z, z, weights[1]), jnp.mean(z, 0)

        return jax.lax.scan(block, z, None, length=2)

    weights = [[draw.normal(wide, wide, scale=wide**-0.5) for _ in range(3)] for _ in range(2)]
    return function, (draw.normal(inputs, wide), draw.normal(latents, wide), weights)


@program(slack=5)
def retrieved_from_patterns(draw: Draw):
    """Modern Hopfield retrieval: softmax over stored patterns until it no longer moves."""
    patterns, width, batch = draw.size(2, 30), draw.size(2, 20), draw.size(1, 9)

    def function(stored, state, beta):
        def go(kept):
            _, moved, count = kept
            return (jnp.max(jnp.abs(moved)) > 0) & (count < 5)

        def step(kept):
            state, _, count = kept
            new = jax.nn.softmax(beta * state @ stored.T) @ stored
            return new, new - state, count + 1

        return jax.lax.while_loop(go, step, (state, jnp.ones_like(state), 0))[::2]

    stored = draw.normal(patterns, width)
    return function, (stored, draw.normal(batch, width), np.float32(0.5))


@program(slack=10)
def heads_with_normalised_keys(draw: Draw):
    """Queries and keys normalised with gains, grouped heads, scores capped, gradients of gains."""
    batch, length, groups, shared, width = (draw.size(1, n) for n in (2, 20, 3, 3, 12))

    def function(q, k, v, gains):
        def normed(x, gain):
            wide = x.astype(jnp.float32)
            size = jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
            return (wide * size * (1 + gain)).astype(x.dtype)

        @functools.partial(jax.value_and_grad, has_aux=True)
        def loss(gains):
            queries = normed(q, gains[0]).reshape(batch, length, groups, shared, width)
            scores = jnp.einsum(
                "bqgsd,bkgd->bgsqk",
                queries,
                normed(k, gains[1]),
                preferred_element_type=jnp.float32,
            )
            scores = 20 * jnp.tanh(scores / width**0.5 / 20)
            causal = jnp.tril(jnp.ones((length, length), bool))
            p = jax.nn.softmax(jnp.where(causal, scores, -2e38)).astype(v.dtype)
            found = jnp.einsum("bgsqk,bkgd->bqgsd", p, v)
            return jnp.mean(found.astype(jnp.float32) ** 2), found

        return loss(gains)

    dtype = draw.float_type()
    cache = batch, length, groups, width
    return function, (
        draw.normal(batch, length, groups * shared, width, dtype=dtype),
        *(draw.normal(*cache, dtype=dtype) for _ in range(2)),
        draw.normal(2, width, scale=0.2),
    )
