"""Structures of 64-bit words that Python packs and native code walks, and LLVM text to walk them.

Every member is one word: a number, or an address. A table is structures one after the other.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from simulator.memory import LINE
from simulator.native.codegen.text import FALSE, WORD, FunctionText, Value

Member = TypeVar("Member")


class Structure:
    """Member names in order."""

    __slots__ = ("indices", "names", "size")

    def __init__(self, *names: str) -> None:
        self.names = names
        self.indices = {name: index for index, name in enumerate(names)}
        self.size = WORD * len(names)

    def words(self, **members: Member) -> list[int | Member]:
        """One structure; members that are not given are 0."""
        words: list[int | Member] = [0] * len(self.names)
        for name, value in members.items():
            words[self.indices[name]] = value
        return words


class WordMemory:
    """Words at addresses that stay. It owns them: what points there must not outlive it."""

    __slots__ = ("_kept", "_tables")

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._tables: dict[tuple[int, ...], int] = {}

    def words(self, values: Sequence[int]) -> Any:
        """A ctypes array of int64 with these values."""
        kind = ctypes.c_int64 * max(len(values), 1)
        found = kind.from_buffer_copy(array("q", values)) if values else kind()
        self._kept.append(found)
        return found

    def room(self, count: int) -> int:
        """The address of this many words, all 0, that begin with a line of cache."""
        found = (ctypes.c_int64 * (count + LINE // WORD))()
        self._kept.append(found)
        return -(-ctypes.addressof(found) // LINE) * LINE

    def keep(self, thing: Any) -> None:
        """Keep something alive that packed words point to."""
        self._kept.append(thing)

    def table(self, values: Sequence[int]) -> int:
        """The address of words that nothing changes: equal tables are one. 0 for none."""
        if not values:
            return 0
        key = tuple(values)
        place = self._tables.get(key)
        if place is None:
            place = self._tables[key] = ctypes.addressof(self.words(values))
        return place


class StructureAt:
    """A structure at an address, in the text of a function."""

    __slots__ = ("f", "pointer", "structure")

    def __init__(self, f: StructureText, structure: Structure, pointer: Value) -> None:
        self.f = f
        self.structure = structure
        self.pointer = pointer

    def _place(self, name: str) -> Value:
        index = self.structure.indices[name]
        return self.f.element_at(self.pointer, self.f.integer(index), WORD)

    def get(self, name: str, element: str = "i64") -> Value:
        """A member, or its low bytes as another type."""
        return self.f.load(self._place(name), element)

    def set(self, name: str, value: Value) -> None:
        """Write a member."""
        self.f.store(value, self._place(name))

    def add(self, name: str, value: Value) -> Value:
        """Add to a member; its new value."""
        total = self.get(name) + value
        self.set(name, total)
        return total

    def shared(self, name: str) -> Value:
        """A member that another thread writes: what it wrote before is seen then."""
        place = self._place(name)
        return self.f.value(f"load atomic i64, ptr {place.text} acquire, align 8", "i64")

    def share(self, name: str, value: Value) -> None:
        """Write a member that another thread waits for, behind all that was written before."""
        place = self._place(name)
        self.f.line(f"store atomic i64 {value.text}, ptr {place.text} release, align 8")

    def each(self, name: str, structure: Structure, body: Callable[[StructureAt], None]) -> None:
        """Run `body` for every structure of the table at member `name`, `name`_count of them."""
        first, count = self.get(name, "ptr"), self.get(f"{name}_count")

        def one(index: Value) -> None:
            place = self.f.element_at(first, index, structure.size)
            body(StructureAt(self.f, structure, place))

        self.f.loop(self.f.integer(0), count, 1, one)


class Join:
    """A value in registers at a label, which every jump to the label brings: `bring` it, then jump.
    `open` begins the block; `close` comes when all jumps are written."""

    __slots__ = ("_brought", "_place", "f", "label", "value")

    def __init__(self, f: StructureText, name: str) -> None:
        self.f = f
        self.label = f.label(name)
        self.value = Value("%" + f.label(name), "i64", f=f)
        self._brought: list[tuple[Value, str]] = []
        self._place = 0

    def bring(self, value: Value) -> None:
        """What the value is at the label if the jump comes from this block."""
        self._brought.append((value, self.f.block))

    def open(self) -> None:
        self.f.open(self.label)
        self._place = self.f.lines_so_far

    def close(self) -> None:
        pairs = ", ".join(f"[{value.text}, %{block}]" for value, block in self._brought)
        text = f"{self.value.text} = phi {self.value.type} {pairs}"
        self.f.insert_line(self._place, text)


class StructureText(FunctionText):
    """A function with free control flow: what lives across blocks is in memory."""

    def in_order(self) -> None:
        """What is written before comes before what is written behind, in the machine code too:
        sorted otherwise, more values may be alive at once than there are registers."""
        self.line('call void asm sideeffect "", "~{memory}"()')

    @property
    def block(self) -> str:
        """The label of the block that is written."""
        return self._block

    @property
    def lines_so_far(self) -> int:
        return len(self._lines)

    def insert_line(self, place: int, text: str) -> None:
        """An instruction where so many lines were written."""
        self._lines.insert(place, f"  {text}")

    def label(self, name: str) -> str:
        """A new label."""
        return self._fresh(name)

    def open(self, label: str) -> None:
        """The block of a label begins."""
        self._open(label)

    def jump(self, label: str) -> None:
        """End of a block: go to another one. Nothing may follow but a label."""
        self.line(f"br label %{label}")

    def branch(self, condition: Value, then: str, otherwise: str) -> None:
        """End of a block: go to one of two."""
        self.line(f"br i1 {condition.text}, label %{then}, label %{otherwise}")

    def leave_if(self, condition: Value, label: str) -> None:
        """Go to a label where a condition holds, else on."""
        after = self.label("on")
        self.branch(condition, label, after)
        self.open(after)

    def switch(self, value: Value, cases: Sequence[tuple[int, str]], otherwise: str) -> None:
        """End of a block: go to the label of a value."""
        listed = " ".join(f"i64 {number}, label %{label}" for number, label in cases)
        self.line(f"switch i64 {value.text}, label %{otherwise} [{listed}]")

    def variable(self) -> StructureAt:
        """Memory of the function's own for one word: member `value`."""
        return StructureAt(self, Structure("value"), self.scratch("i64", 0))

    def call_address(self, function: Value, *arguments: Value) -> None:
        """Call a function without a result at an address."""
        self.line(f"call void {function.text}({', '.join(value.typed for value in arguments)})")

    def fill_bytes(self, pointer: Value, value: int, count: Value) -> None:
        """Set a range of bytes to a value, -128 to 127."""
        self.perform("llvm.memset.p0.i64", pointer, self.constant("i8", value), count, FALSE)
