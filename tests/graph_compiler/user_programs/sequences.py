"""Scans of several types, recurrences of other kinds, long convolutions, drafts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program


@program()
def scan_of_many_types(draw: Draw):
    """A carry of floats, integers, bits, flags and a key."""
    steps, width = draw.size(1, 10), draw.size(1, 30)

    def function(x, key):
        def step(carry, row):
            total, count, seen, best, short, key = carry
            key, own = jax.random.split(key)
            drawn = jax.random.bits(own, (width,), "uint8")
            total = total + row
            count = count + (row > 0)
            seen = seen | (row > 1)
            best = jnp.maximum(best, row.astype(jnp.bfloat16))
            short = short ^ drawn
            return (total, count, seen, best, short, key), (drawn, jnp.argmax(total))

        start = (
            *(jnp.zeros(width), jnp.zeros(width, jnp.int32), jnp.zeros(width, bool)),
            *(jnp.full(width, -9, jnp.bfloat16), jnp.zeros(width, jnp.uint8), key),
        )
        return jax.lax.scan(step, start, x)

    return function, (draw.normal(steps, width), draw.bits(2, dtype="uint32"))


@program(slack=10)
def associative_scans(draw: Draw):
    """Linear recurrences, running maxima with their places, and sums of segments."""
    steps, width = draw.size(1, 60), draw.size(1, 20)
    axis, reverse = draw.size(0, 1), draw.chance(0.3)

    def linear(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    def larger(a, b):
        take = b[0] > a[0]
        return jnp.where(take, b[0], a[0]), jnp.where(take, b[1], a[1])

    def segment(a, b):
        return a[0] | b[0], jnp.where(b[0], b[1], a[1] + b[1])

    def function(a, x, begins):
        scan = jax.lax.associative_scan
        place = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis)
        return (
            scan(linear, (a, x), reverse=reverse, axis=axis)[1],
            scan(larger, (x, place), axis=axis)[1],
            scan(segment, (begins, x), axis=axis)[1],
            jnp.logical_xor(*[scan(jnp.logical_or, begins, axis=axis)] * 2),
        )

    return function, (
        draw.uniform(steps, width),
        draw.distinct(steps, width) / 16,
        draw.flags(steps, width, share=0.2),
    )


@program(slack=10)
def receptance(draw: Draw):
    """RWKV's weighted average with a running maximum, and its gradient."""
    steps, width = draw.size(1, 12), draw.size(1, 30)

    def function(k, v, decay, bonus):
        def step(carry, kv):
            a, b, p = carry
            k, v = kv
            q = jnp.maximum(p, bonus + k)
            out = (jnp.exp(p - q) * a + jnp.exp(bonus + k - q) * v) / (
                jnp.exp(p - q) * b + jnp.exp(bonus + k - q)
            )
            q = jnp.maximum(p - decay, k)
            old, new = jnp.exp(p - decay - q), jnp.exp(k - q)
            return (old * a + new * v, old * b + new, q), out

        start = jnp.zeros(width), jnp.zeros(width), jnp.full(width, -30.0)
        return jnp.sum(jnp.sin(jax.lax.scan(step, start, (k, v))[1]))

    return jax.value_and_grad(function, argnums=(0, 1, 2, 3)), (
        draw.normal(steps, width),
        draw.normal(steps, width),
        draw.uniform(width, low=0.1),
        draw.normal(width),
    )


@program(slack=5)
def long_convolution(draw: Draw):
    """A filter as long as the sequence: as a Toeplitz product, and as a convolution of groups."""
    length, width = draw.size(1, 30), draw.size(1, 12)

    def function(x, h):
        place = jnp.arange(length)[:, None] - jnp.arange(length)[None]
        toeplitz = jnp.where(place[..., None] >= 0, h[place], 0)
        grouped = jax.lax.conv_general_dilated(
            x.T[None],
            h.T[:, None, ::-1],
            (1,),
            [(length - 1, 0)],
            feature_group_count=width,
        )
        return jnp.einsum("tsd,sd->td", toeplitz, x), grouped[0].T

    return function, (draw.normal(length, width), draw.normal(length, width))


@program()
def speculative_sampling(draw: Draw):
    """Drafts accepted by the quotient of both models; what is left is drawn from the rest."""
    drafts, words = draw.size(1, 6), draw.size(2, 40)

    def function(p, q, tokens, chances, last):
        rows = jnp.arange(drafts)
        accepted = chances < p[rows, tokens] / q[rows, tokens]
        count = jnp.sum(jnp.cumprod(accepted.astype(jnp.int32)))
        rest = jnp.maximum(p[jnp.minimum(count, drafts)] - jnp.pad(q, ((0, 1), (0, 0)))[count], 0)
        chosen = jnp.searchsorted(jnp.cumsum(rest), last * jnp.sum(rest))
        placed = jnp.where(jnp.arange(drafts + 1) < count, jnp.pad(tokens, (0, 1)), -1)
        return count, placed.at[count].set(jnp.minimum(chosen, words - 1).astype(jnp.int32))

    p, q = (draw.whole(1, 9, n, words).astype("float32") / 8 for n in (drafts + 1, drafts))
    chances = draw.whole(0, 8, drafts) / 16 + 0.03
    return function, (
        p,
        q,
        draw.whole(0, words, drafts),
        chances.astype("float32"),
        np.float32(0.37),
    )
