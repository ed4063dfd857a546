"""Orders, sums along an axis, windows, reductions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program

NUMBERS = ("float32", "bfloat16", "int32", "int16", "int8", "uint8", "uint32", "uint16")


def _numbers(draw: Draw, *shape: int, dtype=None):
    dtype = dtype or draw.pick(NUMBERS)
    if np.issubdtype(np.dtype(dtype), np.integer):
        return draw.bits(*shape, dtype=dtype)
    return draw.normal(*shape, dtype=dtype)


@program()
def sorted_axis(draw: Draw):
    shape = tuple(draw.size(1, high) for high in (20, 40, 6)[: draw.size(1, 3)])
    axis, descending = draw.size(0, len(shape) - 1), draw.chance(0.3)
    return lambda x: jnp.sort(x, axis=axis, descending=descending), (_numbers(draw, *shape),)


@program()
def argsort_and_back(draw: Draw):
    """Equal numbers keep their order."""
    rows, width = draw.size(1, 20), draw.size(1, 80)
    dtype = draw.pick(("float32", "int32", "int8"))

    def function(x):
        order = jnp.argsort(x, axis=-1)
        rank = jnp.argsort(order, axis=-1)
        return order, rank, jnp.take_along_axis(x, order, -1)

    return function, (draw.whole(-9, 9, rows, width).astype(dtype),)


@program()
def keys_with_values(draw: Draw):
    """Two keys and what goes along."""
    count = draw.size(1, 90)
    keys = draw.whole(0, 4, count), draw.distinct(count)

    def function(a, b, values):
        return jax.lax.sort((a, b, values, jnp.arange(count)), num_keys=2)

    return function, (*keys, _numbers(draw, count))


@program()
def largest_few(draw: Draw):
    rows, width = draw.size(1, 140), draw.size(2, 100)
    count = draw.size(1, min(width, 20))
    x = draw.pick((draw.distinct(rows, width), draw.whole(-50, 50, rows, width).astype("float32")))

    def function(x):
        values, indices = jax.lax.top_k(x, count)
        return values, indices, jnp.argmax(x, 1), jnp.argmin(x, 0)

    return function, (x,)


@program()
def top_k_gradients(draw: Draw):
    rows, width = draw.size(1, 30), draw.size(2, 50)
    count = draw.size(1, min(width, 9))

    def loss(x, y):
        return jnp.sum(jax.lax.top_k(x, count)[0] * y)

    return jax.grad(loss), (draw.distinct(rows, width), draw.normal(rows, count))


@program()
def sort_gradients(draw: Draw):
    rows, width = draw.size(1, 20), draw.size(1, 40)
    axis = draw.size(0, 1)
    return jax.grad(lambda x, y: jnp.sum(jnp.sort(x, axis) * y)), (
        draw.distinct(rows, width),
        draw.normal(rows, width),
    )


@program()
def order_statistics(draw: Draw):
    rows, width = draw.size(1, 30), draw.size(1, 60)

    def function(x):
        q = jnp.array([0.0, 0.1, 0.5, 0.9, 1.0])
        return jnp.median(x, axis=1), jnp.quantile(x, q, axis=0), jnp.percentile(x, 30, axis=1)

    return function, (draw.normal(rows, width),)


@program()
def running_sums(draw: Draw):
    shape = tuple(draw.size(1, high) for high in (30, 60, 5)[: draw.size(1, 3)])
    axis, reverse = draw.size(0, len(shape) - 1), draw.chance(0.4)
    dtype = draw.pick(("float32", "int32", "bfloat16"))
    x = draw.whole(-3, 4, *shape).astype(dtype)

    def function(x):
        return [
            one(x, axis=axis, reverse=reverse)
            for one in (jax.lax.cumsum, jax.lax.cummax, jax.lax.cummin)
        ]

    return function, (x,)


@program()
def running_products(draw: Draw):
    rows, width = draw.size(1, 30), draw.size(1, 40)
    axis = draw.size(0, 1)
    x = draw.uniform(rows, width, low=0.7)

    def function(x):
        return jnp.cumprod(x, axis), jax.lax.cumlogsumexp(x, axis)

    return function, (x,)


@program()
def running_gradients(draw: Draw):
    rows, width = draw.size(1, 20), draw.size(1, 30)
    one = draw.pick((jnp.cumsum, jnp.cumprod, jax.lax.cumlogsumexp, jax.lax.cummax))

    def loss(x, y):
        return jnp.sum(one(x, axis=1) * y)

    x = draw.distinct(rows, width)
    return jax.grad(loss), (1 + x / abs(x).max().clip(1) / 4, draw.normal(rows, width))


@program()
def associative_pairs(draw: Draw):
    """Products of two-by-two matrices along an axis."""
    steps, batch = draw.size(1, 24), draw.size(1, 8)

    def function(x):
        return jax.lax.associative_scan(jnp.matmul, x, axis=0)

    return function, (draw.normal(steps, batch, 2, 2, scale=0.7),)


@program()
def window_reductions(draw: Draw):
    """Windows with steps, dilation and padding, of several operations."""
    shape = (draw.size(4, 20), draw.size(4, 20))
    window, strides = (draw.size(1, 3), draw.size(1, 3)), (draw.size(1, 3), draw.size(1, 3))
    dilation = (1, draw.size(1, 2)), (draw.size(1, 2), 1)
    padding = ((draw.size(0, 1), draw.size(0, 1)), (draw.size(0, 2), 0))
    dtype = draw.pick(("float32", "int32", "bfloat16", "int8"))
    initial, operation = draw.pick(
        ((0, jax.lax.add), (3, jax.lax.max), (-2, jax.lax.min), (1, jax.lax.mul))
    )

    def function(x):
        return jax.lax.reduce_window(
            *(x, jnp.asarray(initial, dtype), operation, window, strides, padding),
            base_dilation=dilation[0],
            window_dilation=dilation[1],
        )

    return function, (draw.whole(-2, 3, *shape).astype(dtype),)


@program()
def reductions(draw: Draw):
    shape = tuple(draw.size(1, high) for high in (20, 30, 12)[: draw.size(1, 3)])
    axes = tuple(at for at in range(len(shape)) if draw.chance(0.6)) or None
    dtype = draw.pick(("float32", "int32", "bfloat16", "int8", "uint32"))

    def function(x):
        return jnp.sum(x, axes), jnp.max(x, axes), jnp.min(x, axes), jnp.any(x > 1, axes)

    return function, (draw.whole(0, 4, *shape).astype(dtype),)


@program()
def flag_reductions(draw: Draw):
    shape = draw.size(1, 50), draw.size(1, 50)
    axis = draw.pick((0, 1, None))

    def function(a, b):
        parity = jax.lax.reduce(a, np.bool_(False), jnp.logical_xor, (0,))
        return jnp.all(a | b, axis), jnp.any(a & ~b, axis), (a ^ b).sum(axis), parity

    return function, (draw.flags(*shape, share=0.9), draw.flags(*shape, share=0.1))


@program()
def moments(draw: Draw):
    shape = draw.size(2, 40), draw.size(2, 40), draw.size(1, 5)
    axis = draw.pick((0, 1, (0, 2)))

    def function(x):
        m = x.mean(axis, keepdims=True)
        d = x - m
        return x.var(axis, ddof=1), x.std(axis), (d**3).mean(axis), jnp.ptp(x, axis)

    return function, (draw.normal(*shape),)


@program()
def pair_reduction(draw: Draw):
    """A reduction of values with their indices, which is no operation of jnp."""
    rows, width = draw.size(1, 40), draw.size(1, 60)

    def function(x):
        index = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)

        def better(a, b):
            take = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] > b[1]))
            return jnp.where(take, a[0], b[0]), jnp.where(take, a[1], b[1])

        return jax.lax.reduce((x, index), (-jnp.inf, jnp.int32(-1)), better, (1,))

    return function, (draw.whole(-9, 9, rows, width).astype("float32"),)


@program()
def histogram(draw: Draw):
    count, bins = draw.size(1, 200), draw.size(1, 30)

    def function(x, weights):
        places = jnp.clip(jnp.floor((x + 8) * bins / 16).astype(jnp.int32), 0, bins - 1)
        return jnp.bincount(places, length=bins), jnp.zeros(bins).at[places].add(weights)

    return function, (draw.whole(-9, 9, count).astype("float32"), draw.normal(count))


@program()
def distinct_numbers(draw: Draw):
    count = draw.size(1, 50)
    room = draw.size(1, count)

    def function(x):
        values, first, inverse, counts = jnp.unique(
            x, return_index=True, return_inverse=True, return_counts=True, size=room, fill_value=-1
        )
        places = jnp.nonzero(x > 3, size=room, fill_value=-7)[0]
        return values, first, inverse.ravel() if room == count else first, counts, places

    return function, (draw.whole(0, 9, count),)
