"""Two profiles side by side: what changed, and by what cause, line and figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from isa.sections import Facts, Prose, Section, Table, html, plain_text
from simulator.profile.critical_lines import us
from simulator.profile.dma import percent
from simulator.profile.report import Profile

SHOWN = 20
"""Lines that are listed, those that changed most first."""


@dataclass(frozen=True, slots=True)
class ProfileComparison:
    """Two profiles side by side. `text()` and notebooks show it, `to_dict()` has every line.

    The changes of all causes of the critical path, as those of all lines, add up to the change of
    the time.
    """

    before: Profile
    after: Profile

    def sections(self) -> list[Section]:
        """What changed and why, first; then by cause, line and figure."""
        before, after = self.before, self.after
        change = after.total_ns - before.total_ns
        relative = f"{percent(change, before.total_ns):+.1f} %"
        head = Facts.of(
            "comparison",
            before=_name(before, after),
            after=_name(after, before),
            time=f"{us(before.total_ns)} -> {us(after.total_ns)} us, {relative}",
            why=Prose(_why(before, after)),
            bound=f"{before.bound} -> {after.bound}",
        )
        columns = ("", ">before us", ">after us", ">change us")
        causes = [row for row in _causes(before, after) if _counts(row)]
        changed = [row for row in _lines(before, after) if _counts(row)]
        return [
            head,
            Table.of("critical path by cause", columns, map(_row, causes)),
            Table.of("critical path by line of source", columns, map(_row, changed[:SHOWN])),
            Table.of("figures", ("", ">before", ">after"), _figures(before, after)),
        ]

    def text(self) -> str:
        """The sections as plain text."""
        return plain_text(self.sections())

    def _repr_html_(self) -> str:
        return html(self.sections())

    def to_dict(self) -> dict[str, Any]:
        """The same as data, with every line."""

        def rows(found: Iterable[tuple[str, float, float]]) -> list[dict[str, Any]]:
            return [{"name": name, "before_ns": one, "after_ns": two} for name, one, two in found]

        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "why": _why(self.before, self.after),
            "causes": rows(_causes(self.before, self.after)),
            "lines": rows(_lines(self.before, self.after)),
            "figures": [
                {"name": name, "before": one, "after": two}
                for name, one, two in _figures(self.before, self.after)
            ],
        }


def _why(before: Profile, after: Profile) -> str:
    """The causes that make most of the change, and the work that changed with them."""
    causes = [row for row in _causes(before, after) if _counts(row)]
    change = after.total_ns - before.total_ns
    told: list[str] = []
    explained = 0.0
    for name, one, two in causes[:_CAUSES]:
        if told and abs(explained) >= _MOST * abs(change) > 0:
            break
        told.append(f"{name} {us(abs(two - one))} us {'more' if two > one else 'less'}")
        explained += two - one
    work = [
        f"{abs(100 * (two - one) / one):,.0f} % {'more' if two > one else 'fewer'} {name}"
        for name, get in _WORK.items()
        if (one := get(before)) and abs((two := get(after)) - one) >= 0.005 * one
    ]
    parts = [", ".join(told), ", ".join(work)]
    return "; ".join(part for part in parts if part) or "the time goes to the same causes"


_SHOWN = 60
"""Characters of a cause or a line of source that are shown."""

_CAUSES, _MOST = 4, 0.9
"""Causes that are told at most, and the part of the change at which they are enough."""

_WORK: dict[str, Callable[[Profile], float]] = {
    "bytes of HBM": lambda one: one.dma.hbm_read_bytes + one.dma.hbm_write_bytes,
    "descriptors": lambda one: one.dma.descriptors,
    "table loads": lambda one: one.table_loads,
    "instructions": lambda one: one.instructions,
}


def _name(one: Profile, other: Profile) -> str:
    """What was profiled: the kernel and what tells it from the other one."""
    cores = f", {one.cores} cores" if one.cores > 1 else ""
    own = "".join(
        f", {name}={value!r}"
        for name, value in one.arguments.items()
        if name not in other.arguments or other.arguments[name] != value
    )
    return f"{one.kernel} on {one.target}{cores}{own}"


def _counts(found: tuple[str, float, float]) -> bool:
    """Whether a change shows in the figures."""
    return abs(found[2] - found[1]) >= 5


def _row(found: tuple[str, float, float]) -> tuple[str, ...]:
    name, before, after = found
    if len(name) > _SHOWN:
        name = name[: _SHOWN - 4] + " ..."
    return name, us(before), us(after), f"{(after - before) / 1e3:+,.2f}"


def _causes(before: Profile, after: Profile) -> list[tuple[str, float, float]]:
    return _differences(_by_cause(before), _by_cause(after))


def _lines(before: Profile, after: Profile) -> list[tuple[str, float, float]]:
    return _differences(_by_line(before), _by_line(after))


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
