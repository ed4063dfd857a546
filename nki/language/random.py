"""Random numbers: random_seed, rand, dropout.

The vector engine's generators draw them (`nisa.rng`, `nisa.rand2`); their state lasts until the
program ends and starts at fixed values, so that a kernel gives the same numbers every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isa.dtypes import DTypeLike, normalise
from isa.enums import Memory
from isa.operations.random import Dropout, Rand2, Rng, SetRngSeed
from nki.ir.context import caller
from nki.ir.views.tensor import NkiTensor
from nki.language.allocation import fill_in_parts
from nki.language.lowering.emitter import Emitter, dtype_of

_BITS = 24
"""Random bits of a number: as many as fp32 holds exactly."""


def random_seed(seed: NkiTensor) -> None:
    """Let `nl.rand` and `nl.dropout` begin again; the same seed gives the same numbers.

    `seed` is a [1, 1] tile with a 32-bit value. Raises not-a-tensor, wrong-memory, shape-mismatch,
    dtype-not-allowed.
    Source: SDK nki/api/nki/language/__init__.py (random_seed)

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def kernel():
    ...     seed = nl.full((1, 1), 42, dtype=nl.int32)
    ...     nl.random_seed(seed)
    ...     a = nl.rand((2, 4), dtype=nl.float32)
    ...     nl.random_seed(seed)
    ...     out = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.equal(a, nl.rand((2, 4), dtype=nl.float32)))
    ...     return out
    >>> print(kernel())
    [[1. 1. 1. 1.]
     [1. 1. 1. 1.]]
    """
    e = Emitter("random_seed", caller())
    e(SetRngSeed, src_seeds=e.tile("seed", seed))


def rand(
    shape: Sequence[Any], dtype: DTypeLike, buffer: Memory = Memory.sbuf, name: str = ""
) -> NkiTensor:
    """A new tensor of random numbers, uniform between 0 and 1.

    They are multiples of 2**-24 below 1 before they are rounded to `dtype`: on trn3 by
    `nisa.rand2`, on earlier targets from the upper bits of `nisa.rng`.
    Raises value-not-allowed (shape, buffer), dtype-not-allowed, partition-limit.
    Source: SDK nki/api/nki/language/__init__.py (rand)

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def kernel():
    ...     out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.rand((128, 64), dtype=nl.float32))
    ...     return out
    >>> numbers = kernel()
    >>> bool(0 <= numbers.min() < 0.01), bool(0.99 < numbers.max() < 1)
    (True, True)
    """
    e = Emitter("rand", caller())
    return fill_in_parts(e.context, shape, normalise(dtype), buffer, name, e.location, _draw(e))


def _draw(e: Emitter) -> Any:
    if e.context.target.generation in Rand2.generations:
        return lambda tile: e(Rand2, dst=tile, min=0.0, max=1.0)

    def from_bits(tile: NkiTensor) -> None:
        bits = e.part(tile.shape, "uint32")
        e(Rng, dst=bits)
        e.scalar(bits, bits, "right_shift", 32 - _BITS)
        e.scalar(tile, bits, "multiply", 2.0**-_BITS)

    return from_bits


def dropout(x: NkiTensor, rate: Any, dtype: DTypeLike | None = None) -> NkiTensor:
    """x with each element replaced by 0 with probability `rate`; what is kept is not scaled.

    `rate`: a number from 0 to 1, or a [P, 1] tile with one a partition. `dtype` of the result, a
    new tile in SBUF: that of x by default. Raises not-a-tensor, wrong-memory, shape-mismatch,
    value-not-allowed.
    Source: SDK nki/api/nki/language/__init__.py (dropout)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.dropout(nl.load(a), 0.25))
    ...     return out
    >>> kept = kernel(np.ones((128, 100), np.float32))
    >>> print(np.unique(kept), bool(abs(kept.mean() - 0.75) < 0.02))
    [0. 1.] True
    """
    e = Emitter("dropout", caller())
    tile = e.tile("x", x)
    wanted = dtype_of(dtype, tile.dtype)
    result = e.working(tile.shape, wanted, tile.dtype)
    e(Dropout, dst=result, data=tile, prob=rate)
    return e.finish(result, wanted)
