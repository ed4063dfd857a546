"""Householder reflections, as jax functions that make operations of graphs: what `qr` consists of.

A reflection is I - tau v v^H. As in LAPACK, a factor keeps R above its diagonal and the vectors v,
which begin with 1, below; jax has no rule for these operations but calls of libraries.
"""

from __future__ import annotations

from typing import Any

from graph_compiler.frontends.extras import require


def factored(a: Any) -> list[Any]:
    """[the factor of matrices, taus]: what LAPACK calls geqrf."""
    jnp = require("jax.numpy", "jax", "factors of a matrix")
    lax = require("jax.lax", "jax", "factors of a matrix")
    *batch, height, width = a.shape
    rows, columns, count = jnp.arange(height), jnp.arange(width), min(height, width)

    def step(number: Any, state: Any) -> Any:
        a, taus = state
        column = lax.dynamic_index_in_dim(a, number, -1, keepdims=False)
        alpha = lax.dynamic_index_in_dim(column, number, -1)
        tail = jnp.where(rows > number, column, 0)
        done = jnp.all(tail == 0, -1, keepdims=True) & (jnp.imag(alpha) == 0)
        length = _length(jnp.where(rows >= number, column, 0))
        beta = jnp.where(jnp.real(alpha) >= 0, -length, length).astype(a.dtype)
        tau = jnp.where(done, 0, (beta - alpha) / jnp.where(done, 1, beta))
        v = jnp.where(rows == number, 1, tail / jnp.where(done, 1, alpha - beta))
        a = jnp.where(columns > number, _reflected(a, v, jnp.conj(tau)), a)
        kept = jnp.where(rows == number, jnp.where(done, alpha, beta), column)
        kept = jnp.where(rows > number, v, kept)
        a = jnp.where(columns == number, kept[..., None], a)
        return a, jnp.where(jnp.arange(count) == number, tau, taus)

    return list(lax.fori_loop(0, count, step, (a, jnp.zeros((*batch, count), a.dtype))))


def product(a: Any, taus: Any) -> Any:
    """The first columns of the product of a factor's reflections: what LAPACK calls orgqr."""
    jnp = require("jax.numpy", "jax", "factors of a matrix")
    lax = require("jax.lax", "jax", "factors of a matrix")
    rows, count = jnp.arange(a.shape[-2]), taus.shape[-1]

    def step(done: Any, q: Any) -> Any:
        number = count - 1 - done
        column = lax.dynamic_index_in_dim(a, number, -1, keepdims=False)
        v = jnp.where(rows > number, column, (rows == number).astype(a.dtype))
        return _reflected(q, v, lax.dynamic_index_in_dim(taus, number, -1))

    q = jnp.broadcast_to(jnp.eye(*a.shape[-2:], dtype=a.dtype), a.shape)
    return lax.fori_loop(0, count, step, q)


def _length(x: Any) -> Any:
    """Of vectors; no square of an element overflows."""
    jnp = require("jax.numpy", "jax", "factors of a matrix")
    largest = jnp.max(jnp.abs(x), -1, keepdims=True)
    scale = jnp.where(largest > 0, largest, 1)
    return scale * jnp.sqrt(jnp.sum(jnp.abs(x / scale) ** 2, -1, keepdims=True))


def _reflected(a: Any, v: Any, tau: Any) -> Any:
    jnp = require("jax.numpy", "jax", "factors of a matrix")
    along = jnp.einsum("...i,...ij->...j", jnp.conj(v), a, precision="highest")
    return a - (tau * v)[..., None] * along[..., None, :]
