"""Programs whose instructions all run in the native loop: Python executes none of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operation_checks import load, normal, sbuf, store

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.native.library import library
from simulator.native.program import NativeProgram

pytestmark = pytest.mark.skipif(library() is None, reason="there is no LLVM")

Array = np.ndarray[Any, Any]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a kernel twice; the second time nothing may call Python. Gives its outputs, which are
    those of the reference mode."""
    executed: list[str] = []
    execute = NativeProgram._execute

    def noted(self: Any, number: int, preparation: Any, index: int) -> int:
        executed.append(preparation.stream.instructions[index].row.name)
        return execute(self, number, preparation, index)

    monkeypatch.setattr(NativeProgram, "_execute", noted)

    def run(kernel: Any, *arrays: Array, target: str = "trn2", cores: int = 1) -> list[Array]:
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
        launched = kernel if cores == 1 else kernel[cores]
        want = nki.simulate(launched, mode="reference")(*arrays)
        simulated = nki.simulate(launched)
        # The first call may have to learn where things are.
        simulated(*arrays)
        executed.clear()
        got = simulated(*arrays)
        assert executed == []
        got, want = ([*r] if isinstance(r, (list, tuple)) else [r] for r in (got, want))
        for one, other in zip(got, want):
            np.testing.assert_array_equal(one, other)
        return got

    return run


@nki.jit
def turned(a: Any, identity: Any) -> Any:
    """A tile that passes the array by a streamed matrix, into its own dtype."""
    tile, streamed = load(a), load(identity)
    passed = nl.ndarray((a.shape[1], a.shape[0]), dtype=a.dtype, buffer=nl.psum)
    nisa.nc_matmul(passed, tile, streamed, is_transpose=True)
    result = sbuf(passed.shape, a.dtype)
    nisa.tensor_copy(result, passed)
    return store(result)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(128, 128), (33, 20)])
def test_transpositions_by_an_identity(shape: tuple[int, int], dtype: str, alone: Any) -> None:
    a = normal(1, shape).astype(nl.bfloat16 if dtype == "bfloat16" else dtype)
    (got,) = alone(turned, a, np.eye(shape[0], dtype=a.dtype))
    np.testing.assert_array_equal(got, a.T)


def test_transpositions_by_a_permutation(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy executes them, behind an identity in the same program."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    a, order = normal(2, (33, 20)), np.random.default_rng(2).permutation(33)
    simulated = nki.simulate(turned)
    for picked in (np.arange(33), order, np.arange(33)):
        got = simulated(a, np.eye(33, dtype=np.float32)[:, picked])
        np.testing.assert_array_equal(got, a.T[:, picked])


@nki.jit
def some_columns(a: Any, index: Any) -> Any:
    result = sbuf((a.shape[0], 21), a.dtype)
    nisa.local_gather(result, load(a), load(index), num_valid_indices=21)
    return store(result)


def test_positions_that_fill_no_column(alone: Any) -> None:
    a, rng = normal(4, (32, 50)), np.random.default_rng(4)
    index = rng.integers(0, 50, (32, 2)).astype(np.uint16)
    (got,) = alone(some_columns, a, index)
    for group in (slice(0, 16), slice(16, 32)):
        np.testing.assert_array_equal(got[group], a[group][:, index[group].T.reshape(-1)[:21]])
