"""Element-wise opcodes as vector code: `FORMS[opcode][kind](f, arguments, step)`.

The kinds are those of the operands (`registers.kind`). An opcode or kind that is missing has no
native form and runs through the reference of the operator table. Results are those of the table:
bit for bit where it computes exactly, within a few units of the last place elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.host_kernels import functions
from graph_compiler.host_kernels.registers import kind, register, rounded
from simulator.native.codegen.text import FunctionText, Value, bits_of
from simulator.native.codegen.vectors import VectorArithmetic, printed
from simulator.numerics import polynomial


class ElementStep(NamedTuple):
    """One operation of a kernel: `source` is the operands' type, `type` the result's."""

    op: str
    type: str
    source: str
    attribute: Any
    arguments: tuple[int, ...]


Print = Callable[[FunctionText, Sequence[Value], ElementStep], Value]


def _binary(name: str) -> Print:
    return lambda f, x, step: f.binary(name, x[0], x[1])


def _intrinsic(name: str) -> Print:
    return lambda f, x, step: f.intrinsic(name, *x)


def _function(function: Callable[[VectorArithmetic, Any], Any]) -> Print:
    evaluate = printed(function)
    return lambda f, x, step: evaluate(f, x[0])


def _zero(f: FunctionText, value: Value) -> Value:
    return f.like(value, 0)


def _signed_divide(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    """Towards zero; by zero -1, the lowest by -1 itself."""
    left, right = x
    zero = f.compare("icmp eq", right, _zero(f, right))
    minus = f.compare("icmp eq", right, f.like(right, -1))
    safe = f.select(zero | minus, f.like(right, 1), right)
    quotient = f.binary("sdiv", left, safe)
    negated = _zero(f, left) - left
    return f.select(zero, f.like(left, -1), f.select(minus, negated, quotient))


def _unsigned_divide(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    left, right = x
    zero = f.compare("icmp eq", right, _zero(f, right))
    quotient = f.binary("udiv", left, f.select(zero, f.like(right, 1), right))
    return f.select(zero, f.like(left, -1), quotient)


def _remainder(operation: str, signed: bool) -> Print:
    def remainder(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
        left, right = x
        zero = f.compare("icmp eq", right, _zero(f, right))
        safe = f.select(zero, f.like(right, 1), right)
        if signed:
            minus = f.compare("icmp eq", right, f.like(right, -1))
            safe = f.select(minus, f.like(right, 1), safe)
        return f.select(zero, left, f.binary(operation, left, safe))

    return remainder


def _shift(operation: str, arithmetic: bool) -> Print:
    """Amounts of the width or more, negative ones too, leave nothing, or the sign."""

    def shift(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
        width = bits_of(x[0].element)
        inside = f.compare("icmp ult", x[1], f.like(x[1], width))
        amount = f.select(inside, x[1], f.like(x[1], width - 1 if arithmetic else 0))
        moved = f.binary(operation, x[0], amount)
        return moved if arithmetic else f.select(inside, moved, _zero(f, moved))

    return shift


_REAL = {"EQ": "oeq", "NE": "une", "GE": "oge", "GT": "ogt", "LE": "ole", "LT": "olt"}


TOTAL = " total"
"""Ends the direction of a comparison in total order."""


def _total_order(f: FunctionText, value: Value) -> Value:
    """Whole numbers in the total order of floats: -NaN < -inf < ... < -0 < +0 < ... < NaN."""
    bits = bits_of(value.element)
    pattern = f.convert("bitcast", value, f"i{bits}")
    sign = f.binary("ashr", pattern, f.like(pattern, bits - 1))
    flipped = sign & ((1 << (bits - 1)) - 1)
    return pattern ^ flipped


def _compare_real(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    if step.attribute.endswith(TOTAL):
        direction = step.attribute.removesuffix(TOTAL).lower()
        name = direction if direction in ("eq", "ne") else "s" + direction
        return f.compare(f"icmp {name}", *(_total_order(f, value) for value in x))
    return f.compare(f"fcmp {_REAL[step.attribute]}", *x)


def _compare_integer(sign: str) -> Print:
    def compare(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
        name = step.attribute.lower()
        return f.compare(f"icmp {name if name in ('eq', 'ne') else sign + name}", *x)

    return compare


def _select(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    return f.select(*x)


def _clamp(least: str, most: str) -> Print:
    def clamp(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
        low, value, high = x
        return f.intrinsic(least, f.intrinsic(most, value, low), high)

    return clamp


def _sign_real(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    one = f.intrinsic("copysign", f.like(x[0], 1.0), x[0])
    kept = f.compare("fcmp ueq", x[0], f.like(x[0], 0.0))  # zeros and NaN
    return f.select(kept, x[0], one)


def _sign_signed(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    positive = f.intrinsic("smin", x[0], f.like(x[0], 1))
    return f.intrinsic("smax", positive, f.like(x[0], -1))


def _absolute(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    negated = _zero(f, x[0]) - x[0]
    return f.select(f.compare("icmp slt", x[0], _zero(f, x[0])), negated, x[0])


def _negated(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    return _zero(f, x[0]) - x[0]


def _inverted(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    return x[0] ^ -1


def _is_finite(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    return f.compare("fcmp olt", f.intrinsic("fabs", x[0]), f.like(x[0], float("inf")))


def _leading_zeros(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    (value,) = x
    suffix = f"v{value.width}{value.element}" if value.width else value.element
    flag = Value("false", "i1")
    return f.call(f"llvm.ctlz.{suffix}", value.element, value.width, value, flag)


def _rsqrt(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    return 1.0 / f.intrinsic("sqrt", x[0])


def _power(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    """A constant whole exponent: products in double, rounded once."""
    exponent = int(step.attribute)
    base = f.convert("fpext", x[0], "double")
    result = base
    for _ in range(abs(exponent) - 1):
        result = result * base
    if exponent < 0:
        result = 1.0 / result
    return f.convert("fptrunc", result, "float")


POWERS = frozenset({-2.0, -1.0, 1.0, 2.0, 3.0, 4.0})
"""Constant exponents that have a native form."""


def _saturated(f: FunctionText, value: Value, element: str, signed: bool) -> Value:
    """Whole numbers, towards zero; what is outside becomes the nearest limit, NaN 0.

    Written out, as LLVM takes the elements of a vector one by one for `llvm.fptosi.sat`.
    """
    bits = bits_of(element)
    low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if signed else (0.0, 2.0**bits)
    below = f.compare("fcmp olt", value, f.like(value, low))
    above = f.compare("fcmp oge", value, f.like(value, high))
    outside = below | f.compare("fcmp uge", value, f.like(value, high))
    inside = f.select(outside, _zero(f, value), value)
    wide = element if bits >= 32 else "i32"
    number = f.convert("fptosi" if signed or bits < 32 else "fptoui", inside, wide)
    number = f.convert("trunc", number, element)
    least = -(1 << (bits - 1)) if signed else 0
    most = (1 << (bits - 1)) - 1 if signed else -1
    number = f.select(above, f.like(number, most), number)
    return f.select(below, f.like(number, least), number)


def _convert(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    (value,) = x
    source, target = kind(step.source), kind(step.type)
    element = register(step.type)
    assert element is not None
    if target == "boolean":
        if source == "boolean":
            return value
        return f.compare("fcmp une" if source == "real" else "icmp ne", value, _zero(f, value))
    if source == "real" and target == "real":
        if value.element == element:
            return value
        narrower = bits_of(element) < bits_of(value.element)
        return f.convert("fptrunc" if narrower else "fpext", value, element)
    if source == "real":
        return _saturated(f, value, element, target == "signed")
    if target == "real":
        return f.convert("sitofp" if source == "signed" else "uitofp", value, element)
    if bits_of(element) > bits_of(value.element):
        return f.convert("sext" if source == "signed" else "zext", value, element)
    return f.convert("trunc", value, element)


def _bitcast(f: FunctionText, x: Sequence[Value], step: ElementStep) -> Value:
    element = register(step.type)
    assert element is not None
    return f.convert("bitcast", x[0], element)


def _all(form: Print, *kinds: str) -> dict[str, Print]:
    return dict.fromkeys(kinds or ("real", "signed", "unsigned", "boolean"), form)


def _whole(form: Print) -> dict[str, Print]:
    return _all(form, "signed", "unsigned")


def _bits(name: str) -> dict[str, Print]:
    return _all(_binary(name), "signed", "unsigned", "boolean")


FORMS: dict[str, dict[str, Print]] = {
    "add": {"real": _binary("fadd"), "boolean": _binary("or")} | _whole(_binary("add")),
    "subtract": {"real": _binary("fsub")} | _whole(_binary("sub")),
    "multiply": {"real": _binary("fmul"), "boolean": _binary("and")} | _whole(_binary("mul")),
    "divide": {
        "real": _binary("fdiv"),
        "signed": _signed_divide,
        "unsigned": _unsigned_divide,
    },
    "remainder": {"signed": _remainder("srem", True), "unsigned": _remainder("urem", False)},
    "maximum": {
        "real": _intrinsic("maximum"),
        "signed": _intrinsic("smax"),
        "unsigned": _intrinsic("umax"),
        "boolean": _binary("or"),
    },
    "minimum": {
        "real": _intrinsic("minimum"),
        "signed": _intrinsic("smin"),
        "unsigned": _intrinsic("umin"),
        "boolean": _binary("and"),
    },
    "and": _bits("and"),
    "or": _bits("or"),
    "xor": _bits("xor"),
    "not": _all(_inverted, "signed", "unsigned", "boolean"),
    "shift-left": _whole(_shift("shl", False)),
    "shift-right-logical": _whole(_shift("lshr", False)),
    "shift-right-arithmetic": _whole(_shift("ashr", True)),
    "compare": {
        "real": _compare_real,
        "signed": _compare_integer("s"),
        "unsigned": _compare_integer("u"),
        "boolean": _compare_integer("u"),
    },
    "select": _all(_select),
    "clamp": {
        "real": _clamp("minimum", "maximum"),
        "signed": _clamp("smin", "smax"),
        "unsigned": _clamp("umin", "umax"),
    },
    "abs": {
        "real": _intrinsic("fabs"),
        "signed": _absolute,
        "unsigned": lambda f, x, step: x[0],
    },
    "negate": {"real": lambda f, x, step: f.unary("fneg", x[0])} | _whole(_negated),
    "sign": {
        "real": _sign_real,
        "signed": _sign_signed,
        "unsigned": lambda f, x, step: f.intrinsic("umin", x[0], f.like(x[0], 1)),
    },
    "floor": {"real": _intrinsic("floor")},
    "ceil": {"real": _intrinsic("ceil")},
    "round-nearest-even": {"real": _intrinsic("rint")},
    "round-nearest-afz": {"real": _intrinsic("round")},
    "is-finite": {"real": _is_finite},
    "popcnt": _whole(_intrinsic("ctpop")),
    "count-leading-zeros": _whole(_leading_zeros),
    "sqrt": {"real": _intrinsic("sqrt")},
    "rsqrt": {"real": _rsqrt},
    "exponential": {"real": _function(polynomial.exp)},
    "exponential-minus-one": {"real": _function(functions.exp_minus_one)},
    "log": {"real": _function(functions.log)},
    "log-plus-one": {"real": _function(functions.log_plus_one)},
    "logistic": {"real": _function(polynomial.sigmoid)},
    "tanh": {"real": _function(polynomial.tanh)},
    "erf": {"real": _function(polynomial.erf)},
    "power": {"real": _power},
    "convert": _all(_convert),
    "bitcast-convert": _all(_bitcast, "real", "signed", "unsigned"),
    "real": {"real": lambda f, x, step: x[0]},
}
"""The native form of each opcode, by the kind of its operands."""

_SINGLE = frozenset(
    {"exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "erf"}
    | {"power", "rsqrt"}
)
"""Opcodes that have a native form in fp32 registers only."""

_SAME_BITS = frozenset({"bitcast-convert"})
"""Opcodes that need types whose registers are their bits."""

COSTS: dict[str, int] = dict.fromkeys(_SINGLE, 20) | {
    "divide": 8,
    "remainder": 20,
    "sqrt": 8,
    "power": 8,
}
"""What an operation costs in comparison to an addition, where it is not 1."""


def has_form(op: str, source: str, type: str, attribute: Any) -> bool:
    """Whether an operation on these types has a native form."""
    forms = FORMS.get(op)
    registers = register(source), register(type)
    if forms is None or None in registers or kind(source) not in forms:
        return False
    if op in _SINGLE and registers[0] != "float":
        return False
    if op in _SAME_BITS and not _bit_types(source, type):
        return False
    return attribute is not UNSUPPORTED


def _bit_types(source: str, type: str) -> bool:
    rows = PRIMITIVE_TYPES[source], PRIMITIVE_TYPES[type]
    own = all(register(row.name) in (f"i{row.bits}", "float", "double") for row in rows)
    return own and rows[0].bits == rows[1].bits and rows[0].bits >= 32


UNSUPPORTED: Any = object()
"""The attribute of an operation in a variant without native form."""


def emit(f: FunctionText, step: ElementStep, arguments: Sequence[Value]) -> Value:
    """The value of a step, rounded to its type."""
    value = FORMS[step.op][kind(step.source)](f, arguments, step)
    exact = step.op in _EXACT and step.type == step.source
    return value if exact else rounded(f, step.type, value)


_EXACT = frozenset(
    {"maximum", "minimum", "select", "clamp", "abs", "negate", "sign", "floor", "ceil"}
    | {"round-nearest-even", "round-nearest-afz"}
)
"""Opcodes whose results need no rounding."""
