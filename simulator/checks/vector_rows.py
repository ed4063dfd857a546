"""How initialisation marks pass through the vector engine's rows that are not element-wise."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.machine import scan
from simulator.checks.propagation import Mask, Use, both, propagates

Array = np.ndarray[Any, Any]


def rows_of(mask: Mask) -> Mask:
    """A mask over [P, *free] as one over [P, elements]."""
    return None if mask is None else mask.reshape(mask.shape[0], -1)


def carried(mask: Mask, start: Mask) -> Mask:
    """Marks along a scan: an element is as good as all before it and what it starts from."""
    if mask is not None:
        mask = np.logical_and.accumulate(mask, axis=1)
    return both(mask, start)


def _shaped(mask: Mask, shape: tuple[int, ...]) -> Mask:
    if mask is None:
        return None
    elements = int(np.prod(shape[1:]))
    return np.broadcast_to(mask, (shape[0], elements)).reshape(shape)


@propagates(scan.TensorTensorScan)
def _tensor_tensor_scan(use: Use) -> None:
    dst, initial = use.operand(0), use.operands[3]
    mask = both(rows_of(use.read(use.operand(1))), rows_of(use.read(use.operand(2))))
    start = None if initial is None else rows_of(use.read(initial))
    dst.write(_shaped(carried(mask, start), dst.view.shape))
