"""The ports of the engines in LLVM: memory dtype to fp32 and back, as
`simulator.numerics.conversion`.

`decode` takes elements as the unsigned integers that memory holds, `encode` gives them back.
Floats narrower than fp32 go by integer sequences that need no hardware support and give the same
bits everywhere: nearest even, with the overflow of `isa.dtypes` and the NaN of
`simulator.numerics.special_values`.
"""

from __future__ import annotations

from collections.abc import Callable

from isa.dtypes import DTYPES, DType, DTypeKind, Overflow
from simulator.native.codegen.levels import GENERATING
from simulator.native.codegen.text import FunctionText, Value
from simulator.numerics.special_values import (
    CANONICAL,
    EXPONENTS,
    MANTISSA_BITS,
    NAN,
    exponent_bias,
)

_BIAS = exponent_bias(DTYPES["float32"])
_MAGNITUDE = 0x7FFFFFFF
_SIGN = 1 << 31


Encode = Callable[[FunctionText, str, Value], Value]
Store = Callable[[Value, Value], None]


def converts(dtype: str) -> bool:
    """Whether elements of a dtype pass through fp32 here."""
    row = DTYPES[dtype]
    if row.is_float:
        return row.mantissa_bits > 0
    return row.kind is DTypeKind.boolean or (row.is_integer and row.size <= 4)


def _dropped(row: DType) -> int:
    return MANTISSA_BITS - row.mantissa_bits


def _as_bits(f: FunctionText, value: Value) -> Value:
    return f.convert("bitcast", value, "i32")


def _as_float(f: FunctionText, value: Value) -> Value:
    return f.convert("bitcast", value, "float")


def _up(f: FunctionText, value: Value, bits: int) -> Value:
    return value << bits if bits else value


def _down(f: FunctionText, value: Value, bits: int) -> Value:
    return f.binary("lshr", value, f.like(value, bits)) if bits else value


def canonical(f: FunctionText, value: Value) -> Value:
    """fp32 results with `CANONICAL` for every NaN."""
    nan = _as_float(f, f.constant("i32", CANONICAL, value.width))
    return f.select(f.compare("fcmp uno", value, value), nan, value)


# Memory to fp32


def decode(f: FunctionText, dtype: str, stored: Value) -> Value:
    """fp32 values of elements that are given as unsigned integers of the dtype's size."""
    row = DTYPES[dtype]
    if row.kind is DTypeKind.boolean:
        return f.convert("uitofp", f.compare("icmp ne", stored, f.like(stored, 0)), "float")
    if row.is_integer:
        signed = row.kind is DTypeKind.signed
        wide = f.convert("sext" if signed else "zext", stored, "i32")
        # Narrow unsigned integers are small enough for the signed conversion, which is cheaper.
        return f.convert("sitofp" if signed or row.size < 4 else "uitofp", wide, "float")
    wide = f.convert("zext", stored, "i32")
    if row.size == 4:
        return _as_float(f, wide) if not _dropped(row) else _round_in_place(f, row, wide)
    if row.exponent_bits == DTYPES["float32"].exponent_bits:
        return _as_float(f, _up(f, wide, _dropped(row)))
    return _decode_narrow(f, row, wide)


def decode_magnitude(f: FunctionText, code: Value, mantissa_bits: int, bias: int) -> Value:
    """fp32 values of exponents and mantissas narrower than those of fp32, denormals included.

    Moved up, and with another bias, they are those of fp32 for normal numbers; the others are
    multiples of the smallest one. CPUs take many times as long where fp32 denormals take part.
    """
    raised = _up(f, code, MANTISSA_BITS - mantissa_bits)
    normal = raised + ((_BIAS - bias) << MANTISSA_BITS)
    unit = f.constant("float", 2.0 ** (1 - bias - mantissa_bits), code.width)
    small = f.convert("sitofp", code, "float") * unit
    is_small = f.compare("icmp ult", code, f.like(code, 1 << mantissa_bits))
    return f.select(is_small, small, _as_float(f, normal))


def _decode_narrow(f: FunctionText, row: DType, wide: Value) -> Value:
    sign = _up(f, wide & (1 << (row.bits - 1)), 32 - row.bits)
    code = wide & ((1 << (row.bits - 1)) - 1)
    value = _as_bits(f, decode_magnitude(f, code, row.mantissa_bits, exponent_bias(row)))
    if row.has_infinity:
        infinity = ((1 << row.exponent_bits) - 1) << row.mantissa_bits
        nan = _wide_nan(f, row, code)
        special = f.select(
            f.compare("icmp ugt", code, f.like(code, infinity)), nan, f.like(wide, EXPONENTS)
        )
        value = f.select(f.compare("icmp uge", code, f.like(code, infinity)), special, value)
    else:
        only_nan = f.compare("icmp eq", code, f.like(code, (1 << (row.bits - 1)) - 1))
        value = f.select(only_nan, _wide_nan(f, row, code), value)
    return _as_float(f, value | sign)


def _wide_nan(f: FunctionText, row: DType, code: Value) -> Value:
    """The fp32 pattern of a narrow NaN, without the sign."""
    pattern = NAN[row.name].widened
    if pattern is not None:
        return f.like(code, pattern)
    return _up(f, code, _dropped(row)) | EXPONENTS


# fp32 to memory


def encode(f: FunctionText, dtype: str, value: Value) -> Value:
    """fp32 values rounded to a dtype, as unsigned integers of its size."""
    row = DTYPES[dtype]
    if row.kind is DTypeKind.boolean:
        return f.convert("zext", f.compare("fcmp une", value, f.like(value, 0.0)), "i8")
    if row.is_integer:
        return _encode_integer(f, row, value)
    pattern = _as_bits(f, value)
    if row.size == 4:
        return pattern if not _dropped(row) else _as_bits(f, _round_in_place(f, row, pattern))
    if row.exponent_bits == DTYPES["float32"].exponent_bits:
        rounded = _down(f, _rounded(f, pattern, _dropped(row)), _dropped(row))
        sign = _down(f, pattern & _SIGN, 32 - row.bits)
        nan = sign | _narrow_nan(f, row, pattern)
        is_nan = f.compare("fcmp uno", value, value)
        return f.convert("trunc", f.select(is_nan, nan, rounded), f"i{row.bits}")
    return f.convert("trunc", _encode_narrow(f, row, pattern), f"i{row.bits}")


def encode_result(f: FunctionText, dtype: str, value: Value) -> Value:
    """`encode` of what `canonical` gives, which has one NaN, and that needs no care in bfloat16."""
    row = DTYPES[dtype]
    value = canonical(f, value)
    narrow = row.is_float and row.size == 2
    if not narrow or row.exponent_bits != DTYPES["float32"].exponent_bits:
        return encode(f, dtype, value)
    rounded = _down(f, _rounded(f, _as_bits(f, value), _dropped(row)), _dropped(row))
    return f.convert("trunc", rounded, f"i{row.bits}")


_WITH_CARE = 0xA1
"""VFPCLASSPS: quiet NaN, denormal numbers, signalling NaN."""


def store_rounded(
    f: FunctionText,
    dtype: str,
    value: Value,
    place: Value,
    encoded: Encode,
    store: Store | None = None,
) -> None:
    """Store what `encoded` gives, which is `encode` or `encode_result`; by `store` if it is given,
    but for what is rare.

    VCVTNEPS2BF16 rounds to nearest even, but takes and gives zero for denormal numbers (Intel 64
    and IA-32 Architectures Software Developer's Manual, volume 2): where there are any, or NaN, a
    second store puts it right.
    """
    store = store or f.store
    level = GENERATING.get()
    if dtype != "bfloat16" or value.width != 16 or level is None or not level.bf16_dot:
        store(encoded(f, dtype, value), place)
        return
    name = "llvm.x86.avx512bf16.cvtneps2bf16.512"
    store(f.call(name, "bfloat", 16, value), place)
    name, classes = "llvm.x86.avx512.fpclass.ps.512", f.constant("i32", _WITH_CARE)
    special = f.reinterpret(f.call(name, "i1", 16, value, classes), "i16", 0)
    found = f.compare("icmp ne", special, f.like(special, 0))
    f.when(found, lambda: f.store(encoded(f, dtype, value), place))


def rounds_pairs() -> bool:
    """Whether `store_pairs` serves the CPU for which code is being generated."""
    level = GENERATING.get()
    return level is not None and level.bf16_dot


def decode_pairs(f: FunctionText, words: Value) -> tuple[Value, Value]:
    """fp32 values of bfloat16 numbers in the lower halves of words, and in the upper ones."""
    return _as_float(f, _up(f, words, 16)), _as_float(f, words & 0xFFFF0000)


def store_pairs(
    f: FunctionText,
    lower: Value,
    upper: Value,
    place: Value,
    encoded: Encode,
    store: Store | None = None,
) -> None:
    """As `store_rounded` of bfloat16, two vectors of 16 for the halves of words."""
    halves = (lower, upper)
    packed = f.call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", "bfloat", 32, upper, lower)
    order = [half * 16 + lane for lane in range(16) for half in range(2)]
    patterns = f.reinterpret(packed, "i16", 32)
    (store or f.store)(f.shuffle(patterns, patterns, order), place)
    name, classes = "llvm.x86.avx512.fpclass.ps.512", f.constant("i32", _WITH_CARE)
    special = [f.reinterpret(f.call(name, "i1", 16, half, classes), "i16", 0) for half in halves]
    found = f.binary("or", *special)

    def again() -> None:
        low, high = (f.convert("zext", encoded(f, "bfloat16", half), "i32") for half in halves)
        f.store(low | _up(f, high, 16), place)

    f.when(f.compare("icmp ne", found, f.like(found, 0)), again)


def _rounded(f: FunctionText, pattern: Value, dropped: int) -> Value:
    """The pattern with what rounds its lowest bits to nearest even added; they remain."""
    odd = _down(f, pattern, dropped) & 1
    half = f.like(pattern, (1 << (dropped - 1)) - 1)
    return pattern + half + odd


def _round_in_place(f: FunctionText, row: DType, pattern: Value) -> Value:
    """tfloat32: rounded fp32 with the dropped bits zero; NaN become quiet."""
    dropped = _dropped(row)
    mask = (0xFFFFFFFF >> dropped) << dropped
    rounded = _rounded(f, pattern, dropped) & mask
    value = _as_float(f, pattern)
    quiet = (pattern | (1 << (MANTISSA_BITS - 1))) & mask
    nan = f.compare("fcmp uno", value, value)
    return _as_float(f, f.select(nan, quiet, rounded))


def _encode_narrow(f: FunctionText, row: DType, pattern: Value) -> Value:
    dropped, bias = _dropped(row), exponent_bias(row)
    magnitude = pattern & _MAGNITUDE
    sign = _down(f, pattern & _SIGN, 32 - row.bits)
    rounded = _down(f, _rounded(f, magnitude, dropped), dropped)
    normal = rounded - ((_BIAS - bias) << row.mantissa_bits)
    # Below the smallest normal number: adding a number whose last place is the smallest denormal
    # rounds to a multiple of that.
    magic = 2.0 ** (MANTISSA_BITS + 1 - bias - row.mantissa_bits)
    anchor = f.constant("float", magic, pattern.width)
    small = _as_bits(f, _as_float(f, magnitude) + anchor)
    denormal = small - f.convert("bitcast", anchor, "i32")
    limit = f.like(pattern, (_BIAS - bias + 1) << MANTISSA_BITS)
    code = f.select(f.compare("icmp ult", magnitude, limit), denormal, normal)
    all_ones = (1 << (row.bits - 1)) - 1
    infinity = ((1 << row.exponent_bits) - 1) << row.mantissa_bits
    overflow = infinity if row.overflow is Overflow.infinity else all_ones
    beyond = f.like(pattern, overflow)
    code = f.select(f.compare("icmp ugt", code, beyond), beyond, code)
    is_nan = f.compare("icmp ugt", magnitude, f.like(pattern, EXPONENTS))
    code = f.select(is_nan, _narrow_nan(f, row, magnitude), code)
    return code | sign


def _narrow_nan(f: FunctionText, row: DType, pattern: Value) -> Value:
    """NaN in a narrower dtype, without the sign."""
    code = NAN[row.name].narrowed
    if code is not None:
        return f.like(pattern, code)
    payload = _down(f, pattern & ((1 << MANTISSA_BITS) - 1), _dropped(row))
    empty = f.compare("icmp eq", payload, f.like(payload, 0))
    kept = f.select(empty, f.like(payload, 1), payload)
    infinity = ((1 << row.exponent_bits) - 1) << row.mantissa_bits
    return kept | infinity


def _encode_integer(f: FunctionText, row: DType, value: Value) -> Value:
    """Nearest even, saturating, NaN to 0."""
    lowest, largest = int(row.lowest), int(row.largest)
    # The largest 32-bit integers are no fp32 numbers: what is beyond the last one comes after.
    last = (
        largest if row.size < 4 else largest + 1 - (1 << (largest.bit_length() - MANTISSA_BITS - 1))
    )
    rounded = f.intrinsic("rint", value)
    upper, lower = f.like(value, last), f.like(value, lowest)
    bounded = f.select(f.compare("fcmp olt", rounded, upper), rounded, upper)
    bounded = f.select(f.compare("fcmp ogt", bounded, lower), bounded, lower)
    number = f.select(f.compare("fcmp uno", value, value), f.like(value, 0.0), bounded)
    signed = row.kind is DTypeKind.signed or row.size < 4
    wide = f.convert("fptosi" if signed else "fptoui", number, "i32")
    if last != largest:
        beyond = f.compare("fcmp ogt", rounded, upper)
        wide = f.select(beyond, f.like(wide, largest), wide)
    return f.convert("trunc", wide, f"i{row.bits}")
