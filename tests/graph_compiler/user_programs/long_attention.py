"""Attention over long, packed and compressed sequences, and how positions are encoded for them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from user_programs.drawing import Draw, program


@program(slack=5)
def stretched_rotary(draw: Draw):
    """YaRN: frequencies mixed by a ramp, positions that are arguments, interleaved pairs."""
    batch, length, heads, half = (draw.size(1, n) for n in (3, 20, 4, 16))

    def function(x, positions, scale):
        base = 10000.0 ** (-jnp.arange(half) / half)
        ramp = jnp.clip((jnp.arange(half) - 2.0) / 6.0, 0, 1)
        frequencies = base / scale * ramp + base * (1 - ramp)
        angles = positions[..., None].astype(jnp.float32) * frequencies
        gain = 0.1 * jnp.log(scale) + 1.0
        sine, cosine = (gain * f(angles)[:, :, None] for f in (jnp.sin, jnp.cos))
        even, odd = x[..., ::2], x[..., 1::2]
        pairs = jnp.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1)
        return pairs.reshape(x.shape)

    x = draw.normal(batch, length, heads, 2 * half)
    return function, (x, draw.whole(0, 500, batch, length), np.float32(4))


@program(slack=5)
def packed_sequences(draw: Draw):
    """Sequences of a batch end to end: who belongs together follows from their ends."""
    total, heads, width, number = (draw.size(2, n) for n in (80, 4, 16, 6))

    def function(q, k, v, ends):
        own = jnp.searchsorted(ends, jnp.arange(total), side="right")
        begins = jnp.concatenate([jnp.zeros(1, ends.dtype), ends])[own]
        place = jnp.arange(total) - begins
        same = (own[:, None] == own) & (place[:, None] >= place)
        scores = jnp.einsum("qhd,khd->hqk", q, k, preferred_element_type=jnp.float32)
        scores = jnp.where(same, scores / width**0.5, -1e30)
        found = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores).astype(v.dtype), v)
        return found, place

    dtype = draw.float_type()
    ends = np.sort(draw.whole(1, total, number))
    ends[-1] = total
    return function, (*(draw.normal(total, heads, width, dtype=dtype) for _ in range(3)), ends)


@program(slack=5)
def rolling_cache(draw: Draw):
    """A window of keys written in turns, with sinks kept in front, step by step."""
    batch, window, sinks, heads, width = (draw.size(1, n) for n in (3, 12, 3, 3, 16))

    def function(cache_k, cache_v, q, k, v, begin):
        def step(carry, one):
            ck, cv, t = carry
            q, k, v = one
            at = jnp.where(t < sinks + window, t, sinks + (t - sinks) % window)
            ck = jax.lax.dynamic_update_slice(ck, k[:, None], (0, at, 0, 0))
            cv = jax.lax.dynamic_update_slice(cv, v[:, None], (0, at, 0, 0))
            scores = jnp.einsum("bhd,bkhd->bhk", q, ck) / width**0.5
            scores = jnp.where(jnp.arange(sinks + window) <= t, scores, -1e30)
            return (ck, cv, t + 1), jnp.einsum("bhk,bkhd->bhd", jax.nn.softmax(scores), cv)

        return jax.lax.scan(step, (cache_k, cache_v, begin), (q, k, v))

    steps = draw.size(1, 6)
    cache = batch, sinks + window, heads, width
    new = steps, batch, heads, width
    return function, (
        *(draw.normal(*cache) for _ in range(2)),
        *(draw.normal(*new) for _ in range(3)),
        draw.whole(0, 20),
    )


@program(slack=5)
def latent_attention(draw: Draw):
    """MLA with weights absorbed: scores against a compressed cache, a rotary part beside it."""
    batch, cached, heads, rank, width, rope = (draw.size(1, n) for n in (3, 30, 6, 24, 16, 8))

    def function(q, q_rope, latents, keys_rope, up_k, up_v, length):
        absorbed = jnp.einsum("bhd,hdr->bhr", q, up_k)
        scores = jnp.einsum("bhr,bkr->bhk", absorbed, latents)
        scores = (scores + jnp.einsum("bhe,bke->bhk", q_rope, keys_rope)) / (width + rope) ** 0.5
        open = jnp.arange(cached)[None] < length[:, None]
        p = jax.nn.softmax(jnp.where(open[:, None], scores.astype(jnp.float32), -1e30))
        seen = jnp.einsum("bhk,bkr->bhr", p.astype(latents.dtype), latents)
        return jnp.einsum("bhr,hrd->bhd", seen, up_v)

    dtype = draw.float_type()

    def normal(*shape, scale=1.0):
        return draw.normal(*shape, dtype=dtype, scale=scale)

    return function, (
        normal(batch, heads, width),
        normal(batch, heads, rope),
        normal(batch, cached, rank),
        normal(batch, cached, rope),
        normal(heads, width, rank, scale=0.3),
        normal(heads, rank, width, scale=0.3),
        draw.whole(1, cached + 1, batch),
    )


@program(slack=10)
def differential_attention(draw: Draw):
    """The difference of two attentions, by a learned weight, and its gradients."""
    batch, length, heads, width = (draw.size(1, n) for n in (2, 30, 3, 12))

    def function(q, k, v, vectors):
        def output(q, k, v, vectors):
            a, b, c, d = vectors
            weight = jnp.exp(jnp.sum(a * b)) - jnp.exp(jnp.sum(c * d)) + 0.2
            scores = jnp.einsum("sbqhd,sbkhd->sbhqk", q, k) / width**0.5
            causal = jnp.tril(jnp.ones((length, length), bool))
            p = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf))
            found = jnp.einsum("bhqk,bkhd->bqhd", p[0] - weight * p[1], v)
            mean = jnp.mean(found**2, -1, keepdims=True)
            return found * jax.lax.rsqrt(mean + 1e-2) * 0.8

        def loss(*given):
            return jnp.sum(jnp.sin(output(*given)))

        return output(q, k, v, vectors), jax.grad(loss, argnums=(0, 2, 3))(q, k, v, vectors)

    return function, (
        draw.normal(2, batch, length, heads, width),
        draw.normal(2, batch, length, heads, width),
        draw.normal(batch, length, heads, width),
        draw.normal(4, width, scale=0.2),
    )


@program(slack=5)
def chosen_blocks(draw: Draw):
    """Sparse attention: blocks of keys chosen by their means, then gathered."""
    block, blocks, heads, width = (draw.size(2, n) for n in (8, 10, 3, 16))
    kept = min(blocks, draw.size(1, 4))

    def function(q, k, v):
        means = k.reshape(heads, blocks, block, width).mean(2)
        scores = jnp.einsum("hqd,hnd->hqn", q, means)
        _, chosen = jax.lax.top_k(scores, kept)
        head = jnp.arange(heads)[:, None, None]
        near = k.reshape(heads, blocks, block, width)[head, chosen]
        values = v.reshape(heads, blocks, block, width)[head, chosen]
        p = jnp.einsum("hqd,hqnkd->hqnk", q, near) / width**0.5
        p = jax.nn.softmax(p.reshape(heads, -1, kept * block))
        return jnp.einsum("hqk,hqkd->hqd", p, values.reshape(heads, -1, kept * block, width))

    length = block * blocks
    return function, (
        draw.normal(heads, draw.size(1, 12), width),
        draw.normal(heads, length, width),
        draw.normal(heads, length, width),
    )


@program(slack=5)
def verified_tree(draw: Draw):
    """Speculative decoding of a tree of tokens: ancestors by pointers, attention among them, the
    longest path that agrees."""
    nodes, heads, width = draw.size(2, 24), draw.size(1, 4), draw.size(2, 16)

    def function(q, k, v, parents, tokens, wanted):
        def up(state, _):
            seen, at = state
            at = jnp.where(at > 0, parents[at], 0)
            return (seen | (jnp.arange(nodes) == at[:, None]), at), None

        own = jnp.eye(nodes, dtype=bool)
        (mask, _), _ = jax.lax.scan(up, (own, jnp.arange(nodes)), None, length=nodes)
        scores = jnp.einsum("qhd,khd->hqk", q, k) / width**0.5
        p = jax.nn.softmax(jnp.where(mask, scores, -1e30))
        good = (tokens == wanted[parents]) | (jnp.arange(nodes) == 0)
        path = jnp.all(good | ~mask, 1)
        depth = jnp.where(path, jnp.sum(mask, 1), 0)
        return jnp.einsum("hqk,khd->qhd", p, v), jnp.argmax(depth), jnp.max(depth)

    parents = np.array([0] + [int(draw.whole(0, n)) for n in range(1, nodes)], np.int32)
    return function, (
        *(draw.normal(nodes, heads, width) for _ in range(3)),
        parents,
        draw.whole(0, 3, nodes),
        draw.whole(0, 3, nodes),
    )


@program(slack=5)
def attention_with_capped_scores(draw: Draw):
    """Scores within bounds, a sink's logit per head, sigmoid gates, windows that alternate."""
    batch, length, groups, width = (draw.size(1, n) for n in (2, 40, 3, 16))

    def function(x, wq, wk, wv, sinks, gate):
        found = x
        for window in (length, 4):
            q = (found @ wq).reshape(batch, length, groups, 2, width)
            k, v = ((found @ w).reshape(batch, length, groups, width) for w in (wk, wv))
            scores = jnp.einsum("bqghd,bkgd->bghqk", q, k) / width**0.5
            scores = 5.0 * jnp.tanh(scores / 5.0)
            apart = jnp.arange(length)[:, None] - jnp.arange(length)
            scores = jnp.where((apart >= 0) & (apart < window), scores, -1e30)
            sink = jnp.broadcast_to(sinks[None, :, :, None, None], (*scores.shape[:-1], 1))
            p = jax.nn.softmax(jnp.concatenate([scores, sink], -1))[..., :-1]
            seen = jnp.einsum("bghqk,bkgd->bqghd", p, v).reshape(batch, length, -1)
            found = found + seen * jax.nn.sigmoid(found @ gate)
        return found

    size = 2 * groups * width
    return function, (
        draw.normal(batch, length, size),
        draw.normal(size, size, scale=0.1),
        draw.normal(size, groups * width, scale=0.1),
        draw.normal(size, groups * width, scale=0.1),
        draw.normal(groups, 2),
        draw.normal(size, size, scale=0.1),
    )


@program(slack=20)
def chunked_state_space(draw: Draw):
    """Mamba 2 by chunks: decays as differences of running sums, products within and between."""
    chunks, each, heads, width, state = (draw.size(1, n) for n in (5, 12, 4, 12, 12))

    def function(x, a, b, c):
        x, b, c = (z.reshape(chunks, each, *z.shape[1:]) for z in (x, b, c))
        sums = jnp.cumsum(a.reshape(chunks, each, heads), 1)
        apart = sums[:, :, None] - sums[:, None]
        below = jnp.tril(jnp.ones((each, each), bool))[None, :, :, None]
        decay = jnp.exp(jnp.where(below, apart, -jnp.inf))
        inside = jnp.einsum("zin,zjn,zijh,zjhd->zihd", c, b, decay, x)
        left = jnp.exp(sums[:, -1:] - sums)
        states = jnp.einsum("zjn,zjh,zjhd->zhnd", b, left, x)

        def step(s, one):
            own, total = one
            return s * jnp.exp(total)[:, None, None] + own, s

        zero = jnp.zeros((heads, state, width))
        last, before = jax.lax.scan(step, zero, (states, sums[:, -1]))
        across = jnp.einsum("zin,zih,zhnd->zihd", c, jnp.exp(sums), before)
        return (inside + across).reshape(-1, heads, width), last

    length = chunks * each
    return function, (
        draw.normal(length, heads, width),
        -draw.uniform(length, heads, low=0.05),
        draw.normal(length, state, scale=0.3),
        draw.normal(length, state, scale=0.3),
    )


@program(slack=50)
def chunked_delta_rule(draw: Draw):
    """Gated DeltaNet by chunks: a triangular system in each, then the state."""
    chunks, each, width = draw.size(1, 4), draw.size(1, 12), draw.size(1, 16)

    def function(q, k, v, beta, gate):
        k = k / jnp.sqrt(jnp.sum(k**2, -1, keepdims=True) + 1e-3)

        def step(s, one):
            q, k, v, beta, gate = one
            sums = jnp.cumsum(gate)
            decay = jnp.exp(sums[:, None] - sums)
            low = jnp.tril((beta[:, None] * k) @ k.T * decay, -1)
            both = jnp.concatenate([v, k * jnp.exp(sums)[:, None]], 1) * beta[:, None]
            solved = jax.scipy.linalg.solve_triangular(
                low + jnp.eye(each), both, lower=True, unit_diagonal=True
            )
            u, w = solved[:, :width], solved[:, width:]
            new = u - w @ s
            out = (q * jnp.exp(sums)[:, None]) @ s + jnp.tril(q @ k.T * decay) @ new
            s = s * jnp.exp(sums[-1]) + (k * jnp.exp(sums[-1] - sums)[:, None]).T @ new
            return s, out

        return jax.lax.scan(step, jnp.zeros((width, width)), (q, k, v, beta, gate))

    shape = chunks, each, width
    return function, (
        draw.normal(*shape),
        draw.normal(*shape),
        draw.normal(*shape),
        draw.uniform(chunks, each),
        -draw.uniform(chunks, each),
    )


@program(slack=5)
def token_shift_and_channel_mix(draw: Draw):
    """RWKV's shift, squared ReLU, low-rank decays by token, in low precision."""
    batch, length, width, rank = (draw.size(1, n) for n in (3, 30, 48, 8))

    def function(x, last, mix, wk, wv, wr, a, b):
        before = jnp.concatenate([last[:, None], x[:, :-1]], 1)
        apart = before - x
        k = x + apart * mix[0]
        r = x + apart * mix[1]
        decay = jnp.exp(-jnp.exp((jnp.tanh((x + apart * mix[2]) @ a) @ b).astype(jnp.float32)))
        hidden = jnp.square(jax.nn.relu(k @ wk))
        return jax.nn.sigmoid(r @ wr) * (hidden @ wv), decay, x[:, -1]

    dtype = np.dtype(ml_dtypes.bfloat16) if draw.chance(0.5) else np.float32

    def normal(*shape, scale=0.2):
        return draw.normal(*shape, dtype=dtype, scale=scale)

    return function, (
        normal(batch, length, width, scale=1.0),
        normal(batch, width, scale=1.0),
        normal(3, width),
        normal(width, 2 * width),
        normal(2 * width, width),
        normal(width, width),
        normal(width, rank),
        normal(rank, width),
    )
