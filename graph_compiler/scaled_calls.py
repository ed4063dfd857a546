"""Custom calls of block-scaled 8-bit floats: what their configurations and shapes have to be.

`QuantizeMX` makes packed elements and a scale for each block of one array; `__op$block_scaled_dot`
multiplies two of these. A rule says what is wrong with a call, "" for nothing. Sources:
EVRF036.rst to EVRF050.rst, EVRF053.rst to EVRF055.rst, EVRF057.rst and EVRF058.rst of the SDK's
compiler/error-codes, one for each rule.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction

QUANTIZE, SCALED_DOT = "QuantizeMX", "__op$block_scaled_dot"

BLOCK = 32
"""Elements that share a scale."""

PACKED = 4
"""Elements of 8 bits in one of u32."""

_DTYPES = ("float8_e5m2", "float8_e4m3fn")
_SOURCES = ("bf16", "f16")
_RESULTS = ("f32", "bf16")
_METHOD = "EMAX"
_WORD = "u32"

Rule = Callable[["Instruction"], str]


def _json(item: Instruction) -> Any:
    """The configuration; None where it is no JSON object."""
    try:
        found = json.loads(item.attributes.get("backend_config") or "")
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, dict) else None


# QuantizeMX


def _configuration(item: Instruction) -> str:
    return "" if _json(item) is not None else "its configuration is no JSON object."


def _one_operand(item: Instruction) -> str:
    count = len(item.operands)
    return "" if count == 1 else f"it has {count} operands, not 1."


def _axis(item: Instruction) -> int | None:
    """The dimension that is quantised; None of one that cannot be."""
    rank = len(item.operands[0].shape.dimensions)
    stated = (_json(item) or {}).get("dim", 0)
    if not isinstance(stated, int) or not -rank <= stated < rank:
        return None
    axis = stated % rank
    return axis if axis >= rank - 2 else None


def _dimension(item: Instruction) -> str:
    if _axis(item) is not None:
        return ""
    stated = (_json(item) or {}).get("dim", 0)
    return f"dim {stated} of {item.operands[0].shape} is none of the last two."


def _block_size(item: Instruction) -> str:
    size = (_json(item) or {}).get("block_size", BLOCK)
    return "" if size == BLOCK else f"block_size is {size}, not {BLOCK}."


def _scale_method(item: Instruction) -> str:
    method = (_json(item) or {}).get("scale_method", _METHOD)
    return "" if method == _METHOD else f"scale_method is {method!r}, not {_METHOD!r}."


def _source(item: Instruction) -> str:
    type = item.operands[0].shape.element_type
    return "" if type in _SOURCES else f"it quantises {type}."


def _two_results(item: Instruction) -> str:
    parts = item.shape.tuple_shapes
    fits = item.shape.is_tuple and len(parts) == 2 and all(part.is_array for part in parts)
    return "" if fits else f"it gives {item.shape}, not two arrays."


def _divisible(item: Instruction) -> str:
    axis = _axis(item)
    size = 0 if axis is None else item.operands[0].shape.dimensions[axis]
    return f"a dimension of {size} elements is no multiple of {PACKED}." if size % PACKED else ""


def _packed(item: Instruction) -> str:
    dtype = (_json(item) or {}).get("dtype")
    if dtype not in _DTYPES:
        return f"dtype is {dtype!r}, none of {', '.join(_DTYPES)}."
    data, dims, axis = item.shape.tuple_shapes[0], item.operands[0].shape.dimensions, _axis(item)
    if data.element_type != _WORD:
        return f"its data are {data.element_type}, not {_WORD}."
    wanted = tuple(size // PACKED if i == axis else size for i, size in enumerate(dims))
    wrong = len(data.dimensions) == len(dims) and tuple(data.dimensions) != wanted
    return f"its data are {list(data.dimensions)}, not {list(wanted)}." if wrong else ""


# Products


class _Side(NamedTuple):
    """An operand of a product, with the dimensions that its configuration names."""

    dims: tuple[int, ...]
    batch: list[int]
    contracted: int


_LISTS = tuple(f"{side}_{kind}_dimensions" for side in ("lhs", "rhs")
               for kind in ("batch", "contracting"))  # fmt: skip


def _lists(item: Instruction) -> dict[str, list[int]] | None:
    """The lists of dimensions; None where the configuration cannot be read."""
    text = item.attributes.get("backend_config") or ""
    whole = {} if text in ("", "None") else _json(item)
    if whole is None:
        return None
    given = whole.get("scaled_dot_backend_config", {})
    try:
        return {name: [int(axis) for axis in given.get(name, ())] for name in _LISTS}
    except (AttributeError, TypeError, ValueError):
        return None


def _sides(item: Instruction) -> list[_Side]:
    lists = _lists(item) or {name: [] for name in _LISTS}
    found = []
    for operand, side in zip(item.operands, ("lhs", "rhs")):
        dims = tuple(operand.shape.dimensions)
        contracting = lists[f"{side}_contracting_dimensions"] or [len(dims) - 1]
        found.append(_Side(dims, lists[f"{side}_batch_dimensions"], contracting[0]))
    return found


def _four_operands(item: Instruction) -> str:
    count = len(item.operands)
    return "" if count == 4 else f"it has {count} operands, not 4."


def _left_type(item: Instruction) -> str:
    type = item.operands[0].shape.element_type
    return "" if type == _WORD else f"its left operand is {type}, not packed {_WORD}."


def _result_type(item: Instruction) -> str:
    type = "a tuple" if item.shape.is_tuple else item.shape.element_type
    return "" if type in _RESULTS else f"it gives {type}, not {' or '.join(_RESULTS)}."


def _rank(number: int) -> Rule:
    def rule(item: Instruction) -> str:
        shape = item.operands[number].shape
        return f"operand {number} is {shape}, no matrix." if len(shape.dimensions) < 2 else ""

    return rule


def _readable(item: Instruction) -> str:
    return "" if _lists(item) is not None else "its configuration cannot be read."


def _batch_inside(item: Instruction) -> str:
    for side in _sides(item):
        for axis in side.batch:
            if not 0 <= axis < len(side.dims):
                return f"batch dimension {axis} is none of {list(side.dims)}."
    return ""


def _contracted_inside(item: Instruction) -> str:
    for side in _sides(item):
        if not 0 <= side.contracted < len(side.dims):
            return f"contracting dimension {side.contracted} is none of {list(side.dims)}."
    return ""


def _disjoint(item: Instruction) -> str:
    for side in _sides(item):
        if side.contracted in side.batch:
            return f"dimension {side.contracted} is contracted, and a batch dimension."
    return ""


def _equal_batches(item: Instruction) -> str:
    left, right = _sides(item)
    if len(left.batch) != len(right.batch):
        return ""
    sizes = [math.prod(side.dims[axis] for axis in side.batch) for side in (left, right)]
    return "" if sizes[0] == sizes[1] else f"its batches have {sizes[0]} and {sizes[1]} matrices."


def _equal_depths(item: Instruction) -> str:
    sizes = [side.dims[side.contracted] for side in _sides(item)]
    return "" if sizes[0] == sizes[1] else f"it contracts {sizes[0]} elements with {sizes[1]}."


RULES: dict[str, dict[str, Rule]] = {
    QUANTIZE: {
        "EVRF037": _one_operand,
        "EVRF036": _configuration,
        "EVRF057": _two_results,
        "EVRF041": _source,
        "EVRF038": _dimension,
        "EVRF039": _block_size,
        "EVRF040": _scale_method,
        "EVRF058": _divisible,
        "EVRF042": _packed,
    },
    SCALED_DOT: {
        "EVRF043": _four_operands,
        "EVRF049": _readable,
        "EVRF044": _left_type,
        "EVRF045": _result_type,
        "EVRF046": _rank(0),
        "EVRF047": _rank(1),
        "EVRF054": _batch_inside,
        "EVRF055": _contracted_inside,
        "EVRF053": _disjoint,
        "EVRF048": _equal_batches,
        "EVRF050": _equal_depths,
    },
}
"""The rule of each code, by target, in the order in which a call is looked at: each takes for
granted what those before it say."""
