"""Linear algebra as models use it: factors, solves, whitening, Gaussian processes, filters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program


def _definite(draw: Draw, size: int, *batch: int):
    root = draw.normal(*batch, size, size)
    return (root @ root.swapaxes(-1, -2) / size + 2 * np.eye(size)).astype("float32")


@program(slack=20)
def whitening(draw: Draw):
    """Features without correlation, by the factor of their covariance."""
    rows, size = draw.size(2, 60), draw.size(1, 24)

    def function(x):
        centred = x - jnp.mean(x, 0)
        covariance = centred.T @ centred / rows + jnp.eye(size)
        factor = jnp.linalg.cholesky(covariance)
        return jax.scipy.linalg.solve_triangular(factor, centred.T, lower=True).T

    return function, (draw.normal(rows, size),)


def _posterior(x, y, new, width):
    def kernel(a, b):
        return jnp.exp(-((a[:, None] - b[None]) ** 2) / (2 * width**2))

    factor = jax.scipy.linalg.cho_factor(kernel(x, x) + 0.5 * jnp.eye(len(x)), lower=True)
    weights = jax.scipy.linalg.cho_solve(factor, y)
    across = kernel(x, new)
    spread = jax.scipy.linalg.solve_triangular(factor[0], across, lower=True)
    likelihood = -0.5 * y @ weights - jnp.sum(jnp.log(jnp.diagonal(factor[0])))
    return across.T @ weights, 1 - jnp.sum(spread**2, 0), likelihood


@program(slack=50)
def gaussian_process(draw: Draw):
    count, new = draw.size(1, 40), draw.size(1, 20)
    return _posterior, (
        draw.normal(count),
        draw.normal(count),
        draw.normal(new),
        np.float32(0.7),
    )


@program(slack=100)
def gaussian_process_gradient(draw: Draw):
    count = draw.size(1, 20)
    gradient = jax.grad(lambda x, y, width: _posterior(x, y, x[:1], width)[2], argnums=(1, 2))
    return gradient, (draw.normal(count), draw.normal(count), np.float32(0.7))


@program(slack=50)
def ridge_regression(draw: Draw):
    rows, size, outputs = draw.size(1, 60), draw.size(1, 20), draw.size(1, 4)

    def function(x, y):
        normal = x.T @ x + 2 * jnp.eye(size)
        weights = jax.scipy.linalg.solve(normal, x.T @ y, assume_a="pos")
        return weights, jnp.linalg.solve(normal, x.T @ y), x @ weights

    return function, (draw.normal(rows, size), draw.normal(rows, outputs))


@program(slack=50)
def batched_solves(draw: Draw):
    batch, size, columns = draw.size(1, 5), draw.size(1, 12), draw.size(1, 3)

    def function(a, b):
        return jnp.linalg.solve(a, b), jnp.linalg.inv(a), jnp.linalg.slogdet(a)[1]

    return function, (_definite(draw, size, batch), draw.normal(batch, size, columns))


@program(slack=50)
def determinant_gradient(draw: Draw):
    """A linear normalising flow's likelihood."""
    rows, size = draw.size(1, 30), draw.size(1, 10)

    def function(w, x):
        z = x @ w
        return jnp.mean(0.5 * jnp.sum(z * z, 1)) - jnp.linalg.slogdet(w)[1]

    return jax.value_and_grad(function), (_definite(draw, size), draw.normal(rows, size))


@program(slack=50)
def kalman_filter(draw: Draw):
    """A scan whose carry is a mean and a covariance."""
    steps, state, seen = draw.size(1, 8), draw.size(1, 6), draw.size(1, 3)

    def function(a, h, observed):
        def step(carry, z):
            mean, spread = carry
            mean, spread = a @ mean, a @ spread @ a.T + jnp.eye(state)
            within = h @ spread @ h.T + jnp.eye(seen)
            gain = jnp.linalg.solve(within, h @ spread).T
            mean = mean + gain @ (z - h @ mean)
            return (mean, spread - gain @ h @ spread), mean

        return jax.lax.scan(step, (jnp.zeros(state), jnp.eye(state)), observed)

    return function, (
        draw.normal(state, state, scale=0.3),
        draw.normal(seen, state),
        draw.normal(steps, seen),
    )


@program(slack=50)
def gram_schmidt(draw: Draw):
    """Orthogonal columns one after another, written into an array that a loop carries."""
    size = draw.size(1, 12)
    rows = size + draw.size(0, 20)

    def function(a):
        def step(k, q):
            column = jax.lax.dynamic_slice(a, (0, k), (rows, 1))
            column = column - q @ (q.T @ column)
            column = column / jnp.linalg.norm(column)
            return jax.lax.dynamic_update_slice(q, column, (0, k))

        q = jax.lax.fori_loop(0, size, step, jnp.zeros_like(a))
        return q, q.T @ a

    return function, ((draw.normal(rows, size) * 0.3 + np.eye(rows, size) * 3).astype("float32"),)


@program(slack=50)
def inverse_roots(draw: Draw):
    """Shampoo's preconditioners: roots by coupled Newton steps, of which only products are made."""
    rows, columns = draw.size(1, 16), draw.size(1, 16)

    def root(matrix):
        scale = 1 / jnp.linalg.norm(matrix)
        y, z = matrix * scale, jnp.eye(len(matrix))
        for _ in range(6):
            t = 0.5 * (3 * jnp.eye(len(matrix)) - z @ y)
            y, z = y @ t, t @ z
        return z * jnp.sqrt(scale)

    def function(g):
        left, right = g @ g.T + 4 * jnp.eye(rows), g.T @ g + 4 * jnp.eye(columns)
        return root(left) @ g @ root(right)

    return function, (draw.normal(rows, columns),)


@program(slack=50)
def rank_one_updates(draw: Draw):
    """Sherman and Morrison: an inverse that follows its matrix."""
    size, updates = draw.size(1, 20), draw.size(1, 6)

    def function(vectors):
        def step(inverse, v):
            w = inverse @ v
            return inverse - jnp.outer(w, w) / (1 + v @ w), jnp.trace(inverse)

        return jax.lax.scan(step, jnp.eye(size), vectors)

    return function, (draw.normal(updates, size),)


@program(slack=20)
def tridiagonal_solve(draw: Draw):
    """An implicit step of diffusion, and a cubic spline's second derivatives."""
    size = draw.size(3, 60)

    def function(u):
        off = jnp.full(size, -0.4)
        return jax.lax.linalg.tridiagonal_solve(
            off.at[0].set(0), jnp.full(size, 1.8), off.at[-1].set(0), u
        )

    return function, (draw.normal(size, draw.size(1, 4)),)
