"""Element-wise functions that are one operation, or one with its operands prepared.

Arithmetic is fp32 inside the engines, except that int32 and uint32 tiles are computed exactly on
the GpSimd engine (SDK nki/api/nki.isa.rst#nki.isa.tensor_tensor).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isa.alu import ALU
from isa.dtypes import DTYPES, DTypeKind
from isa.enums import Engine, Memory
from isa.errors import NeuronError
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import Emitter, dtype_of, is_column, shapes_agree
from nki.language.lowering.promotion import promote

Unary = Callable[[Emitter, NkiTensor, str], NkiTensor]
Binary = Callable[[Emitter, Any, Any, Any], NkiTensor]

EXACT = ("int32", "uint32")
"""Dtypes whose values fp32 does not hold, and the GpSimd engine computes with."""


def is_integral(dtype: str) -> bool:
    """Whether a dtype holds integers only."""
    return not DTYPES[dtype].is_float


# Two operands


def binary(op: str) -> Binary:
    """`x <op> y` for an ALU operator: tiles of one shape, or one of them a number or a column."""

    def lower(e: Emitter, x: Any, y: Any, dtype: Any) -> NkiTensor:
        data, operand, reverse = operands(e, x, y)
        row = ALU[op]
        if not row.arithmetic:
            return _bits(e, op, data, operand, reverse, dtype)
        common = data.dtype
        if isinstance(operand, NkiTensor):
            common = promote(common, operand.dtype)
        wanted = dtype_of(dtype, common)
        exact = Engine.gpsimd in row.engines and _exactly(data, operand)
        if exact or Engine.vector not in row.engines:
            work = common if exact else wanted
            data, operand = e.in_sbuf(data), as_tile(e, operand, data, work if exact else None)
            return e.finish(_tensors(e, op, data, operand, reverse, wanted, work), wanted)
        if isinstance(operand, NkiTensor) and shapes_agree(data, operand):
            return _tensors(e, op, data, _not_both_psum(e, data, operand), reverse, wanted, wanted)
        if isinstance(operand, NkiTensor):
            operand = e.converted(operand, "float32")
        result = e.result(data.shape, wanted)
        e.scalar(result, data, op, operand, reverse0=reverse)
        return result

    return lower


def operands(e: Emitter, x: Any, y: Any) -> tuple[NkiTensor, Any, bool]:
    """(tile, other operand, whether the tile is the right one); the other is a tile of the same
    shape, a column or a number. Raises not-a-tensor, wrong-memory, shape-mismatch."""
    x, y = _number(x), _number(y)
    if isinstance(x, (int, float)):
        return e.tile("y", y), x, True
    data = e.tile("x", x)
    if isinstance(y, (int, float)):
        return data, y, False
    operand = e.tile("y", y)
    if shapes_agree(data, operand) or is_column(operand, data):
        return data, operand, False
    if is_column(data, operand):
        return operand, data, True
    e.same_shape(data, operand)
    raise AssertionError("same_shape refused the operands")


def _number(value: Any) -> Any:
    """Python's number for a NumPy scalar."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _exactly(data: NkiTensor, operand: Any) -> bool:
    """Whether both operands are 32-bit integers, whose arithmetic fp32 would round."""
    if data.dtype not in EXACT:
        return False
    if isinstance(operand, NkiTensor):
        return operand.dtype in EXACT
    row = DTYPES[data.dtype]
    return operand == operand // 1 and row.lowest <= operand <= row.largest


def as_tile(e: Emitter, operand: Any, data: NkiTensor, dtype: str | None) -> NkiTensor:
    """An operand as an SBUF tile of data's shape: columns repeat, numbers fill one."""
    if isinstance(operand, NkiTensor):
        operand = e.in_sbuf(operand)
        return operand if shapes_agree(data, operand) else spread(operand, data.shape)
    filled = e.part(data.shape, dtype or "float32")
    e.fill(filled, int(operand) if dtype else operand)
    return filled


def spread(column: NkiTensor, shape: Any) -> NkiTensor:
    """The view of a [P, 1] column that repeats each element over the free dimensions."""
    view = column.reshape((column.shape[0],) + (1,) * (len(shape) - 1))
    for dimension, size in enumerate(shape[1:], 1):
        view = view.broadcast(dimension, size)
    return view


def _not_both_psum(e: Emitter, data: NkiTensor, operand: NkiTensor) -> NkiTensor:
    return e.in_sbuf(operand) if data.buffer is Memory.psum else operand


def _tensors(
    e: Emitter, op: str, x: NkiTensor, y: NkiTensor, reverse: bool, wanted: str, work: str
) -> NkiTensor:
    result = e.working(x.shape, wanted, work)
    left, right = (y, x) if reverse else (x, y)
    e.tensors(result, left, op, right)
    return result


def _bits(
    e: Emitter, op: str, data: NkiTensor, operand: Any, reverse: bool, dtype: Any
) -> NkiTensor:
    """A bit-vector operator, on patterns of the promoted dtype."""
    common = data.dtype
    if isinstance(operand, NkiTensor):
        common = promote(common, operand.dtype)
        operand = _same_bits(e, operand, common)
    data = _same_bits(e, data, common)
    wanted = dtype_of(dtype, common)
    result = e.working(data.shape, wanted, common)
    if isinstance(operand, NkiTensor) and shapes_agree(data, operand):
        left, right = (operand, data) if reverse else (data, operand)
        e.tensors(result, left, op, e.in_sbuf(right) if left.buffer is Memory.psum else right)
    else:
        e.scalar(result, data, op, operand, reverse0=reverse)
    return e.finish(result, wanted)


def _same_bits(e: Emitter, tile: NkiTensor, dtype: str) -> NkiTensor:
    """A tile of integers in a dtype that is at least as wide: the values, or 32-bit patterns."""
    if tile.dtype in EXACT and dtype in EXACT:
        return tile.view(dtype)
    return e.converted(tile, dtype)


# One operand


def activation(op: str) -> Unary:
    """A function of the scalar engine."""

    def lower(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
        result = e.result(x.shape, dtype)
        e.activate(result, op, x)
        return result

    return lower


def exact_or(integers: Binary, left: int | None, right: int | None, other: Unary) -> Unary:
    """`integers` with the given numbers beside x for 32-bit integers, `other` for the rest.

    None stands for x itself.
    """

    def lower(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
        if x.dtype not in EXACT:
            return other(e, x, dtype)
        return integers(e, x if left is None else left, x if right is None else right, dtype)

    return lower


def scaled(op: str, operand: float) -> Unary:
    """`x <op> operand` on the vector engine."""

    def lower(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
        result = e.result(x.shape, dtype)
        e.scalar(result, x, op, operand)
        return result

    return lower


negative: Unary = exact_or(binary("subtract"), 0, None, scaled("multiply", -1.0))


def absolute(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """|x|; the greater of x and -x for 32-bit integers."""
    if DTYPES[x.dtype].kind is DTypeKind.unsigned:
        return copy(e, x, dtype)
    if x.dtype not in EXACT:
        result = e.result(x.shape, dtype)
        e.scalar(result, x, "abs")
        return result
    opposite = binary("subtract")(e.inside(), 0, x, None)
    return binary("maximum")(e, x, opposite, dtype)


def copy(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """A copy in SBUF, by the vector engine: bit for bit between equal dtypes."""
    result = e.result(x.shape, dtype)
    e.copy(result, x)
    return result


def reciprocal(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """1 / x on the vector engine."""
    result = e.result(x.shape, dtype)
    e.invert(result, x)
    return result


def rsqrt(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """1 / sqrt(x) on the GpSimd engine, which reads SBUF only."""
    if x.buffer is Memory.psum:
        raise NeuronError(
            "wrong-memory",
            what=f"x of nl.rsqrt ({x.name}) is in psum",
            why="nl.rsqrt runs on the GpSimd engine for its precision (NKI 0.5.0 release notes), "
            "which has no access to PSUM.",
            hint="Copy the tile with nl.copy, or use nisa.activation(op=nl.rsqrt).",
        )
    result = e.result(x.shape, dtype)
    e.scalar(result, x, "rsqrt")
    return result


def sqrt(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """x ** 0.5 on the GpSimd engine: the scalar engine's sqrt leaves out 0, infinity and sizes
    outside 2**-116 .. 2**118."""
    return binary("power")(e, x, 0.5, dtype)


def invert(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """The exclusive or with all ones."""
    ones = (1 << DTYPES[x.dtype].bits) - 1
    return binary("bitwise_xor")(e, x, ones, dtype)


def logical_not(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """1 where x is 0, else 0: the exclusive or of truth values with true."""
    return binary("logical_xor")(e, x, 1, dtype)
