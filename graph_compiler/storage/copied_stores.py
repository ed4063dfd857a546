"""Stores of tiles that the next iteration of a loop writes again are stores of copies."""

from __future__ import annotations

from functools import partial

from isa.enums import Engine, Memory
from isa.operations.dma import DmaCopy
from isa.operations.vector import TensorCopy
from isa.target import TARGETS, Target
from nki.ir.begins import begin, begun, begun_by, rows_of, written_by
from nki.ir.nodes import Loop, Node, Op, Tensor, TracedKernel
from nki.ir.replace import Renamed
from nki.ir.rewrite import Numbering, with_body
from nki.passes.order.schedule import busy_ns, costs_of


def with_copied_stores(nodes: list[Node], kernel: TracedKernel, numbering: Numbering) -> list[Node]:
    """A list of nodes whose loops store copies of the tiles that they carry, where copying takes
    less than storing, for which the next iteration would wait; the same list where all stay.

        loop %i in 0..8
          activation dst=%state data=%sums ...
          dma_copy dst=%all[... @ 128*%i] src=%state
        ->
        loop %i in 0..8
          activation dst=%state data=%sums ...
          tensor_copy dst=%copy src=%state
          dma_copy dst=%all[... @ 128*%i] src=%copy
    """
    own = partial(_own_tile, target=TARGETS[kernel.target], numbering=numbering)
    result: list[Node] = []
    for node in nodes:
        if not isinstance(node, Loop):
            result.append(node)
            continue
        carried = {t for one in node.body if begun_by(one) is None for t in written_by(one)}
        carried -= begun(node.body).keys()
        body = [new for one in node.body for new in own(one, carried)]
        result.append(node if len(body) == len(node.body) else with_body(node, body))
    return nodes if all(new is old for new, old in zip(result, nodes)) else result


def _own_tile(node: Node, carried: set[Tensor], target: Target, numbering: Numbering) -> list[Node]:
    """A node; behind a copy of what it stores, if it stores a tile that a loop carries."""
    if not isinstance(node, Op) or node.row is not DmaCopy:
        return [node]
    dst, tile = node.fields["dst"], node.fields["src"].storage
    if dst.storage.memory.on_chip or tile not in carried or tile.memory is not Memory.sbuf:
        return [node]
    made = numbering.tensor(tile, ".stored")
    copy = Op.of(
        TensorCopy, node.location, dst=rows_of(made), src=rows_of(tile), engine=Engine.vector
    )
    if sum(busy_ns([costs_of(target).of_operation(copy)])) > _store_ns(target):
        return [node]
    return [begin(made, node.location), copy, *Renamed({tile: made}).node(node)]


def _store_ns(target: Target) -> float:
    """What a store takes until its tile may be written again, besides its bytes."""
    parts = (
        target.dma_trigger_latency_ns,
        target.dma_store_dispatch_ns,
        target.dma_store_tail_ns,
        target.dma_store_notify_ns,
    )
    return sum(part.value for part in parts)
