"""Orders of a graph: operands before users, callees before callers; refuses cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from graph_compiler.hlo.graph import Computation, Instruction, Module
from isa.errors import NeuronError

_Node = TypeVar("_Node", Instruction, Computation)


def _before(
    nodes: Iterable[_Node],
    needs: Callable[[_Node], Iterable[_Node]],
    refuse: Callable[[_Node], Any],
) -> list[_Node]:
    """The nodes, each after those that it needs, otherwise in the given order.

    `refuse(node)` makes the error for a node that needs itself. Works without recursion: graphs
    are deeper than Python's stack.
    """
    order: list[_Node] = []
    state: dict[int, bool] = {}  # False: on the path, True: done
    for start in nodes:
        if id(start) in state:
            continue
        state[id(start)] = False
        stack = [(start, iter(list(needs(start))))]
        while stack:
            node, pending = stack[-1]
            for other in pending:
                done = state.get(id(other))
                if done is None:
                    state[id(other)] = False
                    stack.append((other, iter(list(needs(other)))))
                    break
                if not done:
                    raise refuse(other)
            else:
                stack.pop()
                state[id(node)] = True
                order.append(node)
    return order


def operands_first(computation: Computation) -> list[Instruction]:
    """The computation's instructions, reordered only where an operand would follow its user.

    Raises NeuronError hlo-cycle.
    """
    seen: set[int] = set()
    for instruction in computation.instructions:
        for needed in (*instruction.operands, *instruction.control_predecessors):
            if id(needed) not in seen:
                return _before(
                    computation.instructions,
                    lambda item: (*item.operands, *item.control_predecessors),
                    lambda item: NeuronError(
                        "hlo-cycle",
                        f"The instruction {item.name!r} of {computation.name!r} depends on its "
                        "own result.",
                    ),
                )
        seen.add(id(instruction))
    return computation.instructions


def callees_first(module: Module) -> list[Computation]:
    """The module's computations, reordered only where a callee would follow its caller.

    Raises NeuronError hlo-cycle.
    """

    def callees(computation: Computation) -> list[Computation]:
        return [called for item in computation.instructions for called in item.called]

    return _before(
        module.computations,
        callees,
        lambda item: NeuronError("hlo-cycle", f"The computation {item.name!r} calls itself."),
    )
