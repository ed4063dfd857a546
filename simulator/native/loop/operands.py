"""Operands of a record in native code: where they are, and whether their bytes are initialised.

Addresses that registers decide are computed when an instruction issues. What native code cannot
tell about an operand sends the instruction to Python.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.checks.regions import CLEAN, EMPTY, INITIALISED, MIXED, UNWRITTEN
from simulator.native.codegen.structure import Structure, StructureAt, StructureText
from simulator.native.codegen.text import WORD, Value

OPERAND = Structure(
    *("address", "offset", "base", "origin", "terms", "terms_count", "lowest", "highest"),
    *("region", "region_lowest", "region_highest", "full", "low", "high"),
    *("space", "unit", "buffer_offset", "outer", "middle", "inner", "outer_step", "middle_step"),
    *("box", "box_rows", "box_pitch", "box_width"),
)
"""`offset` is where the operand lies in its partition or tensor, `base` the address of offset 0;
`offset` is `origin` and the `terms`. Offsets from `lowest` to `highest` are inside the memory. The
operand lies in region number `region` (0: nobody knows) as long as its offset is between the
region's; it covers the region if `full`. It touches the bytes from `offset + low` to
`offset + high`.

Its marks are at `space`, a `SPACE` (0: Python has to look), as long as a mark there stands for
`unit` bytes: `outer` times `middle` times `inner` of them, those of `inner` adjacent, from that of
byte `buffer_offset + offset` on. Those of its region are `box_rows` times `box_width` from mark
`box` on."""

SPACE = Structure("marks", "unit")
"""`simulator.checks.marks.Space.cells`."""

TERM = Structure("register", "scale")
REFERENCE = Structure("operand")
PAIR = Structure("left", "right", "same")
"""Operands that must not share bytes, or with `same` be equal."""

PATCH = Structure("operand", "word", "delta")
"""The address of an operand plus `delta` goes to the word at address `word`."""


class OperandText:
    """Writes what a record says about its operands into `f`. `fallback` is the label to go to where
    Python has to look; `no_space` is the address of a `SPACE` without marks, `states` that of the
    regions' states."""

    def __init__(self, f: StructureText, fallback: str, program: StructureAt) -> None:
        self.f = f
        self.fallback = fallback
        self.program = program

    def place(self, record: StructureAt, registers: Value) -> None:
        """Addresses of the operands that move, inside their memory, and apart from each other."""
        f = self.f

        def move(reference: StructureAt) -> None:
            operand = self._of(reference)
            offset = f.variable()
            offset.set("value", operand.get("origin"))

            def term(each: StructureAt) -> None:
                cell = f.element_at(registers, each.get("register"), WORD)
                offset.add("value", f.load(cell, "i64") * each.get("scale"))

            operand.each("terms", TERM, term)
            found = offset.get("value")
            self._unless_between(found, operand, "lowest", "highest")
            operand.set("offset", found)
            operand.set("address", operand.get("base") + found)

        def apart(pair: StructureAt) -> None:
            left, right = (self._of(pair, name) for name in ("left", "right"))
            ends = [
                [side.get("offset") + side.get(end) for end in ("low", "high")]
                for side in (left, right)
            ]
            before = f.compare("icmp sle", ends[0][1], ends[1][0])
            behind = f.compare("icmp sle", ends[1][1], ends[0][0])
            equal = f.compare("icmp eq", left.get("address"), right.get("address"))
            allowed = f.compare("icmp ne", pair.get("same"), f.integer(0))
            same = equal & allowed
            fine = before | behind | same
            f.leave_if(fine ^ 1, self.fallback)

        record.each("moving", REFERENCE, move)
        record.each("apart", PAIR, apart)

    def check(self, record: StructureAt) -> None:
        """What is read is initialised, and what is written may be: its region lives."""
        f = self.f

        def readable(reference: StructureAt) -> None:
            operand = self._of(reference)
            place = self._state_of(operand)
            fine, look, within = (f.label(name) for name in ("fine", "look", "within"))
            state = f.load(place, "i8")
            f.branch(self._is(state, CLEAN), fine, look)
            f.open(look)
            f.branch(self._is(state, MIXED), within, self.fallback)
            f.open(within)
            self._unless_marked(operand)
            covers = f.compare("icmp ne", operand.get("full"), f.integer(0))
            f.store(f.select(covers, f.constant("i8", CLEAN), state), place)
            f.jump(fine)
            f.open(fine)

        def writable(reference: StructureAt) -> None:
            operand = self._of(reference)
            state = f.load(self._state_of(operand), "i8")
            full = f.compare("icmp ne", operand.get("full"), f.integer(0))
            whole = self._is(state, EMPTY) & full
            partly = self._is(state, EMPTY) | self._is(state, MIXED)
            partly = partly & self._has_marks(operand)
            fine = self._is(state, CLEAN) | (whole | partly)
            f.leave_if(fine ^ 1, self.fallback)

        record.each("reads", REFERENCE, readable)
        record.each("writes", REFERENCE, writable)

    def write(self, record: StructureAt) -> None:
        """What is written is initialised now."""
        f = self.f

        def initialised(reference: StructureAt) -> None:
            operand = self._of(reference)
            place = self._state_place(operand)
            state = f.load(place, "i8")
            part, mark, all_of_it, after = (f.label(n) for n in ("part", "mark", "all", "on"))
            full = f.compare("icmp ne", operand.get("full"), f.integer(0))
            f.branch(self._is(state, CLEAN) | full, all_of_it, part)
            f.open(part)
            clear = f.label("clear")
            f.branch(self._is(state, EMPTY), clear, mark)
            f.open(clear)
            self._clear(operand)
            f.store(f.constant("i8", MIXED), place)
            f.jump(mark)
            f.open(mark)
            self._runs(operand, lambda at, count: f.fill_bytes(at, INITIALISED - 256, count))
            f.jump(after)
            f.open(all_of_it)
            f.store(f.constant("i8", CLEAN), place)
            f.jump(after)
            f.open(after)

        record.each("writes", REFERENCE, initialised)

    def patch(self, record: StructureAt) -> None:
        """Addresses go to the words of the jobs."""

        def one(each: StructureAt) -> None:
            address = self._of(each).get("address") + each.get("delta")
            self.f.store(address, each.get("word", "ptr"))

        record.each("patches", PATCH, one)

    def _of(self, reference: StructureAt, name: str = "operand") -> StructureAt:
        return StructureAt(self.f, OPERAND, reference.get(name, "ptr"))

    # States and marks

    def _state_place(self, operand: StructureAt) -> Value:
        return self.f.element_at(self.program.get("states", "ptr"), operand.get("region"), 1)

    def _state_of(self, operand: StructureAt) -> Value:
        self._unless_between(operand.get("offset"), operand, "region_lowest", "region_highest")
        return self._state_place(operand)

    def _is(self, state: Value, number: int) -> Value:
        return self.f.compare("icmp eq", state, self.f.constant("i8", number))

    def _space(self, operand: StructureAt) -> StructureAt:
        return StructureAt(self.f, SPACE, operand.get("space", "ptr"))

    def _has_marks(self, operand: StructureAt) -> Value:
        """Whether the operand's marks are as they were when it was packed."""
        f = self.f
        known = f.compare("icmp ne", operand.get("space"), f.integer(0))
        nothing = self.program.get("no_space", "ptr")
        space = StructureAt(f, SPACE, f.select(known, operand.get("space", "ptr"), nothing))
        same = f.compare("icmp eq", space.get("unit"), operand.get("unit"))
        return known & same

    def _runs(self, operand: StructureAt, body: Callable[[Value, Value], None]) -> None:
        """`body(pointer, count)` for the adjacent marks of an operand."""
        f = self.f
        offset = operand.get("buffer_offset") + operand.get("offset")
        number = f.binary("sdiv", offset, operand.get("unit"))
        first = self._space(operand).get("marks", "ptr") + number
        zero, inner = f.integer(0), operand.get("inner")

        def outer(index: Value) -> None:
            line = first + index * operand.get("outer_step")

            def middle(number: Value) -> None:
                step = number * operand.get("middle_step")
                body(line + step, inner)

            f.loop(zero, operand.get("middle"), 1, middle)

        f.loop(zero, operand.get("outer"), 1, outer)

    def _unless_marked(self, operand: StructureAt) -> None:
        """To `fallback` unless all marks of an operand say that it is initialised."""
        f = self.f
        f.leave_if(self._has_marks(operand) ^ 1, self.fallback)

        def run(place: Value, count: Value) -> None:
            whole = count & -WORD

            def word(index: Value) -> None:
                marks = f.load(place + index, "i64")
                f.leave_if(f.compare("icmp ne", marks, f.integer(-1)), self.fallback)

            def byte(index: Value) -> None:
                mark = f.load(place + index, "i8")
                f.leave_if(f.compare("icmp ne", mark, f.constant("i8", -1)), self.fallback)

            f.loop(f.integer(0), whole, WORD, word)
            f.loop(whole, count, 1, byte)

        self._runs(operand, run)

    def _clear(self, operand: StructureAt) -> None:
        """Nothing of the operand's region is written."""
        f = self.f
        first = self._space(operand).get("marks", "ptr") + operand.get("box")

        def row(index: Value) -> None:
            place = first + index * operand.get("box_pitch")
            f.fill_bytes(place, UNWRITTEN, operand.get("box_width"))

        f.loop(f.integer(0), operand.get("box_rows"), 1, row)

    def _unless_between(self, value: Value, record: StructureAt, lowest: str, highest: str) -> None:
        """To `fallback` unless a value lies between two members of a record."""
        f = self.f
        below = f.compare("icmp slt", value, record.get(lowest))
        above = f.compare("icmp sgt", value, record.get(highest))
        f.leave_if(below | above, self.fallback)
