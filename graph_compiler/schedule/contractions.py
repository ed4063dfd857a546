"""Products as calls of `gemm`.

Operands are taken where they lie, as far as offsets of rows and runs along k describe them; what
does not fit is copied first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.host_kernels.division import DividedDimension
from graph_compiler.host_kernels.gemm import (
    BATCH_TABLE,
    BATCHES,
    BLOCK,
    COLUMNS,
    LANES,
    ROW_TABLE,
    ROWS,
    SCRATCH,
    WHOLE,
    B,
    C,
    Gemm,
    block_of,
    group_of,
    has_pairs,
)
from graph_compiler.host_kernels.registers import register
from graph_compiler.schedule.fusion import ElementExpression, Lazy, materialised, store
from graph_compiler.schedule.parts import divided_words, worth_dividing
from graph_compiler.schedule.steps import (
    GraphProgram,
    KernelCall,
    Place,
    Products,
    item_size,
    place_of,
)
from graph_compiler.schedule.views import Buffer, View, collapsed
from simulator.native.codegen.library import library

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler

EXACT_IN_BF16 = frozenset({"bf16", "s8", "f8e4m3fn", "f8e5m2", "f8e4m3", "f8e3m4"})
"""Types whose every number is one of bf16."""

Axes = list[tuple[int, int]]
"""(size, stride in elements) of dimensions, outermost first."""


def available() -> bool:
    """Whether this CPU has what the products are made of: fused multiply-adds."""
    functions = library()
    return functions is not None and functions.level.fused


def _takes(types: tuple[str, str, str], depth: int) -> bool:
    if types == ("s8", "s8", "s32"):
        return available() and has_pairs() and depth % 2 == 0
    return available() and all(register(type) == "float" for type in types)


def converted(value: Lazy, type: str) -> Lazy:
    return value if value.type == type else ElementExpression("convert", type, None, [value])


def narrow_source(value: Lazy) -> Lazy:
    """What was converted to fp32 from a type that bf16 holds, before the conversion."""
    if isinstance(value, ElementExpression) and value.op in _CONVERSIONS and value.type == "f32":
        (source,) = value.arguments
        if source.type in EXACT_IN_BF16:
            return source
    return value


_CONVERSIONS = frozenset({"convert"})


def _operands(left: Lazy, right: Lazy, even: bool) -> tuple[Lazy, Lazy, bool]:
    """Both as bf16 where products of pairs are the same products, else as fp32."""
    narrow = narrow_source(left), narrow_source(right)
    if even and has_pairs() and all(value.type in EXACT_IN_BF16 for value in narrow):
        return converted(narrow[0], "bf16"), converted(narrow[1], "bf16"), True
    return converted(left, "f32"), converted(right, "f32"), False


def _axes(view: View, chosen: Sequence[int]) -> Axes:
    return [(view.dims[axis], view.strides[axis]) for axis in chosen]


def joined(axes: Axes) -> Axes:
    """Dimensions without those of one element, neighbours joined that are one run."""
    sizes, (strides,) = collapsed([size for size, _ in axes], [[step for _, step in axes]])
    return list(zip(sizes, strides))


def _offsets(axes: Axes, size: int) -> np.ndarray[Any, Any]:
    """Byte offsets of all elements, in order."""
    result = np.zeros(1, np.int64)
    for count, stride in axes:
        steps = np.arange(count, dtype=np.int64) * (stride * size)
        result = (result[:, np.newaxis] + steps).reshape(-1)
    return result


class Product:
    """The operands of one product as dimensions: batch, rows (of A), columns (of B), depth."""

    def __init__(
        self,
        left: View,
        right: View,
        pairs: bool,
        batch: tuple[Axes, Axes],
        rows: Axes,
        columns: Axes,
        depth: tuple[Axes, Axes],
    ) -> None:
        self.left = left
        self.right = right
        self.pairs = pairs
        self.batch = batch
        self.rows = rows
        self.columns = joined(columns) or [(1, 1)]
        self.depth_left = joined(depth[0]) or [(1, 1)]
        self.depth_right = joined(depth[1]) or [(1, 1)]

    def changed(
        self,
        left: View | None = None,
        right: View | None = None,
        batch: tuple[Axes, Axes] | None = None,
        rows: Axes | None = None,
        columns: Axes | None = None,
    ) -> Product:
        """The product with some of its parts replaced."""
        return Product(
            left or self.left,
            right or self.right,
            self.pairs,
            batch or self.batch,
            self.rows if rows is None else rows,
            self.columns if columns is None else columns,
            (self.depth_left, self.depth_right),
        )

    def swapped(self) -> Product:
        """The product of the operands the other way round, of which columns are rows."""
        left, right = self.batch
        depth = self.depth_right, self.depth_left
        return Product(
            self.right, self.left, self.pairs, (right, left), self.columns, self.rows, depth
        )

    def left_fits(self) -> bool:
        length, step = self.depth_left[-1]
        return not self.pairs or (step == 1 and length % 2 == 0)

    def right_fits(self) -> bool:
        if len(self.columns) > 1 or len(self.depth_right) > 1:
            return False
        (columns, across), (depth, down) = self.columns[0], self.depth_right[0]
        return across == 1 or columns == 1 or down == 1 or depth == 1


def multiply(
    program: GraphProgram, product: Product, target: View, rows_step: int, batch: Axes
) -> None:
    """Emit a product whose operands fit. `batch`: of the target, in elements."""
    size = item_size(product.left.type)
    columns, across = product.columns[0]
    depth, down = product.depth_right[0]
    rows = math.prod(count for count, _ in product.rows)
    unit = 2 if product.pairs else 1
    transposed = not (across == 1 or columns == 1)
    block_rows, vectors = block_of(rows)
    packed = product.pairs or transposed or rows > 8
    length, step = product.depth_left[-1]
    long = depth // unit > (BLOCK if target.type in WHOLE else BLOCK * 5 // 4)
    blocked = packed and long and length // unit >= BLOCK // 4
    kernel = Gemm(product.pairs, transposed, packed, blocked, block_rows, vectors, target.type)
    group = group_of(rows, columns, vectors)
    table = _offsets(product.rows, size)
    table = np.pad(table, (0, -len(table) % block_rows), mode="edge")
    runs = _offsets(product.depth_left[:-1], size)
    places = np.stack(
        [
            _offsets(product.batch[0], size),
            _offsets(product.batch[1], size),
            _offsets(batch, item_size(target.type)),
        ],
        axis=1,
    )
    tables = [program.constant(np.ascontiguousarray(array)) for array in (places, table, runs)]
    result = item_size(target.type)
    own = kernel.scratch(rows, depth // unit, group)
    scratches = ((SCRATCH, own),)
    by_columns = (B, across * size), (C, result)
    by_rows = (ROW_TABLE, 8), (C, rows_step * result)
    divisions = (
        DividedDimension(BATCHES, len(places), ((BATCH_TABLE, 24),), 1, scratches),
        DividedDimension(COLUMNS, columns, by_columns, LANES * vectors, scratches),
        DividedDimension(ROWS, rows, by_rows, block_rows, scratches),
    )
    work = len(places) * rows * columns * depth // 8
    division = None
    if worth_dividing(program, work):
        division = _best(divisions, (len(places), rows, columns), program.threads)
    count = len(division.bounds(program.threads)) - 1 if division is not None else 1
    scratch = Buffer(own * count)
    words: list[int | Place] = [
        place_of(product.left),
        place_of(product.right),
        place_of(target),
        Place(scratch),
        len(places),
        Place(tables[0]),
        rows,
        columns,
        Place(tables[1]),
        len(runs),
        Place(tables[2]),
        length // unit,
        step * size * unit,
        down * size,
        across * size,
        rows_step * result,
        depth // unit,
        group,
    ]
    reads = [product.left.buffer, product.right.buffer, *tables, scratch]
    divided = divided_words(division, words, program.threads) if division is not None else None
    writes = [target.buffer, scratch]
    program.steps.append(KernelCall(kernel, words, reads, writes, divided=divided, work=work))


_PACKING = 16
"""Rows of A whose products take about as long as packing the strips of B for them."""


def _best(
    divisions: Sequence[DividedDimension], sizes: tuple[int, int, int], threads: int
) -> DividedDimension:
    """By batch, columns or rows: where the longest part takes least. `sizes`: of all three."""
    batch, rows, columns = sizes
    by_batch, by_columns, by_rows = (division.longest(threads) for division in divisions)
    costs = (
        by_batch * columns * (rows + _PACKING),
        batch * by_columns * (rows + _PACKING),
        batch * columns * (by_rows + _PACKING),
    )
    return divisions[costs.index(min(costs))]


def dot(scheduler: Scheduler, node: Node) -> View | None:
    """A dot of floats, or of s8; None of types that the machine does not multiply."""
    assert node.instruction is not None
    numbers = node.instruction.attribute("dot_dimension_numbers")
    left_node, right_node = node.operands
    types = (left_node.type, right_node.type, node.type)
    left_axes = _Axes(left_node, numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions)
    right_axes = _Axes(right_node, numbers.rhs_batch_dimensions, numbers.rhs_contracting_dimensions)
    program = scheduler.program
    products = program.machine.products
    depth = math.prod(left_node.dims[axis] for axis in left_axes.depth)
    if 0 in left_node.dims or 0 in right_node.dims or not products.takes(types, depth):
        return None
    if types[2] == "s32" and len(left_axes.depth) != 1:
        return None
    values = scheduler.value(left_node), scheduler.value(right_node)
    left, right, pairs = products.operands(*values, depth % 2 == 0)
    target = program.product_result(node)
    shared = len(left_axes.batch)
    inner = shared + len(left_axes.free)
    rows = joined(_axes(target, range(shared, inner)))
    columns = joined(_axes(target, range(inner, len(node.dims))))
    if rows and rows[-1][1] == 1:
        # The columns are what is adjacent in memory; a product of vectors has them on one side.
        left, right, left_axes, right_axes = right, left, right_axes, left_axes
        rows, columns = columns, rows
    product = _dot_product(scheduler, (left, right), (left_axes, right_axes), pairs)
    step = rows[-1][1] if rows else math.prod(count for count, _ in columns)
    products.multiply(program, product, target, step, _axes(target, range(shared)))
    return target


HOST_PRODUCTS = Products(_takes, _operands, multiply)


class _Axes:
    """Which dimensions of an operand are batch, free, and contracting."""

    def __init__(self, node: Node, batch: Sequence[int], depth: Sequence[int]) -> None:
        self.batch, self.depth = list(batch), list(depth)
        taken = {*batch, *depth}
        self.free = [axis for axis in range(len(node.dims)) if axis not in taken]

    @property
    def order(self) -> list[int]:
        return [*self.batch, *self.free, *self.depth]


def _dot_product(
    scheduler: Scheduler, values: tuple[Lazy, Lazy], axes: tuple[_Axes, _Axes], pairs: bool
) -> Product:
    program = scheduler.program
    views = [in_memory(program, value) for value in values]

    def product() -> Product:
        left, right = views
        return Product(
            left,
            right,
            pairs,
            (_axes(left, axes[0].batch), _axes(right, axes[1].batch)),
            _axes(left, axes[0].free),
            _axes(right, axes[1].free),
            (_axes(left, axes[0].depth), _axes(right, axes[1].depth)),
        )

    found = product()
    for side, fits in enumerate((found.left_fits(), found.right_fits())):
        if not fits:
            order = (
                axes[side].order
                if side == 0
                else [*axes[side].batch, *axes[side].depth, *axes[side].free]
            )
            views[side] = copied_in_order(program, views[side], order)
    return product()


def copied_in_order(program: GraphProgram, view: View, order: Sequence[int]) -> View:
    """A copy whose memory has the dimensions in this order."""
    dims = tuple(view.dims[axis] for axis in order)
    target = program.buffer(view.type, dims)
    store(program, view.placed(dims, tuple(view.strides[axis] for axis in order)), target)
    strides = [0] * len(order)
    for place, axis in enumerate(order):
        strides[axis] = target.strides[place]
    return target.placed(view.dims, tuple(strides))


def in_memory(program: GraphProgram, value: Lazy) -> View:
    """The value in memory, in an order that the machine takes."""
    view = materialised(program, value)
    backwards = min(view.strides, default=0) < 0
    return fresh_copy(program, view) if backwards and program.machine.products.ascending else view


def fresh_copy(program: GraphProgram, view: View) -> View:
    """A copy in memory of its own, in the order of its dimensions."""
    target = program.buffer(view.type, view.dims)
    store(program, view, target)
    return target
