"""Prefetch: what a loop body loads first gets memory that is reserved for the whole loop.

The loads of the next trip then overlap this one, as nothing else takes over the memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

from isa.enums import Memory
from isa.operations.control import StorageBegin
from isa.target import TARGETS
from nki.ir.begins import begun, begun_by, used_by, written_by
from nki.ir.nodes import Loop, Node, Op, Tensor, TracedKernel, operations, storages, tensors_of
from nki.ir.rewrite import Numbering, replace_loops, with_body
from nki.passes.order.modelled import modelled_ns, some_trips
from nki.passes.order.precedence import mentioned_registers
from nki.passes.order.schedule import Costs, busy_ns, costs_of
from nki.passes.order.trips import trip_count

SHARES = (0.125, 0.25, 0.5)
"""Parts of SBUF that are tried."""

SHORT = 256
"""The most nodes of a body that is timed with its loads in another order."""

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

    In some loops tensors fill SBUF several times over. There, what is loaded first would take the
    place of what is used last, and so wait for the trip before to end. With places of their own the
    tensors are free as soon as their last users are done. So the queues load them for the next trip
    while this one goes on. How many of them get one is chosen by the event model.

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
    little to wait for in the first trip. Long bodies are not timed for that: there those come ahead
    that are loaded, by the cost model, between the last use of what they fill and the store that
    the others wait for.
    """

    name = "ahead"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        return replace_loops(kernel, partial(_begun_before, kernel))


def _begun_before(
    kernel: TracedKernel, node: Loop, body: list[Node], _: Numbering
) -> list[Node] | None:
    """A loop behind the beginnings of the tensors that live through it; None if that does not
    pay."""
    trips = min(trip_count(node) or 0, TRIPS)
    ops = list(operations(body))
    if trips < 2 or len(ops) > LONGEST:
        return None
    capacity = TARGETS[kernel.target].sbuf_bytes_per_partition.value
    begins = [tensor for op in ops if (tensor := begun_by(op)) is not None]
    fits = sum(tensor.row_bytes for tensor in begins if tensor.memory is Memory.sbuf) <= capacity
    if fits and not _stores_what_it_loads(ops):
        return None  # what is loaded takes no place of what is used later
    loop = node if body is node.body else with_body(node, body)
    loads = _loads(body)
    if fits:
        taken = _first(loads.held_up.values(), SHARES[0] * capacity)
        return _led_if_it_pays(kernel, loop, loads, taken, trips) if taken else None
    sample = some_trips(loop, trips, loop.body)
    best = modelled_ns(kernel, [sample])
    if best is None:
        return None
    chosen: set[Tensor] = set()
    for share in SHARES:
        taken = _first(loads.tensors, share * capacity)
        if len(taken) == len(chosen):
            continue
        spent = modelled_ns(kernel, _outside(sample, loads, taken))
        if spent is not None and spent < PAYS * best:
            chosen, best = taken, spent
    return _outside(loop, loads, chosen) if chosen else None


@cache
def _reaches_hbm(row: Any) -> bool:
    """Whether operands of an operation may lie in HBM."""
    return not all(memory.on_chip for _, _, one in row.operands for memory in one.memories)


def _moves(ops: list[Op]) -> dict[Op, None]:
    """The operations that may move data between HBM and the chip."""
    rows: list[Any] = [op.row for op in ops]  # to type checkers a class of it has no hash
    found = (op for op, row in zip(ops, rows) if row is not StorageBegin and _reaches_hbm(row))
    return dict.fromkeys(found)


def _stores_what_it_loads(ops: list[Op]) -> bool:
    """Whether operations write a tensor in HBM that some of them read."""
    moves = _moves(ops)
    stored = {tensor for op in moves for tensor in written_by(op) if not tensor.memory.on_chip}
    return any(
        tensor in stored
        for op in moves
        for tensor in storages([op.values[index] for index in op.row.reads])
    )


def _led_if_it_pays(
    kernel: TracedKernel, loop: Loop, loads: _Loads, tensors: set[Tensor], trips: int
) -> list[Node] | None:
    """A loop that the loads of some tensors lead; None where that does not pay. Of a short body the
    event model says so, of a long one how much is computed while there is time to load."""
    if len(loop.body) <= SHORT:
        led = _led_by(loop, loads, tensors)
        before, after = (
            modelled_ns(kernel, [some_trips(loop, trips, body)]) for body in (loop.body, led.body)
        )
        pays = before is not None and after is not None and after < PAYS * before
    else:
        tensors = _in_time(loads, tensors, loop.body, costs_of(TARGETS[kernel.target]))
        pays = trips >= FEW and bool(tensors)
    return [_led_by(loop, loads, tensors)] if pays else None


class _Loads(NamedTuple):
    """Three findings. The tensors in SBUF that a body begins and fills as a whole from HBM that it
    does not write, in this order. Of their loads those that others hold up. The tensors in HBM that
    these others wait for, as the body writes them."""

    tensors: list[Tensor]
    held_up: dict[Op, Tensor]
    awaited: set[Tensor]


def _loads(body: list[Node]) -> _Loads:
    ops = list(operations(body))
    moves = _moves(ops)
    written = {tensor for op in moves for tensor in written_by(op)}
    registers = {op.values[at] for op in ops for at in op.row.register_writes}
    begun: set[Tensor] = set()
    found: dict[Tensor, None] = {}
    held_up: dict[Op, Tensor] = {}
    awaited: set[Tensor] = set()
    meeting = False
    for node in body:
        if not isinstance(node, Op):
            inside = list(operations(node.body))
            begun -= {tensor for op in inside for tensor in tensors_of(op)}
            meeting = meeting or any(op.row.minimum_cores > 1 for op in inside)
            continue
        meeting = meeting or node.row.minimum_cores > 1
        used = tensors_of(node)
        if node.row is StorageBegin:
            begun.update(tensor for tensor in used if tensor.memory is Memory.sbuf)
            continue
        first = [tensor for tensor in dict.fromkeys(used) if tensor in begun]
        begun.difference_update(first)
        if node not in moves:
            continue
        sources = {t for index in node.row.reads for t in storages([node.values[index]])}
        stored = sources and not any(t.memory.on_chip or t in written for t in sources)
        if stored and len(first) == 1 and first[0].address is None:
            found.setdefault(first[0])
            free = not meeting and not node.after and not mentioned_registers(node) & registers
            if awaited and free:
                held_up[node] = first[0]
        awaited.update(t for t in sources if not t.memory.on_chip and t in written)
    return _Loads(list(found), held_up, awaited)


def _first(loads: Iterable[Tensor], room: float) -> set[Tensor]:
    """The first tensors that fit in so many bytes of a partition."""
    found: set[Tensor] = set()
    for tensor in loads:
        room -= tensor.row_bytes
        if room < 0:
            break
        found.add(tensor)
    return found


def _in_time(loads: _Loads, tensors: set[Tensor], body: list[Node], costs: Costs) -> set[Tensor]:
    """Some of the tensors whose loads others hold up: those that are loaded by the time at which
    what the others wait for is first stored, if each load begins behind the last use of what it
    fills."""
    held = set(loads.held_up.values())
    last: dict[Tensor, int] = {}
    for at, node in enumerate(body):
        if begun_by(node) is None:
            used = tensors_of(node) if isinstance(node, Op) else used_by(node)
            last.update((tensor, at) for tensor in used if tensor in held)
    rows: list[Any] = [node.row if isinstance(node, Op) else None for node in body]
    moves = (at for at, row in enumerate(rows) if row is None or _reaches_hbm(row))
    store = next(at for at in moves if loads.awaited & {*written_by(body[at])})
    found: set[Tensor] = set()
    loading = 0.0
    for load, tensor in loads.held_up.items():
        between = [
            costs.of_operation(op)
            for op in operations(body[last[tensor] + 1 : store])
            if op.row is not StorageBegin and not op.row.register_writes
        ]
        loading += busy_ns([costs.of_operation(load)])[-1]
        if tensor not in tensors or loading > max(busy_ns(between)):
            break
        found.add(tensor)
    return found


def _outside(loop: Loop, loads: _Loads, tensors: set[Tensor]) -> list[Node]:
    """A loop behind the beginnings of some of its tensors, whose loads lead it where others would
    hold them up."""
    loop = _led_by(loop, loads, tensors)
    begins = [node for tensor, node in begun(loop.body).items() if tensor in tensors]
    return [*begins, with_body(loop, [node for node in loop.body if node not in begins])]


def _led_by(loop: Loop, loads: _Loads, tensors: set[Tensor]) -> Loop:
    """A loop that begins with the loads of some tensors that others would hold up."""
    mine = {node: tensor for node, tensor in loads.held_up.items() if tensor in tensors}
    begins = begun(loop.body)
    first = [*[begins[tensor] for tensor in mine.values()], *mine]
    gone = set(first)
    return with_body(loop, [*first, *[node for node in loop.body if node not in gone]])
