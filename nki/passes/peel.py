"""Peel the first iteration of loops in which an accumulation starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isa.affine import Affine, Predicate, maximum, minimum, prove_nonnegative
from isa.enums import RegisterOperation
from isa.operations.control import RegisterAlu
from nki.ir.nodes import Kernel, Loop, Node, Op, Register, While
from nki.ir.rewrite import Cloner, Numbering


@dataclass(frozen=True)
class PeelAccumulation:
    """Lower `accumulate = (k > lower)`: the first iteration overwrites, the others add.

    Before:

        loop %r1 = 0 to K//128 step 1:
          nc_matmul dst=%acc ... accumulate=(%r1 > 0)

    After:

        loop %r2 = 0 to min(1, K//128) step 1:
          nc_matmul dst=%acc ... accumulate=False
        loop %r3 = 1 to K//128 step 1:
          nc_matmul dst=%acc ... accumulate=True
    """

    name = "peel"

    def run(self, kernel: Kernel) -> Kernel:
        if not kernel.has_loops:
            return kernel
        numbering = Numbering(kernel.tensors, kernel.bodies)
        bodies = [self._block(body, numbering) for body in kernel.bodies]
        if all(new is old for new, old in zip(bodies, kernel.bodies)):
            return kernel
        return kernel.with_bodies(bodies, numbering.tensors)

    def _block(self, nodes: list[Node], numbering: Numbering) -> list[Node]:
        result: list[Node] = []
        changed = False
        for node in nodes:
            if isinstance(node, Op):
                result.append(node)
                continue
            body = self._block(node.body, numbering)
            changed |= body is not node.body
            if isinstance(node, While):
                result.append(While(node.register, body, node.location))
            elif any(True for _ in _predicates(body, node.variable)):
                changed = True
                result.extend(_peel(node, body, numbering))
            elif body is node.body:
                result.append(node)
            else:
                loop = Loop(
                    node.variable,
                    node.lower,
                    node.upper,
                    node.step,
                    body,
                    node.unroll,
                    node.location,
                )
                result.append(loop)
        return result if changed else nodes


def _predicates(nodes: list[Node], variable: Register) -> Any:
    """The accumulate predicates of a body (not of loops inside it) on a loop's variable."""
    for node in nodes:
        if isinstance(node, Op):
            for value in node.values:
                if isinstance(value, Predicate) and any(
                    register is variable for register, _ in _terms(value)
                ):
                    yield value
        else:
            yield from _predicates(node.body, variable)


def _terms(predicate: Predicate) -> tuple[tuple[Register, Any], ...]:
    form = predicate.form
    return form.terms if isinstance(form, Affine) else ()


def _peel(node: Loop, body: list[Node], numbering: Numbering) -> list[Node]:
    """The first iteration as a loop of at most one trip, and the rest as another loop."""

    def decided(variable: Register, value: bool) -> Any:
        def decide(predicate: Predicate) -> Any:
            mine = any(register is variable for register, _ in _terms(predicate))
            return value if mine else predicate

        return decide

    nodes: list[Node] = []
    middle = _next(node.lower, node.step, node.upper, numbering, nodes, node.location)
    for lower, upper, value in ((node.lower, middle, False), (middle, node.upper, True)):
        variable = numbering.register(node.variable)
        cloner = Cloner(
            numbering,
            {node.variable: Affine(0, ((variable, 1),))},
            decided(node.variable, value),
        )
        unroll = node.unroll and value
        copy = cloner.nodes(body)
        nodes.append(Loop(variable, lower, upper, node.step, copy, unroll, node.location))
    return nodes


def _next(
    lower: Any,
    step: int,
    upper: Any,
    numbering: Numbering,
    nodes: list[Node],
    location: Any,
) -> Any:
    """min(lower + step, upper), or lower where the loop is empty; in a register where needed."""
    if not isinstance(lower, Register) and not isinstance(upper, Register):
        if prove_nonnegative(upper - lower - step):
            return lower + step
        return maximum(lower, minimum(lower + step, upper))
    result = numbering.register(name="peeled")
    nodes.append(Op(RegisterAlu, (result, RegisterOperation.add, lower, step), location))
    nodes.append(Op(RegisterAlu, (result, RegisterOperation.minimum, result, upper), location))
    return result
