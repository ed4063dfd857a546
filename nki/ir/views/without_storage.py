"""Views without storage: those out of bounds, and those that describe what a function takes.

A view out of bounds may exist, and is an error when an operation uses it. Kernels form the view of
the next tile before they test whether there is a next tile (nki-library
core/output_projection/output_projection_tkg.py, `if h_2_idx < cfg.h_2_size`). Others form the slice
of a core whose share is empty (experimental/loss/cross_entropy.py, `positions_per_core`).
"""

from __future__ import annotations

from typing import Any

from isa.enums import Memory
from isa.errors import NeuronError
from nki.ir.nodes import Access, Tensor
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


class Signature(NkiTensor):
    """What `nl.NkiTensor(shape, dtype, None)` makes: attributes, but nothing to read or write."""

    __slots__ = ()

    @property
    def _description(self) -> Tensor:
        slot = Access.__dict__["storage"]
        description: Tensor = slot.__get__(self)
        return description

    @property
    def storage(self) -> Tensor:  # type: ignore[override]
        raise NeuronError(
            "not-a-tensor",
            what=f"{self.name!r} was made without storage",
            why="nl.NkiTensor(..., storage=None) only describes a tensor.",
            hint="Make the tensor with nl.ndarray.",
        )

    @property
    def name(self) -> str:
        return self._description.name

    @property
    def buffer(self) -> Memory:
        return self._description.memory

    @property
    def on_chip(self) -> bool:
        return self._description.memory.on_chip
