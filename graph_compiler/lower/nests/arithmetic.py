"""Element-wise opcodes as operations on tiles: `FORMS[opcode][kind](values, step)`.

The kinds are those of the operands (`registers.kind`). A value is a tile, [partitions, free ...],
or a number that every element is. Operations are those of `nki.language`, whose table states their
error bounds: floats are computed in fp32 and rounded to the result's type, 32-bit integers are
exact on the GpSimd engine (SDK nki/api/nki.isa.rst#nki.isa.tensor_tensor).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import nki.language as nl
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.host_kernels.elements import TOTAL, UNSUPPORTED, ElementStep
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.nests import angles, integers
from graph_compiler.lower.nests.combined import ACTIVATIONS
from graph_compiler.lower.rewrites.composites import COMPOSITES
from graph_compiler.lower.rewrites.softmax import is_softmax_divisor
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.schedule.attributes import Number, attribute_of, comparison
from graph_compiler.schedule.steps import item_size
from isa.enums import ReduceCommand
from isa.operations.accumulate import SelectReduce
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.division import divide
from nki.language.lowering.emitter import Emitter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node

Value = NkiTensor | float | int
ElementForm = Callable[[Sequence[Any], ElementStep], NkiTensor]

ALL_INTEGERS = 2.0**23
"""From here on every fp32 number is an integer."""


def dtype_of(step: ElementStep) -> str:
    """The dtype of a step's result."""
    return DTYPES[step.type]


def _function(name: str) -> ElementForm:
    """A function of `nki.language`, rounded to the result's type."""
    function = getattr(nl, name)
    return lambda values, step: function(*values, dtype=dtype_of(step))


def _unary(name: str) -> dict[str, ElementForm]:
    return {"real": _function(name)}


def _whole(form: ElementForm) -> dict[str, ElementForm]:
    """A form for integers of every width."""
    return {"signed": form, "unsigned": form}


def _wrapping(op: str, form: ElementForm) -> dict[str, ElementForm]:
    """A form for 32-bit integers, which wrap around, for those of every width."""
    return _whole(integers.wrapped(form, op))


def _numbers(name: str) -> dict[str, ElementForm]:
    return {"real": _function(name), **_whole(_function(name))}


def _wrapping_numbers(name: str) -> dict[str, ElementForm]:
    return {"real": _function(name), **_wrapping(name, _function(name))}


_RELATIONS = {
    "EQ": "equal",
    "NE": "not_equal",
    "GE": "greater_equal",
    "GT": "greater",
    "LE": "less_equal",
    "LT": "less",
}


def _compare(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    relation: Callable[..., NkiTensor]
    relation = getattr(nl, _RELATIONS[step.attribute.removesuffix(TOTAL)])
    if step.attribute.endswith(TOTAL):
        values = [_total_order(value) for value in values]
    return relation(*values, dtype="uint8")


def _total_order(value: Any) -> Any:
    """Integers in the total order of floats: -NaN < -inf < ... < -0 < +0 < ... < NaN."""
    if not isinstance(value, NkiTensor):
        number = int(np.float32(value).view(np.int32))
        return number ^ 0x7FFFFFFF if number < 0 else number
    bits = nl.copy(value, dtype="float32").view("int32")
    negative = nl.less(bits, 0, dtype="uint8")
    return nl.bitwise_xor(bits, nl.where(negative, 0x7FFFFFFF, 0, dtype="int32"))


def _select(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    condition, left, right = values
    chosen = _chosen(condition, left, right, step)
    return nl.where(condition, left, right, dtype=dtype_of(step)) if chosen is None else chosen


def chosen_with_most(values: Sequence[Any], step: ElementStep, most: NkiTensor) -> NkiTensor:
    """What a select chooses; `most` [partitions, 1] becomes the largest of each row, in fp32."""
    condition, left, right = values
    found = _chosen(condition, left, right, step, most)
    if found is None:
        found = _select(values, step)
        axes = tuple(range(1, len(found.shape)))
        Emitter("select", None).reduce(most, "maximum", found, axes)
    return found


def _chosen(
    condition: Any, left: Any, right: Any, step: ElementStep, most: NkiTensor | None = None
) -> NkiTensor | None:
    """Floats of a tile or one number, in one operation; None of other choices. `most`: what becomes
    the largest of each row."""
    reverse = not isinstance(left, NkiTensor)
    tile, number = (right, left) if reverse else (left, right)
    if isinstance(number, NkiTensor) or not isinstance(tile, NkiTensor):
        return None
    if not isinstance(condition, NkiTensor) or condition.dtype != DTYPES["pred"]:
        return None
    if condition.shape != tile.shape or step.type not in _CHOSEN or tile.dtype != dtype_of(step):
        return None
    e = Emitter("select", None)
    result = e.result(tile.shape, tile.dtype)
    options = {"predicate": condition, "on_true": tile, "on_false": float(number)}
    if most is not None:
        options |= {"reduce_res": most, "reduce_cmd": ReduceCommand.reset_reduce}
    e(SelectReduce, dst=result, **options, reverse_pred=reverse)
    return result


_CHOSEN = frozenset({"f32", "bf16", "f16"})
"""Types whose elements pass through the vector engine's fp32 as they are."""


def _clamp(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    low, value, high = values
    return nl.minimum(nl.maximum(value, low), high, dtype=dtype_of(step))


def _divide(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    x, y = values
    return divide(Emitter("divide", None), x, y, dtype_of(step), step.attribute == MODERATE)


MODERATE = "moderate"
"""The attribute of a division whose divisor is about 1 in size."""


def _divisor(node: Node, number: Number) -> Any:
    return MODERATE if is_softmax_divisor(node.operands[1]) else None


def _signed_as(result: NkiTensor, x: NkiTensor) -> NkiTensor:
    """A result whose sign is the operand's, also where it is zero."""
    return angles.with_sign(nl.abs(result, dtype="float32"), nl.copy(x, dtype="float32"))


def _zero_signed(name: str) -> dict[str, ElementForm]:
    """A function whose results have the operand's sign; zeros too."""
    function = getattr(nl, name)

    def form(values: Sequence[Any], step: ElementStep) -> NkiTensor:
        (x, *_) = integers.tiles(values, "float32")
        result = _signed_as(function(*values, dtype="float32"), x)
        return nl.copy(result, dtype=dtype_of(step))

    return {"real": form}


def _square_root(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """Of all negative numbers NaN: the engine's of -infinity is not."""
    return nl.sqrt(nl.maximum(values[0], -1.0, dtype="float32"), dtype=dtype_of(step))


def _nearest(x: NkiTensor) -> NkiTensor:
    """The nearest integer, ties to even, of |x| < 2^23: conversions round so."""
    return nl.copy(nl.copy(x, dtype="int32"), dtype="float32")


def _round_even(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    (x,) = values
    small = nl.less(nl.abs(x), ALL_INTEGERS, dtype="uint8")
    return nl.where(small, _signed_as(_nearest(x), x), x, dtype=dtype_of(step))


def _round_away(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """Towards zero, and one farther where at least one half was cut off."""
    (x,) = values
    whole = nl.trunc(x, dtype="float32")
    farther = nl.greater_equal(nl.abs(nl.subtract(x, whole)), 0.5, dtype="float32")
    result = nl.add(whole, nl.multiply(farther, nl.sign(x)), dtype="float32")
    return nl.copy(_signed_as(result, x), dtype=dtype_of(step))


def _exp_minus_one(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """(u - 1) x / log(u) with u = exp(x): errors of u cancel where x is small (W. Kahan)."""
    (x,) = values
    u = nl.exp(x, dtype="float32")
    less = nl.subtract(u, 1.0)
    exact = nl.divide(nl.multiply(less, x, dtype="float32"), nl.log(u))
    inside = nl.logical_and(nl.less(nl.abs(x), 0.5), nl.not_equal(less, 0.0), dtype="uint8")
    result = nl.where(inside, exact, less, dtype="float32")
    tiny = nl.equal(u, 1.0, dtype="uint8")
    return nl.where(tiny, x, result, dtype=dtype_of(step))


def _log_plus_one(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """log(u) x / (u - 1) with u = 1 + x: errors of u cancel where x is small (W. Kahan)."""
    (x,) = values
    u = nl.add(x, 1.0, dtype="float32")
    less = nl.subtract(u, 1.0)
    plain = nl.log(u)
    exact = nl.divide(nl.multiply(plain, x, dtype="float32"), less)
    inside = nl.logical_and(nl.less(nl.abs(x), 1.0), nl.not_equal(less, 0.0), dtype="uint8")
    result = nl.where(inside, exact, plain, dtype="float32")
    tiny = nl.equal(u, 1.0, dtype="uint8")
    return nl.where(tiny, x, result, dtype=dtype_of(step))


def _cube_root(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    (x,) = values
    size = nl.power(nl.abs(x), 1.0 / 3.0, dtype="float32")
    return nl.copy(_signed_as(size, x), dtype=dtype_of(step))


def _negative(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """Of unsigned integers the number that wraps around to zero with them."""
    (x,) = values
    return nl.negative(x.view("int32")).view(dtype_of(step))


def _is_finite(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    return nl.less(nl.abs(values[0]), math.inf, dtype="uint8")


def _not(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    return nl.bitwise_xor(values[0], 1)


def _convert(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    (x,) = values
    source, target = kind(step.source), kind(step.type)
    if target == "boolean":
        return nl.not_equal(x, 0, dtype="uint8")
    if source == "real" and target != "real":
        return nl.copy(nl.trunc(x, dtype="float32"), dtype=dtype_of(step))
    if target != "real" and source != "boolean":
        return _narrowed(x, step)
    return nl.copy(x, dtype=dtype_of(step))


def _narrowed(x: NkiTensor, step: ElementStep) -> NkiTensor:
    """Integers of another width: the low bits stay."""
    bits, wide = PRIMITIVE_TYPES[step.type].bits, PRIMITIVE_TYPES[step.source].bits
    if bits > wide:
        if kind(step.source) == "signed" and kind(step.type) == "unsigned":
            return nl.copy(x, dtype=f"int{bits}").view(dtype_of(step))
        return nl.copy(x, dtype=dtype_of(step))
    if bits == wide:
        return nl.copy(x).view(dtype_of(step))
    if wide < integers.BITS:
        x = nl.copy(x, dtype="int32" if kind(step.source) == "signed" else "uint32")
    return integers.dropped(x, bits, kind(step.type) == "signed", dtype_of(step))


def _bits_of(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    return nl.copy(values[0]).view(dtype_of(step))


def _same(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    (value,) = values
    return value  # type: ignore[no-any-return]


_LOGICAL = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}

FORMS: dict[str, dict[str, ElementForm]] = {
    "add": _wrapping_numbers("add") | {"boolean": _function("bitwise_or")},
    "subtract": _wrapping_numbers("subtract"),
    "multiply": _wrapping_numbers("multiply") | {"boolean": _function("bitwise_and")},
    "mulhi": _wrapping("mulhi", integers.multiply_high),
    "divide": {"real": _divide, **_wrapping("divide", integers.divide)},
    "remainder": {**_zero_signed("fmod"), **_wrapping("remainder", integers.remainder)},
    "maximum": _numbers("maximum") | {"boolean": _function("bitwise_or")},
    "minimum": _numbers("minimum") | {"boolean": _function("bitwise_and")},
    **{
        op: {**_whole(_function(name)), "boolean": _function(name)} for op, name in _LOGICAL.items()
    },
    "not": {"boolean": _not, **_whole(lambda x, step: nl.invert(x[0]))},
    "shift-left": _wrapping("shift-left", integers.shift_left),
    "shift-right-logical": _wrapping("shift-right-logical", integers.shift_right_logical),
    "shift-right-arithmetic": _wrapping("shift-right-arithmetic", integers.shift_right_arithmetic),
    "popcnt": _wrapping("popcnt", integers.population),
    "count-leading-zeros": _wrapping("count-leading-zeros", integers.leading_zeros),
    "compare": {"real": _compare, "boolean": _compare, **_whole(_compare)},
    "select": {"real": _select, "boolean": _select, **_whole(_select)},
    "clamp": {"real": _clamp, **_whole(_clamp)},
    "abs": {**_unary("abs"), **_wrapping("abs", _function("abs")), "unsigned": _same},
    "negate": {**_unary("negative"), **_wrapping("negate", _negative)},
    "sign": {"real": angles.sign, **_wrapping("sign", integers.sign)},
    "atan2": {"real": angles.angle},
    "reduce-precision": {"real": angles.reduce_precision},
    "floor": _zero_signed("floor"),
    "ceil": _zero_signed("ceil"),
    "round-nearest-even": {"real": _round_even},
    "round-nearest-afz": {"real": _round_away},
    "is-finite": {"real": _is_finite},
    "sqrt": {"real": _square_root},
    "rsqrt": _unary("rsqrt"),
    "cbrt": {"real": _cube_root},
    "exponential": _unary("exp"),
    "exponential-minus-one": {"real": _exp_minus_one},
    "log": _unary("log"),
    "log-plus-one": {"real": _log_plus_one},
    "logistic": _unary("sigmoid"),
    "tanh": _unary("tanh"),
    "erf": _unary("erf"),
    "sine": _unary("sin"),
    "cosine": _unary("cos"),
    "tan": _unary("tan"),
    "power": {**_unary("power"), **_wrapping("power", integers.power)},
    "convert": {
        "real": _convert,
        "signed": _convert,
        "unsigned": _convert,
        "boolean": _convert,
    },
    "bitcast-convert": {"real": _bits_of, "boolean": _bits_of, **_whole(_bits_of)},
    "real": {"real": _same},
    **{name: _unary(name) for name in COMPOSITES},
}
"""The form of each opcode on tiles, by the kind of its operands."""


_BY_COLUMN = frozenset({"add", "subtract", "multiply", "divide", "maximum", "minimum", "compare"})
"""Opcodes whose second operand may be a column, [partitions, 1], that repeats along rows."""


def takes_column(step: ElementStep) -> bool:
    """Whether a step's second operand may be a column."""
    return step.op in _BY_COLUMN and kind(step.source) == "real"


_PLAIN = frozenset({"add", "subtract", "multiply", "maximum", "minimum", "abs", "negate"})
_SINGLE = _PLAIN | set(ACTIVATIONS)
"""Opcodes of floats that are one instruction."""


def temporaries(step: ElementStep) -> int:
    """About how many tiles a step needs beside its operands and its result."""
    return 0 if kind(step.source) == "real" and step.op in _SINGLE else 6


def has_form(op: str, source: str, type: str, attribute: Any) -> bool:
    """Whether an operation on these types has a form on tiles."""
    if source not in DTYPES or type not in DTYPES or kind(source) not in FORMS.get(op, {}):
        return False
    if op in _SAME_WIDTH and item_size(source) != item_size(type):
        return False
    return attribute is not UNSUPPORTED


_SAME_WIDTH = frozenset({"bitcast-convert"})
"""Opcodes whose elements take as many bytes before and after."""


def _format(node: Node, number: Number) -> Any:
    """Bits of exponent and mantissa."""
    item = node.instruction
    assert item is not None
    if not angles.has_format(node.type):
        return UNSUPPORTED
    return item.attribute("exponent_bits"), item.attribute("mantissa_bits")


_ATTRIBUTES: dict[str, Callable[[Node, Number], Any]] = {
    "compare": comparison,
    "divide": _divisor,
    "reduce-precision": _format,
}


def tile_attribute(node: Node, number: Number) -> Any:
    """The attribute of a step on tiles; UNSUPPORTED where there is no form."""
    return attribute_of(node, number, FORMS, _ATTRIBUTES, has_form)


def tile_operands(node: Node) -> list[Node]:
    """The operands of an element-wise operation's step."""
    return node.operands


def emit(step: ElementStep, values: Sequence[Value]) -> NkiTensor:
    """The tile that a step computes."""
    return FORMS[step.op][kind(step.source)](values, step)
