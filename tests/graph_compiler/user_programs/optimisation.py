"""Steps of optimisers and quantised training that no other theme has."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from user_programs.drawing import Draw, program


@program(slack=200)
def shampoo(draw: Draw):
    """Roots of both sides' statistics by a coupled Newton iteration, and the step."""
    rows, columns = draw.size(2, 24), draw.size(2, 24)

    def inverse_fourth_root(a):
        size = len(a)
        scale = 1 / jnp.trace(a)
        m, h = a * scale, jnp.eye(size)
        z = 5 / (2 * jnp.linalg.norm(m))
        m, h = m * z, h * z**0.25

        def step(_, state):
            m, h = state
            t = (5 * jnp.eye(size) - m) / 4
            t2 = t @ t
            return t2 @ t2 @ m, h @ t

        _, h = jax.lax.fori_loop(0, 12, step, (m, h))
        return h * scale**0.25

    def function(w, g, left, right):
        left = 0.9 * left + 0.1 * g @ g.T
        right = 0.9 * right + 0.1 * g.T @ g
        way = inverse_fourth_root(left) @ g @ inverse_fourth_root(right)
        way = way * jnp.linalg.norm(g) / (jnp.linalg.norm(way) + 1e-6)
        return w - 0.1 * way, left, right

    def positive(size):
        a = draw.normal(size, 2 * size)
        return (a @ a.T / (2 * size) + np.eye(size, dtype=np.float32)).astype(np.float32)

    w, g = (draw.normal(rows, columns) for _ in range(2))
    return function, (w, g, positive(rows), positive(columns))


@program(slack=20)
def prodigy(draw: Draw):
    """A step whose size is estimated by products of gradients with what has been walked."""
    shapes = [(draw.size(1, 30), draw.size(1, 30)), (draw.size(1, 40),), ()]

    def function(weights, gradients, begin, sums, d):
        walked = jax.tree.map(lambda g, w, b: jnp.vdot(g, b - w), gradients, weights, begin)
        sums = jax.tree.map(lambda s, g: 0.9 * s + 0.1 * d * d * g, sums, gradients)
        above = sum(jax.tree.leaves(walked)) * d * d
        below = sum(jnp.sum(jnp.abs(s)) for s in jax.tree.leaves(sums))
        d = jnp.maximum(d, jnp.minimum(above / (below + 1.0), 2 * d))
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
        cut = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
        new = jax.tree.map(lambda w, s, g: w - d * (s + cut * g), weights, sums, gradients)
        return new, sums, d

    def tree():
        return [draw.normal(*shape).astype(np.float32) for shape in shapes]

    return function, (tree(), tree(), tree(), tree(), np.float32(0.1))


@program(slack=20)
def schedule_free(draw: Draw):
    """Averages of iterates, a warm-up and a cosine by the step's number, all in a scan."""
    size, batch, steps = draw.size(1, 40), draw.size(1, 20), draw.size(1, 6)

    def function(w, x, y, first):
        def step(state, one):
            z, mean, number = state
            x, y = one
            t = number.astype(jnp.float32)
            rate = jnp.where(t < 4, t / 4, 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(t / 20, 1.0))))
            at = 0.9 * mean + 0.1 * z
            value, g = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(at)
            z = z - 0.05 * rate * g
            share = 1 / (t + 1)
            return (z, (1 - share) * mean + share * z, number + 1), (value, rate)

        return jax.lax.scan(step, (w, w, first), (x, y))

    return function, (
        draw.normal(size, scale=0.3),
        draw.normal(steps, batch, size),
        draw.normal(steps, batch),
        np.int32(draw.size(1, 9)),
    )


@program(slack=20)
def sophia(draw: Draw):
    """A diagonal of the Hessian by Hutchinson's estimate, and clipped steps."""
    size, batch = draw.size(1, 30), draw.size(1, 20)

    def function(w, momentum, curvature, x, y, signs):
        def loss(w):
            return jnp.mean(jnp.log(jnp.cosh(jnp.tanh(x @ w) - y)))

        g, product = jax.jvp(jax.grad(loss), (w,), (signs,))
        curvature = 0.99 * curvature + 0.01 * signs * product
        momentum = 0.96 * momentum + 0.04 * g
        step = jnp.clip(momentum / jnp.maximum(curvature, 0.02), -1, 1)
        return w - 0.01 * step, momentum, curvature

    return function, (
        draw.normal(size),
        draw.normal(size, scale=0.01),
        draw.uniform(size, low=0.3),
        draw.normal(batch, size, scale=0.3),
        draw.normal(batch),
        np.where(draw.flags(size), 1, -1).astype(np.float32),
    )


@program(slack=20)
def trained_with_quantised_weights(draw: Draw):
    """LSQ: rounding passed straight through by a custom rule, gradients of the steps too."""
    batch, size, hidden = (draw.size(1, n) for n in (20, 40, 40))

    @jax.custom_vjp
    def quantised(w, step):
        return jnp.clip(jnp.round(w / step), -8, 7) * step

    def forward(w, step):
        return quantised(w, step), (w, step)

    def backward(kept, g):
        w, step = kept
        share = w / step
        inside = (share > -8) & (share < 7)
        own = jnp.where(inside, jnp.round(share) - share, jnp.clip(jnp.round(share), -8, 7))
        return g * inside, jnp.sum(g * own, 0, keepdims=True)

    quantised.defvjp(forward, backward)

    def function(w, step, x, y):
        def loss(w, step):
            return jnp.mean((jnp.tanh(x @ quantised(w, step)) - y) ** 2)

        return jax.value_and_grad(loss, argnums=(0, 1))(w, step)

    step = np.full((1, hidden), 0.25, np.float32)
    whole = draw.whole(-10, 11, size, hidden).astype(np.float32)
    off = (draw.uniform(size, hidden) - np.float32(0.5)) * np.float32(0.8)
    return function, (
        (whole + off) * step,
        step,
        draw.normal(batch, size),
        draw.normal(batch, hidden),
    )


@program(slack=5)
def eight_bit_training(draw: Draw):
    """A layer in fp8 with scales by a history of largest values, and its gradient in the other
    format."""
    batch, size, hidden = (draw.size(1, n) for n in (40, 60, 60))
    first, second = ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2

    def cast(x, history, dtype, largest):
        scale = jnp.exp2(jnp.floor(jnp.log2(largest / jnp.max(history))))
        history = jnp.roll(history, 1).at[0].set(jnp.max(jnp.abs(x)))
        return jnp.clip(x * scale, -largest, largest).astype(dtype), scale, history

    def function(x, w, g, histories):
        a, sa, ha = cast(x, histories[0], first, 240.0)
        b, sb, hb = cast(w, histories[1], first, 240.0)
        c, sc, hc = cast(g, histories[2], second, 57344.0)
        product = functools.partial(jnp.matmul, preferred_element_type=jnp.float32)
        y = product(a, b) / (sa * sb)
        dx = product(c.astype(jnp.bfloat16), b.T.astype(jnp.bfloat16)) / (sc * sb)
        dw = product(a.T.astype(jnp.bfloat16), c.astype(jnp.bfloat16)) / (sa * sc)
        return y, dx, dw, jnp.stack([ha, hb, hc])

    return function, (
        draw.normal(batch, size),
        draw.normal(size, hidden, scale=0.1),
        draw.normal(batch, hidden, scale=0.01),
        draw.uniform(3, 4, low=0.5) * np.float32(8),
    )


@program(slack=100)
def calibrated_rounding(draw: Draw):
    """GPTQ: columns rounded one after another, errors pushed on through a Cholesky factor."""
    rows, columns = draw.size(1, 20), draw.size(2, 16)

    def function(w, hessian, step):
        factor = jnp.linalg.cholesky(jnp.linalg.inv(hessian)).T

        def column(i, state):
            w, q = state
            own = w[:, i]
            found = jnp.clip(jnp.floor(own / step), -8, 7) * step
            error = (own - found) / factor[i, i]
            later = jnp.where(jnp.arange(columns) > i, factor[i], 0.0)
            return w - jnp.outer(error, later) * 1e-4, q.at[:, i].set(found)

        return jax.lax.fori_loop(0, columns, column, (w, jnp.zeros_like(w)))[1]

    a = draw.normal(4 * columns, columns)
    hessian = (a.T @ a / (4 * columns) + np.eye(columns)).astype(np.float32)
    whole = draw.whole(-9, 9, rows, columns).astype(np.float32)
    return function, ((whole + np.float32(0.5)) * np.float32(0.25), hessian, np.float32(0.25))


@program(slack=20)
def decorrelated_embeddings(draw: Draw):
    """VICReg and Barlow twins: off-diagonal parts of covariances, with gradients."""
    batch, size = draw.size(2, 40), draw.size(2, 30)

    def function(a, b):
        def off(c):
            return jnp.sum(jnp.where(jnp.eye(size, dtype=bool), 0, c) ** 2) / size

        def loss(a, b):
            normal = [(x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-2) for x in (a, b)]
            cross = normal[0].T @ normal[1] / batch
            barlow = jnp.sum((1 - jnp.diagonal(cross)) ** 2) + 0.01 * off(cross)
            spread = sum(jnp.mean(jax.nn.relu(1 - jnp.sqrt(x.var(0) + 1e-2))) for x in (a, b))
            own = sum(off((x - x.mean(0)).T @ (x - x.mean(0)) / (batch - 1)) for x in (a, b))
            return barlow + jnp.mean((a - b) ** 2) + spread + 0.04 * own

        return jax.value_and_grad(loss, argnums=(0, 1))(a, b)

    return function, (draw.normal(batch, size), draw.normal(batch, size))


@program(slack=5)
def queue_of_negatives(draw: Draw):
    """MoCo: a queue written in turns, an averaged encoder; SigLIP's loss beside it."""
    batch, size, queue = draw.size(1, 8), draw.size(2, 30), 8 * draw.size(1, 8)

    def function(w, averaged, x, y, kept, at):
        averaged = 0.99 * averaged + 0.01 * w
        q = x @ w
        q = q / jnp.linalg.norm(q, axis=1, keepdims=True)
        k = jax.lax.stop_gradient(y @ averaged)
        k = k / jnp.linalg.norm(k, axis=1, keepdims=True)
        logits = jnp.concatenate([jnp.sum(q * k, 1, keepdims=True), q @ kept], 1) / 0.2
        info = jnp.mean(jax.nn.logsumexp(logits, 1) - logits[:, 0])
        places = (at + jnp.arange(batch)) % queue
        kept = kept.at[:, places].set(k.T)
        signs = 2 * jnp.eye(batch) - 1
        pairs = -jnp.sum(jax.nn.log_sigmoid(signs * (q @ k.T * 5.0 - 2.0))) / batch
        return info, pairs, kept, averaged

    return function, (
        draw.normal(size, 8),
        draw.normal(size, 8),
        draw.normal(batch, size),
        draw.normal(batch, size),
        draw.normal(8, queue),
        draw.whole(0, queue),
    )


@program(slack=10)
def adapters_of_many(draw: Draw):
    """LoRA adapters of several users in one batch: weights gathered by row, and DoRA's norms."""
    batch, size, out, rank, users = (draw.size(1, n) for n in (16, 40, 40, 6, 5))

    def function(x, w, a, b, user, magnitudes):
        own = jnp.einsum("bi,bir->br", x, a[user])
        found = x @ w + 2.0 * jnp.einsum("br,bro->bo", own, b[user])
        whole = w[None] + 2.0 * jnp.einsum("uir,uro->uio", a, b)
        norms = jnp.sqrt(jnp.sum(whole**2, 1) + 1e-3)
        return found * (magnitudes / norms)[user]

    return function, (
        draw.normal(batch, size),
        draw.normal(size, out, scale=0.2),
        draw.normal(users, size, rank, scale=0.2),
        draw.normal(users, rank, out, scale=0.2),
        draw.whole(0, users, batch),
        draw.uniform(users, out, low=0.5),
    )
