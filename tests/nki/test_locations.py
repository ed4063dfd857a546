"""Lines and variables of the author's code."""

import inspect

from traced import sbuf, traced, value

import nki.isa as nisa
import nki.language as nl
from isa.alu import ALU
from isa.enums import Engine
from nki.ir.locations import resolve as line_of

here = inspect.currentframe


def test_operations_are_recorded_in_order_with_their_lines():
    lines = []

    def kernel(a):
        tile = sbuf(128, 8)
        lines.append(here().f_lineno + 1)
        nisa.dma_copy(dst=tile, src=a)
        lines.append(here().f_lineno + 1)
        nisa.tensor_scalar(
            dst=tile, data=tile, op0=nl.multiply, operand0=2, op1=nl.add, operand1=1.5
        )
        lines.append(here().f_lineno + 1)
        nisa.dma_copy(a, tile, name="back")

    nodes = traced(kernel, (128, 8)).bodies[0]
    assert [n.row.name for n in nodes] == [
        "storage_begin",
        "dma_copy",
        "tensor_scalar",
        "dma_copy",
    ]
    assert [line_of(n.location).line for n in nodes[1:]] == lines
    where = line_of(nodes[1].location)
    assert where.text[where.column : where.end_column] == "nisa.dma_copy(dst=tile, src=a)"
    assert where.file == __file__ and where.function == "kernel"
    scalar = nodes[2]
    assert value(scalar, "op0") is ALU["multiply"] and value(scalar, "op1") is ALU["add"]
    assert value(scalar, "operand0") == 2 and value(scalar, "operand1") == 1.5
    assert value(scalar, "engine") is Engine.vector and value(scalar, "reverse0") is False
    assert nodes[3].name == "back" and nodes[1].name is None


def test_tensors_are_named_after_their_variables():
    class Holder:
        pass

    def kernel():
        first = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        for _ in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        many = [nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)]
        given = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf, name="weights")
        again = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf, name="weights")
        holder = Holder()
        holder.part = nl.zeros((128, 8), dtype=nl.float32)
        assert (first.name, tile.name, given.name) == ("first", "tile.1", "weights")
        assert (again.name, holder.part.name, many[0].name) == ("weights.1", "part", "tensor")

    kernel = traced(kernel)
    assert len({t.name for t in kernel.tensors}) == len(kernel.tensors)
