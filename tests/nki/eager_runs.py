"""Kernels of tests in eager mode."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from isa.target import TARGETS
from nki.eager.eager import run_eager

RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def run(function: Any, *arrays: Any, cores: int = 1, check: bool = True) -> Any:
    arguments = {f"x{i}": array for i, array in enumerate(arrays)}
    return run_eager(function, arguments, TARGETS["trn2"], cores, check)


def copy_in(x: Any) -> Any:
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile
