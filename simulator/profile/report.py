"""A profile: its figures, the advice that they lead to, and how they are shown."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from isa.errors import NeuronError
from isa.sections import Section, html, plain_text
from simulator.profile import official, table
from simulator.profile.counts import Counts
from simulator.profile.critical_lines import (
    Advice,
    Advisor,
    Limit,
    PathCause,
    PathLine,
    Together,
    Wait,
    WhatIfs,
)
from simulator.profile.dma import DmaProfile
from simulator.profile.inserted import Inserted
from simulator.profile.traffic import Traffic
from simulator.profile.verdict import verdict
from simulator.profile.work import LeastTime

if TYPE_CHECKING:
    from simulator.profile.comparison import ProfileComparison


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One engine. Times are of the core where it is active longest; percentages are of `total_ns`.

    `active`: executing, drain included, as profilers count it; `instructions_ns` is the sum over
    all instructions of all cores, where they overlap too. `busy`: its data path is occupied,
    in ns and in cycles of its clock. `sequencer`: control instructions and DMA triggers.

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... ''')
    >>> from simulator.profile import profile
    >>> from simulator.timing import simulate
    >>> [sync] = [one for one in profile(program, simulate(program)).engines if one.instructions]
    >>> sync.name, sync.instructions, sync.sequencer_percent
    ('SyncE', 2, 100.0)
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
    """An on-chip memory: the highest byte of a partition that any allocation reaches.

    >>> MemoryProfile("psum", peak_bytes_per_partition=2048, bytes_per_partition=16384)
    MemoryProfile(name='psum', peak_bytes_per_partition=2048, bytes_per_partition=16384)
    """

    name: str
    peak_bytes_per_partition: int
    bytes_per_partition: int


@dataclass(frozen=True, slots=True)
class LineProfile:
    """A line of the kernel's source on one core: what its instructions occupy, by engine, in ns.

    `text` is the line, or one call where several calls of the line have instructions. `dma` is
    the time of its transfers as if all DMA engines shared each evenly.

    >>> line = LineProfile(0, "kernel.py", 7, "nl.load(a)", 2500.0, {"dma": 2500.0}, executed=4)
    >>> max(line.by_engine, key=line.by_engine.get)
    'dma'
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

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... ''')
    >>> from simulator.profile import profile
    >>> from simulator.timing import simulate
    >>> metrics = profile(program, simulate(program))
    >>> metrics.kernel, metrics.instructions, metrics.total_ns
    ('nothing', 2, 68.0)
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
