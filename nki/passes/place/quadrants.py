"""On-chip tensors that may be moved to another quadrant of partitions without changing results."""

from __future__ import annotations

from isa.enums import Engine
from isa.machine.random import RANDOM
from isa.machine.scalar import ACCUMULATORS
from isa.operations.control import StorageBegin
from isa.spec import Instruction
from isa.target import Target
from nki.ir.nodes import Node, Op, Tensor, storages, walk
from nki.passes.analysis.engine_state import engine_states

_LANE_STATES = frozenset({ACCUMULATORS, RANDOM})
"""Engine state that each partition has its own of."""


def movable(body: list[Node], target: Target) -> set[Tensor]:
    """The on-chip tensors of a body that give the same results from any quadrant of partitions.

    Element-wise engines and transfers take each operand from wherever it starts. Not so the rows
    and columns of the tensor engine's array, and the lanes of accumulate registers and random
    states. Nor scales that lie beside their data, and transfers that name a place on another core.
    """
    tied: set[Tensor] = set()
    found: set[Tensor] = set()
    for node in walk(body):
        if not isinstance(node, Op) or node.row is StorageBegin:
            continue
        for instruction in node.row.expand(node.values, target):
            tensors = {t for t in storages(instruction.values) if t.memory.on_chip}
            found |= tensors
            if node.row.meets or _bound(instruction):
                tied |= tensors
    return found - tied


def _bound(instruction: Instruction) -> bool:
    return (
        instruction.engine is Engine.tensor
        or instruction.row.one_quadrant
        or any(name in _LANE_STATES for name, _ in engine_states(instruction))
    )
