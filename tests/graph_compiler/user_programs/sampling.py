"""Probabilistic models: flows, samplers, filters of states, and what trains them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program


@program(slack=20)
def coupling_flow(draw: Draw):
    """RealNVP: affine couplings of halves in turns, and the gradient of the likelihood."""
    batch, half, hidden = draw.size(1, 30), draw.size(1, 20), draw.size(1, 40)

    def function(x, weights):
        def loss(weights):
            a, b = x[:, :half], x[:, half:]
            logs = 0.0
            for w0, w1 in weights:
                found = jnp.tanh(a @ w0) @ w1
                scale, shift = jnp.tanh(found[:, :half]), found[:, half:]
                a, b = b * jnp.exp(scale) + shift, a
                logs = logs + scale.sum(1)
            return jnp.mean(0.5 * (a**2 + b**2).sum(1) - logs)

        return jax.value_and_grad(loss)(weights)

    weights = [
        (draw.normal(half, hidden, scale=0.4), draw.normal(hidden, 2 * half, scale=0.2))
        for _ in range(3)
    ]
    return function, (draw.normal(batch, 2 * half), weights)


@program(slack=50)
def spline_flow(draw: Draw):
    """Rational quadratic splines: bins by search, their knots by lookups, and the slope."""
    count, bins = draw.size(1, 200), draw.size(2, 12)

    def function(x, widths, heights, slopes):
        w = jax.nn.softmax(widths) * 0.9 + 0.1 / bins
        h = jax.nn.softmax(heights) * 0.9 + 0.1 / bins
        d = jax.nn.softplus(slopes) + 0.1
        at = jnp.concatenate([jnp.zeros(1), jnp.cumsum(w)])
        up = jnp.concatenate([jnp.zeros(1), jnp.cumsum(h)])
        k = jnp.clip(jnp.searchsorted(at, x, side="right") - 1, 0, bins - 1)
        share = (x - at[k]) / w[k]
        steep = h[k] / w[k]
        mixed = share * (1 - share)
        below = steep + (d[k + 1] + d[k] - 2 * steep) * mixed
        y = up[k] + h[k] * (steep * share**2 + d[k] * mixed) / below
        slope = d[k + 1] * share**2 + 2 * steep * mixed + d[k] * (1 - share) ** 2
        return y, 2 * jnp.log(steep) + jnp.log(slope) - 2 * jnp.log(below)

    return function, (
        draw.uniform(count) * np.float32(0.98) + np.float32(0.01),
        draw.normal(bins),
        draw.normal(bins),
        draw.normal(bins + 1),
    )


@program(slack=20)
def guided_sampler(draw: Draw):
    """DDIM with guidance: a table of noise by step, a network of both conditions at once."""
    batch, size, steps = draw.size(1, 8), draw.size(2, 30), draw.size(2, 6)

    def function(x, w, condition, guidance):
        level = jnp.cos(jnp.linspace(0.05, 1.4, steps)) ** 2

        def network(x, t, c):
            waves = jnp.exp(-jnp.arange(4) * 1.0) * t
            time = jnp.concatenate([jnp.sin(waves), jnp.cos(waves)])
            given = jnp.concatenate([x, c, jnp.broadcast_to(time, (len(x), 8))], 1)
            return jnp.tanh(given @ w)

        def step(x, t):
            now, later = level[t], level[jnp.maximum(t - 1, 0)]
            both = jnp.concatenate([condition, jnp.zeros_like(condition)])
            noise = network(jnp.concatenate([x, x]), t.astype(jnp.float32), both)
            with_c, without = jnp.split(noise, 2)
            noise = without + guidance * (with_c - without)
            clean = jnp.clip((x - jnp.sqrt(1 - now) * noise) / jnp.sqrt(now), -3, 3)
            return jnp.sqrt(later) * clean + jnp.sqrt(1 - later) * noise, clean

        return jax.lax.scan(step, x, jnp.arange(steps)[::-1])

    return function, (
        draw.normal(batch, size),
        draw.normal(size + 3 + 8, size, scale=0.3),
        draw.normal(batch, 3),
        np.float32(1.5),
    )


@program(slack=20)
def score_matching_gradient(draw: Draw):
    """Sliced score matching: a Jacobian's product with a vector, differentiated once more."""
    batch, size = draw.size(1, 20), draw.size(1, 20)

    def function(w0, w1, x, v):
        def loss(w0, w1):
            def score(x):
                return jnp.tanh(x @ w0) @ w1

            found, slope = jax.jvp(score, (x,), (v,))
            return jnp.mean(jnp.sum(v * slope, 1) + 0.5 * jnp.sum(found**2, 1))

        return jax.value_and_grad(loss, argnums=(0, 1))(w0, w1)

    hidden = draw.size(1, 30)
    return function, (
        draw.normal(size, hidden, scale=0.3),
        draw.normal(hidden, size, scale=0.3),
        draw.normal(batch, size),
        draw.normal(batch, size),
    )


@program(slack=50)
def particle_filter(draw: Draw):
    """Systematic resampling: places of evenly spaced numbers in running sums of weights."""
    count, steps = 1 << draw.size(1, 7), draw.size(1, 5)

    def function(particles, observed):
        def step(particles, y):
            moved = 0.9 * particles + 0.1 * jnp.sin(particles)
            weights = jax.nn.softmax(-((moved - y) ** 2))
            estimate = jnp.sum(weights * moved)
            even = jnp.cumsum(jnp.round(weights * 4096).astype(jnp.int32))
            at = (jnp.arange(count) * (even[-1] // count)).astype(jnp.int32)
            chosen = jnp.minimum(jnp.searchsorted(even, at, side="right"), count - 1)
            return moved[chosen], estimate

        # The weights are far from each rounding's edge.
        return jax.lax.scan(step, particles, observed)[1][:1]

    return function, (draw.normal(count), draw.normal(steps))


@program(slack=100)
def smoothed_states(draw: Draw):
    """Kalman filter forth, Rauch-Tung-Striebel smoother back, of a batch of tracks."""
    tracks, steps = draw.size(1, 6), draw.size(1, 6)
    a = np.array([[1, 0.1, 0], [0, 1, 0.1], [0, 0, 0.9]], np.float32)
    h = np.array([[1, 0, 0]], np.float32)

    def function(y):
        def filtered(state, y):
            m, p = state
            m1, p1 = a @ m, a @ p @ a.T + 0.1 * jnp.eye(3)
            s = h @ p1 @ h.T + 0.5
            k = p1 @ h.T / s
            m = m1 + k @ (y - h @ m1)
            p = (jnp.eye(3) - k @ h) @ p1
            return (m, p), (m, p, m1, p1)

        def back(state, one):
            later, spread = state
            m, p, m1, p1 = one
            g = jnp.linalg.solve(p1, a @ p).T
            m = m + g @ (later - m1)
            p = p + g @ (spread - p1) @ g.T
            return (m, p), m

        def track(y):
            (m, p), kept = jax.lax.scan(filtered, (jnp.zeros(3), jnp.eye(3)), y[:, None])
            ms, ps = kept[0][:-1], kept[1][:-1]
            return jax.lax.scan(back, (m, p), (ms, ps, kept[2][1:], kept[3][1:]), reverse=True)[1]

        return jax.vmap(track)(y)

    return function, (draw.normal(tracks, steps),)


@program(slack=20)
def hamiltonian_proposals(draw: Draw):
    """Leapfrog steps of several chains, by gradients; energies decide what is kept."""
    chains, size = draw.size(1, 20), draw.size(1, 20)

    def function(x, p, w):
        def potential(x):
            return 0.5 * jnp.sum((w @ x) ** 2) + jnp.sum(jnp.log(jnp.cosh(x)))

        slope = jax.vmap(jax.grad(potential))

        def leap(_, state):
            x, p = state
            p = p - 0.05 * slope(x)
            x = x + 0.1 * p
            return x, p - 0.05 * slope(x)

        def energy(x, p):
            return jax.vmap(potential)(x) + 0.5 * jnp.sum(p**2, 1)

        y, q = jax.lax.fori_loop(0, 4, leap, (x, p))
        off = energy(x, p) - energy(y, q)
        return jnp.where((off > -5.0)[:, None], y, x), off

    return function, (
        draw.normal(chains, size),
        draw.normal(chains, size),
        draw.normal(size, size, scale=0.2),
    )


@program(slack=20)
def distributions(draw: Draw):
    """Random numbers of several distributions, by jax's own algorithms."""
    count = draw.size(1, 200)

    def function(key, shape):
        keys = jax.random.split(key, 8)
        return (
            jax.random.laplace(keys[0], (count,)),
            jax.random.truncated_normal(keys[1], -1.0, 2.0, (count,)),
            jax.random.categorical(keys[2], jnp.arange(4.0), shape=(count,)),
            jax.random.bernoulli(keys[3], 0.3, (count,)),
            jax.random.rademacher(keys[4], (count,)),
            jax.random.gumbel(keys[5], (count,)),
            jax.random.logistic(keys[6], (count,)),
            jax.random.pareto(keys[7], 3.0, (count,)) * shape,
        )

    return function, (draw.bits(2, dtype=np.uint32), np.float32(1.5))


@program(slack=50)
def gamma_numbers(draw: Draw):
    """Gamma and what follows from it: loops that each element leaves by itself."""
    count = draw.size(1, 40)

    def function(key, a):
        first, second, third = jax.random.split(key, 3)
        return (
            jax.random.gamma(first, a),
            jax.random.beta(second, a, 2.0),
            jax.random.dirichlet(third, a),
        )

    return function, (draw.bits(2, dtype=np.uint32), draw.uniform(count) + np.float32(0.5))


@program(slack=20)
def relaxed_choices(draw: Draw):
    """Gumbel softmax, straight through, with the gradient of the logits."""
    rows, classes, width = draw.size(1, 30), draw.size(2, 30), draw.size(1, 20)

    def function(logits, noise, table, wanted):
        def loss(logits):
            soft = jax.nn.softmax((logits + noise) / 0.7)
            hard = jax.nn.one_hot(jnp.argmax(soft, 1), classes)
            chosen = hard + soft - jax.lax.stop_gradient(soft)
            return jnp.mean((chosen @ table - wanted) ** 2)

        return jax.value_and_grad(loss)(logits)

    return function, (
        draw.distinct(rows, classes),
        draw.normal(rows, classes, scale=0.01),
        draw.normal(classes, width),
        draw.normal(rows, width),
    )


@program(slack=20)
def expected_improvement(draw: Draw):
    """Bayesian optimisation: a posterior by Cholesky, the normal distribution's functions."""
    known, asked, size = draw.size(1, 20), draw.size(1, 40), draw.size(1, 5)

    def function(x, y, z):
        def kernel(a, b):
            apart = jnp.sum((a[:, None] - b[None]) ** 2, -1)
            return jnp.exp(-0.5 * apart)

        factor = jnp.linalg.cholesky(kernel(x, x) + 0.5 * jnp.eye(known))
        cross = kernel(x, z)
        weights = jax.scipy.linalg.cho_solve((factor, True), y)
        half = jax.scipy.linalg.solve_triangular(factor, cross, lower=True)
        mean, spread = cross.T @ weights, jnp.sqrt(1.01 - jnp.sum(half**2, 0))
        u = (mean - jnp.max(y)) / spread
        gain = spread * (u * jax.scipy.stats.norm.cdf(u) + jax.scipy.stats.norm.pdf(u))
        return mean, spread, gain

    return function, (draw.normal(known, size), draw.normal(known), draw.normal(asked, size))
