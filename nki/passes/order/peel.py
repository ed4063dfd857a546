"""Peel the first iteration of loops in which an accumulation starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from isa.affine import (
    Affine,
    Predicate,
    maximum,
    minimum,
    prove,
    prove_nonnegative,
    substitute,
)
from isa.enums import RegisterOperation
from isa.errors import NeuronError
from isa.operations.control import RegisterAlu
from isa.target import TARGETS
from nki.ir.locations import resolve
from nki.ir.nodes import Loop, Node, Op, Register, Tensor, TracedKernel
from nki.ir.rewrite import Cloner, Numbering, Original, replace_loops
from nki.verification.hbm_capacity import fits_into_hbm


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

    What an iteration has in HBM each of both loops has for itself, where HBM has room for that.
    """

    name = "peel"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        peeled = replace_loops(kernel, partial(_peel, Cloner))
        if peeled is kernel or fits_into_hbm(peeled.tensors, TARGETS[kernel.target]):
            return peeled
        return replace_loops(kernel, partial(_peel, _SharingHbm))


class _SharingHbm(Cloner):
    """Copies nodes with fresh tensors on chip only."""

    def begins(self, tensor: Tensor) -> bool:
        return tensor.memory.on_chip and super().begins(tensor)


def _predicates(nodes: list[Node], variable: Register) -> Iterator[Predicate]:
    """The accumulate predicates in a body, loops inside included, on a loop's variable."""
    for node in nodes:
        if isinstance(node, Op):
            for value in node.values:
                if value.__class__ is Predicate and _depends(value, variable):
                    yield value
        else:
            yield from _predicates(node.body, variable)


def _depends(predicate: Predicate, variable: Register) -> bool:
    form = predicate.form
    return isinstance(form, Affine) and any(r.number == variable.number for r, _ in form.terms)


def _peel(
    cloning: type[Cloner], node: Loop, body: list[Node], numbering: Numbering
) -> list[Node] | None:
    """The first iteration as a loop of at most one trip, and the rest as another loop."""
    if not any(True for _ in _predicates(body, node.variable)):
        return None
    nodes: list[Node] = []
    original = Original(body)
    middle = _next(node.lower, node.step, node.upper, numbering, nodes, node.location)
    pieces = ((node.lower, middle, _in_first), (middle, node.upper, _in_others))
    for lower, upper, decide in pieces:
        variable = numbering.register(node.variable)
        cloner = cloning(
            numbering,
            {node.variable: Affine(0, ((variable, 1),))},
            partial(decide, node),
        )
        unroll = node.unroll and decide is _in_others
        copy = cloner.nodes(original)
        nodes.append(Loop(variable, lower, upper, node.step, copy, unroll, node.location))
    return nodes


def _in_first(node: Loop, predicate: Predicate) -> Any:
    """What is left of a predicate where the loop's variable has its first value."""
    if not _depends(predicate, node.variable):
        return predicate
    form = substitute(predicate.form, {node.variable.number: _form(node.lower)})
    verdict = prove(form, predicate.op)
    return Predicate(form, predicate.op) if verdict is None else verdict


def _in_others(node: Loop, predicate: Predicate) -> Any:
    """True, for a predicate that grows with the variable and holds from the second value on."""
    if not _depends(predicate, node.variable):
        return predicate
    coefficient = next(c for r, c in predicate.form.terms if r.number == node.variable.number)
    second = substitute(predicate.form, {node.variable.number: _form(node.lower) + node.step})
    grows = prove(coefficient, ">") and predicate.op in _GROWING
    if not grows or not prove(second, _GROWING[predicate.op]):
        raise NeuronError(
            "not-supported",
            f"accumulate=({predicate}) is not false in the first iteration of a loop and true in "
            "the others",
            hint="Pass accumulate=(i > first) with the loop's variable, or leave it out.",
            location=resolve(node.location),
        )
    return True


_GROWING = {">": ">", ">=": ">=", "!=": ">"}


def _form(bound: Any) -> Any:
    return Affine(0, ((bound, 1),)) if isinstance(bound, Register) else bound


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
