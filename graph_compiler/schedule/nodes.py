"""The graph that is scheduled: values of arrays only, calls inlined, tuples taken apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graph_compiler.hlo.effects import has_effect

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction

NodeForm = tuple[str, tuple[int, ...]]
"""Primitive type and dimensions of an array."""


class Node:
    """One operation of a block. `op` is an opcode of HLO, or "pick": result `value` of an operand
    with several `results`.

    `instruction` states what the operation needs beyond its operands. `value`: a constant's array,
    a parameter's number, a pick's position. `blocks`: of `while` condition and body, of
    `conditional` the branches.
    """

    __slots__ = ("blocks", "dims", "instruction", "op", "operands", "results", "type", "value")

    def __init__(
        self,
        op: str,
        results: list[NodeForm],
        operands: list[Node],
        instruction: Instruction | None = None,
        value: Any = None,
        blocks: list[Block] | None = None,
    ) -> None:
        self.op = op
        self.results = results
        self.type, self.dims = results[0] if len(results) == 1 else ("", ())
        self.operands = operands
        self.instruction = instruction
        self.value = value
        self.blocks = blocks or []


class Block:
    """A computation with parameters: nodes with operands before users, and its results."""

    __slots__ = ("nodes", "parameters", "results")

    def __init__(self) -> None:
        self.parameters: list[Node] = []
        self.nodes: list[Node] = []
        self.results: list[Node] = []

    def uses(self) -> dict[Node, int]:
        """How often each node is needed, by nodes that are needed and by the results."""
        counts: dict[Node, int] = {}
        for result in self.results:
            counts[result] = counts.get(result, 0) + 1
        for node in reversed(self.nodes):
            if node in counts or is_effect(node):
                counts.setdefault(node, 0)
                for operand in node.operands:
                    counts[operand] = counts.get(operand, 0) + 1
        return counts


def is_effect(node: Node) -> bool:
    """Whether a node is wanted for what it does."""
    if node.instruction is None or node.op in ("constant", "parameter", "pick"):
        return False
    return has_effect(node.instruction)
