"""Rows that are too long to be sorted in one partition.

Where few elements are wanted, parts of a row are sorted, and then what is first in each of them.
Else the place of each element is the number of elements that come before it, which takes as many
comparisons as there are pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import nki.language as nl
from graph_compiler.host_kernels.bodies import ScalarBody, SortKernel
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.evaluation import evaluate
from graph_compiler.lower.nests.nest import PARTITIONS, numbers
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.schedule.steps import Place, item_size
from graph_compiler.schedule.views import row_major
from isa.alu import ALU
from isa.enums import OobMode
from nki.ir.views.tensor import NkiTensor

Emit = Callable[[DeviceProgram, SortKernel, Sequence[Any]], None]

BLOCK = 2048
"""Elements that others are compared with at a time."""


def in_parts(
    device: DeviceProgram, sort: SortKernel, words: Sequence[Place], size: int, emit: Emit
) -> None:
    """The first elements of parts of so many elements, with their positions, and then the first
    ones of these. `emit` sorts short rows."""
    *rows, count = sort.counts
    number = len(sort.inputs)
    outputs, inputs = words[: len(sort.outputs)], list(words[len(sort.outputs) :][:number])
    full, left = divmod(count, size)
    kept = full * sort.taken + min(sort.taken, left)
    positions = Place(device.constant(np.arange(count, dtype=np.int32)))
    forms = [*sort.inputs, (_INDEX, (*[0] * len(rows), 1))]
    strides = row_major((*rows, kept))
    scratch = [Place(device.buffer(type, (*rows, kept)).buffer) for type, _ in forms]
    body = _with_payload(sort.body)

    def part(first: int, blocks: int, length: int) -> None:
        taken = min(sort.taken, length)
        own = SortKernel(
            (*rows, blocks, length),
            taken,
            tuple((type, (*strides[:-1], taken, 1)) for type, _ in forms),
            tuple((type, (*s[:-1], size * s[-1], s[-1])) for type, s in forms),
            body,
        )
        targets = [
            Place(place.buffer, first * sort.taken * item_size(type))
            for place, (type, _) in zip(scratch, forms)
        ]
        sources = [
            Place(place.buffer, place.offset + first * size * s[-1] * item_size(type))
            for place, (type, s) in zip([*inputs, positions], forms)
        ]
        emit(device, own, [*targets, *sources])

    if full:
        part(0, full, size)
    if left:
        part(full, 1, left)
    rest = replace(
        sort,
        counts=(*rows, kept),
        inputs=tuple((type, strides) for type, _ in forms),
        body=body,
    )
    emit(device, rest, [*outputs, *scratch])


_INDEX = "s32"


def _with_payload(body: ScalarBody) -> ScalarBody:
    """A comparator of one array more, which it does not look at."""
    count = len(body.parameters)

    def moved(value: int) -> int:
        return value if value < count else value + 2

    steps = tuple(step._replace(arguments=tuple(map(moved, step.arguments))) for step in body.steps)
    return ScalarBody((*body.parameters, _INDEX, _INDEX), steps, tuple(map(moved, body.results)))


def by_rank(device: DeviceProgram, sort: SortKernel, words: Sequence[Place]) -> None:
    """Every element at the place that it has in order, row by row."""
    *rows, count = sort.counts
    for index in np.ndindex(*rows):
        ranks = _Ranks(device, sort, words, index)
        size = min(PARTITIONS, count)
        for block in numbers(device.builder, count // size, 1, overlap=False):
            ranks.store(size, block * size)
        if count % size:
            ranks.store(count % size, count - count % size)


class _Ranks:
    """The elements of one row."""

    def __init__(
        self, device: DeviceProgram, sort: SortKernel, words: Sequence[Place], index: Sequence[int]
    ) -> None:
        self.device = device
        self.sort = sort
        self.count = sort.counts[-1]
        offsets = [
            sum(i * step for i, step in zip(index, strides))
            for _, strides in (*sort.outputs, *sort.inputs)
        ]
        operands = list(zip(words, (*sort.outputs, *sort.inputs), offsets))
        self.outputs = operands[: len(sort.outputs)]
        self.inputs = operands[len(sort.outputs) :]
        place = Place(device.constant(np.arange(self.count, dtype=np.int32)))
        self.inputs.append((place, (_INDEX, (1,)), 0))
        self.outside = math.prod(sort.counts)
        used = {argument for step in sort.body.steps for argument in step.arguments}
        looked_at = used | set(sort.body.results)
        self.keys = [n for n in range(len(sort.inputs)) if {2 * n, 2 * n + 1} & looked_at]

    def _tile(self, number: int, rows: int, columns: int, first: Any, along: int) -> NkiTensor:
        """Elements of an array along a dimension of a tile, repeated along the other."""
        place, (type, strides), offset = self.inputs[number]
        step = strides[-1]
        pattern = [(0 if along else step, rows), (step if along else 0, columns)]
        tile = self.device.tile((rows, columns), DTYPES[type])
        start = offset + first * step
        self.device.copy(tile, self.device.elements(place, type, pattern, start))
        return tile

    def store(self, rows: int, first: Any) -> None:
        """So many elements from one on, at their places."""
        device = self.device
        own = [self._tile(n, rows, 1, first, along=0) for n in range(len(self.inputs))]
        total = nl.full((rows, 1), 0.0, dtype="float32", buffer=nl.sbuf)
        size = min(BLOCK, self.count)
        for block in numbers(device.builder, self.count // size, 1, overlap=False):
            self._count(total, own, size, block * size)
        if self.count % size:
            self._count(total, own, self.count % size, self.count - self.count % size)
        rank = nl.copy(total, dtype="int32")
        if self.sort.taken < self.count:
            wanted = nl.less(total, float(self.sort.taken), dtype="uint8")
            rank = nl.where(wanted, rank, self.outside, dtype="int32")
        for which, (place, (type, strides), offset) in enumerate(self.outputs):
            value = own[which] if which < len(self.sort.inputs) else own[-1]
            value = value if value.dtype == DTYPES[type] else nl.copy(value, dtype=DTYPES[type])
            pattern = [(strides[-1], self.count), (1, 1)]
            target = device.elements(place, type, pattern, offset).vector_select(0, rank)
            device.builder.emit("dma_copy", dst=target, src=value, oob_mode=OobMode.skip)

    def _count(self, total: NkiTensor, own: list[NkiTensor], columns: int, first: Any) -> None:
        """Add the number of those among a block that come before each."""
        rows = total.shape[0]
        numbers_ = [*self.keys, len(self.inputs) - 1]
        others = {n: self._tile(n, rows, columns, first, along=1) for n in numbers_}
        before, behind = self._compared(others, own), self._compared(own, others)
        earlier = nl.less(others[numbers_[-1]], own[-1], dtype="uint8")
        equal = nl.bitwise_and(nl.bitwise_xor(behind, 1), earlier)
        found = nl.copy(nl.bitwise_or(before, equal), dtype="float32")
        some = self.device.tile((rows, 1), "float32")
        builder = self.device.builder
        builder.emit("tensor_reduce", dst=some, op=ALU["add"], data=found, axis=(1,))
        builder.emit("tensor_copy", dst=total, src=nl.add(total, some))

    def _compared(self, left: Any, right: Any) -> NkiTensor:
        """Whether elements of one come before those of the other."""
        body = self.sort.body
        arguments: list[Any] = []
        for number in range(len(self.sort.inputs)):
            known = number in self.keys
            arguments += [left[number], right[number]] if known else [None, None]
        value = evaluate(body.steps, arguments[: len(body.parameters)])[body.results[0]]
        assert isinstance(value, NkiTensor)
        return value
