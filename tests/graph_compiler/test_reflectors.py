"""QR factors as graphs: against NumPy, whose LAPACK chooses the same signs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")

from graph_compiler import compile, evaluate, execute  # noqa: E402
from graph_compiler.frontends.jax import trace  # noqa: E402

jnp = jax.numpy


def matrix(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (12, 5), (5, 12), (3, 8, 6), (40, 30)])
def test_factors_agree_with_numpy(shape: tuple[int, ...]) -> None:
    a = matrix(*shape)
    wanted = np.linalg.qr(a.astype(np.float64))
    module = trace(jnp.linalg.qr, a)
    for found in (execute(module, a), compile(module, "trn2")(a)):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=3e-6 * np.abs(other).max())


def test_all_columns_of_the_orthogonal_factor() -> None:
    a = matrix(8, 5)
    q, r = execute(trace(lambda a: jnp.linalg.qr(a, mode="complete"), a), a)
    np.testing.assert_allclose(q.T @ q, np.eye(8), atol=1e-6)
    np.testing.assert_allclose(q @ r, a, atol=1e-6)


def test_columns_of_zeros_and_large_numbers() -> None:
    """Squares of the numbers are more than a float can be."""
    a = matrix(6, 4) * np.float32(1e25)
    a[:, 1], a[2:, 0] = 0, 0
    wanted = np.linalg.qr(a.astype(np.float64))
    for one, other in zip(execute(trace(jnp.linalg.qr, a), a), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * np.abs(other).max())


def test_complex_factors_on_the_host() -> None:
    a = matrix(6, 4) + 1j * matrix(6, 4)[::-1]
    wanted = np.linalg.qr(a)
    for one, other in zip(evaluate(trace(jnp.linalg.qr, a), a), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * np.abs(other).max())


def test_gradients_pass_through_factors() -> None:
    a = matrix(8, 5)

    def loss(a: Any) -> Any:
        q, r = jnp.linalg.qr(a)
        return jnp.sum(q**3) + jnp.sum(jnp.sin(r))

    wanted = np.asarray(jax.jit(jax.grad(loss))(a))
    (found,) = compile(trace(jax.grad(loss), a), "trn2")(a)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_reflections_are_applied_without_their_product() -> None:
    a, c = matrix(6, 4), matrix(6, 3)

    def function(a: Any, c: Any) -> Any:
        from jax._src.lax import linalg

        return linalg.ormqr(*linalg.geqrf(a), c, left=True, transpose=True)

    q = np.linalg.qr(a.astype(np.float64), mode="complete")[0]
    (found,) = compile(trace(function, a, c), "trn2")(a, c)
    np.testing.assert_allclose(found, q.T @ c, rtol=0, atol=1e-5)
