"""Times a piece of a body by the event model: passes compare alternatives by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from isa.affine import evaluate
from isa.binding import bind
from isa.enums import Engine
from isa.errors import NeuronError
from isa.operations.control import RegisterMove, StorageBegin
from isa.target import TARGETS, Target
from nki.ir.begins import begin
from nki.ir.nodes import (
    Access,
    Loop,
    Node,
    Op,
    Register,
    Tensor,
    TracedKernel,
    While,
    storages,
    walk,
)
from nki.ir.rewrite import PLAIN, form_registers
from nki.passes.analysis.content import Content, kept
from nki.passes.lower import lower
from nki.passes.order.schedule import SPACED
from nki.passes.place.allocate import in_order

if TYPE_CHECKING:
    from simulator.timing import Timeline


class Modelled(NamedTuple):
    """How long nodes take; how long the busiest engine computes, or the DMA engines move; and the
    least time in any order: what comes before an engine's first instruction, or the first transfer,
    and behind the last one adds to that."""

    total_ns: float
    busiest_ns: float
    least_ns: float


def modelled(kernel: TracedKernel, nodes: Sequence[Node]) -> Modelled | None:
    """The time of some nodes of a body of one core, on their own. None where they do not fit, or
    where the time depends on what the device computes, or on another core.

    Tensors and registers that begin outside are there; launch symbols have their largest values.
    """
    values = launch_sizes(kernel, nodes)
    if values is None:
        return None
    key = kernel.target, SPACED.get(), *values.items(), *Content().of(nodes)
    return kept("time", key, lambda: _simulated(kernel, nodes, values))


def modelled_ns(kernel: TracedKernel, nodes: Sequence[Node]) -> float | None:
    """How long some nodes take (`modelled`)."""
    found = modelled(kernel, nodes)
    return None if found is None else found.total_ns


def _simulated(
    kernel: TracedKernel, nodes: Sequence[Node], values: dict[str, int]
) -> Modelled | None:
    """The time of some nodes, compiled and simulated."""
    target = TARGETS[kernel.target]
    body = [*from_outside(nodes), *nodes]
    try:
        placed = in_order(body, target, search=False)
        program = lower(kernel.with_bodies([placed[0]], kernel.tensors, placed[1]))
        program = bind(program, values)
    except NeuronError:
        return None
    from simulator.timing import simulate

    return _measured(simulate(program, keep_path=False), target)


def _measured(timeline: Timeline, target: Target) -> Modelled:
    """The times of a run of one core."""
    (core,) = timeline.cores
    works = {engine: spent.computing for engine, spent in core.engines.items()}
    works[Engine.dma] = core.dma_work / target.dma_engines.value
    spans: dict[Engine, list[tuple[float, float]]] = {}
    for track in core.tracks:
        engine = Engine.dma if track.queue >= 0 else track.engine
        if not track.beside:
            mine = [(start, end) for start, end, index, _ in track.spans or () if index >= 0]
            spans.setdefault(engine, []).extend(mine)
    least = [
        works[engine] + min(mine)[0] + timeline.total_ns - max(end for _, end in mine)
        for engine, mine in spans.items()
        if mine
    ]
    busiest = max(works.values())
    return Modelled(timeline.total_ns, busiest, max([busiest, *least]))


def some_trips(node: Loop, trips: int, body: list[Node]) -> Loop:
    """Some trips of a loop, with a body, to be timed."""
    return Loop(node.variable, 0, trips * node.step, node.step, body, False, node.location)


def launch_sizes(kernel: TracedKernel, nodes: Sequence[Node]) -> dict[str, int] | None:
    """The launch sizes with which nodes are timed, if there is a time."""
    return _largest(kernel) if _alone(nodes) else None


def _alone(nodes: Sequence[Node]) -> bool:
    """Whether no loop ends by what the device computes, and no other core takes part."""
    for node in walk(nodes):
        if isinstance(node, Op):
            if node.row.minimum_cores > 1:
                return False
        elif (
            isinstance(node, While)
            or isinstance(node.lower, Register)
            or isinstance(node.upper, Register)
        ):
            return False
    return True


def _largest(kernel: TracedKernel) -> dict[str, int] | None:
    """The largest values of launch symbols, if the kernel admits them all at once."""
    values: dict[str, int] = {}
    for symbol in kernel.symbols:
        if symbol.maximum is None:
            return None
        values[symbol.name] = symbol.maximum
    admitted = all(evaluate(guard.form, values) >= 0 for guard in kernel.guards)
    return values if admitted else None


def from_outside(nodes: Sequence[Node]) -> list[Node]:
    """What begins the tensors on chip, and sets the registers, that nodes take from outside."""
    begun: set[Tensor] = set()
    used: dict[Tensor, None] = {}
    own: set[Register] = set()
    registers: dict[Register, None] = {}
    for node in walk(nodes):
        if isinstance(node, Op):
            if node.row is StorageBegin:
                begun.add(node.values[0].storage)
            for value in node.values:
                if value.__class__ in PLAIN:
                    continue
                if isinstance(value, Access):
                    used[value.storage] = None
                    if type(value.offset) is int and value.vector_offset is None:
                        continue
                    used.update(dict.fromkeys(storages([value.vector_offset])))
                registers.update(dict.fromkeys(form_registers(value)))
        elif isinstance(node, Loop):
            own.add(node.variable)
            for bound in (node.lower, node.upper):
                registers.update(dict.fromkeys(form_registers(bound)))
    result: list[Node] = []
    for tensor in used:
        if tensor.memory.on_chip and tensor not in begun:
            result.append(begin(tensor))
    for register in registers:
        if register not in own:
            result.append(Op(RegisterMove, (register, 0)))
    return result
