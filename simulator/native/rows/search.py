"""Micro-kernels of rows that look for values in each partition, as `simulator.oracle.search`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import search
from simulator.device_state import CoreState
from simulator.native.codegen import ports
from simulator.native.codegen.structure import StructureText
from simulator.native.codegen.text import Value
from simulator.native.plans.plan import Bound, FunctionPlan, Plan, apart
from simulator.native.plans.table import plans
from simulator.native.rows.elementwise import converting, pattern_of
from simulator.native.rows.lines import LANES, Lines, RowLayout, alike, lines_plan, rows_of
from simulator.oracle.search import SLOTS
from simulator.views import Array, dtype_name

_FLOAT = 4
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
_BLOCK = 4 * LANES


def _bits(f: StructureText, flags: Value) -> Value:
    """LANES flags as a number."""
    return f.convert("zext", f.reinterpret(flags, f"i{LANES}", 0), "i64")


def _lowest(f: StructureText, flags: Value) -> Value:
    """The number of the lowest bit that is set, of some that are."""
    return f.call("llvm.cttz.i64", "i64", 0, flags, f.constant("i1", 1))


def _few(f: StructureText, rest: Value) -> Value:
    """Flags of the lanes below a number."""
    return f.compare("icmp slt", f.lanes("i64", LANES), f.splat(rest, LANES))


def ordered(f: StructureText, pattern: Value) -> Value:
    """As `simulator.oracle.search.ordered`."""
    sign = f.binary("ashr", pattern, f.like(pattern, 31))
    return pattern ^ (sign & _MOST)


class _Largest:
    """The SLOTS largest of what was added, in descending order, as numbers of `ordered`."""

    def __init__(self, f: StructureText) -> None:
        self.f = f
        self._memory = f.scratch("i32", SLOTS)
        self._block = f.scratch("i32", _BLOCK)
        self._least = f.scratch("i32", 0)
        self._left = f.variable()

    def begin(self, some: Value) -> None:
        """Begin with an empty list; `some` are the keys of LANES elements that will be added, or
        the least number. The list will have no key below the last but SLOTS of them."""
        f = self.f
        f.store(f.constant("i32", _LEAST, SLOTS), self._memory)
        for lane in range(LANES):
            self._insert(f.extract(some, lane))
        last = f.extract(self.list(), SLOTS - 1)
        last = f.intrinsic("smax", last, f.like(last, _LEAST + 1))
        f.store(last - 1, self._least)
        f.store(f.constant("i32", _LEAST, SLOTS), self._memory)

    def list(self) -> Value:
        """The list now."""
        return self.f.load(self._memory, "i32", SLOTS)

    def _above(self, keys: Value) -> Value:
        """Which keys the list has to take."""
        f = self.f
        last = f.extract(self.list(), SLOTS - 1)
        last = f.intrinsic("smax", last, f.load(self._least, "i32"))
        return _bits(f, f.compare("icmp sgt", keys, f.splat(last, keys.width)))

    def _insert(self, key: Value) -> None:
        f, current = self.f, self.list()
        above = f.shuffle(current, f.like(current, _MOST), [SLOTS, *range(SLOTS - 1)])
        fits = f.intrinsic("smin", above, f.splat(key, SLOTS))
        f.store(f.intrinsic("smax", current, fits), self._memory)

    def add(self, blocks: Sequence[Value]) -> None:
        """Add vectors of keys."""
        f = self.f
        highest = blocks[0]
        for keys in blocks[1:]:
            highest = f.intrinsic("smax", highest, keys)

        def some() -> None:
            for number, keys in enumerate(blocks):
                f.store(keys, f.element_at(self._block, f.integer(number * LANES), _FLOAT))
            f.loop(f.integer(0), f.integer(len(blocks) * LANES), LANES, self._add_above)

        f.when(f.compare("icmp ne", self._above(highest), f.integer(0)), some)

    def _add_above(self, first: Value) -> None:
        """Insert what the list has to take of LANES keys of the block."""
        f, left = self.f, self._left
        head, inside, after = (f.label(name) for name in ("head", "insert", "after"))
        place = f.element_at(self._block, first, _FLOAT)
        left.set("value", self._above(f.load(place, "i32", LANES)))
        f.jump(head)
        f.open(head)
        flags = left.get("value")
        f.branch(f.compare("icmp ne", flags, f.integer(0)), inside, after)
        f.open(inside)
        self._insert(f.load(f.element_at(place, _lowest(f, flags), _FLOAT), "i32"))
        left.set("value", flags & (flags - 1))
        f.jump(head)
        f.open(after)


@dataclass(frozen=True, slots=True)
class LargestOfRows:
    """The SLOTS largest elements of each row, in descending order."""

    result: RowLayout
    data: RowLayout

    def text(self, name: str) -> str:
        f = StructureText(name)
        lines = Lines(f, (self.result, self.data))
        largest = _Largest(f)
        count, zero = lines.sizes[1], f.integer(0)
        fours, whole = (count & -size for size in (_BLOCK, LANES))

        def keys(value: Value) -> Value:
            return ordered(f, f.convert("bitcast", ports.canonical(f, value), "i32"))

        def row(rows: list[Value]) -> None:
            line = lines.read(1, rows[1])

            def highest(index: Value, current: Value) -> list[Value]:
                found = keys(f.load(f.element_at(line, index, _FLOAT), "float", LANES))
                return [f.intrinsic("smax", current, found)]

            # What is added passes a high bar from the beginning: branches are taken seldom.
            none = f.constant("i32", _LEAST, LANES)
            (some,) = f.loop(zero, whole, LANES, highest, [none])
            largest.begin(some)

            def adjacent(index: Value, blocks: int) -> None:
                places = [
                    f.element_at(line, index + number * LANES, _FLOAT) for number in range(blocks)
                ]
                largest.add([keys(f.load(place, "float", LANES)) for place in places])

            def last() -> None:
                few = _few(f, count - whole)
                loaded = f.load_where(few, f.element_at(line, whole, _FLOAT), "float")
                found = keys(loaded)
                largest.add([f.select(few, found, f.like(found, _LEAST))])

            f.loop(zero, fours, _BLOCK, lambda index: adjacent(index, _BLOCK // LANES))
            f.loop(fours, whole, LANES, lambda index: adjacent(index, 1))
            f.when(f.compare("icmp slt", whole, count), last)
            found = f.convert("bitcast", ordered(f, largest.list()), "float")
            for slot in range(SLOTS):
                value = f.splat(f.extract(found, slot), 1)
                lines.write(0, rows[0], f.integer(slot), value)

        lines.rows(row)
        return f.text()


class _ValueSearch:
    """Where SLOTS values are in a row of fp32 elements."""

    def __init__(self, f: StructureText, from_last: bool) -> None:
        self.f = f
        self._from_last = from_last
        self._found = f.scratch("i64", SLOTS)
        self._at = f.variable()

    def found(self, slot: Value) -> Value:
        """Where the value of a slot was; the row's length if nowhere."""
        return self.f.load(self.f.element_at(self._found, slot, 8), "i64")

    def run(self, line: Value, count: Value, values: Value) -> None:
        """Look for all values, as `simulator.oracle.search.occurrences`."""
        f = self.f
        f.store(f.constant("i64", -1, SLOTS), self._found)

        def turn(number: Value) -> None:
            slot = SLOTS - 1 - number if self._from_last else number
            wanted = f.load(f.element_at(values, slot, _FLOAT), "float")
            # Slots whose turn is still to come have -1.
            places = f.load(self._found, "i64", SLOTS)
            slots = f.load(values, "float", SLOTS)
            same = f.compare("fcmp oeq", slots, f.splat(wanted, SLOTS))
            before = f.select(same, places, f.like(places, -1))
            behind = f.call("llvm.vector.reduce.smax.v8i64", "i64", 0, before)
            self._first(line, count, wanted, behind + 1)
            f.store(self._at.get("value"), f.element_at(self._found, slot, 8))

        f.loop(f.integer(0), f.integer(SLOTS), 1, turn)

    def _first(self, line: Value, count: Value, wanted: Value, start: Value) -> None:
        """The first element from `start` on that equals a value, or `count`, into `_at`."""
        f, at = self.f, self._at
        value = f.splat(wanted, LANES)
        head, whole, on, few, rest, hit, nowhere, after = (
            f.label(name)
            for name in ("head", "whole", "next", "few", "rest", "hit", "nowhere", "after")
        )
        flags = f.variable()
        at.set("value", start)
        f.jump(head)
        f.open(head)
        index = at.get("value")
        place = f.element_at(line, index, _FLOAT)
        left = count - index
        f.branch(f.compare("icmp sge", left, f.integer(LANES)), whole, few)
        f.open(whole)
        matches = _bits(f, f.compare("fcmp oeq", f.load(place, "float", LANES), value))
        flags.set("value", matches)
        f.branch(f.compare("icmp ne", matches, f.integer(0)), hit, on)
        f.open(on)
        at.set("value", index + LANES)
        f.jump(head)
        f.open(few)
        f.branch(f.compare("icmp sgt", left, f.integer(0)), rest, nowhere)
        f.open(rest)
        lanes = _few(f, left)
        loaded = f.load_where(lanes, place, "float")
        matches = _bits(f, lanes & f.compare("fcmp oeq", loaded, value))
        flags.set("value", matches)
        f.branch(f.compare("icmp ne", matches, f.integer(0)), hit, nowhere)
        f.open(hit)
        at.set("value", index + _lowest(f, flags.get("value")))
        f.jump(after)
        f.open(nowhere)
        at.set("value", count)
        f.jump(after)
        f.open(after)

    def write(self, slot: Value, nowhere: Value, dtype: str, place: Value) -> None:
        """Store where the value of a slot was, all ones if that is `nowhere`, as an integer."""
        f, row_type, found = self.f, DTYPES[dtype], self.found(slot)
        missing = f.compare("icmp eq", found, nowhere)
        stored = f.select(missing, f.integer(int(row_type.largest)), found)
        f.store(f.convert("trunc", stored, f"i{row_type.bits}"), place)


@dataclass(frozen=True, slots=True)
class Positions:
    """Where the SLOTS values of each row are in the data's row, all ones if nowhere."""

    result: RowLayout
    data: RowLayout
    values: RowLayout

    def text(self, name: str) -> str:
        f = StructureText(name)
        lines = Lines(f, (self.result, self.data, self.values))
        search_ = _ValueSearch(f, from_last=False)
        count = lines.sizes[1]

        def row(rows: list[Value]) -> None:
            search_.run(lines.read(1, rows[1]), count, lines.read(2, rows[2]))

            def write(slot: Value) -> None:
                search_.write(slot, count, self.result.dtype, lines.place(0, rows[0], slot))

            f.loop(f.integer(0), f.integer(SLOTS), 1, write)

        lines.rows(row)
        return f.text()


@dataclass(frozen=True, slots=True)
class Replace:
    """The data's rows with the elements that the SLOTS values of each row are found at, the last
    slot first, replaced by the pattern in a word. With `positions` that is one more operand, which
    gets where they were, all ones if nowhere."""

    result: RowLayout
    data: RowLayout
    values: RowLayout
    positions: RowLayout | None = None

    def text(self, name: str) -> str:
        f = StructureText(name)
        others = () if self.positions is None else (self.positions,)
        lines = Lines(f, (self.result, self.data, self.values, *others))
        search_ = _ValueSearch(f, from_last=True)
        count = lines.sizes[1]
        pattern = f.word(lines.used, f"i{DTYPES[self.result.dtype].bits}")

        def row(rows: list[Value]) -> None:
            search_.run(lines.read(1, rows[1]), count, lines.read(2, rows[2]))
            lines.copy(1, 0, rows)

            def replace(slot: Value) -> None:
                found = search_.found(slot)
                somewhere = f.compare("icmp ne", found, count)
                f.when(somewhere, lambda: f.store(pattern, lines.place(0, rows[0], found)))
                if self.positions is not None:
                    place = lines.place(3, rows[3], slot)
                    search_.write(slot, count, self.positions.dtype, place)

            f.loop(f.integer(0), f.integer(SLOTS), 1, replace)

        lines.rows(row)
        return f.text()


@plans(search.Max8)
def max8(engine: Engine, dst: Array, src: Array) -> Plan | None:
    result, source = rows_of(dst), rows_of(src, read=True)
    if result is None or source is None or not converting(dst, src) or source.size < SLOTS:
        return None
    return lines_plan(
        LargestOfRows(result.layout, source.layout), [(0, dst, result), (1, src, source)]
    )


@plans(search.FindIndex8)
def find_index8(engine: Engine, dst: Array, data: Array, vals: Array) -> Plan | None:
    if not converting(data, vals) or not DTYPES[dtype_name(dst)].is_integer:
        return None
    result, source, values = rows_of(dst), rows_of(data, read=True), rows_of(vals, read=True)
    if result is None or source is None or values is None:
        return None
    kernel = Positions(result.layout, source.layout, values.layout)
    return lines_plan(kernel, [(0, dst, result), (1, data, source), (2, vals, values)])


@plans(search.MatchReplace8)
def match_replace8(
    engine: Engine, dst: Array, data: Array, vals: Array, imm: float, indices: Array | None
) -> FunctionPlan | Plan | None:
    if not converting(dst, data, vals):
        return None
    (source, result), values = alike(data, dst), rows_of(vals, read=True)
    if source is None or result is None or values is None:
        return None
    pattern = pattern_of(dtype_name(dst))
    operands = [(0, dst, result), (1, data, source), (2, vals, values)]
    layouts = [result.layout, source.layout, values.layout]
    same = [result.in_step(source), False]
    if indices is not None:
        places = rows_of(indices)
        if places is None or not DTYPES[dtype_name(indices)].is_integer:
            return None
        operands.append((4, indices, places))
        layouts.append(places.layout)
        same.append(False)
    number = (3, lambda value: pattern(float(value)))
    found = lines_plan(Replace(*layouts), operands, [number], same)
    if indices is None:
        return found

    def bind(state: CoreState, given: Sequence[Any]) -> Bound | None:
        """Positions are written too: they share no bytes with what is read."""
        bound = found.bind(state, given)
        if bound is None or not all(apart(given[4], read) for read in given[1:3]):
            return None
        (job,) = bound.jobs
        first, *read, last = job.slots
        # Flags go for all that is written; in-place operands that registers move are Python's.
        no_flags = (False,) * len(job.same)
        return Bound([job._replace(slots=(first, last, *read), written=2, same=no_flags)])

    return FunctionPlan(bind)
