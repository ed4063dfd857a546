"""A timeline as a trace-event file, which ui.perfetto.dev opens.

The format is Chrome's JSON: a process a core, a thread a track, complete events ("X") with times in
microseconds, counters ("C"), and flows ("s" to "f"). A flow goes from what gave units of a
semaphore to what waited for them. SDK names of tracks are kept where there are any. Times are whole
nanoseconds: Perfetto rounds start and length of a slice apart, and drops one that then overlaps
with another.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from isa.access import AccessPattern
from isa.errors import NeuronError
from isa.errors.calls import named_arguments
from isa.files.complete import complete
from isa.program import CoreProgram, OnChipAllocation, Program, allocations_of
from isa.spec import Instruction
from isa.target import resolve
from simulator.profile.flows import flows
from simulator.timing.dma import plan_transfer
from simulator.timing.event_run import TABLE_LOAD
from simulator.timing.timeline import CoreTimeline, Timeline, Track

COUNTER_POINTS = 4000
"""Points of a counter at the most; a longer run has longer steps."""


@dataclass(frozen=True, slots=True)
class Written:
    """What `write_perfetto` has written."""

    path: str
    slices: int
    tracks: int


@named_arguments
def write_perfetto(path: str | os.PathLike[str], program: Program, timeline: Timeline) -> Written:
    """Write the spans of `timeline` to `path`; gzipped when the name ends in .gz.

    Every executed instruction and every transfer is a slice, with the kernel's line, operands and
    semaphores. The file appears complete or not at all. Raises NeuronError not-writable when it
    cannot be written, missing-argument when the timeline has no spans.

    Source of the format: https://perfetto.dev/docs (trace events as JSON).

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... ''')
    >>> import pathlib, tempfile
    >>> from simulator.timing import simulate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "run.json.gz")
    ...     written = write_perfetto(path, program, simulate(program))
    >>> written.slices, written.tracks
    (1, 1)
    """
    require_spans(timeline)
    with complete(path) as temporary, _open(temporary) as file:
        slices, tracks = _write(file, program, timeline)
    return Written(os.fspath(path), slices, tracks)


def require_spans(timeline: Timeline) -> None:
    """Raises NeuronError missing-argument when the timeline was made without spans."""
    if timeline.cores and not any(track.spans for core in timeline.cores for track in core.tracks):
        raise NeuronError(
            "missing-argument",
            "The timeline has no spans.",
            why="A trace needs the start and end of every instruction.",
            hint="Time the program with simulate(program, keep_spans=True).",
        )


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8", compresslevel=3)
    return open(path, "w", encoding="utf-8")


def _write(file: IO[str], program: Program, timeline: Timeline) -> tuple[int, int]:
    slices = tracks = 0
    file.write('{"displayTimeUnit":"ns","otherData":')
    file.write(
        json.dumps(
            {
                "kernel": program.name,
                "target": timeline.target,
                "total_ns": timeline.total_ns,
                "overhead_ns": timeline.overhead_ns,
                "is_simulation": True,
            }
        )
    )
    file.write(',"traceEvents":[\n')
    separator = ""
    for number, core in enumerate(timeline.cores):
        for event in _core_events(number, program, timeline):
            file.write(separator + event)
            separator = ",\n"
        for thread, track in enumerate(core.tracks, start=1):
            if not track.spans:
                continue
            tracks += 1
            file.write(separator + _thread(number, thread, track))
            separator = ",\n"
            for event in _slices(program, number, core, thread, track):
                file.write(separator + event)
            slices += len(track.spans)
        for event in _flows(number, program.cores[number], core):
            file.write(separator + event)
    file.write("\n]}\n")
    return slices, tracks


def _core_events(number: int, program: Program, timeline: Timeline) -> Iterator[str]:
    name = f"core {number} ({timeline.target}, {program.name})"
    yield json.dumps({"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}})
    core = timeline.cores[number]
    for time, rate in _bandwidth(program, number, core, timeline.total_ns):
        yield (
            f'{{"ph":"C","pid":{number},"ts":{time / 1e3:.4f},"name":"DMA bandwidth (GB/s)",'
            f'"args":{{"GB/s":{rate:.2f}}}}}'
        )


def _thread(pid: int, thread: int, track: Track) -> str:
    metadata = {"ph": "M", "pid": pid, "tid": thread}
    name = describe_track(track)
    order = track_order(track)
    return (
        json.dumps({**metadata, "name": "thread_name", "args": {"name": name}})
        + ",\n"
        + json.dumps({**metadata, "name": "thread_sort_index", "args": {"sort_index": order}})
    )


def describe_track(track: Track) -> str:
    """The name of a track for people."""
    return track.name if track.queue < 0 else f"queue {track.name}"


def track_order(track: Track) -> int:
    """Engines first, each with its side tracks below, then queues."""
    if track.queue >= 0:
        return 1000 + track.queue
    return track.engine.value * 10 + (track.name != track.engine.name)


def _slices(
    program: Program, number: int, core: CoreTimeline, thread: int, track: Track
) -> Iterator[str]:
    stream = program.cores[number].streams[track.engine]
    assert track.spans is not None
    described: dict[int, tuple[str, str]] = {}
    category = "dma" if track.queue >= 0 else track.engine.name
    for start, end, index, iteration in track.spans:
        known = described.get(index)
        if known is None:
            known = described[index] = _description(program, number, stream, index)
        name, arguments = known
        yield (
            f'{{"ph":"X","pid":{number},"tid":{thread},"ts":{_us(start)},'
            f'"dur":{_us(round(end) - round(start))},"name":{name},"cat":"{category}",'
            f'"args":{{"iteration":{iteration}{arguments}}}}}'
        )


def _us(ns: float) -> str:
    """Microseconds, to the nanosecond."""
    return f"{round(ns) / 1e3:.3f}"


def _flows(number: int, program: CoreProgram, core: CoreTimeline) -> Iterator[str]:
    """Arrows between slices, each of which they meet where it starts."""
    spans = [track.spans for track in core.tracks]
    for flow, columns in enumerate(zip(*(column.tolist() for column in flows(program, core)))):
        semaphore, *ends = columns
        for kind, track, at in (("s", *ends[:2]), ("f", *ends[2:])):
            found = spans[track]
            assert found is not None
            bound = ',"bp":"e"' if kind == "f" else ""
            yield (
                f'{{"ph":"{kind}","pid":{number},"tid":{track + 1},"ts":{_us(found.start[at])},'
                f'"id":{number << 32 | flow},"name":"S[{semaphore}]","cat":"semaphore"{bound}}}'
            )


def _description(
    program: Program, number: int, stream: Sequence[Instruction], index: int
) -> tuple[str, str]:
    """Name of a slice and the rest of its arguments, as JSON."""
    if index == TABLE_LOAD:
        return '"ACT_TABLE_LOAD"', ""
    instruction = stream[index]
    row = instruction.row
    arguments: dict[str, Any] = {"index": index}
    place = program.place(instruction.location)
    if place is not None:
        arguments["source"] = f"{place.file}:{place.line}"
        arguments["text"] = place.text.strip()
    for name, value in shown_fields(instruction):
        if isinstance(value, AccessPattern):
            value = describe_operand(value, program, number)
        arguments[name] = str(value)
    for name, pairs in (("waits", instruction.waits), ("updates", instruction.updates)):
        if pairs:
            arguments[name] = ", ".join(f"S[{semaphore}] {amount}" for semaphore, amount in pairs)
    text = json.dumps(arguments)
    return json.dumps(row.name), "," + text[1:-1]


def shown_fields(instruction: Instruction) -> Iterator[tuple[str, Any]]:
    """The fields that say what an instruction does, with operands, and others by name."""
    for name, value in instruction.fields.items():
        if isinstance(value, AccessPattern):
            yield name, value
        elif value is not None and not instruction.row.control:
            yield name, getattr(value, "name", value)


def describe_operand(pattern: AccessPattern, program: Program, core: int) -> str:
    """An operand by the name of its tensor, with shape and dtype: "tile[128, 512] float32"."""
    counts = [count for _, count in pattern.dims]
    if not pattern.memory.on_chip:
        name = program.tensors[pattern.tensor].name if pattern.tensor >= 0 else "?"
        return f"{name}{counts} {pattern.dtype}"
    name = _storage_name(pattern, program.cores[core].storages)
    shape = [pattern.partitions, *counts]
    return f"{name}{shape} {pattern.dtype} in {pattern.memory.value}"


def _storage_name(pattern: AccessPattern, storages: Sequence[OnChipAllocation]) -> str:
    """Names of the allocations that cover the first byte of an operand; more than one may have
    lived there, one after the other."""
    names = [record.name for record in allocations_of(storages, pattern)]
    return "|".join(dict.fromkeys(names)) or f"@{pattern.offset}"


def _bandwidth(
    program: Program, number: int, core: CoreTimeline, total: float
) -> list[tuple[float, float]]:
    """(time, bytes per ns from then on) of a core's transfers, in steps of equal length."""
    if total <= 0:
        return []
    target = resolve(program.target)
    steps = COUNTER_POINTS
    moved = np.zeros(steps + 1)
    width = total / steps
    for track in core.tracks:
        if track.queue < 0 or not track.spans:
            continue
        stream = program.cores[number].streams[track.engine]
        start, end, index = track.spans.columns()
        end = np.maximum(end, start + 1e-3)
        sizes = {i: plan_transfer(stream[i], target).bytes for i in np.unique(index).tolist()}
        size = np.array([sizes[i] for i in index.tolist()], np.float64)
        edges = np.concatenate([start, end])
        slopes = np.concatenate([size / (end - start), -size / (end - start)])
        order = np.argsort(edges, kind="stable")
        edges, rates = edges[order], np.cumsum(slopes[order])
        # Bytes moved until each step's end, from the area under the rate.
        area = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(edges))])
        grid = np.arange(steps + 1) * width
        done = np.interp(grid, edges, area, left=0.0, right=area[-1])
        moved += done
    rates = np.maximum(np.diff(moved), 0.0) / width
    changes = np.flatnonzero(np.diff(rates, prepend=-1.0) != 0.0)
    points = [(float(i * width), float(rates[i])) for i in changes]
    return [*points, (total, 0.0)]
