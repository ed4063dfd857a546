"""The first loads of a loop get places of their own, so that they come before the trip does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from isa.enums import Memory
from isa.operations.control import StorageBegin
from isa.target import TARGETS
from nki.ir.nodes import Kernel, Loop, Node, Op, Register, Tensor, operations, storages
from nki.ir.rewrite import with_body
from nki.passes.order.modelled import modelled_ns
from nki.passes.order.precedence import mentioned_registers, written_registers
from nki.passes.place.pressure import size_of

SHARES = (0.125, 0.25, 0.5)
"""Parts of SBUF that are tried."""

FEW = 4
"""Trips below which a first one that takes longer is not made up for."""

TRIPS = 8
"""Trips whose time is looked at."""

LONGEST = 4096
"""The most operations of a loop that is tried: in a longer one what is loaded first is little."""

PAYS = 0.99
"""The part of the time with fewer bytes below which more are given away."""


@dataclass(frozen=True)
class LoadAhead:
    """Tensors that the first loads of a loop fill live through the whole loop.

    In a loop whose tensors fill SBUF several times over, what is loaded first would take the place
    of what is used last, and so wait for the trip before to end. With places of their own the
    tensors are free as soon as their last users are done, and the queues load them for the next
    trip while this one goes on. How many of them get one is chosen by the event model.

    Before:

        loop %r1 = 0 to 12 step 1:
          storage_begin dst=%weights
          dma_copy dst=%weights src=%all[... @ 1024*%r1]

    After:

        storage_begin dst=%weights
        loop %r1 = 0 to 12 step 1:
          dma_copy dst=%weights src=%all[... @ 1024*%r1]

    A load of what the trip before has stored holds up those behind it in its queue. So those that
    get a place, and wait for nothing that the loop stores, come ahead of it. They do so where all
    tensors have places of their own, too: as many as the smallest of the `SHARES` holds, which is
    little to wait for in the first trip, and saves a wait in all others.
    """

    name = "ahead"

    def run(self, kernel: Kernel) -> Kernel:
        if not kernel.has_loops:
            return kernel
        bodies = [_level(kernel, body) for body in kernel.bodies]
        if all(new is old for new, old in zip(bodies, kernel.bodies)):
            return kernel
        return kernel.with_bodies(bodies, kernel.tensors)


def _level(kernel: Kernel, nodes: list[Node]) -> list[Node]:
    """A list of nodes with what its loops load first begun before them."""
    result: list[Node] = []
    for node in nodes:
        if isinstance(node, Op):
            result.append(node)
            continue
        body = _level(kernel, node.body)
        inner = node if body is node.body else with_body(node, body)
        result += _begun_before(kernel, inner) if isinstance(inner, Loop) else [inner]
    same = len(result) == len(nodes) and all(new is old for new, old in zip(result, nodes))
    return nodes if same else result


def _begun_before(kernel: Kernel, loop: Loop) -> list[Node]:
    """A loop behind the beginnings of the tensors that live through it; alone if that does not
    pay."""
    if type(loop.lower) is not int or type(loop.upper) is not int:
        return [loop]
    trips = min(len(range(loop.lower, loop.upper, loop.step)), TRIPS)
    if trips < 2 or sum(1 for _ in operations(loop.body)) > LONGEST:
        return [loop]
    capacity = TARGETS[kernel.target].sbuf_bytes_per_partition.value
    loads = _loads(loop.body)
    if sum(map(size_of, _on_chip(loop.body))) <= capacity:
        # What is loaded takes no place of what is used later.
        taken = _first(loads.held_up.values(), SHARES[0] * capacity)
        return [loop] if trips < FEW or not taken else [_led_by(loop, loads, taken)]
    sample = Loop(loop.variable, 0, trips * loop.step, loop.step, loop.body, False, loop.location)
    best = modelled_ns(kernel, [sample])
    if best is None:
        return [loop]
    chosen: set[Tensor] = set()
    for share in SHARES:
        taken = _first(loads.tensors, share * capacity)
        if len(taken) == len(chosen):
            continue
        spent = modelled_ns(kernel, _outside(sample, loads, taken))
        if spent is not None and spent < PAYS * best:
            chosen, best = taken, spent
    return _outside(loop, loads, chosen) if chosen else [loop]


class _Loads(NamedTuple):
    """The tensors in SBUF that a body begins and fills as a whole from HBM, by memory that it does
    not write, in this order; and of their loads those that others hold up, which wait for what the
    body writes there."""

    tensors: list[Tensor]
    held_up: dict[Node, Tensor]


def _loads(body: list[Node]) -> _Loads:
    written: set[Tensor] = set()
    registers: set[Register] = set()
    for op in operations(body):
        registers |= written_registers(op)
        written.update(storages(op.values[index] for index in op.row.writes))
    begun: set[Tensor] = set()
    found: dict[Tensor, None] = {}
    held_up: dict[Node, Tensor] = {}
    waiting, meeting = False, False
    for node in body:
        meeting = meeting or any(op.row.minimum_cores > 1 for op in operations([node]))
        if not isinstance(node, Op):
            begun -= {tensor for op in operations(node.body) for tensor in storages(op.values)}
            continue
        used = set(storages(node.values))
        if node.row is StorageBegin:
            begun |= {tensor for tensor in used if tensor.memory is Memory.sbuf}
            continue
        sources = {t for index in node.row.reads for t in storages([node.values[index]])}
        first = [tensor for tensor in used if tensor in begun]
        begun -= used
        stored = sources and not any(t.memory.on_chip or t in written for t in sources)
        if stored and len(first) == 1 and first[0].address is None:
            found.setdefault(first[0])
            free = not meeting and not node.after and not mentioned_registers(node) & registers
            if waiting and free:
                held_up[node] = first[0]
        waiting = waiting or any(not t.memory.on_chip and t in written for t in sources)
    return _Loads(list(found), held_up)


def _first(loads: Iterable[Tensor], room: float) -> set[Tensor]:
    """The first tensors that fit in so many bytes of a partition."""
    found: set[Tensor] = set()
    for tensor in loads:
        room -= size_of(tensor)
        if room < 0:
            break
        found.add(tensor)
    return found


def _on_chip(nodes: list[Node]) -> set[Tensor]:
    """The tensors in SBUF that nodes begin."""
    return {
        tensor
        for op in operations(nodes)
        if op.row is StorageBegin
        for tensor in storages(op.values)
        if tensor.memory is Memory.sbuf
    }


def _outside(loop: Loop, loads: _Loads, tensors: set[Tensor]) -> list[Node]:
    """A loop behind the beginnings of some of its tensors, whose loads lead it where others would
    hold them up."""
    loop = _led_by(loop, loads, tensors)
    begins = _begins(loop, tensors)
    gone = set(begins)
    return [*begins, with_body(loop, [node for node in loop.body if node not in gone])]


def _led_by(loop: Loop, loads: _Loads, tensors: set[Tensor]) -> Loop:
    """A loop that begins with the loads of some tensors that others would hold up."""
    mine = {node: tensor for node, tensor in loads.held_up.items() if tensor in tensors}
    first = [*_begins(loop, set(mine.values())), *mine]
    gone = set(first)
    body = [*first, *[node for node in loop.body if node not in gone]]
    return Loop(loop.variable, loop.lower, loop.upper, loop.step, body, loop.unroll, loop.location)


def _begins(loop: Loop, tensors: set[Tensor]) -> list[Node]:
    """The beginnings of some tensors in a loop."""
    return [
        node
        for node in loop.body
        if isinstance(node, Op)
        and node.row is StorageBegin
        and not tensors.isdisjoint(storages(node.values))
    ]
