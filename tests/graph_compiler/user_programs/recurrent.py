"""Recurrent networks and state spaces: scans over time, and their gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from user_programs.drawing import Draw, program


def _sequence(draw: Draw, dtype="float32"):
    steps, batch, width = draw.size(1, 14), draw.size(1, 9), draw.size(1, 33)
    return draw.normal(steps, batch, width, dtype=dtype)


def _lstm(weights, x, h, c):
    def step(carry, x):
        h, c = carry
        gates = jnp.concatenate([x, h], -1) @ weights["w"] + weights["b"]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return jax.lax.scan(step, (h, c), x)


def _lstm_operands(draw: Draw, dtype):
    x = _sequence(draw, dtype)
    hidden, width = draw.size(1, 40), x.shape[2]
    weights = {
        "w": draw.normal(width + hidden, 4 * hidden, dtype=dtype, scale=0.2),
        "b": draw.normal(4 * hidden, dtype=dtype, scale=0.2),
    }
    h, c = (draw.normal(x.shape[1], hidden, dtype=dtype) for _ in range(2))
    return weights, x, h, c


@program()
def lstm(draw: Draw):
    return _lstm, _lstm_operands(draw, draw.float_type())


@program()
def lstm_gradients(draw: Draw):
    def loss(weights, x, h, c):
        return jnp.mean(_lstm(weights, x, h, c)[1] ** 2)

    return jax.grad(loss, argnums=(0, 1)), _lstm_operands(draw, "float32")


@program()
def bidirectional_gru(draw: Draw):
    x = _sequence(draw)
    hidden = draw.size(1, 30)
    lengths = draw.whole(1, x.shape[0] + 1, x.shape[1])

    def run(weights, x, lengths, reverse):
        def step(h, item):
            x, time = item
            a, b = jnp.split(x @ weights[0], 3, -1), jnp.split(h @ weights[1], 3, -1)
            r, z = jax.nn.sigmoid(a[0] + b[0]), jax.nn.sigmoid(a[1] + b[1])
            new = (1 - z) * jnp.tanh(a[2] + r * b[2]) + z * h
            h = jnp.where((time < lengths)[:, None], new, h)
            return h, h

        h = jnp.zeros((x.shape[1], hidden), x.dtype)
        return jax.lax.scan(step, h, (x, jnp.arange(x.shape[0])), reverse=reverse)[1]

    def function(forward, backward, x, lengths):
        both = run(forward, x, lengths, False), run(backward, x, lengths, True)
        return jnp.concatenate(both, -1)

    width = x.shape[2]
    forward, backward = (
        (draw.normal(width, 3 * hidden, scale=0.3), draw.normal(hidden, 3 * hidden, scale=0.3))
        for _ in range(2)
    )
    return function, (forward, backward, x, lengths)


@program()
def rwkv_time_mix(draw: Draw):
    """The numerically safe form with a running maximum."""
    k, v = (_sequence(draw) for _ in range(2))
    v = draw.normal(*k.shape)

    def function(k, v, decay, bonus):
        def step(carry, kv):
            a, b, largest = carry
            k, v = kv
            top = jnp.maximum(largest, k + bonus)
            e, f = jnp.exp(largest - top), jnp.exp(k + bonus - top)
            out = (e * a + f * v) / (e * b + f)
            top = jnp.maximum(largest - decay, k)
            e, f = jnp.exp(largest - decay - top), jnp.exp(k - top)
            return (e * a + f * v, e * b + f, top), out

        zero = jnp.zeros(k.shape[1:])
        return jax.lax.scan(step, (zero, zero, zero - 1e30), (k, v))

    width = k.shape[2]
    return function, (k, v, draw.uniform(width), draw.normal(width))


def _mamba(x, delta, a, b, c):
    def step(h, item):
        x, delta, b, c = item
        h = jnp.exp(delta[:, None] * a) * h + (delta * x)[:, None] * b[None]
        return h, h @ c

    return jax.lax.scan(step, jnp.zeros(a.shape), (x, delta, b, c))[1]


def _mamba_operands(draw: Draw):
    steps, width, states = draw.size(1, 20), draw.size(1, 40), draw.size(1, 16)
    x, delta = draw.normal(steps, width), draw.uniform(steps, width)
    b, c = (draw.normal(steps, states) for _ in range(2))
    return x, delta, -draw.uniform(width, states, low=0.1), b, c


@program()
def selective_scan(draw: Draw):
    return _mamba, _mamba_operands(draw)


@program()
def selective_scan_gradients(draw: Draw):
    return jax.grad(lambda *a: jnp.sum(_mamba(*a) ** 2), argnums=(0, 1, 2, 3, 4)), _mamba_operands(
        draw
    )


@program()
def parallel_state_space(draw: Draw):
    """A diagonal recurrence by an associative scan."""
    steps, width = draw.size(1, 60), draw.size(1, 40)
    reverse = draw.chance(0.3)

    def function(decay, x):
        def combined(left, right):
            return left[0] * right[0], left[1] * right[0] + right[1]

        return jax.lax.associative_scan(combined, (decay, x), reverse=reverse)[1]

    return function, (draw.uniform(steps, width), draw.normal(steps, width))


@program()
def minimal_gated_gradients(draw: Draw):
    """A gradient through an associative scan of gates."""
    steps, batch, width = draw.size(1, 20), draw.size(1, 5), draw.size(1, 20)

    def loss(weights, x):
        gates, values = jnp.split(x @ weights, 2, -1)
        z = jax.nn.sigmoid(gates)

        def combined(left, right):
            return left[0] * right[0], left[1] * right[0] + right[1]

        h = jax.lax.associative_scan(combined, (1 - z, z * values), axis=1)[1]
        return jnp.sum(h * h)

    x = draw.normal(batch, steps, width)
    return jax.grad(loss), (draw.normal(width, 2 * width, scale=0.3), x)


@program()
def causal_depthwise_scan(draw: Draw):
    """Mamba's short convolution: a window of past inputs in the carry."""
    steps, width, taps = draw.size(1, 20), draw.size(1, 50), draw.size(1, 5)
    dtype = draw.float_type()

    def function(x, weights, window):
        def step(window, x):
            window = jnp.concatenate([window[1:], x[None]])
            return window, jax.nn.silu(jnp.sum(window * weights, axis=0))

        return jax.lax.scan(step, window, x)

    return function, (
        draw.normal(steps, width, dtype=dtype),
        draw.normal(taps, width, dtype=dtype),
        draw.normal(taps, width, dtype=dtype),
    )


@program()
def delta_rule(draw: Draw):
    """DeltaNet: a matrix of state that each step corrects."""
    steps, heads, width = draw.size(1, 12), draw.size(1, 4), draw.size(1, 24)
    q, k, v = (draw.normal(steps, heads, width, scale=0.3) for _ in range(3))

    def function(q, k, v, beta):
        def step(state, item):
            q, k, v, beta = item
            error = v - jnp.einsum("hde,hd->he", state, k)
            state = state + beta[:, None, None] * jnp.einsum("hd,he->hde", k, error)
            return state, jnp.einsum("hde,hd->he", state, q)

        return jax.lax.scan(step, jnp.zeros((heads, width, width)), (q, k, v, beta))

    return function, (q, k, v, draw.uniform(steps, heads))


@program()
def vector_field_solver(draw: Draw):
    """Runge-Kutta steps of a small network, as a neural differential equation has them."""
    rows, width = draw.size(1, 30), draw.size(1, 40)

    def function(x, w, count):
        def field(x):
            return jnp.tanh(x @ w)

        def step(_, x):
            k1 = field(x)
            k2 = field(x + 0.05 * k1)
            k3 = field(x + 0.05 * k2)
            return x + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + field(x + 0.1 * k3))

        return jax.lax.fori_loop(0, count, step, x)

    w = draw.normal(width, width, scale=width**-0.5)
    return function, (draw.normal(rows, width), w, draw.whole(0, 7))
