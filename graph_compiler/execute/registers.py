"""Elements of primitive types in vector registers: memory to register, back, and rounding.

bf16, f16 and the 8-bit floats are fp32 numbers in registers and are rounded after every operation,
as the reference computes them; pred is one bit; other types are themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from simulator.native import ports
from simulator.native.text import FunctionText, Value, type_text

_WHOLE = frozenset({"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"})
_OWN = {"f32": "float", "f64": "double", "pred": "i1"}


class KernelText(FunctionText):
    """A function under construction with masked, gathered and scattered memory accesses."""

    def parts(self) -> tuple[list[str], str]:
        """Declarations, and the definition."""
        body = "\n".join(["entry:", *self._entry, *self._lines, "  ret void"])
        head = f"define void @{self.name}(ptr noalias %words) {{"
        return list(self._declarations.values()), f"{head}\n{body}\n}}\n"

    def raw(self, text: str, element: str, width: int) -> Value:
        """An instruction that has no method of its own."""
        return self._assign(text, element, width)

    def declare(self, function: str, text: str) -> None:
        self._declarations[function] = text

    def below(self, count: Value, width: int) -> Value:
        """Lanes whose number is below a scalar."""
        return self.compare("icmp slt", self.lanes("i64", width), self.splat(count, width))

    def masked_load(self, pointer: Value, element: str, width: int, mask: Value) -> Value:
        type_ = type_text(element, width)
        suffix = {"float": "f32", "double": "f64"}.get(element, element)
        function = f"@llvm.masked.load.v{width}{suffix}.p0"
        self.declare(function, f"declare {type_} {function}(ptr, i32, <{width} x i1>, {type_})")
        return self.raw(
            f"call {type_} {function}(ptr {pointer.text}, i32 1, {mask.type} {mask.text}, "
            f"{type_} zeroinitializer)",
            element,
            width,
        )

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        suffix = {"float": "f32", "double": "f64"}.get(value.element, value.element)
        function = f"@llvm.masked.store.v{value.width}{suffix}.p0"
        self.declare(
            function, f"declare void {function}({value.type}, ptr, i32, <{value.width} x i1>)"
        )
        self._lines.append(
            f"  call void {function}({value.type} {value.text}, ptr {pointer.text}, i32 1, "
            f"{mask.type} {mask.text})"
        )

    def _pointers(self, pointer: Value, stride: int, width: int) -> list[Value]:
        return [self.offset(pointer, self.integer(stride * lane)) for lane in range(width)]

    def load_spaced(
        self, pointer: Value, stride: int, element: str, width: int, count: int | None
    ) -> Value:
        """Elements `stride` bytes apart; only the first `count`, where given, and zeros."""
        result = Value("zeroinitializer", element, width)
        for lane, place in enumerate(self._pointers(pointer, stride, count or width)):
            scalar = self.load(place, element)
            result = self.raw(
                f"insertelement {result.type} {result.text}, {scalar.type} {scalar.text}, "
                f"i32 {lane}",
                element,
                width,
            )
        return result

    def store_spaced(self, value: Value, pointer: Value, stride: int, count: int | None) -> None:
        for lane, place in enumerate(self._pointers(pointer, stride, count or value.width)):
            self.store(self.lane(value, lane), place)

    def lane(self, value: Value, lane: int) -> Value:
        """One lane as a scalar."""
        return self.raw(f"extractelement {value.type} {value.text}, i32 {lane}", value.element, 0)

    def at(self, index: Value, scale: int, addend: Value | None = None) -> Value:
        """index * scale + addend."""
        scaled = index if scale == 1 else self.binary("mul", index, self.integer(scale))
        return scaled if addend is None else self.binary("add", scaled, addend)


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
    odd = f.binary("and", f.binary("lshr", pattern, f.like(pattern, 16)), f.like(pattern, 1))
    moved = f.binary("add", f.binary("add", pattern, f.like(pattern, 0x7FFF)), odd)
    cut = f.binary("and", moved, f.like(moved, 0xFFFF0000))
    near = f.convert("bitcast", cut, "float")
    not_a_number = f.compare("fcmp uno", value, value)
    return f.select(not_a_number, f.like(value, float("nan")), near)


def widths(types: Sequence[str]) -> int:
    """Elements of a vector for kernels on these types: those of two 512-bit registers at most."""
    return 8 if any(PRIMITIVE_TYPES[type].bits == 64 for type in types) else 16
