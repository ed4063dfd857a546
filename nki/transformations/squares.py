"""Squares as products of the vector engine."""

from __future__ import annotations

from dataclasses import dataclass

from isa.alu import ALU
from isa.enums import Engine
from isa.operations.vector import TensorTensor
from isa.rules import check_call
from isa.target import TARGETS
from nki.ir.nodes import Op, TracedKernel, operations
from nki.transformations.rewrites import only_applies, with_ops


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

    def run(self, kernel: TracedKernel) -> TracedKernel:
        replaced: dict[Op, Op] = {}
        for body in kernel.bodies:
            for op in operations(body):
                product = _product(op, kernel)
                if product is not None:
                    replaced[op] = product
        return with_ops(kernel, replaced) if replaced else kernel


def _product(op: Op, kernel: TracedKernel) -> Op | None:
    """A plain square as the product of its operand with itself."""
    if not only_applies(op, "square"):
        return None
    dst, data = op.fields["dst"], op.fields["data"]
    if "float" not in data.dtype:
        return None  # products of integers are exact, squares are not
    own = {"dst": dst, "data1": data, "data2": data, "op": ALU["multiply"]}
    values = Op.of(TensorTensor, engine=Engine.vector, **own).values
    if check_call(TensorTensor, values, TARGETS[kernel.target]) is not None:
        return None
    return op.with_values(values, TensorTensor)
