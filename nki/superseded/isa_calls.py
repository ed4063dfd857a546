"""Calls of `nki.isa` functions as earlier versions of NKI spelled them.

`modern` turns one into a call of today, with a hint at the caller's line. The function looks only
when a call is new to it, so that today's calls pay nothing. Source: SDK nki/migration/index.rst,
"API breaking changes".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isa.dtypes import DTYPES
from isa.enums import DmaEngine
from isa.operations.dma import DmaCompute
from isa.rules.form import is_number, is_tensor
from isa.spec import Operation, defaults
from nki.superseded import CALLS, hint_at_call

Arguments = dict[str, Any]
Call = tuple[type[Operation], tuple[Any, ...]]
"""An operation, and the values of its fields."""

Rewritten = tuple[type[Operation], Arguments] | None

_CALLS = {row.old: row for row in CALLS}


def modern(
    row: type[Operation], values: tuple[Any, ...], unknown: dict[str, Any]
) -> tuple[Call | None, dict[str, Any]]:
    """The call that an earlier spelling stands for, None if it is none; and the keywords that no
    version has. `values` are those of the row's fields, `unknown` keywords that it has not."""
    rewrite = _REWRITES.get(row.name)
    if rewrite is None:
        return None, unknown
    arguments = dict(zip(row.field_names, values))
    left = dict(unknown)
    found = rewrite(row, arguments, left)
    if found is None:
        return None, left
    row, arguments = found
    given = defaults(row) | arguments
    return (row, tuple(given.get(name) for name in row.field_names)), left


def _accumulating_copy(
    row: type[Operation], arguments: Arguments, unknown: dict[str, Any]
) -> Rewritten:
    """dma_copy(dst, src, dst_rmw_op=nl.add, unique_indices=...) of 0.2 adds to what dst holds."""
    if not {"dst_rmw_op", "unique_indices"} & unknown.keys():
        return None
    op = unknown.pop("dst_rmw_op", None)
    unique = unknown.pop("unique_indices", True)
    hint_at_call("nki.isa.dma_copy(dst_rmw_op=)")
    if op is None:
        return row, arguments
    held, added, *_ = DmaCompute.lists["srcs"]
    given = {"dst": arguments["dst"], held: arguments["dst"], added: arguments["src"]}
    options = {"reduce_op": op, "unique_indices": unique, "oob_mode": arguments["oob_mode"]}
    return DmaCompute, given | options


def _swapped_scales(
    row: type[Operation], arguments: Arguments, unknown: dict[str, Any]
) -> Rewritten:
    """dma_compute(dst, srcs, scales, reduce_op) of 0.2: these two have changed places. And
    dma_compute(dst, [src]), which the migration guide has for a copy that accumulates."""
    only, second, *_ = DmaCompute.lists["srcs"]
    if arguments[second] is None and is_tensor(arguments[only]):
        hint_at_call("nki.isa.dma_compute(dst, [src])")
    if not isinstance(arguments["reduce_op"], (tuple, list)):
        return None
    hint_at_call("nki.isa.dma_compute(dst, srcs, scales, reduce_op)")
    swapped = {"reduce_op": arguments["scales"], "scales": arguments["reduce_op"]}
    return row, arguments | swapped


def _flag_for_engine(
    row: type[Operation], arguments: Arguments, unknown: dict[str, Any]
) -> Rewritten:
    """sendrecv(..., use_gpsimd_dma=True) of 0.2."""
    if "use_gpsimd_dma" not in unknown:
        return None
    hint_at_call("nki.isa.sendrecv(use_gpsimd_dma=)")
    chosen = DmaEngine.gpsimd_dma if unknown.pop("use_gpsimd_dma") else DmaEngine.dma
    return row, arguments | {"dma_engine": chosen}


def _number_of_kind(
    row: type[Operation], arguments: Arguments, unknown: dict[str, Any]
) -> Rewritten:
    """memset(dst, 2.0) of 0.2 where dst holds integers."""
    dst, value = arguments["dst"], arguments["value"]
    if not (isinstance(value, float) and is_tensor(dst) and DTYPES[dst.dtype].is_integer):
        return None
    if not value.is_integer():
        return None
    hint_at_call("nki.isa.memset(value=2.0)")
    return row, arguments | {"value": int(value)}


def _other_keywords(
    row: type[Operation], arguments: Arguments, unknown: dict[str, Any]
) -> Rewritten:
    """Keywords of 0.1 and 0.2 that others have replaced, or that did nothing, as `CALLS` says."""
    calls = {keyword: _CALLS.get(f"nki.isa.{row.name}({keyword}=)") for keyword in unknown}
    renamed = {keyword: call.keyword for keyword, call in calls.items() if call is not None}
    for keyword, new in renamed.items():
        hint_at_call(f"nki.isa.{row.name}({keyword}=)")
        value = unknown.pop(keyword)
        if new:
            arguments[new] = value
    return (row, arguments) if renamed else None


def _offset_third(row: type[Operation], arguments: Arguments, unknown: dict[str, Any]) -> Rewritten:
    """affine_select(dst, pattern, offset, channel_multiplier, on_true, on_false) of 0.2."""
    offset, multiplier, on_true, on_false = (
        arguments[name]
        for name in ("channel_multiplier", "on_true_tile", "on_false_value", "cmp_op")
    )
    if not (is_number(multiplier) and is_tensor(on_true) and is_number(on_false)):
        return None
    hint_at_call("nki.isa.affine_select(dst, pattern, offset, ...)")
    modern_order = {
        "offset": offset,
        "channel_multiplier": multiplier,
        "on_true_tile": on_true,
        "on_false_value": on_false,
    }
    del arguments["cmp_op"]
    return row, arguments | modern_order


def _result_dtype(row: type[Operation], arguments: Arguments, unknown: dict[str, Any]) -> Rewritten:
    """dtype= of versions whose operations made their results; the data type of dst decides."""
    if "dtype" not in unknown or not is_tensor(arguments["dst"]):
        return None
    del unknown["dtype"]
    hint_at_call(f"nki.isa.{row.name}(dtype=)")
    return row, arguments


Rewrite = Callable[[type[Operation], Arguments, dict[str, Any]], Rewritten]

_REWRITES: dict[str, Rewrite] = {
    "dma_copy": _accumulating_copy,
    "dma_compute": _swapped_scales,
    "sendrecv": _flag_for_engine,
    "memset": _number_of_kind,
    "nc_matmul": _other_keywords,
    "register_move": _other_keywords,
    "affine_select": _offset_third,
    "tensor_copy": _result_dtype,
    "scalar_tensor_tensor": _result_dtype,
}
