"""Control flow: loops of trips that data decides, conditions, switches, maps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program


@program()
def collatz_while(draw: Draw):
    """Trips that an integer decides, for every element of a batch."""

    def one(n):
        def step(state):
            n, count = state
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

        return jax.lax.while_loop(lambda s: s[0] != 1, step, (n, jnp.int32(0)))[1]

    if draw.chance(0.5):
        return one, (draw.whole(1, 60),)
    return jax.vmap(one), (draw.whole(1, 30, draw.size(1, 20)),)


@program()
def newton_while(draw: Draw):
    """A square root to a tolerance that is met with a wide margin."""

    def function(x):
        def going(state):
            y, last = state
            return jnp.max(jnp.abs(y - last)) > 0.5

        def step(state):
            y, _ = state
            return 0.5 * (y + x / y), y

        return jax.lax.while_loop(going, step, (x, x + 10.0))[0] > 0

    return function, (draw.uniform(draw.size(1, 200), low=0.5) * 50,)


@program()
def conjugate_gradient(draw: Draw):
    size, trips = draw.size(1, 60), draw.size(1, 6)
    root = draw.normal(size, size, scale=size**-0.5)

    def function(root, b):
        def apply(x):
            return root.T @ (root @ x) + 2 * x

        def step(_, state):
            x, r, p, square = state
            q = apply(p)
            alpha = square / jnp.maximum(p @ q, 1e-20)
            x, r = x + alpha * p, r - alpha * q
            new = r @ r
            return x, r, r + new / jnp.maximum(square, 1e-20) * p, new

        return jax.lax.fori_loop(0, trips, step, (jnp.zeros_like(b), b, b, b @ b))[0]

    return function, (root, draw.normal(size))


@program()
def condition_of_an_argument(draw: Draw):
    rows, width = draw.size(1, 50), draw.size(1, 50)
    dtype = draw.float_type()

    def function(flag, x, w):
        return jax.lax.cond(
            flag > 0,
            lambda x: (x @ w, jnp.int32(1)),
            lambda x: (jnp.tanh(x) * 2, x.shape[0] + jnp.zeros((), jnp.int32)),
            x,
        )

    x, w = draw.normal(rows, width, dtype=dtype), draw.normal(width, width, dtype=dtype)
    return function, (draw.whole(-1, 2), x, w)


@program()
def switch_in_a_scan(draw: Draw):
    steps, width = draw.size(1, 10), draw.size(1, 70)

    def function(codes, x):
        branches = (jnp.sin, lambda x: x * 2 - 1, lambda x: jnp.roll(x, 1), jnp.cumsum)

        def step(x, code):
            x = jax.lax.switch(code, branches, x) / 2
            return x, x[0]

        return jax.lax.scan(step, x, codes)

    return function, (draw.whole(-1, 5, steps), draw.normal(width))


@program()
def condition_gradients(draw: Draw):
    rows, width = draw.size(1, 30), draw.size(1, 30)

    def loss(w, x, flag):
        y = jax.lax.cond(flag, lambda: jnp.tanh(x @ w), lambda: (x @ w) ** 2)
        return jnp.sum(y)

    operands = draw.normal(width, width, scale=0.3), draw.normal(rows, width)
    return jax.grad(loss, argnums=(0, 1)), (*operands, np.bool_(draw.chance(0.5)))


@program()
def nested_scans(draw: Draw):
    outer, inner, width = draw.size(1, 6), draw.size(1, 6), draw.size(1, 40)

    def function(x, start):
        def row(carry, xs):
            def cell(carry, x):
                carry = jnp.tanh(carry + x)
                return carry, carry.sum()

            carry, sums = jax.lax.scan(cell, carry, xs)
            return carry * 0.5, (sums, carry.max())

        return jax.lax.scan(row, start, x, reverse=draw_reverse)

    draw_reverse = draw.chance(0.5)
    return function, (draw.normal(outer, inner, width), draw.normal(width))


@program()
def scan_of_dynamic_slices(draw: Draw):
    """Windows that move; starts beyond the end are clamped."""
    size, width, count = draw.size(4, 60), draw.size(1, 30), draw.size(1, 12)
    window = draw.size(1, 4)
    dtype = draw.pick(("float32", "bfloat16", "int32", "int8"))

    def function(x, starts):
        def step(x, start):
            part = jax.lax.dynamic_slice_in_dim(x, start, window, 0)
            x = jax.lax.dynamic_update_slice_in_dim(x, part[::-1], start + 1, 0)
            return x, part

        return jax.lax.scan(step, x, starts)

    x = draw.whole(-99, 100, size, width).astype(dtype)
    return function, (x, draw.whole(-5, size + 5, count))


@program()
def mapped_function(draw: Draw):
    count, rows, width = draw.size(1, 9), draw.size(1, 20), draw.size(1, 20)
    size = draw.pick((None, 2, 3))

    def function(x, w):
        return jax.lax.map(lambda one: jnp.sort(one @ w, axis=0).sum(1), x, batch_size=size)

    return function, (draw.normal(count, rows, width), draw.normal(width, width))


@program()
def dynamic_trips(draw: Draw):
    rows, width = draw.size(1, 40), draw.size(1, 40)

    def function(low, high, x):
        def step(i, state):
            x, total = state
            return x + i * jnp.where(x > 0, 1, 2).astype(x.dtype), total + i

        return jax.lax.fori_loop(low, high, step, (x, jnp.int32(0)))

    x = draw.whole(-9, 9, rows, width).astype(draw.pick(("float32", "int32")))
    return function, (draw.whole(-3, 4), draw.whole(-4, 9), x)


@program()
def batched_loops(draw: Draw):
    """vmap of a loop: each row's own number of trips."""
    rows, width = draw.size(1, 12), draw.size(1, 20)

    def one(x, count):
        return jax.lax.fori_loop(0, count, lambda i, x: x * 0.5 + i, x)

    return jax.vmap(one), (draw.normal(rows, width), draw.whole(0, 7, rows))


@program()
def power_iteration(draw: Draw):
    size = draw.size(2, 50)

    def function(a, x):
        def going(state):
            return state[1] < 4

        def step(state):
            x, i = state
            y = a @ x
            return y / jnp.sqrt(jnp.sum(y * y)), i + 1

        x, _ = jax.lax.while_loop(going, step, (x, 0))
        return x, x @ (a @ x)

    return function, (draw.uniform(size, size), draw.uniform(size))


@program()
def cellular_automaton(draw: Draw):
    height, width = draw.size(3, 30), draw.size(3, 30)

    def function(cells, steps):
        def step(_, cells):
            near = sum(
                jnp.roll(cells, (dy, dx), (0, 1)).astype(jnp.int32)
                for dy in (-1, 0, 1)
                for dx in (-1, 0, 1)
                if (dy, dx) != (0, 0)
            )
            return (near == 3) | (cells & (near == 2))

        return jax.lax.fori_loop(0, steps, step, cells)

    return function, (draw.flags(height, width), draw.whole(0, 6))


@program()
def early_exit(draw: Draw):
    """Layers until a flag of each row is set; the others stay."""
    rows, width, layers = draw.size(1, 20), draw.size(1, 30), draw.size(1, 6)

    def function(x, weights, limits):
        def step(state, item):
            x, done = state
            w, number = item
            x = jnp.where(done[:, None], x, jnp.tanh(x @ w))
            return (x, done | (number + 1 >= limits)), done.sum()

        start = x, jnp.zeros(rows, bool)
        return jax.lax.scan(step, start, (weights, jnp.arange(layers)))

    weights = draw.normal(layers, width, width, scale=width**-0.5)
    return function, (draw.normal(rows, width), weights, draw.whole(0, layers + 2, rows))


@program()
def bisection(draw: Draw):
    """A sorted table searched by a loop, as by jnp.searchsorted with either method."""
    size, count = draw.size(1, 90), draw.size(1, 50)
    table = np.sort(draw.distinct(size))
    side = draw.pick(("left", "right"))
    method = draw.pick(("scan", "sort", "compare_all", "scan_unrolled"))

    def function(table, x):
        return jnp.searchsorted(table, x, side=side, method=method), jnp.digitize(x, table)

    return function, (table, draw.pick((draw.distinct(count), table[draw.whole(0, size, count)])))


@program()
def reverse_cumulative_loop(draw: Draw):
    """Discounted returns and generalised advantages."""
    steps, batch = draw.size(1, 20), draw.size(1, 20)

    def function(rewards, values, done):
        def step(advantage, item):
            reward, value, following, done = item
            delta = reward + 0.99 * following * (1 - done) - value
            advantage = delta + 0.99 * 0.95 * (1 - done) * advantage
            return advantage, advantage

        items = rewards, values[:-1], values[1:], done.astype(jnp.float32)
        _, advantages = jax.lax.scan(step, jnp.zeros(batch), items, reverse=True)
        return (advantages - advantages.mean()) / (advantages.std() + 1e-2), advantages + values[
            :-1
        ]

    return function, (
        draw.normal(steps, batch),
        draw.normal(steps + 1, batch),
        draw.flags(steps, batch, share=0.1),
    )
