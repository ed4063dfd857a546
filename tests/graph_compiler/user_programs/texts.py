"""Texts as bytes and tokens: tokenisers, what may be sampled next, and drafts of several tokens."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program


@program()
def merged_pairs(draw: Draw):
    """A BPE tokeniser: the pair of lowest rank is merged until no pair has a rank."""
    length, letters, merges = draw.size(2, 24), 6, draw.size(1, 12)
    vocabulary = letters + merges

    def function(text, ranks):
        def best(tokens):
            pairs = ranks[tokens[:-1], tokens[1:]]
            pairs = jnp.where((tokens[:-1] >= 0) & (tokens[1:] >= 0), pairs, merges)
            return jnp.min(pairs), jnp.argmin(pairs)

        def go(state):
            tokens, count = state
            return (best(tokens)[0] < merges) & (count < length)

        def step(state):
            tokens, count = state
            rank, at = best(tokens)
            places = jnp.arange(length)
            moved = jnp.where(places + 1 < length, jnp.roll(tokens, -1), -1)
            tokens = jnp.where(places <= at, tokens, moved)
            return tokens.at[at].set(letters + rank), count + 1

        return jax.lax.while_loop(go, step, (text, 0))

    ranks = np.full((vocabulary, vocabulary), merges, np.int32)
    for rank in range(merges):
        ranks[tuple(draw.random.integers(0, letters + rank, 2))] = rank
    return function, (draw.whole(0, letters, length), ranks)


@program()
def longest_words_first(draw: Draw):
    """WordPiece: at each place the longest word that a table of hashes has."""
    length, longest, size = draw.size(2, 20), 5, 251

    def function(text, table):
        def hashes(at):
            window = jax.lax.dynamic_slice(text, (at,), (longest,)).astype(jnp.uint32)

            def step(state, letter):
                state = (state ^ letter) * jnp.uint32(16777619)
                return state, state

            return jax.lax.scan(step, jnp.uint32(2166136261), window)[1]

        def step(at, _):
            found = hashes(at)
            known = table[(found % size).astype(jnp.int32)] == found
            fits = at + jnp.arange(1, longest + 1) <= length
            size_of = jnp.max(jnp.where(known & fits, jnp.arange(1, longest + 1), 1))
            token = jnp.where(at < length, found[size_of - 1] % size, 0)
            return jnp.minimum(at + size_of, length), (token, at)

        return jax.lax.scan(step, 0, None, length=length)

    text = draw.whole(97, 101, length + longest)
    table = np.zeros(size, np.uint32)
    for _ in range(60):
        value = 2166136261
        for letter in draw.random.integers(97, 101, draw.size(1, longest)):
            value = ((value ^ int(letter)) * 16777619) % 2**32
        table[value % size] = value
    return function, (text, table)


@program(slack=5)
def likeliest_pieces(draw: Draw):
    """A unigram tokeniser: the best way to cut a text by a table of scores, then the way back."""
    length, longest = draw.size(2, 30), draw.size(1, 5)

    def function(scores):
        def step(best, one):
            at, row = one
            ends = best + jnp.where(jnp.arange(longest) <= at, row, -1e9)
            chosen = jnp.argmax(ends)
            return jnp.concatenate([ends[chosen][None], best[:-1]]), (chosen, ends[chosen])

        begin = jnp.concatenate([jnp.zeros(1), jnp.full(longest - 1, -1e9)])
        _, (cuts, totals) = jax.lax.scan(step, begin, (jnp.arange(length), scores))

        def back(state):
            at, marks = state
            return at - 1 - cuts[at], marks.at[at].set(True)

        _, marks = jax.lax.while_loop(
            lambda state: state[0] >= 0, back, (length - 1, jnp.zeros(length, bool))
        )
        return totals, marks

    return function, (draw.distinct(length, longest),)


@program()
def letters_of_bytes(draw: Draw):
    """UTF-8 decoded: leading bytes found, what follows shifted in, places by running sums."""
    count = draw.size(1, 40)
    letters = [draw.pick(("a", "é", "€", "𝄞", "z", "中")) for _ in range(count)]
    data = np.frombuffer("".join(letters).encode(), np.uint8)

    def function(data):
        wide = jnp.pad(data, (0, 3)).astype(jnp.int32)
        lead = (data & 0xC0) != 0x80
        size = 1 + sum((data >= bound).astype(jnp.int32) for bound in (0xC0, 0xE0, 0xF0))
        code = jnp.where(size == 1, data, data & ((1 << (7 - size)) - 1)).astype(jnp.int32)
        for at in range(1, 4):
            more = wide[at : at + len(data)] & 0x3F
            code = jnp.where(size > at, (code << 6) | more, code)
        place = jnp.cumsum(lead) - 1
        codes = jnp.zeros(len(data), jnp.int32)
        return codes.at[jnp.where(lead, place, len(data))].set(code, mode="drop"), lead.sum()

    return function, (data.copy(),)


@program(slack=10)
def least_and_typical_parts(draw: Draw):
    """Min-p, typical and eta sampling: what is left of a distribution, drawn by noise given."""
    batch, vocabulary = draw.size(1, 8), draw.size(3, 200)

    def function(logits, noise, temperature):
        logs = jax.nn.log_softmax(logits / temperature)
        p = jnp.exp(logs)
        entropy = -jnp.sum(p * logs, -1, keepdims=True)
        unusual = jnp.abs(-logs - entropy)
        order = jnp.argsort(unusual, -1)
        mass = jnp.cumsum(jnp.take_along_axis(p, order, -1), -1)
        last = jnp.sum(mass < 0.6, -1, keepdims=True)
        bound = jnp.take_along_axis(jnp.take_along_axis(unusual, order, -1), last, -1)
        eta = jnp.minimum(0.002, jnp.sqrt(0.002) * jnp.exp(-entropy))
        kept = {
            "least": p >= 0.05 * p.max(-1, keepdims=True),
            "typical": unusual <= bound,
            "eta": p >= eta,
        }
        return {name: (jnp.where(k, logs, -jnp.inf) + noise).max(-1) for name, k in kept.items()}

    noise = -np.log(-np.log(draw.uniform(batch, vocabulary, low=1e-3) * np.float32(0.99)))
    return function, (draw.normal(batch, vocabulary, scale=2), noise, np.float32(0.8))


@program(slack=10)
def surprise_held(draw: Draw):
    """Mirostat: the bound on surprise follows what has been drawn, step by step."""
    steps, vocabulary = draw.size(1, 10), draw.size(2, 60)

    def function(logits, places):
        def step(most, one):
            logits, place = one
            order = jnp.argsort(-logits)
            logs = jax.nn.log_softmax(logits[order]) / np.float32(np.log(2))
            count = jnp.maximum(jnp.sum(-logs <= most), 1)
            chosen = (place * count.astype(jnp.float32)).astype(jnp.int32)
            surprise = -logs[chosen]
            return most - 0.1 * (surprise - 3.0), (surprise, most)

        return jax.lax.scan(step, jnp.float32(6), (logits, places))

    # Probabilities far from each other: the count of those below the bound is certain.
    logits = draw.distinct(steps, vocabulary) * np.float32(0.3)
    return function, (logits, np.zeros(steps, np.float32))


@program(slack=10)
def answers_of_a_grammar(draw: Draw):
    """Sampling constrained by an automaton: what a state allows, what it becomes, until it ends."""
    batch, states, vocabulary, steps = (draw.size(2, n) for n in (4, 8, 30, 10))

    def function(scores, allowed, following, final):
        def step(carry, noise):
            state, done, last = carry
            logits = jnp.where(allowed[state], scores[last] + noise, -jnp.inf)
            token = jnp.where(done, 0, jnp.argmax(logits, -1))
            state = jnp.where(done, state, following[state, token])
            return (state, done | final[state], token), (token, state, jnp.max(logits, -1))

        noise = jnp.arange(steps * vocabulary).reshape(steps, 1, vocabulary) % 7 * 0.5
        begin = jnp.zeros(batch, jnp.int32), jnp.zeros(batch, bool), jnp.arange(batch)
        return jax.lax.scan(step, begin, noise)

    allowed = draw.flags(states, vocabulary)
    allowed[:, 0] = True
    return function, (
        draw.distinct(max(vocabulary, batch), vocabulary),
        *(allowed, draw.whole(0, states, states, vocabulary), draw.flags(states, share=0.2)),
    )


@program()
def copied_drafts(draw: Draw):
    """Prompt lookup: where the last tokens occurred before, what followed is the draft."""
    length, most, gram = draw.size(8, 60), draw.size(1, 6), draw.size(1, 3)

    def function(tokens, count, verified):
        at = jnp.arange(length)
        last = jax.lax.dynamic_slice(tokens, (count - gram,), (gram,))
        windows = tokens[jnp.minimum(at[:, None] + jnp.arange(gram), length - 1)]
        same = (windows == last).all(-1) & (at + gram < count)
        found = jnp.max(jnp.where(same, at, -1))
        begin = jnp.where(found >= 0, found + gram, 0)
        draft = jax.lax.dynamic_slice(jnp.pad(tokens, (0, most)), (begin,), (most,))
        fits = (begin + jnp.arange(most) < count) & (found >= 0)
        accepted = jnp.sum(jnp.cumprod((draft == verified) & fits))
        new = jnp.where(jnp.arange(most) <= accepted, verified, 0)
        wide = jax.lax.dynamic_update_slice(jnp.pad(tokens, (0, most)), new, (count,))
        return draft, accepted, wide[:length], count + accepted + 1

    return function, (
        draw.whole(0, 3, length),
        draw.whole(gram + 1, length - 1),
        draw.whole(0, 3, most),
    )


@program(slack=10)
def several_heads_ahead(draw: Draw):
    """Medusa: heads that guess later tokens, a tree of their best, the longest accepted path."""
    batch, width, vocabulary, heads, top = (draw.size(2, n) for n in (3, 12, 40, 3, 3))
    paths = np.stack(np.meshgrid(*[np.arange(top)] * heads, indexing="ij"), -1).reshape(-1, heads)

    def function(hidden, blocks, order, truth):
        seen = hidden[:, None] + jax.nn.silu(jnp.einsum("bd,hde->bhe", hidden, blocks))
        _, best = jax.lax.top_k(order, top)
        drafts = best[:, jnp.arange(heads)[None], paths]
        right = jnp.cumprod((drafts == truth[:, None]).astype(jnp.int32), -1).sum(-1)
        winner = jnp.argmax(right, -1)
        return seen, jnp.take_along_axis(drafts, winner[:, None, None], 1)[:, 0], right.max(-1)

    order = draw.distinct(batch, heads, vocabulary)
    likely = np.argsort(-order, -1)[..., : top + 1]
    truth = np.take_along_axis(likely, draw.whole(0, top + 1, batch, heads, 1), -1)[..., 0]
    return function, (
        *(draw.normal(batch, width), draw.normal(heads, width, width, scale=0.3)),
        *(order, truth.astype(np.int32)),
    )


@program(slack=10)
def several_tokens_trained(draw: Draw):
    """Multi-token prediction: each depth joins its hidden state with the next token's embedding."""
    length, width, vocabulary, depth = draw.size(6, 20), draw.size(1, 16), draw.size(2, 40), 2

    def function(hidden, tokens, table, joins):
        def loss(table, joins):
            state, total = hidden, 0.0
            for level in range(depth):
                state, ahead = state[:-1], table[tokens[level + 1 :]]
                size = jax.lax.rsqrt(jnp.mean(state**2, -1, keepdims=True) + 1e-3)
                both = jnp.concatenate([state * size, ahead], -1)[: length - level - 2]
                state = jnp.tanh(both @ joins[level])
                logs = jax.nn.log_softmax(state @ table.T)
                labels = tokens[level + 2 :]
                total -= jnp.take_along_axis(logs, labels[:, None], 1).mean() * 0.3**level
                state = jnp.concatenate([state, state[-1:]])
            return total

        return jax.value_and_grad(loss, argnums=(0, 1))(table, joins)

    return function, (
        *(draw.normal(length, width), draw.whole(0, vocabulary, length)),
        draw.normal(vocabulary, width, scale=0.5),
        draw.normal(depth, 2 * width, width, scale=0.3),
    )


@program()
def sketches_of_a_stream(draw: Draw):
    """A Bloom filter, a count-min sketch and the registers of a HyperLogLog, of hashed items."""
    items, bits, rows = draw.size(1, 60), 256, 3

    def function(items, asked):
        def hashed(x, seed):
            x = x.astype(jnp.uint32) * jnp.uint32(2654435761) + jnp.uint32(seed)
            x = (x ^ (x >> 15)) * jnp.uint32(2246822519)
            return x ^ (x >> 13)

        seeds = range(1, rows + 1)
        places = jnp.stack([hashed(items, seed) % bits for seed in seeds]).astype(jnp.int32)
        bloom = jnp.zeros(bits, bool).at[places.ravel()].set(True)
        counts = jnp.zeros((rows, bits), jnp.int32)
        counts = counts.at[jnp.arange(rows)[:, None], places].add(1)
        queries = jnp.stack([hashed(asked, seed) % bits for seed in seeds]).astype(jnp.int32)
        word = hashed(items, 9)
        zeros = jax.lax.clz(word << 4)
        registers = jnp.zeros(16, jnp.uint32).at[(word >> 28).astype(jnp.int32)].max(zeros + 1)
        return (
            bloom[queries].all(0),
            counts[jnp.arange(rows)[:, None], queries].min(0),
            registers,
        )

    return function, (draw.whole(0, 500, items), draw.whole(0, 500, draw.size(1, 30)))
