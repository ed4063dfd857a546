"""NKI kernels that jax functions call: in loops, in conditions, with donated arguments."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import nki
import nki.language as nl
from user_programs.drawing import Draw, program


@nki.jit
def scaled_sum(a, b, factor=2.0):
    """a + factor * b, by blocks of 128 rows."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows = a.shape[0]
    for start in range(0, rows, 128):
        end = min(start + 128, rows)
        tile = nl.add(nl.load(a[start:end]), nl.multiply(nl.load(b[start:end]), factor))
        nl.store(out[start:end], tile)
    return out


@nki.jit
def row_softmax(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    e = nl.exp(nl.subtract(tile, nl.max(tile, axis=1, keepdims=True)))
    nl.store(out, nl.divide(e, nl.sum(e, axis=1, keepdims=True)))
    return out


@nki.jit
def raised_in_place(a, by=1.0):
    nl.store(a, nl.add(nl.load(a), by))
    return a


@nki.jit
def halves(a):
    outs = [nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm) for _ in range(2)]
    tile = nl.load(a)
    nl.store(outs[0], nl.multiply(tile, 0.5))
    nl.store(outs[1], nl.maximum(tile, 0.0))
    return tuple(outs)


@program()
def kernel_beside_operations(draw: Draw):
    rows, width = draw.size(1, 300), draw.size(1, 60)

    def function(a, b):
        return jnp.tanh(scaled_sum(a * 2, b.T.reshape(a.shape))) + a, scaled_sum(a, a, factor=0.5)

    return function, (draw.normal(rows, width), draw.normal(rows, width))


@program()
def kernel_in_a_loop(draw: Draw):
    rows, width = draw.size(1, 128), draw.size(1, 60)
    trips = draw.size(0, 5)

    def function(a, w):
        return jax.lax.fori_loop(0, trips, lambda i, x: row_softmax(x @ w) * (i + 1), a)

    return function, (draw.normal(rows, width), draw.normal(width, width))


@program()
def kernel_in_a_scan(draw: Draw):
    steps, rows, width = draw.size(1, 6), draw.size(1, 100), draw.size(1, 40)

    def function(a, xs):
        def step(a, x):
            low, high = halves(a + x)
            return low, high.sum(0)

        return jax.lax.scan(step, a, xs)

    return function, (draw.normal(rows, width), draw.normal(steps, rows, width))


@program()
def kernel_in_a_while(draw: Draw):
    """Trips that an argument decides."""
    rows, width = draw.size(1, 100), draw.size(1, 40)

    def function(a, count):
        def step(state):
            a, i = state
            return raised_in_place(a, by=0.25) * 0.5, i + 1

        return jax.lax.while_loop(lambda s: s[1] < count, step, (a, jnp.int32(0)))

    return function, (draw.normal(rows, width), draw.whole(0, 6))


@program()
def kernel_in_a_condition(draw: Draw):
    rows, width = draw.size(1, 100), draw.size(1, 40)

    def function(a, flag):
        x = jax.lax.cond(flag > 0, lambda a: row_softmax(a), lambda a: raised_in_place(a), a)
        return x, jax.lax.switch(flag + 1, [lambda a: halves(a)[0], row_softmax, jnp.sin], a)

    return function, (draw.normal(rows, width), draw.whole(-1, 2))


@program()
def kernel_with_a_donated_argument(draw: Draw):
    rows, width = draw.size(1, 100), draw.size(1, 40)

    def function(state, x):
        new = raised_in_place(state + x)
        return new, raised_in_place(x, by=2.0), new - state

    function = jax.jit(function, donate_argnums=0)
    return function, (draw.normal(rows, width), draw.normal(rows, width))


@program()
def kernels_one_after_another(draw: Draw):
    rows, width = draw.size(1, 128), draw.size(1, 60)

    def function(a, b):
        low, high = halves(scaled_sum(a, b))
        return row_softmax(low) @ jnp.transpose(row_softmax(high)), raised_in_place(low)

    return function, (draw.normal(rows, width), draw.normal(rows, width))
