"""The numbers of a profile, taken from a program and its timeline."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.columns import numbered
from isa.cost_formula import Case
from isa.enums import SEQUENCERS, Engine, Memory
from isa.errors import NeuronError
from isa.errors.calls import named_arguments
from isa.program import Program
from isa.sections import Section, html, plain_text
from isa.target import Target, resolve
from simulator.profile import critical_lines, official, table
from simulator.profile.counts import Counts, counts_of
from simulator.profile.critical_lines import (
    NAMES,
    Advice,
    Advisor,
    Limit,
    PathCause,
    PathLine,
    Together,
    Wait,
    WhatIfs,
    line_texts,
    path_causes,
    path_lines,
    place_at,
)
from simulator.profile.dma import DmaProfile, dma_profile, percent
from simulator.profile.inserted import Inserted, inserted
from simulator.profile.representatives import executed, representatives, signals
from simulator.profile.traffic import Traffic, traffic_of
from simulator.profile.verdict import verdict
from simulator.profile.work import LeastTime, floor, issuing, lower_bounds
from simulator.timing.flops import PRODUCTS
from simulator.timing.flops import flops as instruction_flops
from simulator.timing.timeline import Timeline
from simulator.timing.uncertainty import uncertainty

if TYPE_CHECKING:
    from simulator.profile.comparison import ProfileComparison


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One engine. Times are of the core where it is active longest; percentages are of `total_ns`.

    `active`: executing, drain included, as profilers count it; `instructions_ns` is the sum over
    all instructions of all cores, where they overlap too. `busy`: its data path is occupied,
    in ns and in cycles of its clock. `sequencer`: control instructions and DMA triggers.
    """

    name: str
    clock_ghz: float
    instructions: int
    active_ns: float
    active_percent: float
    instructions_ns: float
    busy_ns: float
    busy_cycles: float
    busy_percent: float
    sequencer_ns: float
    sequencer_percent: float
    waited_ns: float
    waits_for: str

    @property
    def at_work_ns(self) -> float:
        """Active, or of an engine that computes less than it issues, busy with that."""
        return max(self.active_ns, self.sequencer_ns)


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """An on-chip memory: the highest byte of a partition that any allocation reaches."""

    name: str
    peak_bytes_per_partition: int
    bytes_per_partition: int


@dataclass(frozen=True, slots=True)
class LineProfile:
    """A line of the kernel's source on one core: what its instructions occupy, by engine, in ns.

    `text` is the line, or one call where several calls of the line have instructions. `dma` is
    the time of its transfers as if all DMA engines shared each evenly.
    """

    core: int
    file: str
    line: int
    text: str
    total_ns: float
    by_engine: dict[str, float]
    executed: int


PageWriter = Callable[["str | os.PathLike[str]", "Profile", "Profile | None"], None]
"""Writes the page of a profile, beside an earlier one, to a file."""


@dataclass(repr=False)
class Profile:
    """A profile of one run. `total_ns` as in `Timeline`; `device_ns` adds the kernel's fixed cost.

    `mfu_percent`: floating-point work of matrix multiplications against `peak_tflops`, the peak of
    their data type on the cores used. `arithmetic_intensity` is flop per byte of HBM traffic,
    `balance` the intensity from which the target is compute-bound. `bound` names what most of the
    critical path goes to, and `reason` says where; `path` and `path_lines` are the whole of it, and
    `waits` what ended its stalls. `lower_bounds_ns` are times that no schedule undercuts;
    `traffic` is what HBM traffic cannot be less than, and what spills move; `counts` what moves on
    chip, `inserted` the transposes and copies that no call asks for, with the call that each is
    for. `worked_ns`: something is active on some core, in `worked_span_ns` from first to last.
    `floor` is the highest of them where the run takes little more, else None. It is then `bound`.
    `uncertainty_percent` is the error that most of `uncertainty_rows` published times of kernels
    stay within (`simulator.timing.uncertainty`), None where there are none; whether these kernels
    are bound alike, or all on the target, says `uncertainty_alike`.
    `provenance` says what no measurement backs; `arguments` are the launch's compile-time ones.
    `advisor` times changed programs, when `limits`, `advice` or `bottleneck` is asked for; `pages`
    writes the page of `save_html`; `picture` draws the timeline that notebooks show.
    """

    kernel: str
    target: str
    cores: int
    total_ns: float
    overhead_ns: float
    instructions: int
    engines: list[EngineProfile]
    dma: DmaProfile
    flops: float
    transpose_flops: float
    matmul_dtype: str
    peak_tflops: float
    mfu_percent: float
    arithmetic_intensity: float
    balance: float
    bound: str
    reason: str
    lower_bounds_ns: dict[str, float]
    floor: LeastTime | None
    throttled_ns: float
    table_loads: int
    table_load_ns: float
    memories: list[MemoryProfile]
    traffic: Traffic
    counts: Counts
    inserted: list[Inserted]
    worked_ns: float
    worked_span_ns: float
    lines: list[LineProfile] = field(default_factory=list)
    provenance: list[str] = field(default_factory=list)
    uncertainty_percent: float | None = None
    uncertainty_rows: int = 0
    uncertainty_alike: bool = True
    path: list[PathCause] = field(default_factory=list)
    path_lines: list[PathLine] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)
    advisor: Advisor | None = field(default=None, repr=False, compare=False)
    pages: PageWriter | None = field(default=None, repr=False, compare=False)
    picture: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def what_ifs(self) -> WhatIfs:
        """Times of changed programs; none where nobody can change this one."""
        return WhatIfs() if self.advisor is None else self.advisor()

    @property
    def advice(self) -> list[Advice]:
        """Changes that would shorten the program, best first, each timed."""
        return self.what_ifs.advice

    @property
    def together(self) -> Together | None:
        """The advice that can be followed at once, all of it in one program, timed."""
        return self.what_ifs.together

    @property
    def limits(self) -> list[Limit]:
        """Times without single limits of the machine."""
        return self.what_ifs.limits

    @property
    def bottleneck(self) -> str:
        """What the best advice takes away; `bound` where there is none, or where the run is at its
        `floor` and the advice does not lower that."""
        if not self.advice or (self.floor and self.advice[0].total_ns >= self.floor.least_ns):
            return self.bound
        return self.advice[0].bottleneck

    @property
    def verdict(self) -> str:
        """In a sentence: the best advice with its gain, or the floor that the run is at."""
        return verdict(self)

    def launched_with(self, arguments: Mapping[str, Any]) -> None:
        """Keep the compile-time arguments of the launch, those that are numbers or text."""
        self.arguments = {
            name: value
            for name, value in arguments.items()
            if isinstance(value, (bool, int, float, str))
        }

    @property
    def total_us(self) -> float:
        """`total_ns` in microseconds."""
        return self.total_ns / 1e3

    @property
    def device_ns(self) -> float:
        """`total_ns` and the fixed cost of a kernel on the device."""
        return self.total_ns + self.overhead_ns

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON."""
        fields = (one.name for one in dataclasses.fields(self) if one.name not in _MADE)
        return {
            **{name: _plain(getattr(self, name)) for name in fields},
            "device_ns": self.device_ns,
            "bottleneck": self.bottleneck,
            "verdict": self.verdict,
            "advice": _plain(self.advice),
            "together": _plain(self.together),
            "limits": _plain(self.limits),
            "summary": official.summary(self),
            "is_simulation": True,
        }

    def sections(self, lines: int = 10) -> list[Section]:
        """What a report shows, with the `lines` lines of the source that most time goes to."""
        return table.sections(self, lines)

    def text(self, lines: int = 10) -> str:
        """The sections as plain text."""
        return plain_text(self.sections(lines))

    def __repr__(self) -> str:
        found = f"{self.kernel} on {self.target}: {self.total_us:,.2f} us, {self.bound}"
        return f"<profile of {found}; text() is the report>"

    def _repr_html_(self) -> str:
        few = self.instructions <= _DRAWN
        return (self.picture() if self.picture and few else "") + html(self.sections())

    def compared_with(self, before: Profile) -> ProfileComparison:
        """What changed from an earlier profile, or that of another kernel or target, and why.

        The result has `text()` and `to_dict()`, and notebooks show it.
        """
        from simulator.profile.comparison import ProfileComparison

        return ProfileComparison(before, self)

    def save_html(self, path: str | os.PathLike[str], before: Profile | None = None) -> None:
        """Write the profile as one HTML file that needs no network: timeline, memories, roofline,
        source and report, and a comparison with an earlier profile where one is given.

        Raises NeuronError not-writable; missing-argument for a profile whose program is gone.
        """
        if self.pages is None:
            raise NeuronError(
                "missing-argument",
                "The profile has no program: its page needs every instruction.",
                hint="Write the page of what nki.profile returned.",
            )
        self.pages(path, self, before)


_DRAWN = 1_000_000
"""Instructions up to which a notebook shows the timeline, for which they are timed again."""

_MADE = frozenset({"advisor", "pages", "picture"})
"""Fields of a profile that are no figures: what makes its advice and its pictures."""


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


@named_arguments
def profile(program: Program, timeline: Timeline, advisor: Advisor | None = None) -> Profile:
    r"""The profile of a bound program that `simulate` has timed, with its critical path.

    `advisor` times changed programs for the advice.

    >>> from simulator.timing import simulate
    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "copy" target=trn2
    ... .tensor t0 "a" float32[4] input
    ... .tensor t1 "out" float32[4] output
    ... .parameters "a"=t0
    ... .results t1
    ... .core
    ... .queue 0 "q" engine=sync
    ... .stream sync
    ...   DmaCopy dst=float32@shared_hbm[t1]+0[1][4] src=float32@shared_hbm[t0]+0[1][4] \
    ...     queue=0 dge_mode=none oob_mode=error
    ...   Halt
    ... ''')
    >>> metrics = profile(program, simulate(program))
    >>> metrics.kernel, metrics.dma.hbm_read_bytes, metrics.dma.hbm_write_bytes, metrics.flops
    ('copy', 16, 16, 0.0)
    >>> metrics.bound
    'DMA latency'
    """
    target = resolve(timeline.target)
    total = timeline.total_ns
    cores = len(timeline.cores)
    engines = [
        engine_profile
        for engine in SEQUENCERS
        if (engine_profile := _engine(engine, program, timeline, target)) is not None
    ]
    dma = dma_profile(program, timeline, target)
    dtype = _matmul_dtype(program, timeline)
    peak = _peak_tflops(target, dtype) * cores
    flops = sum(c.flops for c in timeline.cores)
    traffic = dma.hbm_read_bytes + dma.hbm_write_bytes
    hbm_rate = target.hbm_bytes_per_ns_per_device.value
    rate = min(dma.peak_bytes_per_ns, hbm_rate)
    causes, lines = path_causes(timeline), path_lines(program, timeline)
    stalls = critical_lines.waits(program, timeline)
    known = uncertainty(timeline)
    bounds = lower_bounds(timeline, target)
    least = floor(bounds, total, cores, target, issuing(timeline))
    bound = causes[0].name if causes else "unknown" if total else "nothing"
    why = critical_lines.reason(causes, lines, stalls)
    if least is not None and causes and least.name not in (bound, causes[0].engine):
        full = percent(least.least_ns, total)
        bound, why = least.name, f"at full rate in {full:.0f} % of the time; {bound} has {why}"
    return Profile(
        uncertainty_percent=None if known is None else known.percent,
        uncertainty_rows=0 if known is None else known.rows,
        uncertainty_alike=known is None or known.alike,
        kernel=program.name,
        target=target.name,
        cores=cores,
        total_ns=total,
        overhead_ns=timeline.overhead_ns,
        instructions=timeline.instructions,
        engines=engines,
        dma=dma,
        flops=flops,
        transpose_flops=sum(c.transpose_flops for c in timeline.cores),
        matmul_dtype=dtype,
        peak_tflops=peak,
        mfu_percent=percent(flops / (peak * 1e3), total),
        arithmetic_intensity=flops / traffic if traffic else 0.0,
        balance=peak * 1e3 / rate,
        bound=bound,
        reason=why,
        lower_bounds_ns=bounds,
        floor=least,
        throttled_ns=max((c.throttled for c in timeline.cores), default=0.0),
        table_loads=sum(c.table_loads for c in timeline.cores),
        table_load_ns=max((c.table_load_ns for c in timeline.cores), default=0.0),
        memories=_memories(program, target),
        traffic=traffic_of(program, timeline),
        counts=counts_of(program, timeline, target),
        inserted=inserted(program, timeline, target),
        worked_ns=timeline.worked.active_ns if timeline.worked else 0.0,
        worked_span_ns=timeline.worked.span_ns if timeline.worked else 0.0,
        lines=_lines(program, timeline, target),
        provenance=_provenance(program, timeline, target),
        path=causes,
        path_lines=lines,
        waits=stalls,
        advisor=advisor,
    )


def _engine(
    engine: Engine, program: Program, timeline: Timeline, target: Target
) -> EngineProfile | None:
    found = [
        (core.engines[engine].active, number)
        for number, core in enumerate(timeline.cores)
        if engine in core.engines
    ]
    if not found:
        return None
    _, number = max(found)
    time = timeline.cores[number].engines[engine]
    clock = target.clock_ghz(engine)
    waits = max(time.waited, key=time.waited.__getitem__, default=None)
    return EngineProfile(
        name=NAMES[engine],
        clock_ghz=clock,
        instructions=sum(sum(c.engines[engine].executed) for c in timeline.cores),
        active_ns=time.active,
        active_percent=percent(time.active, timeline.total_ns),
        instructions_ns=sum(
            c.engines[engine].instruction_ns for c in timeline.cores if engine in c.engines
        ),
        busy_ns=time.busy,
        busy_cycles=time.busy * clock,
        busy_percent=percent(time.busy, timeline.total_ns),
        sequencer_ns=time.sequencer,
        sequencer_percent=percent(time.sequencer, timeline.total_ns),
        waited_ns=sum(time.waited.values()),
        waits_for="" if waits is None else _producer(program, number, waits),
    )


def _producer(program: Program, core: int, semaphore: int) -> str:
    """What gives units of a semaphore: an engine, or a queue of one."""
    streams, queues = program.cores[core].streams, program.cores[core].queues
    for engine, stream in streams.items():
        for instruction, updates in signals(stream):
            if not any(number == semaphore for number, _ in updates):
                continue
            row = instruction.row
            if row.asynchronous:
                return f"queue {queues[instruction.fields['queue']].name}"
            return NAMES[engine]
    return ""


def _matmul_dtype(program: Program, timeline: Timeline) -> str:
    """The dtype in which most matrix multiplication is done; "" when there is none."""
    work: dict[str, float] = {}
    for _, _, instruction, times, _, _ in executed(program, timeline):
        if instruction.row in PRODUCTS:
            moving = instruction.fields["moving"]
            flops = instruction_flops(instruction) * times
            work[moving.dtype] = work.get(moving.dtype, 0.0) + flops
    return max(work, key=work.__getitem__, default="")


def _peak_tflops(target: Target, dtype: str) -> float:
    """Peak of a core for a dtype; the bfloat16 peak for every dtype that has none of its own."""
    peaks = target.peak_tflops
    best = max((key for key in peaks if dtype.startswith(key)), key=len, default="bfloat16")
    return peaks[best].value


def _memories(program: Program, target: Target) -> list[MemoryProfile]:
    capacities = {
        Memory.sbuf: target.sbuf_bytes_per_partition.value,
        Memory.psum: target.psum_bytes_per_partition.value,
    }
    found = []
    for memory, capacity in capacities.items():
        reach = [
            record.offset + record.bytes_per_partition
            for core in program.cores
            for record in core.storages
            if record.memory == memory.value
        ]
        found.append(MemoryProfile(memory.value, max(reach, default=0), capacity))
    return found


def _lines(program: Program, timeline: Timeline, target: Target) -> list[LineProfile]:
    sums: dict[tuple[int, str, int, str], dict[str, float]] = {}
    executed: dict[tuple[int, str, int, str], int] = {}
    texts = line_texts(program)

    for number, measured in enumerate(timeline.cores):
        for engine, time in measured.engines.items():
            instructions, order = representatives(program.cores[number].streams[engine])
            locations, alike = numbered([instruction.location for instruction in instructions])
            which = np.array(alike, np.int64)[order]
            ns, dma, times = (
                np.bincount(which, column, minlength=len(locations)).tolist()
                for column in (time.by_instruction, time.dma_work, time.executed)
            )
            for location, at in locations.items():
                place = place_at(program, location)
                key = number, place.file, place.line, texts.get(place, "")
                executed[key] = executed.get(key, 0) + int(times[at])
                for name, spent in (
                    (NAMES[engine], ns[at]),
                    ("DMA", dma[at] / target.dma_engines.value),
                ):
                    if place.file and spent:
                        entry = sums.setdefault(key, {})
                        entry[name] = entry.get(name, 0.0) + spent
    lines = [
        LineProfile(*key, sum(entry.values()), entry, executed[key]) for key, entry in sums.items()
    ]
    return sorted(lines, key=lambda found: (-found.total_ns, found.core, found.file, found.line))


# What no published measurement backs.


def _provenance(program: Program, timeline: Timeline, target: Target) -> list[str]:
    notes = []
    if target.generation != 3:
        notes.append(
            f"{target.name}: clocks, bandwidths and cycle formulas are documented; latencies and "
            "DMA overheads are those measured on trn2, since none are published for it."
        )
    if target.generation == 4:
        notes.append(f"{target.name}: no published kernel time could be compared with.")
    elif len(timeline.cores) == 1 and not ((known := uncertainty(timeline)) and known.alike):
        notes.append(f"{target.name}: no published kernel time is of a program bound like this.")
    if len(timeline.cores) > 1:
        notes.append("Several cores: their sharing of HBM and their barriers are not validated.")
    if any(core.barrier_ns for core in timeline.cores):
        notes.append("Core barriers: their 2 us are a third party's estimate.")
    notes += [f"{row}: {case.source}." for row, case in sorted(_assumed(program, timeline, target))]
    return notes


def _assumed(program: Program, timeline: Timeline, target: Target) -> Iterable[tuple[str, Case]]:
    """Compute instructions that ran with a cost that no source states."""
    found: dict[str, Case] = {}
    for _, engine, instruction, _, _, _ in executed(program, timeline):
        row = instruction.row
        if row.control or row.cost is None or not row.cost.assumes:
            continue
        case = row.cost.case(instruction, target)
        if case.assumed and not row.asynchronous:
            found[f"{row.name} on {NAMES[engine]}"] = case
    return found.items()
