"""Changed programs, timed: limits of the machine taken away, and changes of single lines.

What is changed here are finished programs. Changes that need the compiler again are `nki.advice`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from isa.access import AccessPattern
from isa.enums import Engine
from isa.program import Program, SourceLocation
from isa.spec import Instruction
from isa.target import resolve
from simulator.profile.critical_lines import Advice, Limit, WhatIfs, place_of
from simulator.profile.dma import percent
from simulator.timing import simulate
from simulator.timing.assumptions import NOTHING, UNLIMITED, Assumptions
from simulator.timing.critical import Cause, PathStep
from simulator.timing.dependences import LOOK_BACK
from simulator.timing.timeline import Timeline

LEAST_PERCENT = 1.0
"""What a change must save to be worth saying."""

FEW_PARTITIONS = 64
"""Partitions up to which an operand leaves half of an engine, or more, idle."""


class Change(NamedTuple):
    """A changed program with what it is timed under, and what to say about it."""

    bottleneck: str
    text: str
    place: SourceLocation
    program: Program
    assume: Assumptions = NOTHING


def what_ifs(program: Program, trace: Any, timeline: Timeline) -> WhatIfs:
    """Times of the program without each limit, and with changes that need no compiler."""
    return WhatIfs(limits(program, trace, timeline), best_first(advice(program, trace, timeline)))


def limits(program: Program, trace: Any, timeline: Timeline) -> list[Limit]:
    """What the time would be without each of the machine's limits alone; what matters first."""
    total = timeline.total_ns
    found = []
    for name, assume in UNLIMITED.items():
        ns = simulate(program, trace, keep_spans=False, assume=assume).total_ns
        saved = percent(total - ns, total)
        if saved >= LEAST_PERCENT:
            found.append(Limit(name, ns, saved))
    return sorted(found, key=lambda limit: limit.total_ns)


def advice(program: Program, trace: Any, timeline: Timeline) -> Iterator[Advice]:
    """Changes of single lines that leave instructions and semaphores where they are."""
    for change in changes(program, timeline):
        ns = simulate(change.program, trace, keep_spans=False, assume=change.assume).total_ns
        yield advise(change.bottleneck, change.text, change.place, ns, timeline.total_ns)


def advise(
    bottleneck: str,
    text: str,
    place: SourceLocation,
    ns: float,
    total: float,
    same_results: bool = True,
    weight: float = 1.0,
) -> Advice:
    """A change as advice: `ns` is the time with it, `total` the time without."""
    saved = total - ns
    where = place.file, place.line, place.text.strip()
    share = percent(saved, total)
    return Advice(bottleneck, text, *where, ns, saved, share, same_results, weight)


def best_first(found: Iterator[Advice] | list[Advice]) -> list[Advice]:
    """What saves enough, best first; of changes of one line against one bottleneck, the best."""
    worth = [one for one in found if one.saved_percent >= LEAST_PERCENT]
    worth.sort(key=lambda one: -one.saved_ns * one.weight)
    kept: dict[tuple[str, str, int], Advice] = {}
    for one in worth:
        kept.setdefault((one.bottleneck, one.file, one.line), one)
    return list(kept.values())


def changes(program: Program, timeline: Timeline) -> Iterator[Change]:
    """The changes that this program's critical path suggests."""
    assert timeline.critical is not None
    spent = timeline.critical.spent
    least = 0.01 * LEAST_PERCENT * timeline.total_ns
    by_cause: dict[Cause, dict[SourceLocation, list[PathStep]]] = {}
    shares: dict[tuple[Cause, SourceLocation], float] = {}
    for (step, cause), ns in spent.items():
        place = place_of(program, step)
        by_cause.setdefault(cause, {}).setdefault(place, []).append(step)
        shares[cause, place] = shares.get((cause, place), 0.0) + ns

    def lines(cause: Cause) -> list[tuple[SourceLocation, list[PathStep]]]:
        found = [(p, s) for p, s in by_cause.get(cause, {}).items() if shares[cause, p] >= least]
        return sorted(found, key=lambda one: -shares[cause, one[0]])

    for place, _ in lines(Cause.TABLE_LOAD)[:1]:
        text = "put functions of one activation table behind each other, or use functions of one"
        kept = Assumptions(tables_kept=True)
        yield Change("table switches", f"{text} table", place, program, kept)
    for place, steps in lines(Cause.FILL_AND_DRAIN):
        chain = _chain(program, place, steps)
        if chain is not None:
            yield chain
    for place, steps in lines(Cause.COMPUTE)[:1]:
        wide = _on_more_partitions(program, place, steps)
        if wide is not None:
            yield wide


def _chain(program: Program, place: SourceLocation, steps: list[PathStep]) -> Change | None:
    """The line's instructions without the results of earlier ones of their own engine: what
    chains take that are interleaved, as many as hide what one waits for."""
    target = resolve(program.target)
    found = []
    chains = 1
    for core, engine in {(step.core, step.engine) for step in steps}:
        if engine is Engine.tensor:
            continue
        for index, instruction in enumerate(program.cores[core].streams[engine]):
            row = instruction.row
            if row.control or row.asynchronous or row.cost is None:
                continue
            if place_of(program, PathStep(core, engine, index, False)) != place:
                continue
            found.append((core, engine, index))
            measured = row.cost.measure(instruction, target)
            apart = math.ceil(measured.completion_ns / max(measured.interval_ns, 1e-9))
            chains = max(chains, apart)
    if chains < 2:
        return None
    text = f"interleave {min(chains, LOOK_BACK)} independent chains"
    assume = Assumptions(independent=frozenset(found))
    return Change("dependent chain", text, place, program, assume)


def _on_more_partitions(
    program: Program, place: SourceLocation, steps: list[PathStep]
) -> Change | None:
    """Tiles of as few partitions as the line's, spread over more."""
    target = resolve(program.target)
    few = 0
    for step in steps:
        instruction = program.cores[step.core].streams[step.engine][step.number]
        few = max(few, _partitions(instruction))
    if not 0 < few <= FEW_PARTITIONS or steps[0].engine is Engine.tensor:
        return None
    times = target.partitions.value // few
    cores = [
        replace(
            core,
            streams={
                engine: [_spread(one, few, times) for one in stream]
                for engine, stream in core.streams.items()
            },
        )
        for core in program.cores
    ]
    text = f"fold the free dimension so that tiles have {few * times} partitions instead of {few}"
    return Change("few partitions", text, place, replace(program, cores=cores))


def _partitions(instruction: Instruction) -> int:
    """The partitions of an instruction's operands on chip, the most of any."""
    return max((v.partitions for v in _on_chip(instruction)), default=0)


def _on_chip(instruction: Instruction) -> list[AccessPattern]:
    values = [v for v in instruction.values if isinstance(v, AccessPattern)]
    return [v for v in values if v.memory.on_chip and v.vector_offset is None]


def _spread(instruction: Instruction, few: int, times: int) -> Instruction:
    """An instruction on `few` partitions on `times` as many, which have so much less each."""
    patterns = _on_chip(instruction)
    if not patterns or any(pattern.partitions != few for pattern in patterns):
        return instruction
    values = tuple(
        _spread_pattern(v, times) if any(v is one for one in patterns) else v
        for v in instruction.values
    )
    return replace(instruction, values=values)


def _spread_pattern(pattern: AccessPattern, times: int) -> AccessPattern:
    dims = list(pattern.dims)
    if dims:
        longest = max(range(len(dims)), key=lambda i: dims[i][1])
        stride, count = dims[longest]
        dims[longest] = stride, math.ceil(count / times)
    partitions = pattern.partitions * times
    return replace(pattern, dims=tuple(dims), start_partition=0, partitions=partitions)
