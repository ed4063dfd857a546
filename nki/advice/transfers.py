"""Longer descriptors: rows that are contiguous in HBM, and few transfers instead of many."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from isa.affine import Affine
from isa.dtypes import DTYPES
from nki.advice.changed import Changed, Line, at_line, line_of
from nki.ir.begins import begin, begun_by
from nki.ir.nodes import Access, Loop, Node, Op, Tensor, TracedKernel
from nki.ir.replace import Renamed, seen_through
from nki.ir.rewrite import Cloner, Numbering, Original
from nki.ir.views.layout import dense_strides
from nki.transformations.rewrites import (
    TransferOp,
    is_whole,
    rewritten,
    transfer,
    with_ops,
    with_views,
    writers,
)

EFFICIENT = 512
"""Bytes of a run below which a transfer is worth another layout: DMA engines are twice as slow at
least (SDK nki/deep-dives/nki-dma-bandwidth-guide.rst)."""

ROW_BYTES = (2048, 8192, 32768)
"""Bytes of a row that merged transfers come to, of which the best is proposed."""


def contiguous_rows(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """The tensor in HBM laid out as the tile is, so that a descriptor moves a whole row.

    Before:

        nisa.dma_copy(dst=x, src=a.ap(pattern=[[1, 128], [columns, 512]]))

    After, with `a` transposed by whoever makes it:

        nisa.dma_copy(dst=x, src=a[:128, :])
    """
    replaced: dict[Op, Op] = {}
    names: dict[str, None] = {}
    for op in at_line(kernel, line):
        found = transfer(op, kernel)
        if found is None or not _is_short(found):
            continue
        view = _row_major(found.hbm)
        values = tuple(view if value is found.hbm else value for value in op.values)
        replaced[op] = op.with_values(values)
        names[found.hbm.storage.label] = None
    if replaced:
        text = f"lay out {', '.join(names)} in HBM so that each row of the tile is contiguous"
        yield Changed("short descriptors", text, with_ops(kernel, replaced))


def _is_short(found: TransferOp) -> bool:
    hbm, chip = found.hbm, found.chip
    if not all(type(count) is int for count in (*hbm.shape, *hbm.strides, *chip.shape)):
        return False
    return run_bytes(found) < min(EFFICIENT, _row(found) * DTYPES[hbm.dtype].size)


def run_bytes(found: TransferOp) -> int:
    """The bytes of a run of a transfer: those of a partition that follow each other in HBM."""
    hbm, run = found.hbm, 1
    for count, stride in zip(reversed(hbm.shape), reversed(hbm.strides)):
        if count == 1:
            continue
        if stride != run:
            break
        run *= count
    return min(run, _row(found)) * DTYPES[hbm.dtype].size


def _row(found: TransferOp) -> int:
    return math.prod(found.chip.shape[1:])


def _row_major(hbm: Access) -> Access:
    """A view of the same shape in which elements follow each other as they do in the tile."""
    view = seen_through(hbm, hbm.storage, hbm.offset)
    view.strides = dense_strides(hbm.shape)
    return view


def merged_loads(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """Loads of columns that follow each other become one load of all of them.

    Before:

        for start in range(0, columns, 64):
            nisa.dma_copy(dst=x, src=a[:, start : start + 64])

    After:

        for start in range(0, columns, 512):
            nisa.dma_copy(dst=wide, src=a[:, start : start + 512])
            for part in range(0, 512, 64):
                x = wide[:, part : part + 64]
    """
    known = writers(kernel)
    widths: set[int] = set()
    for limit in ROW_BYTES:
        merging = _Merging(kernel, line, limit, known)
        new = rewritten(kernel, merging.rewrite)
        if new is not None and merging.width not in widths:
            widths.add(merging.width)
            text = f"load {merging.width} columns at a time instead of {merging.narrow}"
            yield Changed("small transfers", text, new)


class _Column(NamedTuple):
    """A load that may be merged: where it stands in its list, and its operands."""

    place: int
    transfer: TransferOp


class _Merging:
    """Merges the loads of a line up to rows of `limit` bytes."""

    def __init__(
        self, kernel: TracedKernel, line: Line, limit: int, known: dict[Tensor, list[Op]]
    ) -> None:
        self.kernel = kernel
        self.line = line
        self.limit = limit
        self.writers = known
        self.narrow = self.width = 0

    def rewrite(self, nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        unrolled = self._unrolled(nodes, numbering)
        groups = self._groups(unrolled)
        result = unrolled
        for group in reversed(groups):
            result = self._merged(result, group, numbering)
        return None if result is nodes else result

    def _unrolled(self, nodes: list[Node], numbering: Numbering) -> list[Node]:
        """Loops whose iterations load columns that follow each other, several times at once."""
        result: list[Node] = []
        for node in nodes:
            times = self._times(node) if isinstance(node, Loop) else 1
            if isinstance(node, Loop) and times > 1:
                node = unrolled(node, times, numbering)
            result.append(node)
        return result if any(new is not old for new, old in zip(result, nodes)) else nodes

    def _times(self, node: Loop) -> int:
        found = [load for inner in node.body if (load := self._load(inner)) is not None]
        if len(found) != 1 or type(node.lower) is not int or type(node.upper) is not int:
            return 1
        src = found[0].src
        terms = dict(src.offset.terms) if isinstance(src.offset, Affine) else {}
        if terms.get(node.variable, 0) * node.step != src.shape[-1]:
            return 1
        return times_of(node, self.limit // (src.shape[-1] * DTYPES[src.dtype].size))

    def _load(self, node: Node) -> TransferOp | None:
        """A load of columns into a tensor of its own, or into columns of a tensor."""
        if not isinstance(node, Op) or line_of(node) != self.line:
            return None
        found = transfer(node, self.kernel)
        if found is None or not found.is_load or not found.is_copy:
            return None
        if found.src.storage in self.writers:
            return None
        for view in (found.src, found.dst):
            if len(view.shape) != 2 or view.strides[1] != 1:
                return None
            if not all(type(count) is int for count in (*view.shape, *view.strides)):
                return None
        dst = found.dst
        if dst.storage.address is not None or dst.storage.divided or dst.dtype != dst.storage.dtype:
            return None
        return found

    def _groups(self, nodes: list[Node]) -> list[list[_Column]]:
        """Loads next to each other in HBM, as many as a row holds."""
        groups: list[list[_Column]] = []
        for index, node in enumerate(nodes):
            load = self._load(node)
            if load is None:
                continue
            column = _Column(index, load)
            if groups and self._follows(groups[-1], column):
                groups[-1].append(column)
            else:
                groups.append([column])
        return [group for group in groups if len(group) > 1]

    def _follows(self, group: Sequence[_Column], column: _Column) -> bool:
        last, new = group[-1].transfer, column.transfer
        width, size = new.src.shape[1], DTYPES[new.src.dtype].size
        if (len(group) + 1) * width * size > self.limit or last.src.storage is not new.src.storage:
            return False
        if (last.src.shape, last.src.strides) != (new.src.shape, new.src.strides):
            return False
        if new.src.offset - last.src.offset != width:
            return False
        if last.dst.storage is new.dst.storage:
            return bool(new.dst.offset - last.dst.offset == width)
        return self._is_own(last.dst) and self._is_own(new.dst)

    def _is_own(self, dst: Access) -> bool:
        return is_whole(dst) and dst.offset == 0 and len(self.writers.get(dst.storage, [])) <= 1

    def _merged(self, nodes: list[Node], group: list[_Column], numbering: Numbering) -> list[Node]:
        first = group[0].transfer
        narrow = first.src.shape[1]
        width = narrow * len(group)
        self.narrow, self.width = narrow, max(self.width, width)
        src = _widened(first.src, first.src.storage, width)
        dropped = {column.transfer.op for column in group}
        place = group[0].place
        before = [n for n in nodes[:place] if n not in dropped]
        behind = [n for n in nodes[place:] if n not in dropped]
        if first.dst.storage is group[1].transfer.dst.storage:
            dst = _widened(first.dst, first.dst.storage, width)
            return [*before, with_views(first, dst, src), *behind]
        wide = wide_tensor(first.dst.storage, width, numbering)
        own = {column.transfer.dst.storage: i * narrow for i, column in enumerate(group)}
        parts = _Parts(dict.fromkeys(own, wide), own)
        dst = Access(wide, wide.dtype, (first.dst.shape[0], width), (width, 1))
        before = [n for n in before if begun_by(n) not in own]
        behind = [n for n in behind if begun_by(n) not in own]
        return [*before, begin(wide), with_views(first, dst, src), *parts.nodes(behind)]


class _Parts(Renamed):
    """Views of tensors become views of the columns that they are in a wide one."""

    def __init__(self, tensors: dict[Tensor, Tensor], columns: dict[Tensor, int]) -> None:
        super().__init__(tensors)
        self.columns = columns

    def replaced(self, access: Access, op: Op) -> Access:
        wide = self.tensors.get(access.storage)
        if wide is None:
            return access
        view = seen_through(access, wide, access.offset + self.columns[access.storage])
        pitch = access.storage.pitch
        first = wide.pitch * (access.strides[0] // pitch) if access.shape[0] > 1 else wide.pitch
        view.strides = (first, *access.strides[1:])
        return view


def _widened(view: Access, tensor: Tensor, width: int) -> Access:
    wide = seen_through(view, tensor, view.offset)
    wide.shape = (view.shape[0], width)
    return wide


def wide_tensor(tensor: Tensor, width: int, numbering: Numbering) -> Tensor:
    """Another tensor like one, with rows of so many elements."""
    made = numbering.tensor(tensor, ".wide")
    numbering.tensors[-1] = wide = replace(made, shape=(tensor.shape[0], width), address=None)
    return wide


def times_of(node: Loop, most: int) -> int:
    """How many iterations of a loop of known length may become one, of at most so many."""
    trips = len(range(node.lower, node.upper, node.step))
    return max((n for n in range(1, min(trips, most) + 1) if trips % n == 0), default=1)


def unrolled(node: Loop, times: int, numbering: Numbering) -> Loop:
    """A loop each of whose iterations does what so many did."""
    variable = numbering.register(node.variable)
    body: list[Node] = []
    original = Original(node.body)
    for copy in range(times):
        value = Affine(copy * node.step, ((variable, 1),))
        body += Cloner(numbering, {node.variable: value}, suffix=f".{copy}").nodes(original)
    step = node.step * times
    return Loop(variable, node.lower, node.upper, step, body, node.unroll, node.location)
