"""What tests of transformations share: tiles, stores, and the operations of a changed kernel."""

from __future__ import annotations

from collections import Counter

from tile_ir.verify import verify

import nki
import nki.isa as nisa
import nki.language as nl
from nki.ir.nodes import operations
from nki.transformations import TRANSFORMATIONS

ALL = tuple(TRANSFORMATIONS)


SPEC = nki.TensorSpec((64, 96), nl.float32)


def tile(shape=(64, 96), dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def stored(result):
    out = nl.ndarray(result.shape, dtype=result.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=result)
    return out


def rows_of(kernel, *names, specs=(SPEC,), target="trn2"):
    """How often each operation is in a kernel with transformations."""
    traced = kernel.with_transformations(*names).trace(*specs, target=target)
    verify(traced)
    return Counter(op.row.name for body in traced.bodies for op in operations(body))


@nki.jit
def five_loads(a):
    total = nl.zeros(a.shape, dtype=nl.float32)
    for _ in range(5):
        part = tile()
        nisa.dma_copy(dst=part, src=a)
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    return stored(total)
