"""Eigenvalues of symmetric matrices as graphs, against NumPy's LAPACK in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")

from graph_compiler import compile, evaluate, execute  # noqa: E402
from graph_compiler.frontends.jax import trace  # noqa: E402

jnp = jax.numpy
Array = np.ndarray[Any, Any]


def symmetric(*shape: int, dtype: Any = np.float32) -> Array:
    random = np.random.default_rng(shape)
    a = random.standard_normal(shape)
    if dtype == np.complex64:
        a = a + 1j * random.standard_normal(shape)
    return ((a + a.swapaxes(-1, -2).conj()) / 2).astype(dtype)


def assert_eigenvectors(found: Sequence[Any], a: Array) -> None:
    values, vectors = (np.asarray(one) for one in found)
    wide = a.astype(np.complex128)
    wanted = np.linalg.eigvalsh(wide)
    limit = 4e-6 * max(np.abs(wanted).max(), 1e-30)
    np.testing.assert_allclose(values, wanted, rtol=0, atol=limit)
    np.testing.assert_allclose(wide @ vectors, vectors * values[..., None, :], rtol=0, atol=limit)
    inner = vectors.conj().swapaxes(-1, -2) @ vectors
    np.testing.assert_allclose(inner, np.broadcast_to(np.eye(a.shape[-1]), inner.shape), atol=4e-6)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (3, 4, 4), (20, 20)])
def test_host_and_device_find_values_and_vectors(shape: tuple[int, ...]) -> None:
    a = symmetric(*shape)
    module = trace(lambda a: tuple(jnp.linalg.eigh(a)), a)
    assert_eigenvectors(execute(module, a), a)
    assert_eigenvectors(compile(module, "trn2")(a), a)


@pytest.mark.parametrize("name", ["zero", "diagonal", "equal", "large"])
def test_special_matrices(name: str) -> None:
    a = {
        "zero": np.zeros((5, 5), np.float32),
        "diagonal": np.diag(np.array([3, -1, 2, 2, 0], np.float32)),
        "equal": np.ones((6, 6), np.float32),
        "large": symmetric(6, 6) * np.float32(1e30),
    }[name]
    assert_eigenvectors(execute(trace(lambda a: tuple(jnp.linalg.eigh(a)), a), a), a)


@pytest.mark.parametrize("lower", [True, False])
def test_one_triangle_states_a_complex_matrix(lower: bool) -> None:
    a = symmetric(5, 5, dtype=np.complex64)
    other = np.triu(np.ones((5, 5), bool), 1)
    given = np.where(other if lower else other.T, np.complex64(7j), a)

    def function(a: Any) -> Any:
        uplo = "L" if lower else "U"
        return tuple(jnp.linalg.eigh(a, UPLO=uplo, symmetrize_input=False))

    assert_eigenvectors(evaluate(trace(function, given), given), a)


def test_gradients_pass_through_eigenvalues() -> None:
    a = symmetric(6, 6)

    def loss(a: Any) -> Any:
        values, vectors = jnp.linalg.eigh(a)
        return jnp.sum(jnp.sin(values)) + jnp.sum(vectors[0] ** 2 * values)

    wanted = np.asarray(jax.jit(jax.grad(loss))(a))
    (found,) = compile(trace(jax.grad(loss), a), "trn2")(a)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())
