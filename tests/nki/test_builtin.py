"""`nki.builtin`, by which kernels call Python's own functions."""

from __future__ import annotations

import builtins

import numpy as np

import nki
import nki.builtin as builtin
import nki.language as nl


def test_names_are_those_of_python() -> None:
    names = [name for name in vars(builtin) if hasattr(builtins, name) and name[0] != "_"]
    assert {"range", "len", "min", "max", "zip"} <= set(names)
    assert all(getattr(builtin, name) is getattr(builtins, name) for name in names)


def test_a_kernel_that_calls_them() -> None:
    @nki.jit
    def kernel(a):
        tile = nl.load(a)
        for _ in builtin.range(builtin.min(3, builtin.len(a.shape))):
            tile = nl.add(tile, 1.0)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    assert kernel(np.zeros((1, 4), np.float32)).tolist() == [[2.0] * 4]
