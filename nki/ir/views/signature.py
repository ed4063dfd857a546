"""Tensors without storage: attributes that describe what a function takes."""

from __future__ import annotations

from isa.enums import Memory
from isa.errors import NeuronError
from nki.ir.nodes import Access, Tensor
from nki.ir.views.tensor import NkiTensor


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
