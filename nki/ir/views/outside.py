"""Out-of-bounds views: they may exist, and are an error when an operation uses one.

Kernels form the view of the next tile before they test whether there is a next tile (nki-library
core/output_projection/output_projection_tkg.py, `if h_2_idx < cfg.h_2_size`). Others form the slice
of a core whose share is empty (experimental/loss/cross_entropy.py, `positions_per_core`).
"""

from __future__ import annotations

from typing import Any

from isa.errors import NeuronError
from nki.ir.nodes import Tensor
from nki.ir.views.tensor import NkiTensor


class OutsideView(NkiTensor):
    """A view with shape, strides and dtype, but nothing to read or write: asking for its storage
    raises `problem`."""

    __slots__ = ("problem",)

    problem: NeuronError

    def __init__(
        self,
        problem: NeuronError,
        dtype: str,
        shape: tuple[Any, ...],
        strides: tuple[Any, ...],
        offset: Any,
    ) -> None:
        given = ("problem", problem), ("dtype", dtype), ("shape", shape), ("strides", strides)
        for name, value in (*given, ("offset", offset), ("vector_offset", None)):
            object.__setattr__(self, name, value)

    @property
    def storage(self) -> Tensor:  # type: ignore[override]
        raise self.problem.with_traceback(None)
