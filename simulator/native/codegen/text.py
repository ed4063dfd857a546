"""LLVM assembly of one function, written instruction by instruction.

Every function has the signature `void name(ptr words)`: its arguments are 64-bit words in memory.
Values are vectors of a fixed width (a width of 1 where elements are taken one at a time) or, with
width 0, scalars. No instruction carries a fast-math flag, so nothing is contracted or reordered.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

WORD = 8
"""Bytes of an argument word."""


class Value:
    """An SSA value or a constant: its text, element type, and lanes (0: a scalar).

    Python's operators print instructions of `f`, the function that the value is in. A number beside
    a value is a constant of its type, and a pointer with bytes added is a pointer. A shift to the
    right is that of signed integers.
    """

    __slots__ = ("element", "f", "text", "width")

    def __init__(
        self, text: str, element: str, width: int = 0, f: FunctionText | None = None
    ) -> None:
        self.text = text
        self.element = element
        self.width = width
        self.f: FunctionText = f  # type: ignore[assignment]  # operators need one, constants none

    @property
    def type(self) -> str:
        return type_text(self.element, self.width)

    @property
    def typed(self) -> str:
        """As an argument: the type, then the value."""
        return f"{self.type} {self.text}"

    @property
    def is_constant(self) -> bool:
        return not self.text.startswith("%")

    def _number(self, operation: str, other: Value | float, turned: bool = False) -> Value:
        """An instruction on numbers, whole or floating-point ones."""
        prefix = "f" if self.element in _SUFFIXES else ""
        return self._binary(prefix + operation, other, turned)

    def _binary(self, operation: str, other: Value | float, turned: bool = False) -> Value:
        value = other if isinstance(other, Value) else self.f.like(self, other)
        left, right = (value, self) if turned else (self, value)
        return self.f.binary(operation, left, right)

    def __add__(self, other: Value | float) -> Value:
        if self.element != "ptr":
            return self._number("add", other)
        bytes_ = other if isinstance(other, Value) else self.f.integer(int(other))
        return self.f.offset(self, bytes_)

    def __radd__(self, other: float) -> Value:
        return self._number("add", other, turned=True)

    def __sub__(self, other: Value | float) -> Value:
        return self._number("sub", other)

    def __rsub__(self, other: float) -> Value:
        return self._number("sub", other, turned=True)

    def __mul__(self, other: Value | float) -> Value:
        return self._number("mul", other)

    def __rmul__(self, other: float) -> Value:
        return self._number("mul", other, turned=True)

    def __truediv__(self, other: Value | float) -> Value:
        return self._binary("fdiv", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._binary("fdiv", other, turned=True)

    def __neg__(self) -> Value:
        return self.f.unary("fneg", self)

    def __and__(self, other: Value | int) -> Value:
        return self._binary("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary("xor", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._binary("shl", other)

    def __rlshift__(self, other: int) -> Value:
        return self._binary("shl", other, turned=True)

    def __rshift__(self, other: Value | int) -> Value:
        return self._binary("ashr", other)


FALSE = Value("false", "i1")


def type_text(element: str, width: int) -> str:
    """`i32`, or `<16 x i32>`."""
    return f"<{width} x {element}>" if width else element


_SUFFIXES = {"float": "f32", "double": "f64"}


def _mangled(value: Value) -> str:
    """How the names of intrinsics spell a type."""
    suffix = _SUFFIXES.get(value.element, value.element)
    return f"v{value.width}{suffix}" if value.width else suffix


def first_lanes(count: int, width: int) -> Value:
    """A mask of the first lanes."""
    flags = ", ".join("i1 true" if lane < count else "i1 false" for lane in range(width))
    return Value(f"<{flags}>", "i1", width)


def bits_of(element: str) -> int:
    """Width of an element type in bits."""
    return {"float": 32, "double": 64, "ptr": 64}.get(element) or int(element[1:])


def number_text(element: str, value: float) -> str:
    """A constant as LLVM writes it: floats by the bits of the double of that value."""
    if element in _SUFFIXES:
        if element == "float" and value == value and abs(value) != float("inf"):
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(int(value))


class FunctionText:
    """A function under construction. `words` is its argument; `text()` the finished module."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.words = Value("%words", "ptr", f=self)
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._declarations: dict[str, str] = {}
        self._count = 0
        self._block = "entry"

    def text(self) -> str:
        """The module that holds the function."""
        return "\n".join([*self._declarations.values(), self._definition("", "ptr")])

    def inner(self, attribute: str = "") -> tuple[list[str], str]:
        """Declarations, and the definition of a function that only its module calls. `attribute`:
        what LLVM may know of the argument."""
        argument = " ".join(["ptr", *attribute.split()])
        return list(self._declarations.values()), self._definition("internal ", argument)

    def _definition(self, linkage: str, argument: str) -> str:
        body = "\n".join(["entry:", *self._entry, *self._lines, "  ret void"])
        return f"define {linkage}void @{self.name}({argument} %words) {{\n{body}\n}}\n"

    def line(self, text: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {text}")

    def value(self, text: str, element: str, width: int = 0) -> Value:
        """An instruction that has no method of its own."""
        return self._assign(text, element, width)

    def _fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _assign(self, text: str, element: str, width: int) -> Value:
        name = "%" + self._fresh()
        self._lines.append(f"  {name} = {text}")
        return Value(name, element, width, self)

    # Constants and conversions

    def constant(self, element: str, value: float, width: int = 0) -> Value:
        """A number in every lane."""
        number = number_text(element, value)
        text = f"splat ({element} {number})" if width else number
        return Value(text, element, width, self)

    def integer(self, value: int) -> Value:
        """An i64 scalar."""
        return self.constant("i64", value)

    def lanes(self, element: str, width: int) -> Value:
        """The number of every lane."""
        numbers = ", ".join(f"{element} {lane}" for lane in range(width))
        return Value(f"<{numbers}>", element, width, self)

    def below(self, count: Value, width: int) -> Value:
        """The mask of the first `count` lanes; all, if there are more."""
        least = self.splat(self.convert("trunc", count, "i32"), width)
        return self.compare("icmp slt", self.lanes("i32", width), least)

    def like(self, value: Value, number: float) -> Value:
        """A constant of the type of `value`."""
        return self.constant(value.element, number, value.width)

    def convert(self, operation: str, value: Value, element: str) -> Value:
        """`sext`, `sitofp`, `bitcast`, ... to another element type; the value itself if equal."""
        if value.element == element:
            return value
        target = type_text(element, value.width)
        return self._assign(f"{operation} {value.typed} to {target}", element, value.width)

    def reinterpret(self, value: Value, element: str, width: int) -> Value:
        """The same bits as other lanes."""
        target = type_text(element, width)
        return self._assign(f"bitcast {value.typed} to {target}", element, width)

    def splat(self, scalar: Value, width: int) -> Value:
        """A scalar in every lane."""
        target = type_text(scalar.element, width)
        first = self._assign(
            f"insertelement {target} poison, {scalar.typed}, i32 0",
            scalar.element,
            width,
        )
        return self.shuffle(first, first, [0] * width)

    def shuffle(self, left: Value, right: Value, lanes: Sequence[int]) -> Value:
        """Lanes of two vectors; those of `right` count on from the width of `left`."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self._assign(
            f"shufflevector {left.typed}, {right.typed}, <{len(lanes)} x i32> <{mask}>",
            left.element,
            len(lanes),
        )

    # Arithmetic

    def binary(self, operation: str, left: Value, right: Value) -> Value:
        return self._assign(f"{operation} {left.typed}, {right.text}", left.element, left.width)

    def unary(self, operation: str, value: Value) -> Value:
        return self._assign(f"{operation} {value.typed}", value.element, value.width)

    def compare(self, operation: str, left: Value, right: Value) -> Value:
        """`fcmp olt`, `icmp eq`, ...: i1 lanes."""
        return self._assign(f"{operation} {left.typed}, {right.text}", "i1", left.width)

    def select(self, condition: Value, chosen: Value, other: Value) -> Value:
        return self._assign(
            f"select {condition.typed}, {chosen.typed}, {other.typed}",
            chosen.element,
            chosen.width,
        )

    def intrinsic(self, name: str, *arguments: Value, element: str | None = None) -> Value:
        """A call of `llvm.<name>`; the result has the first argument's type, or `element`s."""
        first = arguments[0]
        result = Value("", element or first.element, first.width)
        suffix = _mangled(first) if element is None else f"{_mangled(result)}.{_mangled(first)}"
        return self.call(f"llvm.{name}.{suffix}", result.element, result.width, *arguments)

    def call(self, function: str, element: str, width: int, *arguments: Value) -> Value:
        """A call of a function whose result is of this type, such as an intrinsic of one CPU."""
        text = self._called(function, type_text(element, width), arguments)
        return self._assign(text, element, width)

    def perform(self, function: str, *arguments: Value) -> None:
        """A call of a function without a result."""
        self._lines.append("  " + self._called(function, "void", arguments))

    def _called(self, function: str, result: str, arguments: Sequence[Value]) -> str:
        types = ", ".join(argument.type for argument in arguments)
        self._declarations[function] = f"declare {result} @{function}({types})"
        return f"call {result} @{function}({', '.join(argument.typed for argument in arguments)})"

    # Memory

    def offset(self, pointer: Value, bytes_: Value) -> Value:
        """The pointer moved up by a number of bytes."""
        return self._assign(f"getelementptr i8, ptr {pointer.text}, i64 {bytes_.text}", "ptr", 0)

    def element_at(self, pointer: Value, index: Value, size: int) -> Value:
        """The pointer moved up by a number of elements of `size` bytes."""
        return self._assign(
            f"getelementptr [{size} x i8], ptr {pointer.text}, i64 {index.text}", "ptr", 0
        )

    def scaled(self, index: Value, scale: int, addend: Value | None = None) -> Value:
        """index * scale + addend."""
        product = index if scale == 1 else self.binary("mul", index, self.integer(scale))
        return product if addend is None else self.binary("add", product, addend)

    def load(self, pointer: Value, element: str, width: int = 0) -> Value:
        """Elements from memory; nothing is assumed of their alignment."""
        type_ = type_text(element, width)
        return self._assign(f"load {type_}, ptr {pointer.text}, align 1", element, width)

    def store(self, value: Value, pointer: Value) -> None:
        self._lines.append(f"  store {value.typed}, ptr {pointer.text}, align 1")

    def store_past_caches(self, value: Value, pointer: Value, align: int) -> None:
        """Store what is not read soon where it takes no room in the caches. Other threads see it
        for certain behind a `fence` of this one."""
        self._declarations["!0"] = "!0 = !{i32 1}"
        self._lines.append(
            f"  store {value.typed}, ptr {pointer.text}, align {align}, !nontemporal !0"
        )

    def fence(self) -> None:
        """All stores so far come before what follows."""
        self._lines.append("  fence seq_cst")

    def insert(self, vector: Value, scalar: Value, lane: int) -> Value:
        """The vector with another element in a lane."""
        text = f"insertelement {vector.typed}, {scalar.typed}, i32 {lane}"
        return self._assign(text, vector.element, vector.width)

    def extract(self, vector: Value, lane: int) -> Value:
        """The element in a lane."""
        text = f"extractelement {vector.typed}, i32 {lane}"
        return self._assign(text, vector.element, 0)

    def load_apart(
        self, pointer: Value, stride: Value, element: str, width: int, count: int | None = None
    ) -> Value:
        """A vector of elements that are `stride` bytes apart; only the first `count`, where given,
        and zeros."""
        result = Value("poison" if count is None else "zeroinitializer", element, width, self)
        for lane in range(width if count is None else count):
            result = self.insert(result, self.load(pointer, element), lane)
            pointer = self.offset(pointer, stride)
        return result

    def store_apart(
        self, value: Value, pointer: Value, stride: Value, count: int | None = None
    ) -> None:
        """Write the lanes of a vector, or the first `count`, to places that are `stride` bytes
        apart."""
        for lane in range(value.width if count is None else count):
            self.store(self.extract(value, lane), pointer)
            pointer = self.offset(pointer, stride)

    def prefetch(self, pointer: Value, write: bool = False, near: bool = True) -> None:
        """A hint that memory will be read, or written; it may lie anywhere. Not `near`: not before
        much else that the first-level cache is to keep."""
        options = (self.constant("i32", number) for number in (write, 2 + near, 1))
        self.perform("llvm.prefetch.p0", pointer, *options)

    def load_where(self, mask: Value, pointer: Value, element: str) -> Value:
        """A vector whose lanes are read where the mask holds, else 0."""
        width = mask.width
        function = f"llvm.masked.load.{_mangled(Value('', element, width))}.p0"
        align, other = self.constant("i32", 1), self.constant(element, 0, width)
        return self.call(function, element, width, pointer, align, mask, other)

    def store_where(self, mask: Value, value: Value, pointer: Value) -> None:
        """Write the lanes for which the mask holds."""
        function = f"llvm.masked.store.{_mangled(value)}.p0"
        self.perform(function, value, pointer, self.constant("i32", 1), mask)

    def store_first(self, value: Value, pointer: Value, count: int) -> None:
        """Write the first lanes. A lane alone is written as a scalar: LLVM 22, for AVX-512, makes a
        masked store of one lane as wide as the lane was before it was narrowed."""
        if count == 1:
            self.store(self.extract(value, 0), pointer)
        else:
            self.store_where(first_lanes(count, value.width), value, pointer)

    def word(self, index: int, element: str = "i64") -> Value:
        """An argument word, or its low bytes as another type."""
        return self.load(self.element_at(self.words, self.integer(index), WORD), element)

    def scratch(self, element: str, width: int) -> Value:
        """Memory of the function's own for a vector."""
        name = "%" + self._fresh("memory")
        self._entry.append(f"  {name} = alloca {type_text(element, width)}, align 64")
        return Value(name, "ptr", f=self)

    def copy_bytes(self, target: Value, source: Value, count: Value) -> None:
        """Copy bytes between ranges that are disjoint or equal."""
        self.perform("llvm.memcpy.p0.p0.i64", target, source, count, FALSE)

    # Control flow

    def _open(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    def loop(
        self,
        start: Value,
        stop: Value,
        step: int,
        body: Callable[..., Any],
        carried: Sequence[Value] = (),
    ) -> list[Value]:
        """`for i in range(start, stop, step): carried = body(i, *carried)`; the last carried.

        What `body` returns is of no account where nothing is carried.
        """
        head, inside, after = (self._fresh(name) for name in ("head", "body", "after"))
        before = self._block
        self._lines.append(f"  br label %{head}")
        self._open(head)
        index = Value("%" + self._fresh("i"), "i64", f=self)
        current = [Value("%" + self._fresh("c"), v.element, v.width, self) for v in carried]
        phis = len(self._lines)
        inside_loop = self.compare("icmp slt", index, stop)
        self._lines.append(f"  br i1 {inside_loop.text}, label %{inside}, label %{after}")
        self._open(inside)
        following = body(index, *current)
        next_index = self.binary("add", index, self.integer(step))
        last = self._block
        self._lines.append(f"  br label %{head}")
        pairs = [(index, start, next_index)]
        if carried:
            pairs += zip(current, carried, following)
        self._lines[phis:phis] = [
            f"  {variable.text} = phi {variable.type} "
            f"[{first.text}, %{before}], [{later.text}, %{last}]"
            for variable, first, later in pairs
        ]
        self._open(after)
        return current

    def when(self, condition: Value, body: Callable[[], None]) -> None:
        """Run `body` where a scalar condition holds."""
        inside, after = self._fresh("then"), self._fresh("after")
        self._lines.append(f"  br i1 {condition.text}, label %{inside}, label %{after}")
        self._open(inside)
        body()
        self._lines.append(f"  br label %{after}")
        self._open(after)
