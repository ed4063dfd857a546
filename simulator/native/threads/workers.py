"""Threads that run the parts of one call together, as LLVM text.

`run_parts` calls a function with the argument words of every part; the members of a team help.
`start_parts` does not wait for them, `join` does: meanwhile the caller may get ready what comes
next. `Worker` is what each of them runs: it waits for parts, spinning for a while, then yields its
time slice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.native.codegen.levels import GENERATING
from simulator.native.codegen.structure import Structure, StructureAt, StructureText
from simulator.native.codegen.text import WORD, Value

SPINS = 200
"""How often a thread looks before it yields its time slice; spinning alone was 45 to 110 times
slower with more threads than free CPUs."""

TEAM = Structure(
    *("function", "parts", "parts_count", "quit", "yield", "members_count", "spins", "_7"),
    *("sequence", "_9", "_10", "_11", "_12", "_13", "_14", "_15"),
)
"""What the worker threads are to run. Raising `sequence` starts them; they look at it all the time,
so that it has a line of cache of its own. `yield` is sched_yield, and `spins` how often a thread
looks before it yields."""

MEMBER = Structure("team", "number", "seen")
"""One worker: which part it runs, and the last sequence number that it has finished."""

MEMBER_BYTES = 64 * 3
"""Bytes between members, so that no two share a cache line."""


def _wait(f: StructureText, holds: Callable[[], Value], team: StructureAt) -> None:
    """Until a condition holds: spin for a while, then yield the time slice each time."""
    spins = f.variable()
    spins.set("value", f.integer(0))
    names = ("look", "again", "rest", "yield", "done")
    look, again, rest, give_way, done = (f.label(name) for name in names)
    f.jump(look)
    f.open(look)
    f.branch(holds(), done, again)
    f.open(again)
    tired = f.compare("icmp sgt", spins.add("value", f.integer(1)), team.get("spins"))
    f.branch(tired, give_way, rest)
    f.open(rest)
    level = GENERATING.get()
    if level is not None and level.pause:
        f.perform(level.pause)
    f.jump(look)
    f.open(give_way)
    f.value(f"call i32 {team.get('yield', 'ptr').text}()", "i32")
    f.jump(look)
    f.open(done)


def start_parts(f: StructureText, team: Value, function: Value, parts: Value, count: Value) -> None:
    """Call a function with the argument words of every part: `parts` points to their addresses.
    The members of a `TEAM`, none of which may be at work, help where there is one and more than
    one part; they may still be at work afterwards."""
    alone, shared, after = (f.label(name) for name in ("alone", "shared", "done"))
    whole = f.compare("icmp sle", count, f.integer(1))
    nobody = f.compare("icmp eq", team, Value("null", "ptr"))
    f.branch(whole | nobody, alone, shared)
    f.open(alone)

    def part(index: Value) -> None:
        f.call_address(function, f.load(f.element_at(parts, index, WORD), "ptr"))

    f.loop(f.integer(0), count, 1, part)
    f.jump(after)
    f.open(shared)
    _share(f, StructureAt(f, TEAM, team), function, parts, count)
    f.jump(after)
    f.open(after)


def _share(
    f: StructureText, team: StructureAt, function: Value, parts: Value, count: Value
) -> None:
    """Start the workers and run the first part."""
    team.set("function", function)
    team.set("parts", parts)
    team.set("parts_count", count)
    team.share("sequence", team.get("sequence") + 1)
    f.call_address(function, f.load(parts, "ptr"))


def join(f: StructureText, team: Value) -> None:
    """Wait until all members of a `TEAM`, if there is one, have done what was started."""
    record = StructureAt(f, TEAM, team)

    def wait() -> None:
        sequence = record.get("sequence")
        first = f.element_at(team, f.integer(1), TEAM.size)

        def one(number: Value) -> None:
            member = StructureAt(f, MEMBER, f.element_at(first, number, MEMBER_BYTES))
            _wait(f, lambda: f.compare("icmp eq", member.shared("seen"), sequence), record)

        f.loop(f.integer(0), record.get("members_count"), 1, one)

    f.when(f.compare("icmp ne", team, Value("null", "ptr")), wait)


def run_parts(f: StructureText, team: Value, function: Value, parts: Value, count: Value) -> None:
    """As `start_parts`, and wait until all is done."""
    start_parts(f, team, function, parts, count)
    join(f, team)


@dataclass(frozen=True, slots=True)
class Worker:
    """Runs the parts of one `MEMBER`, whose address is the argument, until `quit`."""

    def text(self, name: str) -> str:
        f = StructureText(name)
        member = StructureAt(f, MEMBER, f.words)
        team = StructureAt(f, TEAM, member.get("team", "ptr"))
        wait, work, run, skip, end = (f.label(n) for n in ("wait", "work", "run", "skip", "end"))
        f.jump(wait)
        f.open(wait)
        seen = member.get("seen")
        _wait(f, lambda: f.compare("icmp ne", team.shared("sequence"), seen), team)
        quits = f.compare("icmp ne", team.get("quit"), f.integer(0))
        f.branch(quits, end, work)
        f.open(work)
        sequence = team.shared("sequence")
        number = member.get("number")
        f.branch(f.compare("icmp slt", number, team.get("parts_count")), run, skip)
        f.open(run)
        words = f.load(f.element_at(team.get("parts", "ptr"), number, WORD), "ptr")
        f.call_address(team.get("function", "ptr"), words)
        f.jump(skip)
        f.open(skip)
        member.share("seen", sequence)
        f.jump(wait)
        f.open(end)
        return f.text()
