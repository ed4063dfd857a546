"""Semaphores of one core, and the facts that hold for all levels of its loops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from isa.enums import Memory
from isa.errors import NeuronError
from nki.ir.nodes import Access, Register, Tensor
from nki.passes.footprint import Box, box_of
from nki.passes.steps import ENGINES, Region, Step


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
                    f"the kernel needs more than the {self.limit} semaphores of a core: it has "
                    f"{depth + 1} levels of loops that use all engines",
                )
            self._numbers[key] = len(self._numbers)
        return self._numbers[key]


class Context:
    """Facts that hold for all levels of one core's body."""

    def __init__(
        self,
        queue_owners: list[int],
        tracked: set[Tensor],
        placement: dict[Tensor, tuple[int, int]],
        channels: Channels,
    ) -> None:
        self.placement = placement
        self.streams = ENGINES + len(queue_owners)
        self.owner = {ENGINES + i: owner for i, owner in enumerate(queue_owners)}
        self.tracked = tracked
        self.channels = channels
        self.shared = [t for t in tracked if t.memory is Memory.shared_hbm]
        self.interned: dict[Any, Box] = {}
        self.views: dict[Any, Box] = {}
        self._known: dict[int, tuple[Access, Box]] = {}
        self.transferred: dict[int, tuple[Region, int]] = {}

    def settle(self, semaphores: Iterable[int]) -> None:
        """Have the last loop whose transfers give tokens of each semaphore drain its queue.

        A prime is given by the engine, at once; tokens of transfers that it has issued before may
        still be on their way, and the consumer could take the prime for one of them.
        """
        for semaphore in semaphores:
            if semaphore in self.transferred:
                region, queue = self.transferred[semaphore]
                drains = region.drains.setdefault(self.owner[queue], [])
                if queue not in drains:
                    drains.append(queue)

    def boxes_of(self, step: Step, variables: frozenset[Register]) -> list[Box | None]:
        """The boxes of a step's accesses, found once; None for tensors that nothing writes.
        `variables` are those of the loops around."""
        boxes = step.boxes
        if boxes is None:
            tracked = self.tracked
            boxes = step.boxes = [
                self.box(access, variables) if access.storage in tracked else None
                for access in step.accesses
            ]
        return boxes

    def box(self, access: Access, variables: frozenset[Register]) -> Box:
        """The box of an access; equal ones are one object, whatever tensors they are of."""
        found = self._known.get(id(access))
        if found is not None:
            return found[1]
        tensor = access.storage
        view: Any = None
        if type(access.offset) is int and access.vector_offset is None and tensor.pitch:
            view = access.geometry
            known = self.views.get(view)
            if known is not None:
                self._known[id(access)] = access, known
                return known
        box = box_of(access, variables)
        if box.static:
            shape = None if box.dense else (access.shape, access.strides, access.dtype)
            box = self.interned.setdefault((tensor.memory, box.spans, shape), box)
            if view is not None:
                self.views[view] = box
        return box
