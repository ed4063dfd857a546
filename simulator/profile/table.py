"""A profile as sections of a report: the same in a terminal and as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isa.rules.form import plural
from isa.sections import Facts, Notes, Prose, Section, Table
from simulator.profile import inserted, official, traffic
from simulator.profile.critical_lines import Together, Wait, shown_place, us
from simulator.profile.dma import percent
from simulator.profile.verdict import gain, title, verdict
from simulator.profile.work import bound_name
from simulator.timing.uncertainty import LEVEL

if TYPE_CHECKING:
    from simulator.profile.report import Profile

ADVICE = 5
"""Changes that are shown; the JSON form has all."""

SOURCE = 28
"""Characters of a source line that are shown."""


def sections(profile: Profile, lines: int) -> list[Section]:
    """Time and verdict, the critical path, advice, engines, DMA and memory, and `lines` lines."""
    found: list[Section] = [_head(profile)]
    if profile.path:
        found.append(_path(profile))
    if profile.path_lines and lines:
        found.append(_lines(profile, lines))
    if profile.waits:
        found.append(_waits(profile.waits, profile.cores > 1))
    if profile.advice:
        found.append(_advice(profile))
    if profile.limits:
        found.append(_limits(profile))
    found += [_engines(profile), _dma(profile), _memory(profile)]
    if profile.inserted:
        found.append(inserted.table(profile.inserted, profile.cores > 1))
    if profile.traffic.spills:
        found.append(traffic.table(profile.traffic))
    found += official.sections(profile)
    if profile.provenance:
        title = "not validated by any published measurement"
        found.append(Notes(title, tuple(profile.provenance)))
    return found


def _head(profile: Profile) -> Facts:
    cores = f", {profile.cores} cores" if profile.cores > 1 else ""
    matmul = throttling = tables = None
    if profile.flops:
        matmul = (
            f"{profile.flops / 1e9:,.3f} GFLOP in {profile.matmul_dtype}, "
            f"{profile.mfu_percent:.1f} % of {profile.peak_tflops:g} TFLOP/s; "
            f"{profile.arithmetic_intensity:,.0f} flop/byte (balance {profile.balance:,.0f})"
        )
    if profile.throttled_ns:
        throttling = f"{us(profile.throttled_ns)} us"
    if profile.table_loads:
        tables = f"{us(profile.table_load_ns)} us, loaded {plural(profile.table_loads, 'time')}"
    within = "no published kernel time is of a program bound like this"
    if profile.uncertainty_percent is not None:
        like = (
            "kernels bound alike" if profile.uncertainty_alike else "all kernels, few bound alike,"
        )
        within = (
            f"{LEVEL} % of {profile.uncertainty_rows} published times of {like} are "
            f"within {profile.uncertainty_percent:g} %"
        )
    return Facts.of(
        "",
        kernel=f"{profile.kernel} on {profile.target}{cores}",
        time=f"{us(profile.total_ns)} us, and about {profile.overhead_ns / 1e3:,.1f} us to start "
        "and stop a kernel",
        least_time=_least(profile),
        uncertainty=within,
        bound=Prose(f"{profile.bound}: {profile.reason}"),
        verdict=Prose(verdict(profile)),
        matmul=matmul,
        TensorE_throttling=throttling,
        activation_tables=tables,
    )


def _least(profile: Profile) -> Prose | None:
    """The two highest of the lower bounds: no order of the same work takes less. DMA at its full
    rate has no cost of descriptors, conversions or short runs."""
    bounds = sorted(profile.lower_bounds_ns.items(), key=lambda item: -item[1])[:2]
    if not bounds or not bounds[0][1]:
        return None
    said = [f"{us(ns)} us by {bound_name(one)}" for one, ns in bounds]
    ratio = profile.total_ns / bounds[0][1]
    rate = "each at its full rate" if len(said) > 1 else "at its full rate"
    return Prose(f"{', '.join(said)}, {rate}; the time is {ratio:.2f} times the first")


def _path(profile: Profile) -> Table:
    rows = ((f"{one.percent:.1f}", us(one.ns), one.cause, one.engine) for one in profile.path)
    return Table.of("where the time goes (critical path)", (">%", ">us", "cause", "on"), rows)


def _lines(profile: Profile, limit: int) -> Table:
    busy = {(one.core, one.file, one.line, one.text): one.total_ns for one in profile.lines}
    rows = []
    shown = profile.path_lines[:limit]
    for one in shown:
        occupied = busy.get((one.core, one.file, one.line, one.text), 0.0)
        rows.append(
            (
                f"{one.percent:.1f}",
                us(one.ns),
                us(occupied),
                *((str(one.core),) if profile.cores > 1 else ()),
                shown_place(one.file, one.line),
                one.text[:SOURCE],
                next(iter(one.causes), ""),
            )
        )
    left = len(profile.path_lines) - len(shown)
    title = "lines of the critical path (us there; us that its instructions occupy in all)"
    if left:
        title += f", and {left} more lines"
    core = ("core",) if profile.cores > 1 else ()
    return Table.of(title, (">%", ">us", ">busy us", *core, "line", "source", "most of it"), rows)


def _waits(waits: list[Wait], cores: bool) -> Table:
    rows = (
        (
            us(wait.ns),
            f"{wait.count:,}",
            f"{wait.engine} at {shown_place(wait.file, wait.line)}"
            + (f" on core {wait.core}" if cores else ""),
            wait.awaited + (f" at line {wait.awaited_line}" if wait.awaited_line else ""),
        )
        for wait in waits[:ADVICE]
    )
    title = "stalls of the critical path, and what ended them"
    return Table.of(title, (">us", ">times", "waits", "for"), rows)


def _advice(profile: Profile) -> Notes:
    left = len(profile.advice) - ADVICE
    items = []
    for one in profile.advice[:ADVICE]:
        instead = f"; instead of {_listed(one.instead_of)}" if one.instead_of else ""
        items.append(f"{title(one)}: {gain(one, profile.total_ns)}{instead}")
    below = _together(profile.together, profile.total_ns)
    if left > 0:
        below.append(f"and {left} more")
    return Notes(
        "advice, best first (each change made, compiled and timed)",
        tuple(items),
        numbered=True,
        end=tuple(below),
    )


def _together(found: Together | None, total: float) -> list[str]:
    """What advice gives at once, and which of it is then no use."""
    if found is None:
        return []
    told, said = _listed(found.numbers), []
    if len(found.numbers) > 1:
        said.append(f"{told} together: {gain(found, total)}")
    if found.no_more:
        saves = "saves" if len(found.no_more) == 1 else "save"
        said.append(f"with {told} done, {_listed(found.no_more)} {saves} nothing more")
    return said


def _listed(numbers: tuple[int, ...]) -> str:
    """1, 2 and 3."""
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last


def _limits(profile: Profile) -> Table:
    rows = ((us(one.total_ns), f"{one.saved_percent:.1f}", one.name) for one in profile.limits)
    return Table.of("the same program on a machine with", (">us", ">% less", "what if"), rows)


def _engines(profile: Profile) -> Table:
    rows = (
        (
            engine.name,
            f"{engine.clock_ghz:.2f}",
            f"{engine.instructions:,}",
            f"{engine.busy_cycles:,.0f}",
            f"{engine.busy_percent:.1f}",
            f"{engine.active_percent:.1f}",
            f"{engine.sequencer_percent:.1f}",
            f"{engine.waited_ns / 1e3:,.1f}" if engine.waited_ns else "",
            engine.waits_for,
        )
        for engine in profile.engines
    )
    columns = "engine", ">GHz", ">instructions", ">busy cycles", ">busy %", ">active %", ">issue %"
    return Table.of("engines", (*columns, ">waits us", "most for"), rows)


def _dma(profile: Profile) -> Facts:
    dma = profile.dma
    activity = (
        f"active {dma.active_percent:.1f} %, {dma.bytes_per_ns:,.1f} of "
        f"{dma.peak_bytes_per_ns:,.0f} GB/s, {dma.transfers:,} transfers, "
        f"{dma.descriptors:,} descriptors of {dma.bytes_per_descriptor:,.0f} B"
    )
    moved = {where: f"{size:,} B" for where, size in sorted(dma.bytes.items())}
    least = profile.traffic
    hbm = {
        "HBM read": f"{dma.hbm_read_bytes:,} B; all arguments once: {least.argument_bytes:,} B",
        "HBM written": f"{dma.hbm_write_bytes:,} B; all results once: {least.result_bytes:,} B",
    }
    return Facts.of("", DMA=activity, **moved, **hbm)


def _memory(profile: Profile) -> Table:
    rows = (
        (
            memory.name.upper(),
            f"{memory.peak_bytes_per_partition:,}",
            f"{memory.bytes_per_partition:,}",
            f"{percent(memory.peak_bytes_per_partition, memory.bytes_per_partition):.0f}",
        )
        for memory in profile.memories
    )
    return Table.of("memory, bytes of a partition", ("", ">peak", ">capacity", ">%"), rows)
