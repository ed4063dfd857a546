"""Jacobi's rotations, as a jax function that makes operations of graphs: eigenvalues and vectors of
symmetric matrices.

A rotation of two rows and columns makes the element zero that they share. Half of the rows meet
one of the other half each, all at once; then all but the first move on by one place, so that after
n - 1 turns every two have met and all stand where they stood (Brent and Luk, "The solution of
singular-value and symmetric eigenvalue problems on multiprocessor arrays", 1985).
"""

from __future__ import annotations

from typing import Any

from graph_compiler.frontends.extras import require

_SWEEPS = 15
"""Sweeps at most; few matrices need ten."""


def eigenvectors(
    a: Any, *, lower: bool = True, subset_by_index: tuple[int, int] | None = None, **_: Any
) -> list[Any]:
    """[vectors as columns, values in ascending order] of the matrices that a triangle states."""
    jnp = require("jax.numpy", "jax", "eigenvalues")
    lax = require("jax.lax", "jax", "eigenvalues")
    half = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    diagonal = jnp.real(jnp.diagonal(a, axis1=-2, axis2=-1))
    eye = jnp.eye(a.shape[-1], dtype=a.dtype)
    a = half + _transposed(half) + diagonal[..., None] * eye
    count = a.shape[-1]
    if count > 1:
        odd = count % 2
        around = [(0, 0)] * (a.ndim - 2) + [(0, odd)] * 2
        a = jnp.pad(a, around)
        state = a, jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape), 0
        a, vectors, _ = lax.while_loop(_unfinished, _sweep, state)
        a, vectors = a[..., :count, :count], vectors[..., :count, :count]
    else:
        vectors = jnp.ones_like(a)
    values = jnp.real(jnp.diagonal(a, axis1=-2, axis2=-1))
    order = jnp.argsort(values, axis=-1)
    vectors = jnp.take_along_axis(_transposed(vectors), order[..., None, :], -1)
    values = jnp.take_along_axis(values, order, -1)
    chosen = slice(*subset_by_index) if subset_by_index else slice(None)
    return [vectors[..., chosen], values[..., chosen]]


def _transposed(a: Any) -> Any:
    jnp = require("jax.numpy", "jax", "eigenvalues")
    return jnp.conj(jnp.swapaxes(a, -1, -2))


def _unfinished(state: Any) -> Any:
    """Whether any matrix has more beside its diagonal than rounding leaves."""
    jnp = require("jax.numpy", "jax", "eigenvalues")
    a, _, done = state
    a = jnp.abs(a)
    a = a / jnp.maximum(jnp.max(a, (-2, -1), keepdims=True), jnp.finfo(a.dtype).tiny)
    beside = jnp.where(jnp.eye(a.shape[-1], dtype=bool), 0, a)
    least = a.shape[-1] / 4 * jnp.finfo(a.dtype).eps ** 2 * jnp.sum(a**2, (-2, -1))
    return jnp.any(jnp.sum(beside**2, (-2, -1)) > least) & (done < _SWEEPS)


def _sweep(state: Any) -> Any:
    """Every row meets every other one."""
    lax = require("jax.lax", "jax", "eigenvalues")
    a, vectors, done = state
    a, vectors = lax.fori_loop(0, a.shape[-1] - 1, lambda _, pair: _turn(*pair), (a, vectors))
    return a, vectors, done + 1


def _turn(a: Any, vectors: Any) -> tuple[Any, Any]:
    """Rows of the first half meet those of the second; then they move on. The rows of `vectors`
    are the conjugate eigenvectors."""
    jnp = require("jax.numpy", "jax", "eigenvalues")
    half = a.shape[-1] // 2

    def along(part: Any) -> Any:
        return jnp.diagonal(part, axis1=-2, axis2=-1)

    first, second = (jnp.real(along(a[..., part, part])) for part in _halves(half))
    shared = along(a[..., :half, half:])
    size = jnp.abs(shared)
    still = size == 0
    phase = jnp.where(still, 1, shared / jnp.where(still, 1, size).astype(a.dtype))
    slope = (second - first) / (2 * jnp.where(still, 1, size))
    sign = jnp.where(slope < 0, -1, 1).astype(slope.dtype)
    tangent = jnp.where(still, 0, sign / (jnp.abs(slope) + jnp.hypot(slope, 1.0)))
    cosine = 1 / jnp.hypot(tangent, 1.0)
    sine = tangent * cosine
    less = (sine / (1 + cosine)).astype(a.dtype)[..., None]  # the tangent of half the angle
    sine, phase = sine.astype(a.dtype)[..., None], phase[..., None]

    def rotated(rows: Any) -> Any:
        one, other = (rows[..., part, :] for part in _halves(half))
        return _moved_on(
            one - sine * (phase * other + less * one),
            other + sine * (jnp.conj(phase) * one - less * other),
        )

    return _transposed(rotated(_transposed(rotated(a)))), rotated(vectors)


def _halves(half: int) -> tuple[slice, slice]:
    return slice(0, half), slice(half, 2 * half)


def _moved_on(one: Any, other: Any) -> Any:
    """The rows of both halves, each but the first a place further."""
    jnp = require("jax.numpy", "jax", "eigenvalues")
    if one.shape[-2] == 1:
        return jnp.concatenate([one, other], -2)
    parts = one[..., :1, :], other[..., :1, :], one[..., 1:-1, :], other[..., 1:, :]
    return jnp.concatenate([*parts, one[..., -1:, :]], -2)
