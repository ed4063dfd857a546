"""Tile IR as text, in the reference executor."""

from __future__ import annotations

from typing import Any

import numpy as np
from reference_run import run_reference
from tile_ir.parser import parse_kernel
from tile_ir.verify import verify

from nki.ir.nodes import TracedKernel

_RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return _RNG.standard_normal(shape).astype(np.float32)


def kernel_of(text: str) -> TracedKernel:
    kernel = parse_kernel(text)
    verify(kernel)
    return kernel


def run_text(text: str, *inputs: Any, **binding: int) -> list[np.ndarray[Any, Any]]:
    return run_reference(kernel_of(text), list(inputs), binding).outputs
