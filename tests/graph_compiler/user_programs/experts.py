"""Mixtures of experts, embeddings, graph networks: what indices choose and sum."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from user_programs.drawing import Draw, program


def _tokens(draw: Draw):
    return draw.size(1, 60), draw.size(1, 48), draw.size(2, 9), draw.size(1, 40)


@program()
def one_hot_experts(draw: Draw):
    tokens, width, experts, hidden = _tokens(draw)
    room = draw.size(1, tokens)

    def function(x, gate, w1, w2):
        weights = jax.nn.softmax(x @ gate)
        choice = jnp.argmax(weights, -1)
        chosen = jax.nn.one_hot(choice, experts)
        place = jnp.cumsum(chosen, 0) * chosen - chosen
        kept = chosen * (place < room)
        where = jax.nn.one_hot(place.sum(-1).astype(jnp.int32), room)
        dispatch = kept[:, :, None] * where[:, None]
        inner = jax.nn.relu(jnp.einsum("tec,td,edh->ech", dispatch, x, w1))
        combine = dispatch * (weights * chosen).sum(-1)[:, None, None]
        balance = experts * jnp.sum(weights.mean(0) * chosen.mean(0))
        return jnp.einsum("tec,ech,ehd->td", combine, inner, w2), balance

    return function, (
        draw.normal(tokens, width),
        draw.normal(width, experts),
        draw.normal(experts, width, hidden),
        draw.normal(experts, hidden, width),
    )


def _top_two(x, gate, w1, w2):
    experts = gate.shape[1]
    values, choices = jax.lax.top_k(x @ gate, 2)
    weights = jax.nn.softmax(values)
    full = (
        jnp.zeros((x.shape[0], experts)).at[jnp.arange(x.shape[0])[:, None], choices].set(weights)
    )
    inner = jax.nn.silu(jnp.einsum("td,edh->teh", x, w1))
    return jnp.einsum("te,teh,ehd->td", full, inner, w2)


def _top_two_operands(draw: Draw):
    tokens, width, experts, hidden = _tokens(draw)
    return (
        draw.normal(tokens, width),
        draw.normal(width, experts),
        draw.normal(experts, width, hidden, scale=0.2),
        draw.normal(experts, hidden, width, scale=0.2),
    )


@program()
def top_two_experts(draw: Draw):
    return _top_two, _top_two_operands(draw)


@program()
def top_two_experts_gradients(draw: Draw):
    return jax.grad(lambda *a: jnp.sum(_top_two(*a) ** 2), argnums=(0, 1, 2, 3)), _top_two_operands(
        draw
    )


@program()
def sorted_experts(draw: Draw):
    """Tokens sorted by expert, into buffers of each expert, and back."""
    tokens, width, experts, hidden = _tokens(draw)
    room = draw.size(1, tokens)

    def function(x, choice, w):
        order = jnp.argsort(choice, stable=True)
        owner = choice[order]
        first = jnp.searchsorted(owner, jnp.arange(experts))
        place = jnp.arange(tokens) - first[owner]
        buffers = jnp.zeros((experts, room, width), x.dtype)
        buffers = buffers.at[owner, place].set(x[order], mode="drop")
        out = jnp.einsum("ecd,edh->ech", buffers, w)
        back = out.at[owner, place].get(mode="fill", fill_value=0)
        return jnp.zeros((tokens, hidden), x.dtype).at[order].set(back), jnp.bincount(
            choice, length=experts
        )

    dtype = draw.float_type()
    x, w = draw.normal(tokens, width, dtype=dtype), draw.normal(experts, width, hidden, dtype=dtype)
    return function, (x, draw.whole(0, experts, tokens), w)


@program()
def ragged_experts(draw: Draw):
    tokens, width, experts, hidden = _tokens(draw)
    sizes = draw.random.multinomial(tokens, [1 / experts] * experts).astype("int32")
    x, w = draw.normal(tokens, width), draw.normal(experts, width, hidden)
    return jax.lax.ragged_dot, (x, w, sizes)


@program()
def embedding_gradients(draw: Draw):
    words, width, tokens = draw.size(1, 90), draw.size(1, 70), draw.size(1, 100)
    dtype = draw.float_type()

    def loss(table, tokens, y):
        return jnp.sum((table[tokens] * y).astype(jnp.float32))

    y = draw.normal(tokens, width, dtype=dtype)
    low = draw.pick((0, -2))
    return jax.grad(loss), (
        draw.normal(words, width, dtype=dtype),
        draw.whole(low, words, tokens),
        y,
    )


@program()
def embedding_bag(draw: Draw):
    words, width, bags, each = (draw.size(1, high) for high in (70, 50, 20, 9))
    mode = draw.pick(("sum", "mean", "max"))

    def function(table, indices, weights, lengths):
        rows = jnp.take(table, indices, axis=0, mode="clip")
        mask = (jnp.arange(each) < lengths[:, None])[..., None]
        if mode == "max":
            return jnp.where(mask, rows, -jnp.inf).max(1)
        total = jnp.where(mask, rows * weights[..., None], 0).sum(1)
        return total if mode == "sum" else total / jnp.maximum(lengths, 1)[:, None]

    return function, (
        draw.normal(words, width),
        draw.whole(-3, words + 3, bags, each),
        draw.normal(bags, each),
        draw.whole(0, each + 1, bags),
    )


@program()
def graph_convolution(draw: Draw):
    nodes, edges, width, out = (draw.size(1, high) for high in (60, 150, 40, 40))

    def function(x, w, source, target):
        degree = jax.ops.segment_sum(jnp.ones(edges), target, nodes)
        norm = jax.lax.rsqrt(jnp.maximum(degree, 1))
        messages = (x @ w)[source] * (norm[source] * norm[target])[:, None]
        return jax.nn.relu(jax.ops.segment_sum(messages, target, nodes))

    return function, (
        draw.normal(nodes, width),
        draw.normal(width, out),
        draw.whole(0, nodes, edges),
        draw.whole(0, nodes, edges),
    )


@program()
def graph_attention(draw: Draw):
    nodes, edges, width, heads = (draw.size(1, high) for high in (40, 120, 24, 3))

    def function(x, w, a, source, target):
        h = jnp.einsum("nd,dhe->nhe", x, w)
        scores = jax.nn.leaky_relu((h * a[0]).sum(-1)[source] + (h * a[1]).sum(-1)[target])
        largest = jax.ops.segment_max(scores, target, nodes)
        e = jnp.exp(scores - largest[target])
        weights = e / jax.ops.segment_sum(e, target, nodes)[target]
        return jax.ops.segment_sum(weights[..., None] * h[source], target, nodes)

    return function, (
        draw.normal(nodes, width),
        draw.normal(width, heads, width),
        draw.normal(2, heads, width),
        draw.whole(0, nodes, edges),
        draw.whole(0, nodes, edges),
    )


@program()
def segment_reductions(draw: Draw):
    rows, segments = draw.size(1, 90), draw.size(1, 20)
    shape = (rows,) if draw.chance(0.4) else (rows, draw.size(1, 20))
    ordered = draw.chance(0.5)
    ids = draw.whole(-1, segments + 1, rows)

    def function(x, ids):
        ids = jnp.sort(ids) if ordered else ids
        reductions = (jax.ops.segment_sum, jax.ops.segment_max, jax.ops.segment_min)
        return [one(x, ids, segments, indices_are_sorted=ordered) for one in reductions]

    x = draw.normal(*shape) if draw.chance(0.5) else draw.whole(-99, 99, *shape)
    return function, (x, ids)


@program()
def graph_network_gradients(draw: Draw):
    nodes, edges, width = draw.size(1, 40), draw.size(1, 90), draw.size(1, 24)

    def loss(w, x, source, target):
        for _ in range(2):
            messages = jnp.tanh(jnp.concatenate([x[source], x[target]], -1) @ w)
            x = x + jax.ops.segment_sum(messages, target, x.shape[0])
        return jnp.mean(x * x)

    return jax.grad(loss, argnums=(0, 1)), (
        draw.normal(2 * width, width, scale=0.2),
        draw.normal(nodes, width),
        draw.whole(0, nodes, edges),
        draw.whole(0, nodes, edges),
    )


@program()
def vector_quantiser(draw: Draw):
    """Codes of whole numbers, so that distances are exact; the averages of their members."""
    rows, codes, width = draw.size(1, 80), draw.size(1, 40), draw.size(1, 16)

    def function(x, table):
        distance = (x * x).sum(1)[:, None] - 2 * x @ table.T + (table * table).sum(1)
        index = jnp.argmin(distance, axis=1)
        chosen = jax.nn.one_hot(index, codes)
        counts = chosen.sum(0)
        means = (chosen.T @ x) / jnp.maximum(counts, 1)[:, None]
        return index, table[index], counts, means

    whole = (draw.whole(-5, 6, count, width).astype("float32") for count in (rows, codes))
    return function, tuple(whole)
