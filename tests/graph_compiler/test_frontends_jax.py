"""Functions of jax lowered for graphs: linear algebra, which jax would leave to LAPACK on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")

from graph_compiler import compile, execute  # noqa: E402
from graph_compiler.frontends.jax import trace  # noqa: E402

jnp = jax.numpy
SIZE = 9


def matrices() -> tuple[np.ndarray, np.ndarray]:
    """A positive definite matrix, and right sides."""
    random = np.random.default_rng(3)
    root = random.standard_normal((SIZE, SIZE))
    a = root @ root.T / SIZE + np.eye(SIZE)
    return a.astype(np.float32), random.standard_normal((SIZE, 2)).astype(np.float32)


def triangular(a: Any, b: Any) -> Any:
    return jax.scipy.linalg.solve_triangular(a, b, lower=True, trans=1)


def tridiagonal(a: Any, b: Any) -> Any:
    lower = jnp.concatenate([jnp.zeros(1), jnp.diagonal(a, -1)])
    upper = jnp.concatenate([jnp.diagonal(a, 1), jnp.zeros(1)])
    return jax.lax.linalg.tridiagonal_solve(lower, jnp.diagonal(a) + 4, upper, b)


def band(a: np.ndarray) -> np.ndarray:
    return np.triu(np.tril(a, 1), -1) + 4 * np.eye(SIZE)


def least_squares(a: Any, b: Any) -> tuple[Any, Any]:
    q, r = jnp.linalg.qr(a[:, :4])
    return r, q.T @ b


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "cholesky": (lambda a, b: jnp.linalg.cholesky(a), lambda a, b: np.linalg.cholesky(a)),
    "whitening": (
        lambda a, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), b),
        np.linalg.solve,
    ),
    "triangular": (triangular, lambda a, b: np.linalg.solve(np.tril(a).T, b)),
    "tridiagonal": (tridiagonal, lambda a, b: np.linalg.solve(band(a), b)),
    "solve": (jnp.linalg.solve, np.linalg.solve),
    "orthogonal": (lambda a, b: jnp.linalg.qr(a)[0], lambda a, b: np.linalg.qr(a)[0]),
    "least squares": (
        lambda a, b: jax.scipy.linalg.solve_triangular(*least_squares(a, b)),
        lambda a, b: np.linalg.lstsq(a[:, :4], b, rcond=None)[0],
    ),
    "inverse": (lambda a, b: jnp.linalg.inv(a), lambda a, b: np.linalg.inv(a)),
    "determinant": (lambda a, b: jnp.linalg.det(a), lambda a, b: np.linalg.det(a)),
    "gradient": (
        jax.grad(lambda a, b: jnp.linalg.slogdet(a)[1]),
        lambda a, b: np.linalg.inv(a).T,
    ),
    "batches": (
        lambda a, b: jax.vmap(jnp.linalg.solve, in_axes=(None, 0))(a, jnp.stack([b, 2 * b])),
        lambda a, b: np.stack([np.linalg.solve(a, b), np.linalg.solve(a, 2 * b)]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_linear_algebra_agrees_with_numpy_on_host_and_device(name: str) -> None:
    function, numpys = CASES[name]
    a, b = matrices()
    module = trace(function, a, b)
    wanted = numpys(a.astype(np.float64), b.astype(np.float64))
    for found in (execute(module, a, b)[0], compile(module, "trn2")(a, b)[0]):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


def test_other_factors_are_still_refused() -> None:
    a, _ = matrices()
    module = trace(lambda a: jnp.linalg.svd(a), a)
    with pytest.raises(Exception, match="lapack"):
        execute(module, a)
