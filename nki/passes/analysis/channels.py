"""Semaphores of one core, and the facts that hold for all levels of its loops."""

from __future__ import annotations

from typing import Any

from isa.enums import Memory
from isa.errors import NeuronError
from nki.ir.nodes import Access, Register, Tensor
from nki.passes.analysis.footprint import Box, box_of
from nki.passes.analysis.steps import ENGINES


class Channels:
    """Semaphore numbers of one core, handed out as channels come into use."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._numbers: dict[tuple[int, int, int], int] = {}

    def semaphore(self, depth: int, producer: int, consumer: int) -> int:
        key = (depth, producer, consumer)
        if key not in self._numbers:
            if len(self._numbers) == self.limit:
                raise NeuronError(
                    "semaphore-overflow",
                    f"the kernel needs more than the {self.limit} semaphores of a core",
                )
            self._numbers[key] = len(self._numbers)
        return self._numbers[key]


class CoreFacts:
    """Facts that hold for all of one core's body.

    `owner` maps queues, as streams, to the engines that feed them; `tracked` are the tensors that
    something writes, `shared` those among them that other cores see. `placement` is None as long
    as tensors have no places.
    """

    def __init__(
        self,
        queue_owners: list[int],
        tracked: set[Tensor],
        placement: dict[Tensor, tuple[int, int]] | None,
        channels: Channels,
    ) -> None:
        self.placement = placement
        self.streams = ENGINES + len(queue_owners)
        self.owner = {ENGINES + i: owner for i, owner in enumerate(queue_owners)}
        self.tracked = tracked
        self.channels = channels
        self.shared = [t for t in tracked if t.memory is Memory.shared_hbm]
        self._interned: dict[Any, Box] = {}
        self._views: dict[Any, Box] = {}

    def issuer(self, stream: int) -> int:
        """The engine whose stream it is, or that feeds the queue."""
        return self.owner.get(stream, stream)

    def box(self, access: Access, variables: frozenset[Register]) -> Box:
        """The box of an access; equal ones that stay in place are one object, whatever tensors they
        are of. `variables` are those of the loops around."""
        tensor = access.storage
        view: Any = None
        if type(access.offset) is int and access.vector_offset is None and tensor.pitch:
            view = access.geometry
            known = self._views.get(view)
            if known is not None:
                return known
        box = box_of(access, variables)
        if box.static:
            shape = None if box.dense else (access.shape, access.strides, access.dtype)
            box = self._interned.setdefault((tensor.memory, box.spans, box.hull, shape), box)
            if view is not None:
                self._views[view] = box
        return box
