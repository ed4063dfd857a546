"""What an author could change, each change made to the kernel, compiled and timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from isa.enums import Engine
from isa.program import Program, SourceLocation
from isa.target import resolve
from nki import progress
from nki.advice.buffers import deeper_buffers
from nki.advice.changed import Changes, Line
from nki.advice.engines import open_starter, other_engine
from nki.advice.fusions import fused
from nki.advice.invariant import hoisted_load, hoisted_work
from nki.advice.loads import early_load, split_load
from nki.advice.moments import one_pass_moments
from nki.advice.neighbours import neighbouring_rows
from nki.advice.operands import half_operands
from nki.advice.repeated import repeated_load
from nki.advice.timed import Retimed, time_of
from nki.advice.together import alternatives, together
from nki.advice.transfers import contiguous_rows, merged_loads
from nki.ir.nodes import Op, TracedKernel, operations
from simulator.profile.critical_lines import Advice, Limit, WhatIfs, place_of
from simulator.profile.table import ADVICE
from simulator.profile.what_if import LEAST_PERCENT, advise, best_first
from simulator.profile.what_if import what_ifs as of_program
from simulator.timing.critical import DMA_CAUSES, Cause
from simulator.timing.timeline import Timeline

LINES = 12
"""Lines of the critical path that changes are tried on, those with most of it."""

MOST_OPERATIONS = 100_000
"""Operations of all changed kernels together that are compiled to find advice."""

ASSUMED = 0.5
"""What of its gain counts of a change to an engine whose rate is assumed."""

_LOADING = DMA_CAUSES | {Cause.TRIGGER}
_WORKING = frozenset({Cause.COMPUTE, Cause.PORT, Cause.SEMAPHORE, Cause.FILL_AND_DRAIN})

CHANGES: Mapping[Changes, frozenset[Cause]] = {
    hoisted_load: _LOADING,
    hoisted_work: _LOADING | _WORKING,
    repeated_load: _LOADING,
    contiguous_rows: frozenset({Cause.DESCRIPTORS, Cause.BANDWIDTH}),
    neighbouring_rows: frozenset({Cause.DESCRIPTORS, Cause.BANDWIDTH}),
    merged_loads: _LOADING,
    deeper_buffers: _LOADING | _WORKING,
    early_load: _LOADING,
    split_load: _LOADING,
    open_starter: frozenset({Cause.TRIGGER}),
    fused: _WORKING,
    other_engine: _WORKING,
    one_pass_moments: _WORKING,
    half_operands: frozenset({Cause.COMPUTE, Cause.BANDWIDTH, Cause.CONVERSION, Cause.THROTTLING}),
}
"""Kinds of change, and the causes of which a line must have some to be changed like that. Of two
that take the same time the earlier kind comes first: less work before the same work elsewhere."""

_NAMES = {"VectorE": Engine.vector, "ScalarE": Engine.scalar, "GpSimdE": Engine.gpsimd}


def what_ifs(
    kernel: TracedKernel,
    values: Mapping[str, int],
    program: Program,
    trace: Any,
    timeline: Timeline,
) -> WhatIfs:
    """Limits and advice for a traced kernel: `program` is what it was compiled to, bound with
    `values` of its launch symbols, and `timeline` of a run of that with the control `trace`.

    >>> import nki, nki.language as nl
    >>> from simulator.timing import simulate
    >>> @nki.jit
    ... def kernel(a):
    ...     nl.store(a, nl.load(a))
    >>> spec = nki.TensorSpec((128, 512), nl.float32)
    >>> program = nki.compile(kernel, spec).program
    >>> timeline = simulate(program)
    >>> found = what_ifs(kernel.trace(spec), {}, program, None, timeline)
    >>> all(limit.saved_percent >= 0 for limit in found.limits), len(found.limits) > 0
    (True, True)
    """
    with progress.part("advice"):
        found = of_program(program, trace, timeline)
        names = _BottleneckNames(program, timeline, found.limits)
        made = {names.advice(one): one for one in retimed(kernel, values, program, timeline)}
        advice = best_first([*found.advice, *made])
        shown = advice[: min(ADVICE, MOST_OPERATIONS // _size(kernel))]
        kept = together(kernel, values, shown, made, timeline.total_ns)
    return WhatIfs(found.limits, alternatives(advice, made, kept), kept)


def _size(kernel: TracedKernel) -> int:
    """The operations of a kernel, or 1 for one without any."""
    return max(1, sum(1 for body in kernel.bodies for _ in operations(body)))


def retimed(
    kernel: TracedKernel, values: Mapping[str, int], program: Program, timeline: Timeline
) -> Iterator[Retimed]:
    """Every change that applies to lines of the critical path, timed. Nothing where the time of the
    program depends on what the device computes."""
    left, tried = MOST_OPERATIONS // _size(kernel), 0
    known: set[frozenset[Op]] = set()
    for place, causes in _lines(program, timeline)[:LINES]:
        for changes, wanted in CHANGES.items():
            if not causes & wanted:
                continue
            found: set[frozenset[Op]] = set()
            for changed in changes(kernel, (place.file, place.line)):
                if changed.of in known:
                    continue
                if not left:
                    return
                found.add(changed.of)
                left -= 1
                tried += 1
                with progress.part(f"advice, change {tried}"):
                    ns = time_of(changed.kernel, values)
                if ns is not None:
                    yield Retimed(changed, place, ns, changes)
            known |= found - {frozenset()}


def _lines(program: Program, timeline: Timeline) -> list[tuple[SourceLocation, frozenset[Cause]]]:
    """Lines with a share of the critical path, or that one of its stalls waits for; and the causes
    that they have a share of."""
    assert timeline.critical is not None
    least = 0.01 * LEAST_PERCENT * timeline.total_ns
    shares: dict[Line, float] = {}
    causes: dict[Line, set[Cause]] = {}
    places: dict[Line, SourceLocation] = {}

    def add(place: SourceLocation, ns: float, cause: Cause) -> None:
        key = place.file, place.line
        places.setdefault(key, place)
        shares[key] = shares.get(key, 0.0) + ns
        causes.setdefault(key, set()).add(cause)

    for (step, cause), ns in timeline.critical.spent.items():
        add(place_of(program, step), ns, cause)
    for (_, other), stall in timeline.critical.stalls.items():
        if other.transfer:
            add(place_of(program, other), stall.ns, Cause.DMA_LATENCY)
    hot = [key for key, ns in shares.items() if ns >= least and places[key].file]
    hot.sort(key=lambda key: -shares[key])
    return [(places[key], frozenset(causes[key])) for key in hot]


class _BottleneckNames:
    """What bottlenecks are called that a change of engine takes away: that depends on the path."""

    def __init__(self, program: Program, timeline: Timeline, limits: list[Limit]) -> None:
        assert timeline.critical is not None
        self.program = program
        self.total = timeline.total_ns
        self.handed: dict[Line, float] = {}
        for (step, cause), ns in timeline.critical.spent.items():
            place = place_of(program, step)
            if cause is Cause.SEMAPHORE:
                key = place.file, place.line
                self.handed[key] = self.handed.get(key, 0.0) + ns
        apart = [one.total_ns for one in limits if one.name == "ports that nobody shares"]
        self.port = self.total - min(apart, default=self.total)

    def advice(self, one: Retimed) -> Advice:
        changed, place = one.changed, one.place
        saved = self.total - one.total_ns
        name, weight = changed.bottleneck, changed.weight
        if name == "engine":
            name = self._engine(place, saved)
            if self._is_assumed(changed.text):
                weight = ASSUMED
        text, total = changed.text, self.total
        return advise(name, text, place, one.total_ns, total, changed.same_results, weight)

    def _engine(self, place: SourceLocation, saved: float) -> str:
        if self.port > 0.3 * saved:
            return "shared port"
        if self.handed.get((place.file, place.line), 0.0) > 0.3 * saved:
            return "ping-pong between engines"
        return "overloaded engine"

    def _is_assumed(self, text: str) -> bool:
        rates = resolve(self.program.target).elements_per_cycle
        return any(name in text and rates[engine].assumed for name, engine in _NAMES.items())
