"""The launch grid, and regions whose operations keep their order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from isa.errors import NeuronError
from nki.ir.context import current


def program_id(axis: int = 0) -> int:
    """This core's number along an axis of the launch grid (there is one axis).

    Raises value-not-allowed (axis).
    Source: SDK nki/api/nki/language/__init__.py (program_id)

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def numbered():  # each core writes its row
    ...     core = nl.program_id(0)
    ...     out = nl.ndarray((2, 2), dtype=nl.int32, buffer=nl.shared_hbm)
    ...     nl.store(out[nl.ds(core, 1), :], nl.full((1, 2), core, dtype=nl.int32))
    ...     return out
    >>> print(numbered[2]())
    [[0 0]
     [1 1]]
    """
    _check_axis(axis)
    return current("nl.program_id").core


def num_programs(axes: Any = 0) -> int:
    """How many cores run the kernel.

    Raises value-not-allowed (axes).
    Source: SDK nki/api/nki/language/__init__.py (num_programs)

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def kernel():
    ...     out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.full((1, 1), nl.num_programs(), dtype=nl.int32))
    ...     return out
    >>> print(kernel())
    [[1]]
    """
    for axis in axes if isinstance(axes, (tuple, list)) else (axes,):
        _check_axis(axis)
    return current("nl.num_programs").cores


def program_ndim() -> int:
    """Dimensions of the launch grid: 1, or 0 without one.

    Source: SDK nki/api/nki/language/__init__.py (program_ndim)

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def kernel():
    ...     print(nl.program_ndim())
    >>> kernel()
    0
    """
    return 1 if current("nl.program_ndim").cores > 1 else 0


def _check_axis(axis: Any) -> None:
    if axis not in (0, -1, None):
        raise NeuronError(
            "value-not-allowed",
            what=f"axis {axis} of the launch grid",
            why="A launch grid has one axis: kernel[cores](...).",
            hint="Use axis 0.",
        )


@contextmanager
def no_reorder() -> Iterator[None]:
    """Operations inside `with nl.no_reorder():` run in the order they are written.

    Loops that stay rolled are not allowed inside (SDK nki-dynamic-loops.rst, "Interaction with
    no_reorder"); put the block inside the loop body.

    Raises not-supported for a rolled loop inside.
    Source: SDK nki/api/nki/language/__init__.py (no_reorder)

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def ordered(a):
    ...     tile = nl.load(a)
    ...     with nl.no_reorder():
    ...         nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    ...         nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=10.0)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> print(ordered(np.array([[1, 2]], np.float32)))
    [[20. 30.]]
    """
    context = current("nl.no_reorder")
    context.enter_no_reorder()
    try:
        yield
    finally:
        context.exit_no_reorder()
