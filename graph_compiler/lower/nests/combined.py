"""Two steps that an engine does at once: the first one is put off until the second is computed.

The scalar engine scales and shifts what it computes a function of; the vector engine does two
operations whose second operands are numbers or columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import nki.language as nl
from graph_compiler.host_kernels.elements import ElementStep
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.rewrites.composites import COMPOSITES
from graph_compiler.lower.sizes import DTYPES
from isa.alu import ALU
from isa.enums import ReduceCommand
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import Emitter

ACTIVATIONS: dict[str, str] = {
    "exponential": "exp",
    "tanh": "tanh",
    "logistic": "sigmoid",
    "erf": "erf",
    **{name: name for name in COMPOSITES},
}
"""Opcodes that are functions of the scalar engine, which computes function(x * scale + bias)."""


class Scaled(NamedTuple):
    """x * scale + bias, not computed yet; `scale` is a number or a column, `bias` a column or
    None."""

    tile: NkiTensor
    scale: Any = 1.0
    bias: NkiTensor | None = None


def scaled(step: ElementStep, values: Sequence[Any]) -> Scaled | None:
    """A step as a scale or bias of its first operand, in fp32 as the scalar engine computes it;
    None where it is neither."""
    if kind(step.type) != "real" or len(values) != 2:
        return None
    if isinstance(values[0], Scaled):
        before, other = values
        shift = other if step.op == "add" else nl.negative(other, dtype="float32")
        return before._replace(bias=_wide_column(shift))
    if not isinstance(values[0], NkiTensor):
        return None
    tile, other = values
    column = isinstance(other, NkiTensor) and _is_by_row(tile, other)
    if isinstance(other, NkiTensor) and (not column or other.shape == tile.shape):
        return None
    if step.op == "multiply":
        return Scaled(tile, _wide_column(other) if column else other)
    if step.op == "subtract" and column:
        return Scaled(tile, 1.0, _wide_column(nl.negative(other, dtype="float32")))
    if step.op == "add" and column:
        return Scaled(tile, 1.0, _wide_column(other))
    return None


class Half(NamedTuple):
    """An operation of fp32 elements with a number or a column, not computed yet: the vector engine
    does another one with it, whose second operand may be a tile."""

    tile: NkiTensor
    op: str
    operand: Any


def half(step: ElementStep, values: Sequence[Any]) -> Half | None:
    """A step as the first of two operations; None of others. Dividing by a power of two is
    multiplying by another one."""
    if (step.type, kind(step.source)) != ("f32", "real") or len(values) != 2:
        return None
    tile, operand = values
    op = step.op
    if not isinstance(tile, NkiTensor) or not is_paired(operand):
        return None
    wide = math.prod(tile.shape[1:]) > 1
    if wide and op == "divide" and isinstance(operand, float) and _is_power(operand):
        op, operand = "multiply", 1 / operand
    if op not in PAIRED:
        return None
    return Half(tile, op, operand)


def _is_power(number: float) -> bool:
    """Whether a number is a positive power of two."""
    return math.frexp(number)[0] == 0.5


def is_paired(operand: Any) -> bool:
    """Whether an operand is a number, or a column in fp32."""
    if not isinstance(operand, NkiTensor):
        return not isinstance(operand, tuple)
    return operand.dtype == "float32" and math.prod(operand.shape[1:]) == 1


def both(step: ElementStep, first: Half, operand: Any) -> NkiTensor:
    """A step with a number, a column or a tile, behind the first of two operations."""
    e = Emitter(step.op, None)
    if isinstance(operand, NkiTensor) and operand.shape == first.tile.shape:
        result = e.result(first.tile.shape, DTYPES[step.type])
        e.scalar_then_tensor(result, first.tile, first.op, _flat(first.operand), step.op, operand)
        return result
    columns = [_flat(first.operand), _flat(operand)]
    result = e.result(first.tile.shape, DTYPES[step.type])
    e.scalar(result, first.tile, first.op, columns[0], step.op, columns[1])
    return result


def _flat(operand: Any) -> Any:
    return operand.reshape((operand.shape[0], 1)) if isinstance(operand, NkiTensor) else operand


PAIRED = frozenset({"add", "subtract", "multiply", "maximum", "minimum"})
"""Opcodes of which the vector engine does two at once, their second operands numbers or columns."""


_LEAST_ROW, _MOST_ROWS = 128, 64
"""Elements of a row from which on, and rows up to which, functions of several rows of a partition
are an operation each."""


def _is_by_row(tile: NkiTensor, column: NkiTensor) -> bool:
    """Whether a tile has one number for each row of another."""
    if math.prod(column.shape[1:]) == 1:
        return True
    *rows, width = tile.shape
    return (*rows, 1) == column.shape and width >= _LEAST_ROW and math.prod(rows[1:]) <= _MOST_ROWS


def _wide_column(column: NkiTensor) -> NkiTensor:
    """A column in fp32, [partitions, rows]."""
    wide = column if column.dtype == "float32" else nl.copy(column, dtype="float32")
    return wide.reshape((column.shape[0], math.prod(column.shape[1:])))


def activated(step: ElementStep, value: Scaled, total: NkiTensor | None = None) -> NkiTensor:
    """A function of the scalar engine of what was put off. `total` [partitions, 1] becomes the sums
    of its results along rows, in fp32."""
    e = Emitter(ACTIVATIONS[step.op], None)
    result = e.result(value.tile.shape, DTYPES[step.type])
    options: dict[str, Any] = {}
    if total is not None:
        command = ReduceCommand.reset_reduce
        options |= {"reduce_op": ALU["add"], "reduce_res": total, "reduce_cmd": command}
    _activate(e, result, ACTIVATIONS[step.op], value, options)
    return result


def shifted(step: ElementStep, value: Scaled) -> NkiTensor:
    """What was put off, by the scalar engine."""
    e = Emitter("copy", None)
    result = e.result(value.tile.shape, DTYPES[step.type])
    _activate(e, result, "copy", value, {})
    return result


def _activate(
    e: Emitter, result: NkiTensor, function: str, value: Scaled, options: dict[str, Any]
) -> None:
    """A function of what was put off: by one operation, or one for each row."""
    numbers = {"scale": value.scale} | ({} if value.bias is None else {"bias": value.bias})
    columns = {name: n for name, n in numbers.items() if isinstance(n, NkiTensor)}
    if all(column.shape[1] == 1 for column in columns.values()):
        e.activate(result, function, value.tile, **numbers, **options)
        return
    for number, row in enumerate(product(*map(range, result.shape[1:-1]))):
        own = {
            name: n[:, number : number + 1] if name in columns and n.shape[1] > 1 else n
            for name, n in numbers.items()
        }
        place = (slice(None), *row)
        e.activate(result[place], function, value.tile[place], **own, **options)
