"""Elements of primitive types in vector registers: memory to register, back, and rounding.

bf16, f16 and the 8-bit floats are fp32 numbers in registers and are rounded after every operation,
as the reference computes them; pred is one bit; other types are themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from simulator.native.codegen import ports
from simulator.native.codegen.text import FunctionText, Value

_WHOLE = frozenset({"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"})
_OWN = {"f32": "float", "f64": "double", "pred": "i1"}


@cache
def register(type: str) -> str | None:
    """LLVM element type in registers of a primitive type; None of types without native code."""
    if type in _OWN:
        return _OWN[type]
    if type in _WHOLE:
        return "i" + type[1:]
    row = PRIMITIVE_TYPES[type]
    narrow = row.is_float and row.dtype is not None and ports.converts(row.dtype)
    return "float" if narrow else None


@cache
def storage(type: str) -> tuple[str, int]:
    """LLVM element type in memory, and its bytes."""
    if type == "pred":
        return "i8", 1
    if type in _OWN:
        return _OWN[type], PRIMITIVE_TYPES[type].bits // 8
    bits = PRIMITIVE_TYPES[type].bits
    return f"i{bits}", bits // 8


@cache
def kind(type: str) -> str:
    """What arithmetic on the type is: "real", "signed", "unsigned" or "boolean"."""
    return {"float": "real"}.get(PRIMITIVE_TYPES[type].kind, PRIMITIVE_TYPES[type].kind)


@cache
def is_rounded(type: str) -> bool:
    """Whether registers are wider than the type."""
    return register(type) == "float" and type not in _OWN


def decode(f: FunctionText, type: str, stored: Value) -> Value:
    """What memory holds, as the registers hold it."""
    if type == "pred":
        return f.compare("icmp ne", stored, f.like(stored, 0))
    if is_rounded(type):
        dtype = PRIMITIVE_TYPES[type].dtype
        assert dtype is not None
        return ports.decode(f, dtype, stored)
    return stored


def encode(f: FunctionText, type: str, value: Value) -> Value:
    """A register's value, rounded to its type already, as memory holds it."""
    if type == "pred":
        return f.convert("zext", value, "i8")
    if type == "bf16":
        pattern = f.convert("bitcast", value, "i32")
        return f.convert("trunc", f.binary("lshr", pattern, f.like(pattern, 16)), "i16")
    if is_rounded(type):
        dtype = PRIMITIVE_TYPES[type].dtype
        assert dtype is not None
        return ports.encode(f, dtype, value)
    return value


def rounded(f: FunctionText, type: str, value: Value) -> Value:
    """An fp32 number rounded to the type, nearest even."""
    if not is_rounded(type):
        return value
    if type != "bf16":
        return decode(f, type, encode(f, type, value))
    pattern = f.convert("bitcast", value, "i32")
    odd = f.binary("lshr", pattern, f.like(pattern, 16)) & 1
    moved = pattern + 0x7FFF + odd
    cut = moved & 0xFFFF0000
    near = f.convert("bitcast", cut, "float")
    not_a_number = f.compare("fcmp uno", value, value)
    return f.select(not_a_number, f.like(value, float("nan")), near)


def widths(types: Sequence[str]) -> int:
    """Elements of a vector for kernels on these types: those of two 512-bit registers at most."""
    return 8 if any(PRIMITIVE_TYPES[type].bits == 64 for type in types) else 16
