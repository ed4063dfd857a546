"""The table of mistakes that authors of kernels make, and tiles for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl


@dataclass(frozen=True)
class Mistake:
    """`target`, `cores`: of the launch. `modes`: those in which it is one."""

    kernel: Callable[..., Any]
    code: str
    way_out: str
    target: str = "trn2"
    modes: tuple[str, ...] = ("device", "reference", "eager")


MISTAKES: dict[str, Mistake] = {}


def mistake(code: str, way_out: str, **launch: Any) -> Callable[[Callable[..., Any]], Any]:
    """Put a kernel into the table."""

    def add(kernel: Callable[..., Any]) -> Callable[..., Any]:
        assert kernel.__name__ not in MISTAKES
        MISTAKES[kernel.__name__] = Mistake(kernel, code, way_out, **launch)
        return kernel

    return add


def sbuf(shape, dtype=nl.float32):
    tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0)
    return tile


def psum(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def result(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


A = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
INPUTS = (A, np.ones((64, 128), np.float32), np.arange(128, dtype=np.int32)[:, None])
