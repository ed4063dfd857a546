"""Squares as products of the vector engine."""

from __future__ import annotations

from dataclasses import dataclass

from isa.alu import ACTIVATIONS, ALU
from isa.enums import Engine
from isa.operations.scalar import Activation
from isa.operations.vector import TensorTensor
from isa.rules import check_call
from isa.spec import defaults
from isa.target import TARGETS
from nki.advice.changed import with_ops
from nki.ir.nodes import Kernel, Op, operations


@dataclass(frozen=True)
class SquaresOnVector:
    """Squares whose engine the author leaves open are computed by the vector engine.

    `nl.square` names no engine, and is a function of the scalar engine here. Published counters of
    layer normalisation on trn1 and trn2 have it on the vector engine (LN002, VG001).

    Before:

        activation dst=%y op=square data=%x

    After:

        tensor_tensor dst=%y data1=%x data2=%x op=multiply engine=vector
    """

    name = "squares-on-vector"

    def run(self, kernel: Kernel) -> Kernel:
        replaced: dict[Op, Op] = {}
        for body in kernel.bodies:
            for op in operations(body):
                product = _product(op, kernel)
                if product is not None:
                    replaced[op] = product
        return with_ops(kernel, replaced) if replaced else kernel


def _product(op: Op, kernel: Kernel) -> Op | None:
    """A plain square as the product of its operand with itself."""
    if op.row is not Activation:
        return None
    fields = dict(zip(op.row.field_names, op.values))
    plain = {"dst": fields["dst"], "op": ACTIVATIONS["square"], "data": fields["data"]}
    if op.values != tuple((plain | defaults(Activation)).values()):
        return None
    if "float" not in plain["data"].dtype:
        return None  # products of integers are exact, squares are not
    own = dict.fromkeys(("data1", "data2"), plain["data"])
    own |= {"dst": plain["dst"], "op": ALU["multiply"], "engine": Engine.vector}
    values = tuple((defaults(TensorTensor) | own)[name] for name in TensorTensor.field_names)
    if check_call(TensorTensor, values, TARGETS[kernel.target]) is not None:
        return None
    return Op(TensorTensor, values, op.location, op.name, op.after)


__all__ = ["SquaresOnVector"]
