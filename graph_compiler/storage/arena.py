"""Allocation of HBM: tensors whose live ranges do not overlap share the bytes of an arena."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from graph_compiler.storage.best_fit import BestFit
from isa.enums import Memory
from nki.ir.begins import begin, begun_by, used_by
from nki.ir.nodes import (
    Access,
    Loop,
    Node,
    Op,
    Tensor,
    TracedKernel,
    bytes_of,
    operations,
    walk,
)
from nki.ir.replace import Renamed
from nki.ir.rewrite import form_registers


@dataclass(frozen=True, slots=True)
class ShareArenas:
    """The local tensors of a kernel in HBM come to lie within arenas, one for each core and kind of
    memory. A tensor has bytes there from the first to the last node of the core's body that
    mentions it, in the author's order. A loop is one node. Of the gaps that are free each takes the
    smallest that it fits in, from a multiple of `alignment` bytes on.

        tensor %t1 "first": private_hbm float32[1024] core=0       (used by nodes 0 to 1)
        tensor %t2 "second": private_hbm float32[1024] core=0      (used by nodes 1 to 2)
        tensor %t3 "third": private_hbm float32[512] core=0        (used by nodes 2 to 3)
        ->
        tensor %t4 "arena": private_hbm uint8[8192] core=0
        tensor %t1 "first": private_hbm float32[1024] core=0 within=%t4 at=0
        tensor %t2 "second": private_hbm float32[1024] core=0 within=%t4 at=4096
        tensor %t3 "third": private_hbm float32[512] core=0 within=%t4 at=0

    Tensors that several cores use, or whose size launch symbols decide, stay by themselves. So do
    those that begin in a loop, of which rotation makes copies, and what lies within others or holds
    others. Those at places that registers decide stay, too, since they would count as the whole
    arena. Those that nothing uses are left out. Results of the kernel are the same; a tensor has to
    wait for what used its bytes before, so that the kernel may take longer; with `distance`, bytes
    stay taken for so many nodes more, by when the scheduler is done with them. `local_bytes` before
    and after tell what it saves.
    """

    alignment: int = 64
    distance: int = 0
    name: str = "arenas"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        groups: dict[tuple[int, Memory], list[Tensor]] = {}
        lives = [_lives(body) for body in kernel.bodies]
        staying = _staying(kernel)
        unused: set[Tensor] = set()
        for tensor in kernel.tensors:
            if tensor in staying or not _may_lie(tensor, kernel):
                continue
            users = [core for core, found in enumerate(lives) if tensor in found]
            if not users:
                unused.add(tensor)
            elif len(users) == 1:
                groups.setdefault((users[0], tensor.memory), []).append(tensor)
        moved: dict[Tensor, Tensor] = {}
        arenas: list[Tensor] = []
        number = max((tensor.number for tensor in kernel.tensors), default=-1) + 1
        for (core, memory), tensors in groups.items():
            if len(tensors) > 1:
                arenas.append(
                    self._arena(number + len(arenas), memory, tensors, lives[core], moved)
                )
        if not arenas and not unused:
            return kernel
        bodies = [
            Renamed(moved).nodes(_begun(body, found, moved, unused))
            for body, found in zip(kernel.bodies, lives)
        ]
        left = (tensor for tensor in kernel.tensors if tensor not in unused)
        tensors = [*arenas, *(moved.get(tensor, tensor) for tensor in left)]
        return kernel.with_bodies(bodies, tensors, kernel.placement)

    def _arena(
        self,
        number: int,
        memory: Memory,
        tensors: list[Tensor],
        lives: dict[Tensor, tuple[int, int]],
        moved: dict[Tensor, Tensor],
    ) -> Tensor:
        """The arena of some tensors; `moved` gets them as they lie in it."""
        room = BestFit()
        places = {}
        end = 0
        for tensor in sorted(tensors, key=lambda tensor: lives[tensor][0]):
            size = -(-bytes_of(tensor) // self.alignment) * self.alignment
            first, last = lives[tensor]
            places[tensor] = place = room.take(size, first, last + self.distance)
            end = max(end, place + size)
        core = tensors[0].core
        arena = Tensor(number, f"arena.{number}", memory, "uint8", (end,), core=core)
        for tensor in tensors:
            moved[tensor] = replace(tensor, within=arena, offset=places[tensor])
        return arena


def local_bytes(kernel: TracedKernel) -> Any:
    """The bytes of the tensors in HBM that only the kernel itself sees: an int or a polynomial.

    >>> a = Tensor(0, "a", Memory.private_hbm, "float32", (4, 8), core=0)
    >>> b = Tensor(1, "b", Memory.private_hbm, "uint8", (8,), core=0, within=a, offset=16)
    >>> local_bytes(TracedKernel("nothing", "trn2", [], [], [], bodies=[[]], tensors=[a, b]))
    128
    """
    total: Any = 0
    for tensor in kernel.tensors:
        if not tensor.memory.on_chip and tensor.role == "local" and tensor.within is None:
            total = total + bytes_of(tensor)
    return total


def _may_lie(tensor: Tensor, kernel: TracedKernel) -> bool:
    size = bytes_of(tensor)
    return (
        not tensor.memory.on_chip
        and tensor.role == "local"
        and tensor.within is None
        and not tensor.divided
        and type(size) is int
        and size > 0
        and tensor not in kernel.parameters
        and tensor not in kernel.results
    )


def _lives(body: list[Node]) -> dict[Tensor, tuple[int, int]]:
    """The first and the last node of a body that uses a tensor: more than says that it begins."""
    found: dict[Tensor, tuple[int, int]] = {}
    for at, node in enumerate(body):
        for tensor in used_by(node):
            first, _ = found.get(tensor, (at, at))
            found[tensor] = first, at
    return found


def _staying(kernel: TracedKernel) -> set[Tensor]:
    """Tensors that begin in a loop, or that are used at places which registers decide that are no
    variables of loops."""
    found: set[Tensor] = set()
    loops: list[Node] = [n for body in kernel.bodies for n in body if not isinstance(n, Op)]
    found.update(tensor for op in operations(loops) if (tensor := begun_by(op)) is not None)
    nodes = [node for body in kernel.bodies for node in walk(body)]
    variables = {node.variable for node in nodes if isinstance(node, Loop)}
    for node in nodes:
        for value in node.values if isinstance(node, Op) else ():
            if isinstance(value, Access) and not variables.issuperset(form_registers(value.offset)):
                found.add(value.storage)
    return found


def _begun(
    body: list[Node],
    lives: dict[Tensor, tuple[int, int]],
    moved: dict[Tensor, Tensor],
    unused: set[Tensor],
) -> Iterable[Node]:
    """The nodes, with markers where tensors begin. A moved tensor begins before its first use,
    since its bytes may hold the data of another tensor. A tensor without a use has no marker."""
    begins: dict[int, list[Tensor]] = {}
    for tensor in moved.keys() & lives.keys():
        begins.setdefault(lives[tensor][0], []).append(tensor)
    for at, node in enumerate(body):
        for tensor in sorted(begins.get(at, ()), key=lambda tensor: tensor.number):
            yield begin(tensor, node.location)
        mine = begun_by(node)
        if mine not in moved and mine not in unused:
            yield node
