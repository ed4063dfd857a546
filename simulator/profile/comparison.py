"""Two profiles side by side: what changed, and by what cause, engine and line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from isa.sections import Facts, Section, Table
from simulator.profile.table import us

if TYPE_CHECKING:
    from simulator.profile.report import Profile

SHOWN = 20
"""Lines that are listed, those that changed most first."""


def compared(before: Profile, after: Profile) -> list[Section]:
    """What changed from one profile to the other. The changes of all causes of the critical path,
    as those of all lines, add up to the change of the time."""
    change = after.total_ns - before.total_ns
    percent = 100 * change / before.total_ns if before.total_ns else 0.0
    causes = _differences(_by_cause(before), _by_cause(after))
    largest = max(causes, key=lambda row: abs(row[2] - row[1]), default=None)
    why = None
    if largest is not None and largest[1] != largest[2]:
        why = f"most of it is {largest[0]}, {us(largest[1])} -> {us(largest[2])} us"
    head = Facts.of(
        "",
        before=_name(before),
        after=_name(after),
        time=f"{us(before.total_ns)} -> {us(after.total_ns)} us, {percent:+.1f} %",
        why=why,
        bound=f"{before.bound} -> {after.bound}",
    )
    lines = _differences(_by_line(before), _by_line(after))
    columns = ("", ">before us", ">after us", ">change us")
    return [
        head,
        Table.of("critical path by cause", columns, map(_row, causes)),
        Table.of("critical path by line of source", columns, map(_row, lines[:SHOWN])),
        Table.of("figures", ("", ">before", ">after"), _figures(before, after)),
    ]


def comparison_data(before: Profile, after: Profile) -> dict[str, Any]:
    """The same as data, with every line."""

    def rows(found: Iterable[tuple[str, float, float]]) -> list[dict[str, Any]]:
        return [{"name": name, "before_ns": one, "after_ns": two} for name, one, two in found]

    return {
        "before": before.to_dict(),
        "after": after.to_dict(),
        "causes": rows(_differences(_by_cause(before), _by_cause(after))),
        "lines": rows(_differences(_by_line(before), _by_line(after))),
    }


def _name(one: Profile) -> str:
    cores = f", {one.cores} cores" if one.cores > 1 else ""
    return f"{one.kernel} on {one.target}{cores}"


def _row(found: tuple[str, float, float]) -> tuple[str, ...]:
    name, before, after = found
    return name, us(before), us(after), f"{(after - before) / 1e3:+,.2f}"


def _by_cause(one: Profile) -> dict[str, float]:
    return _summed((cause.name, cause.ns) for cause in one.path)


def _by_line(one: Profile) -> dict[str, float]:
    """Time on the critical path by the text of lines, as their numbers change by version."""
    return _summed((line.text or "(no line)", line.ns) for line in one.path_lines)


def _summed(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, ns in pairs:
        found[name] = found.get(name, 0.0) + ns
    return found


def _differences(
    before: dict[str, float], after: dict[str, float]
) -> list[tuple[str, float, float]]:
    """Name, time before and after, those that changed most first."""
    found = [(n, before.get(n, 0.0), after.get(n, 0.0)) for n in {**before, **after}]
    return sorted(found, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def _figures(before: Profile, after: Profile) -> list[tuple[str, str, str]]:
    def both(name: str, form: str, get: Any) -> tuple[str, str, str]:
        return name, format(get(before), form), format(get(after), form)

    engines = dict.fromkeys(e.name for one in (before, after) for e in one.engines)

    def busy(name: str) -> Any:
        return lambda one: next((e.busy_percent for e in one.engines if e.name == name), 0.0)

    return [
        both("instructions", ",", lambda one: one.instructions),
        both("MFU %", ".1f", lambda one: one.mfu_percent),
        *(both(f"{name} busy %", ".1f", busy(name)) for name in engines),
        both("DMA active %", ".1f", lambda one: one.dma.active_percent),
        both("HBM bytes read", ",", lambda one: one.dma.hbm_read_bytes),
        both("HBM bytes written", ",", lambda one: one.dma.hbm_write_bytes),
        both("DMA descriptors", ",", lambda one: one.dma.descriptors),
        both("table loads", ",", lambda one: one.table_loads),
    ]


__all__ = ["compared", "comparison_data"]
