"""Algorithms of data: neighbours, clusters, graphs, tables of dynamic programming, histograms."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from user_programs.drawing import Draw, program


@program()
def nearest_neighbours(draw: Draw):
    """Places of whole coordinates, so that distances are exact; equal ones by place."""
    points, queries, width = draw.size(4, 60), draw.size(1, 30), draw.size(1, 6)
    k = draw.size(1, 4)

    def function(x, q, labels):
        apart = jnp.sum(q * q, 1)[:, None] - 2 * q @ x.T + jnp.sum(x * x, 1)
        near, index = jax.lax.top_k(-apart, k)
        votes = jax.nn.one_hot(labels[index], 5, dtype=jnp.int32).sum(1)
        return -near, index, jnp.argmax(votes, 1)

    return function, (
        draw.whole(-9, 10, points, width).astype("float32"),
        draw.whole(-9, 10, queries, width).astype("float32"),
        draw.whole(0, 5, points),
    )


@program()
def page_rank(draw: Draw):
    """Until the ranks rest, or for so many rounds."""
    nodes, edges = draw.size(2, 40), draw.size(1, 200)

    def function(source, target):
        degree = jnp.zeros(nodes).at[source].add(1.0)
        share = jnp.where(degree > 0, 1 / jnp.maximum(degree, 1), 0.0)

        def step(state):
            rank, _, n = state
            flow = jnp.zeros(nodes).at[target].add((rank * share)[source])
            lost = jnp.sum(jnp.where(degree == 0, rank, 0))
            new = 0.15 / nodes + 0.85 * (flow + lost / nodes)
            return new, jnp.max(jnp.abs(new - rank)), n + 1

        start = jnp.full(nodes, 1 / nodes), jnp.float32(1), 0
        return jax.lax.while_loop(lambda s: (s[1] > -1.0) & (s[2] < 12), step, start)[0]

    return function, (draw.whole(0, nodes, edges), draw.whole(0, nodes, edges))


@program()
def shortest_paths(draw: Draw):
    """Floyd and Warshall, with the place before each; whole lengths."""
    nodes = draw.size(1, 30)

    def function(lengths):
        start = jnp.where(jnp.eye(nodes, dtype=bool), 0, lengths)
        before = jnp.broadcast_to(jnp.arange(nodes)[:, None], (nodes, nodes))

        def step(k, state):
            far, before = state
            through = far[:, k, None] + far[k]
            return jnp.minimum(far, through), jnp.where(through < far, before[k], before)

        return jax.lax.fori_loop(0, nodes, step, (start, before))

    lengths = draw.whole(1, 50, nodes, nodes)
    lengths[draw.flags(nodes, nodes, share=0.5)] = 10**6
    return function, (lengths,)


@program()
def increasing_subsequence(draw: Draw):
    count = draw.size(1, 60)

    def function(x):
        def step(k, longest):
            before = (jnp.arange(count) < k) & (x < x[k])
            return longest.at[k].set(1 + jnp.max(jnp.where(before, longest, 0)))

        return jax.lax.fori_loop(0, count, step, jnp.zeros(count, jnp.int32))

    return function, (draw.whole(-50, 50, count),)


@program()
def knapsack(draw: Draw):
    items, room = draw.size(1, 12), draw.size(1, 60)

    def function(weights, values):
        def step(best, item):
            weight, value = item
            moved = jnp.roll(best, weight) + value
            return jnp.maximum(best, jnp.where(jnp.arange(room + 1) >= weight, moved, 0)), best[-1]

        return jax.lax.scan(step, jnp.zeros(room + 1, jnp.int32), (weights, values))

    return function, (draw.whole(1, 20, items), draw.whole(1, 90, items))


@program()
def dynamic_time_warping(draw: Draw):
    """A table row by row, each row by a scan along it; whole distances."""
    m, n = draw.size(1, 20), draw.size(1, 20)

    def function(a, b):
        def row(above, x):
            cost = jnp.abs(b - x)

            def cell(left, inputs):
                own, up, corner = inputs
                new = own + jnp.minimum(jnp.minimum(left, up), corner)
                return new, new

            corner = jnp.concatenate([jnp.full(1, 10**6), above[:-1]])
            _, new = jax.lax.scan(cell, jnp.int32(10**6), (cost, above, corner))
            return new, new

        first = jnp.cumsum(jnp.abs(b - a[0]))
        last, table = jax.lax.scan(row, first, a[1:])
        return last[-1], table

    return function, (draw.whole(-20, 20, m + 1), draw.whole(-20, 20, n))


@program()
def connected_components(draw: Draw):
    """Labels that spread until none changes."""
    nodes, edges = draw.size(2, 50), draw.size(1, 60)

    def function(source, target):
        def spread(state):
            labels, _ = state
            new = labels.at[target].min(labels[source]).at[source].min(labels[target])
            return new, jnp.any(new != labels)

        return jax.lax.while_loop(lambda s: s[1], spread, (jnp.arange(nodes), jnp.bool_(True)))

    return function, (draw.whole(0, nodes, edges), draw.whole(0, nodes, edges))


@program()
def counted_values(draw: Draw):
    count, kinds = draw.size(1, 300), draw.size(1, 40)

    def function(x, w):
        one = jnp.bincount(x, length=kinds)
        two = jnp.zeros((kinds, kinds), jnp.int32).at[x[:-1], x[1:]].add(1)
        return one, two, jnp.bincount(x, w, length=kinds), jnp.cumsum(one)[::-1]

    return function, (draw.whole(0, kinds, count + 1), draw.normal(count + 1))


@program()
def equalised_image(draw: Draw):
    """A histogram's running sum as a table of levels."""
    height, width = draw.size(1, 40), draw.size(1, 40)

    def function(image):
        levels = jnp.cumsum(jnp.zeros(256, jnp.int32).at[image.astype(jnp.int32)].add(1))
        low = jnp.min(jnp.where(levels > 0, levels, height * width))
        table = (levels - low) * 255 // jnp.maximum(height * width - low, 1)
        return jnp.clip(table, 0, 255).astype(jnp.uint8)[image]

    return function, (draw.bits(height, width, dtype="uint8"),)


@program()
def quantiles(draw: Draw):
    rows, columns = draw.size(1, 30), draw.size(1, 60)
    method = draw.pick(("linear", "lower", "higher", "nearest", "midpoint"))

    def function(x):
        return (
            jnp.percentile(x, jnp.array([10.0, 50.0, 99.0]), axis=1, method=method),
            jnp.median(x, axis=0),
            jnp.quantile(x, 0.25, axis=(0, 1), keepdims=True, method="nearest"),
            jnp.nanquantile(jnp.where(x > 2, jnp.nan, x), 0.5, axis=1),
        )

    return function, (draw.distinct(rows, columns),)


@program()
def running_extremes(draw: Draw):
    rows, columns = draw.size(1, 30), draw.size(1, 60)
    axis, reverse = draw.size(0, 1), draw.chance(0.5)

    def function(x):
        return (
            *(jax.lax.cummax(x, axis, reverse), jax.lax.cummin(x, axis, reverse)),
            jax.lax.cumprod(jnp.clip(x, 0.9, 1.1), axis, reverse),
            jax.lax.cumsum(x.astype(jnp.int32), axis, reverse),
            jnp.max(x, axis) - jax.lax.cummax(x, axis)[-1, -1],
        )

    return function, (draw.distinct(rows, columns),)


@program()
def run_lengths(draw: Draw):
    """Where values change, how long they stay, and which comes most often."""
    count = draw.size(2, 80)

    def function(x):
        begins = jnp.concatenate([jnp.ones(1, bool), x[1:] != x[:-1]])
        run = jnp.cumsum(begins) - 1
        lengths = jnp.zeros(count, jnp.int32).at[run].add(1)
        first = jnp.full(count, -1).at[jnp.where(begins, run, count)].set(x, mode="drop")
        return lengths, first, jnp.repeat(first, lengths, total_repeat_length=count)

    return function, (draw.whole(0, 3, count),)


@program()
def hashed_bits(draw: Draw):
    """A Bloom filter: bits of words that hashes choose."""
    words, count = 16, draw.size(1, 60)

    def mixed(x, seed):
        x = (x ^ (x >> 16)) * jnp.uint32(0x45D9F3B + 2 * seed)
        return x ^ (x >> 15)

    def function(x, queries):
        bits = jnp.zeros((words, 32), bool)
        for seed in range(3):
            h = mixed(x, seed)
            bits = bits.at[(h >> 5) % words, h & 31].set(True)
        packed = jnp.sum(bits.astype(jnp.uint32) << jnp.arange(32, dtype=jnp.uint32), 1)
        found = jnp.ones(queries.shape, bool)
        for seed in range(3):
            h = mixed(queries, seed)
            found &= (packed[(h >> 5) % words] >> (h & 31)) & 1 == 1
        return packed.astype(jnp.uint32), found, jax.lax.population_count(packed.astype("uint32"))

    return function, (draw.bits(count, dtype="uint32"), draw.bits(count, dtype="uint32"))


@program()
def checksum(draw: Draw):
    """CRC-32 by a table of constants and a scan."""
    count = draw.size(1, 60)

    def function(data):
        table = jnp.arange(256, dtype=jnp.uint32)
        for _ in range(8):
            table = jnp.where(table & 1 == 1, (table >> 1) ^ jnp.uint32(0xEDB88320), table >> 1)

        def step(crc, byte):
            return table[(crc ^ byte) & 255] ^ (crc >> 8), None

        return ~jax.lax.scan(step, jnp.uint32(0xFFFFFFFF), data.astype(jnp.uint32))[0]

    return function, (draw.bits(count, dtype="uint8"),)


@program()
def interleaved_bits(draw: Draw):
    """Morton codes, Gray codes, reversed bits."""
    x, y = draw.bits(draw.size(1, 200), dtype="uint32"), draw.bits(1, dtype="uint32")

    def spread(x):
        x = x & 0xFFFF
        for amount, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
            x = (x | (x << amount)) & jnp.uint32(mask)
        return x

    def function(x, y):
        backward = x
        for amount, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
            m = jnp.uint32(mask)
            backward = ((backward >> amount) & m) | ((backward & m) << amount)
        backward = (backward >> 16) | (backward << 16)
        return spread(x) | (spread(y) << 1), x ^ (x >> 1), backward, jax.lax.clz(x)

    return function, (x, y)


@program()
def sieve(draw: Draw):
    """Primes, by a loop in a loop whose trips data decide."""
    most = draw.size(9, 200)

    def function(offset):
        def mark(p, prime):
            multiples = (jnp.arange(most) % jnp.maximum(p, 1) == 0) & (jnp.arange(most) > p)
            return jnp.where(prime[p], prime & ~multiples, prime)

        prime = jax.lax.fori_loop(2, offset, mark, jnp.arange(most) > 1)
        return prime, jnp.cumsum(prime), jnp.nonzero(prime, size=9, fill_value=-1)[0]

    return function, (draw.whole(3, 15),)
