"""Two instructions that one instruction does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from isa.alu import ACTIVATIONS, ALU
from isa.enums import Engine, ReduceCommand
from isa.operations.scalar import Activation
from isa.operations.vector import ScalarTensorTensor, TensorReduce, TensorScalar, TensorTensor
from isa.rules import check_call
from isa.spec import Operation
from isa.target import TARGETS
from nki.advice.changed import Changed, Line, line_of
from nki.advice.reads import Fields, TensorUses, same_view, sums_rows
from nki.ir.begins import begin, written_by
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel
from nki.ir.rewrite import Numbering
from nki.transformations.rewrites import is_whole, rewritten, writers

Fuse = Callable[[Fields, Fields, Numbering], "Fused | None"]

MULTIPLY, ADD, SUBTRACT = ALU["multiply"], ALU["add"], ALU["subtract"]


class Fused(NamedTuple):
    """One operation in the place of two, and what comes `before` it: what negates the column of a
    tensor, `negated`."""

    row: type[Operation]
    fields: Fields
    before: tuple[Node, ...] = ()
    negated: Tensor | None = None


class RowFusion(NamedTuple):
    """Two rows of which the second reads what the first writes, at its operand `reads`, and what
    both become. `bottleneck` names what is wrong with two. `keeps`: the result of the first stays
    in its tensor."""

    first: type[Operation]
    second: type[Operation]
    reads: str
    bottleneck: str
    text: str
    fuse: Fuse
    keeps: bool = False


def fused(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """The line's operations made one with those whose results they take, or that take theirs.

    Before:

        nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=2.0)
        nisa.activation(dst=y, op=nl.exp, data=y)
        nisa.tensor_reduce(dst=total, op=nl.add, data=y, axis=1)

    After:

        nisa.activation(dst=y, op=nl.exp, data=x, scale=2.0)
        nisa.tensor_reduce(dst=total, op=nl.add, data=y, axis=1)

    or, as another change:

        nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=2.0)
        nisa.activation_reduce(dst=y, op=nl.exp, data=y, reduce_op=nl.add, reduce_res=total)
    """
    for fusion in FUSIONS:
        found = _Fusing(kernel, line, fusion)
        changed = rewritten(kernel, found.nodes)
        if changed is not None:
            others = sorted(found.lines - {line[1]})
            beside = f" with line {', '.join(map(str, others))}" if others else ""
            same = found.exact and not fusion.keeps
            text, pairs = fusion.text.format(beside), frozenset(found.pairs)
            yield Changed(fusion.bottleneck, text + found.negation(), changed, same, of=pairs)


class _Fusing:
    """One kind of fusion at a line; `pairs` and `lines` are what took part."""

    def __init__(self, kernel: TracedKernel, line: Line, fusion: RowFusion) -> None:
        self.kernel = kernel
        self.line = line
        self.fusion = fusion
        self.lines: set[int] = set()
        self.pairs: set[Op] = set()
        self.exact = True
        self.negated: set[Tensor] = set()

    def negation(self) -> str:
        """How the reductions make minus their columns themselves, where these are needed."""
        known = writers(self.kernel) if self.negated else {}
        ops = [op for tensor in self.negated for op in known.get(tensor, [])]
        if not ops or any(op.row is not TensorReduce or op.fields["negate"] for op in ops):
            return ""
        lines = sorted({place[1] for op in ops if (place := line_of(op)) is not None})
        where = ", ".join(map(str, lines))
        return f"; nisa.tensor_reduce of line {where} makes minus its column by negate=True"

    def nodes(self, nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        """The nodes with pairs fused; None without any."""
        replaced: dict[int, list[Node]] = {}
        uses = TensorUses(self.kernel, nodes)
        for index, node in enumerate(nodes):
            if not isinstance(node, Op) or node.row is not self.fusion.first or index in replaced:
                continue
            other = self._second(uses, index)
            if other is None or other in replaced:
                continue
            made = self._made(node, nodes[other], numbering)
            if made is not None:
                replaced |= {index: [], other: made}
        if not replaced:
            return None
        return [new for i, node in enumerate(nodes) for new in replaced.get(i, [node])]

    def _second(self, uses: TensorUses, index: int) -> int | None:
        """Where the other operation is, if both may become one there."""
        nodes = uses.nodes
        first = nodes[index]
        assert isinstance(first, Op)
        result = first.fields["dst"]
        tensor = result.storage
        sources = {value.storage for value in first.values if isinstance(value, Access)} - {tensor}
        for number in uses.after(index, tensor)[:1]:
            between, node = nodes[index + 1 : number], nodes[number]
            if any(not isinstance(n, Op) or sources & set(written_by(n)) for n in between):
                return None
            fits = isinstance(node, Op) and self._fits(first, node, result)
            ends = self.fusion.keeps or uses.is_dead(number, tensor, result)
            return number if fits and ends else None
        return None

    def _fits(self, first: Op, second: Op, result: Access) -> bool:
        if second.row is not self.fusion.second or self.line not in (
            line_of(first),
            line_of(second),
        ):
            return False
        return same_view(second.fields[self.fusion.reads], result)

    def _made(self, first: Op, second: Node, numbering: Numbering) -> list[Node] | None:
        assert isinstance(second, Op)
        one, two = first.fields, second.fields
        found = self.fusion.fuse(one, two, numbering)
        if found is None:
            return None
        op = Op.of(found.row, **found.fields)
        if check_call(op.row, op.values, TARGETS[self.kernel.target]) is not None:
            return None
        if found.negated is not None:
            self.negated.add(found.negated)
        self.pairs |= {first, second}
        self.exact &= one["dst"].dtype == "float32"
        self.lines |= {place[1] for op in (first, second) if (place := line_of(op)) is not None}
        op = second.with_values(op.values, op.row)
        return [*(_placed(node, second) for node in found.before), op]


def _placed(node: Node, at: Op) -> Node:
    """A new node, as if it stood at the line of another one."""
    assert isinstance(node, Op)
    return Op(node.row, node.values, at.location, None)


def _into_activation(first: Fields, second: Fields, numbering: Numbering) -> Fused | None:
    """A product, a sum or both, as scale and bias."""
    scale, bias = 1.0, None
    steps = [(first["op0"], first["operand0"], first["reverse0"])]
    if first["op1"] is not None:
        steps.append((first["op1"], first["operand1"], first["reverse1"]))
    if second["scale"] != 1.0 or second["bias"] is not None:
        return None
    before: tuple[Node, ...] = ()
    column: Tensor | None = None
    for number, (op, operand, is_reversed) in enumerate(steps):
        if op is MULTIPLY and number == 0:
            scale = operand
        elif op in (ADD, SUBTRACT) and bias is None and not (op is SUBTRACT and is_reversed):
            bias = operand
            if op is SUBTRACT:
                negated = _negated(operand, numbering)
                if negated is None:
                    return None
                bias, before = negated
                column = operand.storage if before else None
        else:
            return None
    fields = {**second, "data": first["data"], "scale": scale, "bias": bias}
    return Fused(Activation, fields, before, column)


def _negated(operand: Any, numbering: Numbering) -> tuple[Any, tuple[Node, ...]] | None:
    """Minus a number, or a column of its own with minus another one."""
    if not isinstance(operand, Access):
        return -operand, ()
    if not is_whole(operand) or operand.vector_offset is not None:
        return None
    tensor = numbering.tensor(operand.storage, ".negated")
    column = Access(tensor, operand.dtype, operand.shape, operand.strides, operand.offset)
    fields = {"dst": column, "data": operand, "op0": MULTIPLY, "operand0": -1.0}
    return column, (begin(tensor), Op.of(TensorScalar, engine=Engine.vector, **fields))


def _chained(first: Fields, second: Fields, numbering: Numbering) -> Fused | None:
    """Two operators with numbers or columns, one behind the other."""
    if first["op1"] is not None or second["op1"] is not None:
        return None
    later = {
        "op1": second["op0"],
        "operand1": second["operand0"],
        "reverse1": second["reverse0"],
        "dst": second["dst"],
        "engine": second["engine"],
    }
    return Fused(TensorScalar, {**first, **later})


def _before_tensor(reads: str, other: str) -> Fuse:
    """An operator with a number or a column, then one with a tensor, which is `other`."""

    def fuse(first: Fields, second: Fields, numbering: Numbering) -> Fused | None:
        if first["op1"] is not None or same_view(second[other], first["dst"]):
            return None
        fields = {name: first[name] for name in ("data", "op0", "operand0", "reverse0")}
        fields |= {"dst": second["dst"], "op1": second["op"], "operand1": second[other]}
        return Fused(ScalarTensorTensor, {**fields, "reverse1": reads == "data2"})

    return fuse


def _reduced(first: Fields, second: Fields, numbering: Numbering) -> Fused | None:
    """An activation whose results are summed up."""
    idle = first["reduce_cmd"] is ReduceCommand.idle and first["reduce_res"] is None
    if not idle or not sums_rows(second):
        return None
    return Fused(Activation, {**first, **_accumulated(second)})


def _square(first: Fields, second: Fields, numbering: Numbering) -> Fused | None:
    """Squares that are summed up."""
    is_square = first["op"] is MULTIPLY and same_view(first["data1"], first["data2"])
    if not is_square or not sums_rows(second):
        return None
    fields: Fields = {"op": ACTIVATIONS["square"], "data": first["data1"], "dst": first["dst"]}
    return Fused(Activation, {**fields, **_accumulated(second)})


def _accumulated(reduction: Fields) -> Fields:
    return {
        "reduce_op": ADD,
        "reduce_res": reduction["dst"],
        "reduce_cmd": ReduceCommand.reset_reduce,
    }


FUSIONS = (
    RowFusion(
        TensorScalar,
        Activation,
        "data",
        "separate scale and bias",
        "make it one nisa.activation{}, with scale= and bias=",
        _into_activation,
    ),
    RowFusion(
        TensorScalar,
        TensorScalar,
        "data",
        "separate operators",
        "make it one nisa.tensor_scalar{}, with op0= and op1=",
        _chained,
    ),
    *(
        RowFusion(
            TensorScalar,
            TensorTensor,
            reads,
            "separate operators",
            "make it one nisa.scalar_tensor_tensor{}",
            _before_tensor(reads, other),
        )
        for reads, other in (("data1", "data2"), ("data2", "data1"))
    ),
    RowFusion(
        Activation,
        TensorReduce,
        "data",
        "separate sum",
        "make it one nisa.activation_reduce{}",
        _reduced,
        keeps=True,
    ),
    RowFusion(
        TensorTensor,
        TensorReduce,
        "data",
        "separate sum",
        "make it one nisa.activation_reduce{} with op=nl.square",
        _square,
        keeps=True,
    ),
)
"""Pairs of rows that one operation does, and how."""
