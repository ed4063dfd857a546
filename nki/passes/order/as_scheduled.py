"""Tile IR in the order in which engines take its operations.

Behind it `Schedule` leaves that order as it is (`nki.passes.lower.KEPT`), so that what a pass puts
between two operations stays there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from isa.operations.control import StorageBegin
from nki.ir.nodes import Node, Op, TracedKernel, tensors_of
from nki.ir.rewrite import with_body
from nki.passes.lower import CoreSteps, KernelSteps


def as_scheduled(steps: KernelSteps) -> TracedKernel:
    """A kernel whose tensors have places, with the operations of each basic block in the order of
    its steps. A tensor begins before the first operation there that has it.

    Before, where the second product need not wait, and the third one has to:

        nc_matmul dst=%p0 stationary=%t0 moving=%t0
        tensor_copy dst=%t2 src=%p0
        nc_matmul dst=%p1 stationary=%t2 moving=%t2
        nc_matmul dst=%p2 stationary=%t1 moving=%t1

    After:

        nc_matmul dst=%p0 stationary=%t0 moving=%t0
        tensor_copy dst=%t2 src=%p0
        nc_matmul dst=%p2 stationary=%t1 moving=%t1
        nc_matmul dst=%p1 stationary=%t2 moving=%t2
    """
    kernel = steps.kernel
    bodies = [_ordered(nodes, _taken(core)) for nodes, core in zip(kernel.bodies, steps.cores)]
    return kernel.with_bodies(bodies, kernel.tensors, kernel.placement)


def _taken(core: CoreSteps) -> dict[Op, int]:
    """The places of operations in the order of steps."""
    found: dict[Op, int] = {}
    for number in core.order.tolist():
        found.setdefault(core.body.steps[number].op, len(found))
    return found


def _ordered(nodes: list[Node], taken: dict[Op, int]) -> list[Node]:
    result: list[Node] = []
    for plain, some in groupby(nodes, lambda node: isinstance(node, Op)):
        if plain:
            result += _stretch([node for node in some if isinstance(node, Op)], taken)
        else:
            result += [with_body(n, _ordered(n.body, taken)) for n in some if not isinstance(n, Op)]
    return result


def _stretch(ops: list[Op], taken: dict[Op, int]) -> Iterator[Op]:
    """Operations one after another, and what begins tensors."""
    begins = {op.values[0].storage: op for op in ops if op.row is StorageBegin}
    own = [op for op in ops if op.row is not StorageBegin]
    for op in sorted(own, key=lambda op: taken.get(op, -1)):
        for tensor in tensors_of(op):
            if tensor in begins:
                yield begins.pop(tensor)
        yield op
    yield from begins.values()
