"""Samplers, searches and the recursions of sequences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program


def _key(draw: Draw):
    return draw.bits(2, dtype="uint32")


@program()
def top_p_sampling(draw: Draw):
    """The smallest set of words of a probability; logits whose order is certain."""
    batch, words = draw.size(1, 6), draw.size(2, 130)

    def function(logits, key, p):
        order = jnp.argsort(-logits, axis=-1)
        ranked = jnp.take_along_axis(logits, order, -1)
        before = jnp.cumsum(jax.nn.softmax(ranked), -1) - jax.nn.softmax(ranked)
        kept = jnp.where(before < p, ranked, -jnp.inf)
        noise = jax.random.gumbel(key, kept.shape)
        pick = jnp.argmax(kept + noise, -1)
        return jnp.take_along_axis(order, pick[:, None], -1), kept

    return function, (draw.distinct(batch, words), _key(draw), draw.uniform(low=0.1))


@program()
def top_k_sampling(draw: Draw):
    batch, words = draw.size(1, 6), draw.size(2, 300)
    count = draw.size(1, min(words, 40))

    def function(logits, key, temperature):
        values, indices = jax.lax.top_k(logits, count)
        pick = jax.random.categorical(key, values / temperature)
        return jnp.take_along_axis(indices, pick[:, None], -1), jax.nn.log_softmax(values)

    return function, (draw.distinct(batch, words), _key(draw), draw.uniform(low=0.3))


@program()
def repetition_penalty(draw: Draw):
    batch, words, past = draw.size(1, 5), draw.size(2, 90), draw.size(1, 30)

    def function(logits, tokens, penalty):
        row = jnp.arange(batch)[:, None]
        scores = logits[row, tokens]
        changed = logits.at[row, tokens].set(
            jnp.where(scores < 0, scores * penalty, scores / penalty)
        )
        counts = jnp.zeros_like(logits).at[row, tokens].add(1.0)
        return changed, changed - 0.1 * counts

    return function, (
        draw.normal(batch, words),
        draw.whole(0, words, batch, past),
        draw.uniform(low=0.5) + 1,
    )


@program()
def beam_search(draw: Draw):
    """Scores of a table by last word; quarters, so that ties are exact and decided by place."""
    words, beams, steps = draw.size(2, 40), draw.size(1, 5), draw.size(1, 8)

    def function(table, first):
        def step(state, position):
            tokens, scores = state
            last = tokens[:, position]
            total = scores[:, None] + table[last]
            scores, flat = jax.lax.top_k(total.reshape(-1), beams)
            parent, word = flat // words, flat % words
            tokens = tokens[parent].at[:, position + 1].set(word)
            return (tokens, scores), parent

        tokens = jnp.zeros((beams, steps + 1), jnp.int32).at[:, 0].set(first)
        scores = jnp.where(jnp.arange(beams) == 0, 0.0, -1e4)
        return jax.lax.scan(step, (tokens, scores), jnp.arange(steps))

    table = draw.whole(-60, 0, words, words).astype("float32") / 4
    return function, (table, draw.whole(0, words))


@program()
def greedy_until_end(draw: Draw):
    """A loop that ends with the end's token."""
    words, room = draw.size(2, 50), draw.size(2, 20)

    def function(table, first):
        def going(state):
            tokens, count = state
            return (count < room) & (tokens[count - 1] != 0)

        def step(state):
            tokens, count = state
            word = jnp.argmax(table[tokens[count - 1]]).astype(jnp.int32)
            return tokens.at[count].set(word), count + 1

        tokens = jnp.full(room, -1, jnp.int32).at[0].set(first)
        return jax.lax.while_loop(going, step, (tokens, jnp.int32(1)))

    return function, (draw.distinct(words, words), draw.whole(0, words))


@program()
def viterbi(draw: Draw):
    steps, states = draw.size(1, 14), draw.size(1, 20)

    def function(emissions, transitions):
        def forward(scores, emission):
            total = scores[:, None] + transitions
            return total.max(0) + emission, jnp.argmax(total, 0)

        scores, pointers = jax.lax.scan(forward, emissions[0], emissions[1:])
        last = jnp.argmax(scores)
        _, path = jax.lax.scan(lambda at, row: (row[at], at), last, pointers, reverse=True)
        return scores.max(), path

    emissions = draw.whole(-50, 50, steps, states).astype("float32")
    return function, (emissions, draw.whole(-50, 50, states, states).astype("float32"))


def _partition(emissions, transitions):
    def forward(scores, emission):
        total = scores[:, None] + transitions + emission
        return jax.nn.logsumexp(total, axis=0), None

    return jax.nn.logsumexp(jax.lax.scan(forward, emissions[0], emissions[1:])[0])


@program()
def random_field_marginals(draw: Draw):
    steps, states = draw.size(1, 10), draw.size(1, 14)
    operands = draw.normal(steps, states), draw.normal(states, states)
    return jax.value_and_grad(_partition, argnums=(0, 1)), operands


def _ctc(logits, labels, length):
    """Alignments of one sequence, blank first."""
    logs = jax.nn.log_softmax(logits)
    extended = jnp.zeros(2 * labels.shape[0] + 1, jnp.int32).at[1::2].set(labels)
    places = jnp.arange(extended.shape[0])
    skips = (extended != 0) & (extended != jnp.roll(extended, 2)) & (places > 1)
    scores = jnp.where(places < 2, logs[0, extended], -1e5)

    def step(scores, log):
        one = jnp.concatenate([jnp.full(1, -1e5), scores[:-1]])
        two = jnp.where(skips, jnp.concatenate([jnp.full(2, -1e5), scores[:-2]]), -1e5)
        total = jnp.logaddexp(jnp.logaddexp(scores, one), two)
        return total + log[extended], None

    scores, _ = jax.lax.scan(step, scores, logs[1:])
    return -jnp.logaddexp(scores[2 * length], scores[2 * length - 1])


@program()
def ctc_loss(draw: Draw):
    batch, labels, words = draw.size(1, 3), draw.size(2, 5), draw.size(3, 12)
    frames = 2 * labels + draw.size(1, 8)
    return jax.vmap(_ctc), (
        draw.normal(batch, frames, words),
        draw.whole(1, words, batch, labels),
        draw.whole(1, labels + 1, batch),
    )


@program()
def ctc_gradients(draw: Draw):
    labels, words = draw.size(2, 4), draw.size(3, 9)
    frames = 2 * labels + draw.size(1, 4)
    return jax.grad(_ctc), (
        draw.normal(frames, words),
        draw.whole(1, words, labels),
        draw.whole(1, labels + 1),
    )


@program()
def edit_distance(draw: Draw):
    """Of several pairs at once, by rows of a table."""
    pairs, first, second = draw.size(1, 5), draw.size(1, 8), draw.size(1, 12)

    def one(a, b):
        def row(previous, item):
            symbol, number = item

            def cell(left, other):
                up, corner, same = other
                value = jnp.minimum(jnp.minimum(left + 1, up + 1), corner + jnp.where(same, 0, 1))
                return value, value

            start = number + 1
            _, rest = jax.lax.scan(cell, start, (previous[1:], previous[:-1], b == symbol))
            return jnp.concatenate([start[None], rest]), None

        start = jnp.arange(second + 1, dtype=jnp.int32)
        return jax.lax.scan(row, start, (a, jnp.arange(first, dtype=jnp.int32)))[0][-1]

    return jax.vmap(one), (draw.whole(0, 4, pairs, first), draw.whole(0, 4, pairs, second))


@program()
def smith_waterman(draw: Draw):
    """Anti-diagonals of a table of scores."""
    first, second = draw.size(1, 10), draw.size(1, 10)

    def function(a, b):
        table = jnp.zeros((first + 1, second + 1), jnp.int32)

        def cell(at, table):
            i, j = at // second + 1, at % second + 1
            match = table[i - 1, j - 1] + jnp.where(a[i - 1] == b[j - 1], 2, -1)
            gap = jnp.maximum(table[i - 1, j], table[i, j - 1]) - 1
            return table.at[i, j].set(jnp.maximum(0, jnp.maximum(match, gap)))

        return jax.lax.fori_loop(0, first * second, cell, table).max()

    return function, (draw.whole(0, 4, first), draw.whole(0, 4, second))


@program()
def non_maximum_suppression(draw: Draw):
    """Boxes of whole coordinates; scores of which no two are equal."""
    count = draw.size(1, 40)
    corners = draw.whole(0, 40, count, 2)
    boxes = draw.random.permuted(corners, axis=0).astype("float32")
    boxes = np.concatenate([boxes, boxes + draw.whole(1, 20, count, 2)], 1)

    def function(boxes, scores):
        order = jnp.argsort(-scores)
        boxes = boxes[order]
        low = jnp.maximum(boxes[:, None, :2], boxes[None, :, :2])
        high = jnp.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
        shared = jnp.prod(jnp.maximum(high - low, 0), -1)
        area = jnp.prod(boxes[:, 2:] - boxes[:, :2], -1)
        over = 2 * shared > area[:, None] + area[None] - shared

        def step(i, kept):
            earlier = kept & (jnp.arange(count) < i)
            return kept.at[i].set(~jnp.any(over[i] & earlier))

        kept = jax.lax.fori_loop(0, count, step, jnp.ones(count, bool))
        return kept, jnp.where(kept, order, -1)

    return function, (boxes.astype("float32"), draw.distinct(count))


@program()
def random_numbers(draw: Draw):
    """What jax draws; floating-point ones by functions of equal bits."""
    shape = tuple(draw.size(1, 30) for _ in range(draw.size(0, 2)))

    def function(key):
        keys = jax.random.split(key, 5)
        return (
            jax.random.bits(keys[0], shape),
            jax.random.uniform(keys[1], shape, minval=-1),
            jax.random.normal(keys[2], shape),
            jax.random.randint(keys[3], shape, -7, 100),
            jax.random.bernoulli(jax.random.fold_in(key, 7), 0.3, shape),
            keys,
        )

    return function, (_key(draw),)


@program()
def random_permutation(draw: Draw):
    count = draw.size(1, 60)

    def function(key, x):
        first, second = jax.random.split(key)
        return jax.random.permutation(first, x), jax.random.permutation(second, count)

    return function, (_key(draw), draw.normal(count, draw.size(1, 5)))


@program()
def dropout_gradients(draw: Draw):
    rows, width = draw.size(1, 40), draw.size(1, 60)
    dtype = draw.float_type()

    def loss(w, x, key):
        h = x @ w
        kept = jax.random.bernoulli(key, 0.8, h.shape)
        h = jnp.where(kept, h / 0.8, 0).astype(h.dtype)
        return jnp.sum(h.astype(jnp.float32) ** 2)

    return jax.value_and_grad(loss), (
        draw.normal(width, width, dtype=dtype),
        draw.normal(rows, width, dtype=dtype),
        _key(draw),
    )


@program()
def diffusion_steps(draw: Draw):
    """Denoising by a loop that draws noise from a key that it splits."""
    rows, width, steps = draw.size(1, 20), draw.size(1, 40), draw.size(1, 5)

    def function(x, w, key):
        def step(i, state):
            x, key = state
            key, one = jax.random.split(key)
            noise = jax.random.normal(one, x.shape)
            rate = (i + 1) / (steps + 1)
            return x - 0.1 * jnp.tanh(x @ w) + 0.1 * rate * noise, key

        return jax.lax.fori_loop(0, steps, step, (x, key))

    w = draw.normal(width, width, scale=width**-0.5)
    return function, (draw.normal(rows, width), w, _key(draw))
