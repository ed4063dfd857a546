"""What a graph computes without rounding, and how far a result may be from that.

`bounded(module, inputs)` evaluates in float64 and carries a bound with each floating-point value:
copies, integers, selections and comparisons are exact; an element-wise operation is within ULPS
units of the last place; a sum of k terms within k units of the sum of their magnitudes, whatever
the order; and what operands may be off counts by the slope of the operation. Values that decide
something must be exact (`random_graphs` makes no others).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from conformance_models import in_float64

from graph_compiler.evaluate import Evaluator
from graph_compiler.hlo.operators import operator
from graph_compiler.inputs import checked_inputs

Array = np.ndarray[Any, Any]

ULPS = 4
"""Units of the last place of functions; of arithmetic it is one."""


class Bounded(NamedTuple):
    """A value and how far a result may be from it; None where it is exact."""

    value: Array
    error: Array | None = None


class Rounding(NamedTuple):
    """Of a type: a unit of the last place of 1, the smallest normal number, the largest one."""

    unit: float
    tiny: float
    largest: float


def rounding(shape: Any) -> Rounding:
    information = ml_dtypes.finfo(shape.numpy_dtype())
    unit, tiny = float(information.eps), float(information.smallest_normal)
    return Rounding(unit, tiny, float(information.max))


def errors(operands: Sequence[Bounded]) -> list[Array]:
    """The bounds of operands, zeros for exact ones."""
    return [
        np.zeros(one.value.shape) if one.error is None else np.asarray(one.error)
        for one in operands
    ]


Compute = Callable[[Sequence[Array]], Any]
"""The operation on arrays in place of its operands."""

Rule = Callable[[Any, Sequence[Bounded], Array, Compute, float], Any]
"""(instruction, operands, value, compute, unit) -> bound."""


def _moved(
    item: Any, operands: Sequence[Bounded], value: Any, compute: Compute, unit: float
) -> Any:
    """Bounds go where their values go, by the same indices and flags."""
    return compute(
        [
            error if one.value.dtype.kind == "f" else one.value
            for one, error in zip(operands, errors(operands))
        ]
    )


def _sorted(
    item: Any, operands: Sequence[Bounded], value: Any, compute: Compute, unit: float
) -> Any:
    """The same by the keys, which are exact."""
    found = compute([one.value if one.error is None else one.error for one in operands])
    return tuple(None if one.error is None else part for one, part in zip(operands, found))


def _sum(
    item: Any, operands: Sequence[Bounded], compute: Compute, unit: float, terms: float
) -> Array:
    data = [one.value.dtype.kind == "f" for one in operands]
    off = errors(operands)
    magnitudes = [abs(one.value) if d else one.value for one, d in zip(operands, data)]
    wide = [m + e if d else m for m, e, d in zip(magnitudes, off, data)]
    spread = compute(wide) - compute(magnitudes)
    return np.asarray(spread + (terms + 1) * unit * compute(wide))


def _folded(
    item: Any, operands: Sequence[Bounded], value: Array, compute: Compute, unit: float
) -> Array:
    """A reduction, also of windows, and a scatter: additions or extremes."""
    if item.called[0].root.opcode in ("maximum", "minimum"):
        return np.full(value.shape, max(error.max(initial=0.0) for error in errors(operands)))
    return _sum(item, operands, compute, unit, operands[0].value.size)


def _product(
    item: Any, operands: Sequence[Bounded], value: Array, compute: Compute, unit: float
) -> Array:
    """Products of what operands may be at most, less those of what they are."""
    return _sum(item, operands, compute, unit, max(one.value.size for one in operands))


def _slope(rule: Callable[..., Any], ulps: float = 0.0) -> Rule:
    """A function of (values, bounds, result), and units of the result beside it."""

    def bound(
        item: Any, operands: Sequence[Bounded], value: Array, compute: Compute, unit: float
    ) -> Array:
        given = rule([one.value for one in operands], errors(operands), value)
        return np.asarray(given + ulps * unit * abs(value))

    return bound


def _sqrt(x: Any, e: Any, y: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmin(np.sqrt(e[0]), e[0] / y)


def _divided(x: Any, e: Any, y: Any) -> Any:
    return (e[0] + abs(y) * e[1]) / np.maximum(abs(x[1]) - e[1], 1e-9)


def _power(x: Any, e: Any, y: Any) -> Any:
    """What the logarithm of the result may be off, as a factor."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        relative = e[0] / np.maximum(abs(x[0]) - e[0], 0.0)
        off = np.where(e[0] > 0, abs(x[1]) * relative, 0.0)
        off += np.where(e[1] > 0, abs(np.log(abs(x[0]))) * e[1], 0.0)
        return abs(y) * np.expm1(off)


def _remainder(x: Any, e: Any, y: Any) -> Any:
    """What a whole quotient leaves; anything below the divisor where it may be another one."""
    most = abs(x[1]) + e[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        least_quotient = np.trunc(np.maximum(abs(x[0]) - e[0], 0.0) / most)
        quotient = np.trunc((abs(x[0]) + e[0]) / np.maximum(abs(x[1]) - e[1], 0.0))
        return np.where(quotient == least_quotient, e[0] + quotient * e[1], 2 * most)


def _periodic(
    item: Any, operands: Sequence[Bounded], value: Array, compute: Compute, unit: float
) -> Array:
    """Units of the last place of 1; of large angles those of the angle in fp32."""
    (angle,) = operands
    return np.asarray(errors(operands)[0] + ULPS * np.maximum(unit, abs(angle.value) * 2.0**-23))


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("reshape", "transpose", "broadcast", "slice", "reverse", "copy", "concatenate"), _moved
    ),
    **dict.fromkeys(("pad", "dynamic-slice", "dynamic-update-slice", "gather", "select"), _moved),
    **dict.fromkeys(("reduce", "reduce-window", "scatter"), _folded),
    **dict.fromkeys(("dot", "convolution"), _product),
    **dict.fromkeys(("add", "subtract"), _slope(lambda x, e, y: e[0] + e[1], 1)),
    "multiply": _slope(lambda x, e, y: abs(x[0]) * e[1] + abs(x[1]) * e[0] + e[0] * e[1], 1),
    "divide": _slope(_divided, ULPS),
    "power": _slope(_power, ULPS),
    "remainder": _slope(_remainder, 1),
    **dict.fromkeys(("maximum", "minimum"), _slope(lambda x, e, y: np.maximum(*e))),
    **dict.fromkeys(("negate", "abs"), _slope(lambda x, e, y: e[0])),
    "clamp": _slope(lambda x, e, y: e[1]),
    "convert": _slope(lambda x, e, y: e[0], 1),
    "tanh": _slope(lambda x, e, y: e[0], ULPS),
    "logistic": _slope(lambda x, e, y: e[0] / 4, ULPS),
    "exponential": _slope(lambda x, e, y: y * np.expm1(e[0]), ULPS),
    "log-plus-one": _slope(lambda x, e, y: e[0], ULPS),
    "sqrt": _slope(_sqrt, ULPS),
    "rsqrt": _slope(lambda x, e, y: e[0] / 2, ULPS),
    "sine": _periodic,
    "cosine": _periodic,
    "sort": _sorted,
}
"""By opcode, how far results may be."""


class _Bounds:
    """An evaluation of a module beside that of its float64 form."""

    def __init__(self, module: Any) -> None:
        wide = in_float64(module)
        self.context = Evaluator(wide)
        self.narrow = {
            id(other): item
            for computation, counterpart in zip(module.computations, wide.computations)
            for item, other in zip(computation.instructions, counterpart.instructions, strict=True)
        }
        self.entry = wide.entry

    def call(self, computation: Any, arguments: Sequence[Any]) -> Any:
        values: dict[Any, Any] = {}
        for item in computation.instructions:
            if item.opcode == "parameter":
                values[item] = arguments[item.parameter_number]
            else:
                rule = CONTROL.get(item.opcode, _operation)
                values[item] = rule(self, item, [values[operand] for operand in item.operands])
        return values[computation.root]


def _operation(bounds: _Bounds, item: Any, operands: Sequence[Bounded]) -> Any:
    row = operator(item.opcode)

    def compute(arrays: Sequence[Array]) -> Any:
        return row.evaluate(item, list(arrays), bounds.context)

    value = compute([one.value for one in operands])
    shape = bounds.narrow[id(item)].shape
    inexact = any(one.error is not None for one in operands)
    if isinstance(value, tuple):
        found = _sorted(item, operands, value, compute, 0.0)
        return tuple(Bounded(*pair) for pair in zip(value, found))
    value = np.asarray(value)
    if value.dtype.kind != "f":
        assert not inexact, f"{item.opcode} of what is not exact"
        return Bounded(value)
    rule = RULES.get(item.opcode)
    if rule is None or (not inexact and _stays(item, value, shape)):
        assert not inexact, f"no bound for {item.opcode}"
        return Bounded(value)
    unit, tiny, largest = rounding(shape)
    error = np.asarray(rule(item, operands, value, compute, unit)) + tiny
    with np.errstate(invalid="ignore"):
        lost = ~(abs(value) + error < largest)
    return Bounded(value, np.where(lost, np.inf, error))


_PICKS = frozenset({"negate", "abs", "maximum", "minimum", "clamp"})


def _stays(item: Any, value: Array, shape: Any) -> bool:
    """Whether an operation on exact values is exact: it moves or picks, or rounds nothing."""
    rule = RULES[item.opcode]
    if rule is _moved or item.opcode in _PICKS:
        return True
    if rule is _folded:
        return item.called[0].root.opcode in _PICKS
    return item.opcode == "convert" and np.array_equal(value.astype(shape.numpy_dtype()), value)


def _while(bounds: _Bounds, item: Any, operands: Sequence[Any]) -> Any:
    body, condition = item.called
    (state,) = operands
    while bool(bounds.call(condition, [state]).value):
        state = bounds.call(body, [state])
    return state


def _conditional(bounds: _Bounds, item: Any, operands: Sequence[Any]) -> Any:
    index, *arguments = operands
    if index.value.dtype == np.bool_:
        taken = int(not index.value)
    else:
        last = len(arguments) - 1
        taken = int(index.value) if 0 <= index.value <= last else last
    return bounds.call(item.called[taken], [arguments[taken]])


CONTROL: dict[str, Callable[[_Bounds, Any, Sequence[Any]], Any]] = {
    "tuple": lambda bounds, item, operands: tuple(operands),
    "get-tuple-element": lambda bounds, item, operands: operands[0][item.attribute("tuple_index")],
    "while": _while,
    "conditional": _conditional,
    "call": lambda bounds, item, operands: bounds.call(item.called[0], operands),
}
"""What only passes bounded values on."""


def bounded(module: Any, inputs: Sequence[Any]) -> list[Bounded]:
    """The results of a module, a tuple's components one after another."""
    arguments = [
        Bounded(array.astype(np.float64) if not _is_whole(array) else array)
        for array in checked_inputs(module, inputs)
    ]
    bounds = _Bounds(module)
    with np.errstate(all="ignore"):
        found = bounds.call(bounds.entry, arguments)
    return list(found) if not isinstance(found, Bounded) else [found]


def _is_whole(array: Array) -> bool:
    return array.dtype.kind in "biu"


def outside(found: Array, wanted: Bounded) -> str:
    """Why a result is outside of its bound; "" where it is inside."""
    value, error = wanted
    if found.shape != value.shape:
        return f"{found.shape} instead of {value.shape}"
    if _is_whole(value):
        bad = found != value
    else:
        wide = found.astype(np.float64)
        limit = 0.0 if error is None else np.where(np.isnan(error), math.inf, error)
        with np.errstate(invalid="ignore"):
            bad = ~((wide == value) | (abs(wide - value) <= limit) | (limit == math.inf))
            bad &= ~(np.isnan(wide) & np.isnan(value))
    if not bad.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
    allowed = "" if error is None else f", may be off by {np.asarray(error)[first]:.3g}"
    return (
        f"{bad.sum()} of {bad.size} differ, first at {list(first)}: "
        f"{found[first]} instead of {value[first]}{allowed}"
    )
