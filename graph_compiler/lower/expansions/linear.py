"""Products of integers and triangular matrices, as graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions.expansions import Expansion, Text, braces, shape
from isa.dtypes import DTYPES

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node

SMALL = 1 << 15
"""Products of elements up to which a dot of integers is element-wise work and a sum."""

PART, CHUNK = 8, 128
"""Bits of the parts of integers that are multiplied as bf16, and how many products of parts are
summed in fp32: CHUNK * 255**2 is below 2**24, so that sums are exact."""


def dot(node: Node) -> str | None:
    """A dot of integers, which wraps around as its result's type does, or gives floats."""
    item = node.instruction
    assert item is not None
    row = PRIMITIVE_TYPES[node.type]
    if row.is_float:
        return _of_floats(node)
    if not (row.is_integer or row.kind == "boolean") or row.bits > 32:
        return None
    numbers = item.attribute("dot_dimension_numbers")
    text = Text(node)
    sides = (
        (text.operands[0], numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions),
        (text.operands[1], numbers.rhs_batch_dimensions, numbers.rhs_contracting_dimensions),
    )
    matrices, free = [], []
    batch: tuple[int, ...] = ()
    for name, own_batch, depth in sides:
        name = text.convert(name, node.type)
        dims = text.dims(name)
        kept = [axis for axis in range(len(dims)) if axis not in (*own_batch, *depth)]
        name = text.transpose(name, [*own_batch, *kept, *depth])
        batch = tuple(dims[axis] for axis in own_batch)
        free.append([dims[axis] for axis in kept])
        sizes = [math.prod(batch), math.prod(free[-1]), math.prod(dims[axis] for axis in depth)]
        matrices.append(text.reshape(name, sizes))
    count, rows, depth_size = text.dims(matrices[0])
    columns = text.dims(matrices[1])[1]
    small = count * rows * columns * depth_size <= SMALL or row.kind == "boolean"
    result = (_summed if small else _in_parts)(text, *matrices)
    return text.module([text.reshape(result, [*batch, *free[0], *free[1]])])


def _of_floats(node: Node) -> str | None:
    """A dot that gives floats, of integers or of integers and floats: a dot of floats. Integers
    become the floats' type (bf16 where there are none) if it has them all, or else fp32."""
    text = Text(node)
    rows = [PRIMITIVE_TYPES[text.type(name)] for name in text.operands]
    integers = [row for row in rows if row.is_integer and row.bits <= 32]
    floats = [row for row in rows if row.is_float]
    if not integers or len(integers) + len(floats) != 2:
        return None
    wide = max(row.bits for row in integers)
    candidates = floats or [PRIMITIVE_TYPES["bf16"]]
    exact = [row.name for row in candidates if row.dtype and _digits(row.dtype) >= wide]
    type = exact[0] if exact else "f32"
    assert node.instruction is not None
    numbers = node.instruction.attribute("dot_dimension_numbers")
    more = ", ".join(
        f"{side}_{kind}_dims={braces(axes)}"
        for kind in ("batch", "contracting")
        for side in ("lhs", "rhs")
        if (axes := getattr(numbers, f"{side}_{kind}_dimensions"))
    )
    sides = [text.convert(name, type) for name in text.operands]
    return text.module([text.add(node.type, node.dims, "dot", sides, more)])


def _digits(dtype: str) -> int:
    """The binary digits of a float type's numbers."""
    return DTYPES[dtype].mantissa_bits + 1


def _summed(text: Text, left: str, right: str) -> str:
    """[batch, rows, depth] and [batch, columns, depth], multiplied and summed."""
    batch, rows, depth = text.dims(left)
    dims = (batch, rows, text.dims(right)[1], depth)
    a, b = text.spread(left, dims, (0, 1, 3)), text.spread(right, dims, (0, 2, 3))
    return text.sum(text.apply("multiply", a, b), [3])


def _in_parts(text: Text, left: str, right: str) -> str:
    """Parts of 8 bits are exact in bf16, their products and short sums in fp32; sums of these wrap
    around as 32-bit integers."""
    type = text.type(left)
    bits = PRIMITIVE_TYPES[type].bits
    parts = [byte_parts(text, side, bits) for side in (left, right)]
    total: str | None = None
    for i, j in product(range(bits // PART), repeat=2):
        if (i + j) * PART >= bits:
            continue
        chunks = text.convert(chunk_sums(text, parts[0][i], parts[1][j]), "u32")
        sums = text.sum(chunks, [1])
        amount = text.number("u32", (i + j) * PART, text.dims(sums))
        moved = text.apply("shift-left", sums, amount)
        total = moved if total is None else text.apply("add", total, moved)
    assert total is not None
    return text.convert(total, type)


def byte_parts(text: Text, name: str, bits: int) -> list[str]:
    """Bytes of integers as bf16, lowest first; [batch, chunks, size, CHUNK]."""
    batch, size, depth = text.dims(name)
    chunks = -(-depth // CHUNK)
    name = text.pad(name, [(0, 0, 0), (0, 0, 0), (0, chunks * CHUNK - depth, 0)])
    name = text.transpose(text.reshape(name, (batch, size, chunks, CHUNK)), (0, 2, 1, 3))
    name = text.convert(name, f"u{bits}")
    dims = text.dims(name)
    mask = text.number(f"u{bits}", (1 << PART) - 1, dims)
    found = []
    for part in range(bits // PART):
        amount = text.number(f"u{bits}", part * PART, dims)
        low = text.apply("and", text.apply("shift-right-logical", name, amount), mask)
        found.append(text.convert(low, "bf16"))
    return found


def chunk_sums(text: Text, left: str, right: str) -> str:
    """Products of `byte_parts`, summed along CHUNK."""
    batch, chunks, rows, _ = text.dims(left)
    more = (
        "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, "
        "rhs_contracting_dims={3}"
    )
    return text.add("f32", (batch, chunks, rows, text.dims(right)[2]), "dot", [left, right], more)


# Triangular matrices


def _column(text: Text, name: str, row: str, at: str, sizes: Sequence[int]) -> str:
    """Part of the matrices of a batch from [row, at] on."""
    dims = (*text.dims(name)[:-2], *sizes)
    zero = text.number("s32", 0)
    starts = [zero] * (len(dims) - 2) + [row, at]
    more = f"dynamic_slice_sizes={braces(dims)}"
    return text.add(text.type(name), dims, "dynamic-slice", [name, *starts], more)


def _updated(text: Text, name: str, part: str, row: str, at: str) -> str:
    zero = text.number("s32", 0)
    starts = [zero] * (len(text.dims(name)) - 2) + [row, at]
    dims = text.dims(name)
    return text.add(text.type(name), dims, "dynamic-update-slice", [name, part, *starts])


def _like(text: Text, name: str, dims: Sequence[int]) -> str:
    """A row or column of matrices at every column or row."""
    own = text.dims(name)
    kept = [axis for axis, size in enumerate(own) if size == dims[axis]]
    flat = text.reshape(name, [own[axis] for axis in kept])
    return text.spread(flat, dims, kept)


class RowLoop:
    """A loop over the rows of matrices, whose state are a counter and arrays."""

    def __init__(self, text: Text, state: Sequence[str], count: int) -> None:
        self.outside = text
        self.start = [text.number("s32", 0), *state]
        self.forms = [text.types[name] for name in self.start]
        self.count = count
        self.body = Text.__new__(Text)
        self.body.types, self.body.lines = {}, []
        self.body.computations = text.computations
        whole = ", ".join(shape(*form) for form in self.forms)
        self.body.lines.append(f"  s = ({whole}) parameter(0)")
        self.state = [
            self.body.add(*form, "get-tuple-element", ["s"], f"index={number}")
            for number, form in enumerate(self.forms)
        ]
        self.whole = f"({whole})"

    def close(self, state: Sequence[str]) -> list[str]:
        """What the arrays are in the end; `state`: what they are behind one round."""
        one = self.body.number("s32", 1)
        after = [self.body.apply("add", self.state[0], one), *state]
        body = [*self.body.lines, f"  ROOT r = {self.whole} tuple({', '.join(after)})"]
        number = len(self.outside.computations)
        self.outside.computations += [
            "\n".join([f"body{number} {{", *body, "}\n"]),
            f"goes_on{number} {{\n  s = {self.whole} parameter(0)\n"
            f"  i = s32[] get-tuple-element(s), index=0\n"
            f"  n = s32[] constant({self.count})\n"
            f"  ROOT r = pred[] compare(i, n), direction=LT\n}}\n",
        ]
        text = self.outside
        first = f"state{len(text.lines)}"
        text.lines.append(f"  {first} = {self.whole} tuple({', '.join(self.start)})")
        last = f"state{len(text.lines)}"
        text.lines.append(
            f"  {last} = {self.whole} while({first}), condition=goes_on{number}, body=body{number}"
        )
        return [
            text.add(*form, "get-tuple-element", [last], f"index={place}")
            for place, form in enumerate(self.forms)
            if place
        ]


def _rows(text: Text, dims: Sequence[int]) -> str:
    axis = len(dims) - 2
    return text.add("s32", dims, "iota", [], f"iota_dimension={axis}")


def triangular_solve(node: Node) -> str | None:
    """Row after row: a row of unknowns is known, and its part taken from all others."""
    item = node.instruction
    assert item is not None
    if not PRIMITIVE_TYPES[node.type].is_float or 0 in node.dims:
        return None
    options = item.attribute("triangular_solve_options")
    text = Text(node)
    a, b = (text.convert(name, "f32") for name in text.operands)
    lower = options.lower
    if options.transpose_a in ("TRANSPOSE", "ADJOINT"):
        a, lower = text.swapped(a), not lower
    if not options.left_side:  # x a = b is aT xT = bT
        a, b, lower = text.swapped(a), text.swapped(b), not lower
    count = text.dims(a)[-1]
    loop = RowLoop(text, (a, b), count)
    inside = loop.body
    number, a, x = loop.state
    row = number
    if not lower:
        row = inside.apply("subtract", inside.number("s32", count - 1), number)
    zero = inside.number("s32", 0)
    known = _column(inside, x, row, zero, (1, text.dims(b)[-1]))
    if not options.unit_diagonal:
        diagonal = _column(inside, a, row, row, (1, 1))
        known = inside.apply("divide", known, _like(inside, diagonal, inside.dims(known)))
    column = _column(inside, a, zero, row, (count, 1))
    dims = inside.dims(x)
    taken = inside.apply("multiply", _like(inside, column, dims), _like(inside, known, dims))
    place = inside.spread(row, dims, ())
    direction = "direction=GT" if lower else "direction=LT"
    later = inside.add("pred", dims, "compare", [_rows(inside, dims), place], direction)
    rest = inside.apply("select", later, inside.apply("subtract", x, taken), x)
    _, x = loop.close([a, _updated(inside, rest, known, row, zero)])
    x = x if options.left_side else text.swapped(x)
    return text.module([text.convert(x, node.type)])


def cholesky(node: Node) -> str | None:
    """Column after column: a column of the factor, and what it explains taken from the rest."""
    item = node.instruction
    assert item is not None
    if not PRIMITIVE_TYPES[node.type].is_float or 0 in node.dims:
        return None
    options = item.attribute("cholesky_options")
    lower = options is not None and options.lower
    text = Text(node)
    a = text.convert(text.operands[0], "f32")
    a = a if lower else text.swapped(a)
    dims = text.dims(a)
    count = dims[-1]
    loop = RowLoop(text, (a, text.number("f32", 0, dims)), count)
    inside = loop.body
    row, rest, factor = loop.state
    zero = inside.number("s32", 0)
    column = _column(inside, rest, zero, row, (count, 1))
    own = inside.dims(column)
    root = inside.apply("sqrt", _column(inside, rest, row, row, (1, 1)))
    column = inside.apply("divide", column, _like(inside, root, own))
    place = inside.spread(row, own, ())
    above = inside.add("pred", own, "compare", [_rows(inside, own), place], "direction=LT")
    column = inside.apply("select", above, inside.number("f32", 0, own), column)
    across = _like(inside, inside.swapped(column), dims)
    explained = inside.apply("multiply", _like(inside, column, dims), across)
    after = inside.apply("subtract", rest, explained)
    _, factor = loop.close([after, _updated(inside, factor, column, zero, row)])
    wrong = text.add("pred", dims, "compare", [factor, factor], "direction=NE")
    marked = text.convert(wrong, "f32")
    bad = text.sum(marked, [len(dims) - 2, len(dims) - 1])
    some = text.add(
        "pred", dims[:-2], "compare", [bad, text.number("f32", 0, dims[:-2])], "direction=GT"
    )
    everywhere = text.spread(some, dims, range(len(dims) - 2))
    result = text.apply("select", everywhere, text.number("f32", "nan", dims), factor)
    result = result if lower else text.swapped(result)
    return text.module([text.convert(result, node.type)])


EXPANSIONS: dict[str, Expansion] = {
    "dot": dot,
    "triangular-solve": triangular_solve,
    "cholesky": cholesky,
}
"""The text of each opcode."""
