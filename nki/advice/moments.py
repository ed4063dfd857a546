"""Mean and variance in one pass over a tile, where a kernel takes two sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from isa.alu import ACTIVATIONS, ALU
from isa.enums import Engine, ReduceCommand
from isa.operations.scalar import Activation, ActivationReduce
from isa.operations.statistics import BnAggr, BnStats
from isa.operations.vector import ScalarTensorTensor, TensorReduce, TensorScalar, TensorTensor
from isa.rules import check_call
from isa.spec import Operation
from isa.target import TARGETS
from nki.advice.changed import Changed, Line, line_of
from nki.advice.reads import Fields, TensorUses, same_view, sums_rows
from nki.ir.begins import begin, begun_by, written_by
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel
from nki.ir.rewrite import Numbering
from nki.transformations.rewrites import rewritten

ADD, MULTIPLY, SUBTRACT = ALU["add"], ALU["multiply"], ALU["subtract"]

_OF_A_CALL, _MOMENTS = 6, 2
"""What `bn_stats` writes for a call, and `bn_aggr` in all."""


def one_pass_moments(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """The sum of a tile and that of its squares, or of the squares of what differs from the mean,
    by `bn_stats` and `bn_aggr`.

    Before:

        nisa.tensor_reduce(dst=mean, op=nl.add, data=x, axis=1)
        nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1 / n)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.subtract, operand0=mean)
        nisa.activation_reduce(dst=y, op=nl.square, data=x, reduce_op=nl.add, reduce_res=squares)

    After:

        nisa.bn_stats(dst=stats, data=x)
        nisa.bn_aggr(dst=moments, data=stats)
        nisa.tensor_scalar(dst=mean, data=moments[:, 0:1], op0=nl.multiply, operand0=1)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.subtract, operand0=mean)
        nisa.tensor_scalar(dst=squares, data=moments[:, 1:2], op0=nl.multiply, operand0=n)

    where an author reads the moments, and needs none of the products.
    """
    found = _Replacing(kernel, line)
    changed = rewritten(kernel, found.nodes)
    if changed is not None:
        lines = ", ".join(
            map(str, sorted({place[1] for op in found.ops if (place := line_of(op))}))
        )
        text = f"take mean and variance in one pass (nisa.bn_stats, bn_aggr) for line {lines}"
        of = frozenset(found.ops)
        yield Changed("separate mean and variance", text, changed, same_results=False, of=of)


class _TileSums(NamedTuple):
    """Where a tile is summed, and where its squares, into `squares`. `gone` are the operations that
    make the squares and their sum. `centred`: the mean is subtracted first."""

    first: int
    gone: tuple[int, ...]
    squares: Access
    centred: bool


class _Replacing:
    """Sums of one line that are replaced; `ops` are the operations that go."""

    def __init__(self, kernel: TracedKernel, line: Line) -> None:
        self.kernel = kernel
        self.line = line
        self.ops: set[Op] = set()

    def nodes(self, nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        """The nodes with moments for sums; None without any."""
        replaced: dict[int, list[Node]] = {}
        uses = TensorUses(self.kernel, nodes)
        for index, node in enumerate(nodes):
            if not isinstance(node, Op) or not _is_row_sum(node):
                continue
            sums = _Watched(uses, index).sums()
            if sums is None:
                continue
            ops = [one for i in (index, *sums.gone) if isinstance(one := nodes[i], Op)]
            if self.line not in map(line_of, ops):
                continue
            made = _made(uses, sums, numbering)
            if made is not None and not replaced.keys() & made.keys():
                replaced |= made
                self.ops.update(ops)
        if not replaced:
            return None
        return [new for i, node in enumerate(nodes) for new in replaced.get(i, [node])]


class _Watched:
    """What views hold after the sum of a tile: the tile, its sum, the mean, the negative mean, the
    tile minus its mean, or squares with the operation that makes them."""

    def __init__(self, uses: TensorUses, first: int) -> None:
        op = uses.nodes[first]
        assert isinstance(op, Op)
        fields = op.fields
        self.uses, self.all, self.first = uses, uses.nodes, first
        self.data: Access = fields["data"]
        self.size = self.data.shape[-1]
        self.held: list[tuple[str, Access, int]] = [
            ("tile", self.data, first),
            ("sum", fields["dst"], first),
        ]

    def sums(self) -> _TileSums | None:
        """Where the squares are summed, if they are before anything else changes the tile."""
        for number in range(self.first + 1, len(self.all)):
            node = self.all[number]
            if not isinstance(node, Op):
                return None
            fields = node.fields
            found = self._sum_of_squares(node.row, fields, number)
            if found is not None:
                return found
            made = self._mean(node) or self._made(node.row, fields)
            written = set(written_by(node))
            self.held = [one for one in self.held if one[1].storage not in written]
            if made:
                self.held.append((made, fields["dst"], number))
            if not self.held:
                return None
        return None

    def _is(self, value: Any, *kinds: str) -> str:
        """Which of these a value is; "" for none."""
        return next((k for k, view, _ in self.held if k in kinds and same_view(value, view)), "")

    def _mean(self, op: Op) -> str:
        """Whether an operation makes the mean, or minus it."""
        signs = (_sign(op, view, self.size) for kind, view, _ in self.held if kind == "sum")
        return {1: "mean", -1: "minus mean"}.get(next(signs, 0), "")

    def _made(self, row: type[Operation], fields: Fields) -> str:
        """What an operation makes of what is held."""
        if row is TensorScalar and fields["op1"] is None and not fields["reverse0"]:
            by = fields["operand0"]
            if fields["op0"] is SUBTRACT and self._is(by, "mean"):
                return "rest" if self._is(fields["data"], "tile") else ""
        squares = {"tile": "squares", "rest": "squares of the rest"}
        if row is TensorTensor and fields["op"] is MULTIPLY:
            if same_view(fields["data1"], fields["data2"]):
                return squares.get(self._is(fields["data1"], "tile", "rest"), "")
        if row is Activation and fields["reduce_cmd"] is ReduceCommand.idle:
            return squares.get(self._squared(fields), "") if fields["reduce_res"] is None else ""
        return ""

    def _squared(self, fields: Fields) -> str:
        """What an activation squares: the tile, the rest, or "" for anything else."""
        if fields["op"] is not ACTIVATIONS["square"] or fields["scale"] != 1.0:
            return ""
        if fields["bias"] is None:
            return self._is(fields["data"], "tile", "rest")
        both = self._is(fields["data"], "tile") and self._is(fields["bias"], "minus mean")
        return "rest" if both else ""

    def _sum_of_squares(
        self, row: type[Operation], fields: Fields, number: int
    ) -> _TileSums | None:
        if row is TensorReduce and sums_rows(fields):
            for kind, view, at in self.held:
                if kind.startswith("squares") and same_view(fields["data"], view):
                    if not self.uses.is_unread(number, view.storage, view):
                        return None
                    rest = kind != "squares"
                    return _TileSums(self.first, (at, number), fields["dst"], rest)
        commands = ReduceCommand.reset_reduce, None
        is_summed = row is ActivationReduce or row is Activation
        if is_summed and fields.get("reduce_op") is ADD and fields["reduce_res"] is not None:
            what = self._squared(fields)
            if what and fields.get("reduce_cmd") in commands:
                if self.uses.is_unread(number, fields["dst"].storage, fields["dst"]):
                    return _TileSums(self.first, (number,), fields["reduce_res"], what == "rest")
        return None


def _is_row_sum(op: Op) -> bool:
    """Whether an operation sums rows of a tile whose size is known."""
    if op.row is not TensorReduce:
        return False
    fields = op.fields
    data = fields["data"]
    is_plain = data.vector_offset is None and all(type(size) is int for size in data.shape)
    return sums_rows(fields) and is_plain and len(data.shape) == 2


def _made(uses: TensorUses, sums: _TileSums, numbering: Numbering) -> dict[int, list[Node]] | None:
    """What stands in the place of the sums, and of means that are made of them: by number of the
    node."""
    nodes, target = uses.nodes, TARGETS[uses.kernel.target]
    at, last = nodes[sums.first], nodes[sums.gone[-1]]
    assert isinstance(at, Op) and isinstance(last, Op)
    total, data = at.fields["dst"], at.fields["data"]
    rows, size = data.shape
    most = target.batch_norm_free_max.value
    starts = range(0, size, most)
    stats = _tile(numbering, data.storage, rows, _OF_A_CALL * len(starts))
    moments = _tile(numbering, data.storage, rows, _MOMENTS)
    mean, variance = _columns(moments, 0, 1), _columns(moments, 1, 1)
    before: list[Node] = [begin(stats), begin(moments)]
    for number, start in enumerate(starts):
        offset = data.offset + start * data.strides[1]
        shape = rows, min(most, size - start)
        part = Access(data.storage, data.dtype, shape, data.strides, offset)
        triples = _columns(stats, _OF_A_CALL * number, _OF_A_CALL)
        before.append(Op.of(BnStats, at.location, dst=triples, data=part))
    every = _columns(stats, 0, stats.pitch)
    before.append(Op.of(BnAggr, at.location, dst=_columns(moments, 0, _MOMENTS), data=every))
    after: list[Node] = []
    if not sums.centred:
        squares = {
            "data": mean,
            "op0": MULTIPLY,
            "operand0": mean,
            "op1": ADD,
            "operand1": variance,
        }
        after.append(Op.of(ScalarTensorTensor, last.location, dst=variance, **squares))
    made: dict[int, list[Node]] = {number: [] for number in sums.gone[:-1]}
    for number, here, result, moment in (
        (sums.first, before, total, mean),
        (sums.gone[-1], after, sums.squares, variance),
    ):
        means = _means(uses, number, result, size)
        if means is None:
            here.append(_product(nodes[number], result, moment, size))
        for reader, factor in (means or {}).items():
            op = nodes[reader]
            assert isinstance(op, Op)
            made[reader] = [_product(op, op.fields["dst"], moment, factor)]
    made |= {sums.first: before, sums.gone[-1]: after}
    ops = [op for new in made.values() for op in new if isinstance(op, Op)]
    refused = any(check_call(op.row, op.values, target) is not None for op in ops)
    return None if refused else made


def _means(uses: TensorUses, number: int, view: Access, size: int) -> dict[int, int] | None:
    """The operations that divide a sum by the number of elements, with the sign that they give it,
    if nobody else reads the sum."""
    found: dict[int, int] = {}
    for index in uses.after(number, view.storage):
        node = uses.nodes[index]
        if begun_by(node) is view.storage:
            break
        sign = _sign(node, view, size) if isinstance(node, Op) else 0
        if not sign:
            return None
        found[index] = sign
    last = max(found, default=number)
    return found if uses.is_unread(last, view.storage, view) else None


def _sign(op: Op, view: Access, size: int) -> int:
    """1 or -1 where an operation multiplies a view by plus or minus one in a number of elements;
    else 0."""
    fields = op.fields
    if op.row is not TensorScalar or fields["op0"] is not MULTIPLY or fields["op1"] is not None:
        return 0
    by = fields["operand0"]
    if not same_view(fields["data"], view) or not isinstance(by, (int, float)):
        return 0
    if abs(abs(by) * size - 1) > 1e-6:
        return 0
    return 1 if by > 0 else -1


def _tile(numbering: Numbering, like: Tensor, rows: int, columns: int) -> Tensor:
    """A tile of fp32 in the memory of another one."""
    number = numbering.tensor(like, "").number
    shape = rows, columns
    tile = Tensor(number, "moments", like.memory, "float32", shape, "local", None, like.core)
    numbering.tensors[-1] = tile
    return tile


def _columns(tensor: Tensor, start: int, count: int) -> Access:
    shape = tensor.shape[0], count
    return Access(tensor, tensor.dtype, shape, (tensor.pitch, 1), start)


def _product(at: Node, dst: Access, data: Access, by: int) -> Op:
    given = {"dst": dst, "data": data, "op0": MULTIPLY, "operand0": float(by)}
    return Op.of(TensorScalar, at.location, engine=Engine.vector, **given)
