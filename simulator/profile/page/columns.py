"""What the page of a profile draws, in columns of 32-bit integers behind one another.

Times are in ticks of which the run has 2^30, so that none is rounded by more than a billionth of
the run. An instruction is its template and its semaphores (`isa.files.stream`), of which there are
few.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from isa.access import AccessPattern
from isa.cost import elements
from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.files.stream import Pairs, StreamColumns, in_columns, moving
from isa.machine.control import StorageBegin
from isa.program import Program, StorageRecord
from isa.spec import Instruction
from isa.target import resolve
from simulator.profile.perfetto import describe_track, track_order
from simulator.timing.timeline import CoreTimeline, Lane, Timeline

TICKS = 1 << 30
"""Ticks of a run."""

Place = tuple[int, int] | None
"""The first byte of a column and how many numbers it has."""


class Packed:
    """Columns behind one another, and where each stands."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, numbers: Any) -> Place:
        """Append a column; negative numbers become the largest ones."""
        array = np.asarray(numbers).astype(np.int64).astype(np.uint32)
        if not array.size:
            return None
        place = self.size, array.size
        self.parts.append(array.tobytes())
        self.size += array.nbytes
        return place

    def text(self) -> str:
        """All of it, compressed, as text."""
        return base64.b64encode(gzip.compress(b"".join(self.parts), 1, mtime=0)).decode()


def drawn(program: Program, timeline: Timeline) -> tuple[dict[str, Any], str]:
    """The tables of a page, and the columns that they have places in."""
    packed = Packed()
    tick = max(timeline.total_ns, 1.0) / TICKS
    streams: list[dict[str, Any]] = []
    tracks: list[dict[str, Any]] = []
    memories: list[dict[str, Any]] = []
    names: dict[str, int] = {}
    for number, core in enumerate(timeline.cores):
        numbered = {}
        own = {
            engine: in_columns(stream, encoded=False)
            for engine, stream in program.cores[number].streams.items()
        }
        for engine, columns in own.items():
            numbered[engine] = len(streams)
            streams.append(_stream(program, columns, packed))
        for lane in sorted(core.lanes, key=track_order):
            if lane.spans:
                track = _track(lane, tick, packed)
                shared = {"core": number, "stream": numbered[lane.engine]}
                tracks.append({**track, **shared})
        begun = sorted(_begun(own, core), key=lambda found: found[0])
        memories += _memories(program, number, begun, timeline.total_ns, packed, names)
    tables = {
        "tick": tick,
        "ticks": TICKS,
        "streams": streams,
        "tracks": tracks,
        "memories": memories,
        "names": list(names),
    }
    return tables, packed.text()


def _track(lane: Lane, tick: float, packed: Packed) -> dict[str, Any]:
    assert lane.spans is not None
    start, end, index = _spans(lane)
    begin = np.rint(start / tick)
    return {
        "name": describe_track(lane),
        "engine": lane.engine.name,
        "queue": lane.queue,
        "start": packed.add(begin),
        "length": packed.add(np.rint(end / tick) - begin),
        "index": packed.add(index),
    }


def _spans(lane: Lane) -> tuple[Any, Any, Any]:
    """Start, end and instruction of the spans of a track."""
    spans = lane.spans
    assert spans is not None
    return (
        np.frombuffer(spans.start, np.float64),
        np.frombuffer(spans.end, np.float64),
        np.frombuffer(spans.index, f"i{spans.index.itemsize}"),
    )


def _stream(program: Program, columns: StreamColumns, packed: Packed) -> dict[str, Any]:
    semaphore = np.zeros(len(columns.order), np.int64)
    for places, numbers in zip(columns.places(), columns.numbers):
        semaphore[places] = numbers[:, 0]
    pairs = _moved_to_instructions(columns, semaphore)
    return {
        "template": packed.add(columns.order),
        "semaphore": packed.add(semaphore),
        "templates": [_described(program, template) for template in columns.templates],
        "semaphores": pairs,
    }


def _moved_to_instructions(columns: StreamColumns, semaphore: Any) -> list[tuple[Pairs, Pairs]]:
    """The semaphores of a stream, with those of beginnings of allocations, which take no time, at
    the next instruction; `semaphore` is changed."""
    pairs = list(columns.semaphores)
    known = {pair: number for number, pair in enumerate(pairs)}
    begins = np.array([template.row is StorageBegin for template in columns.templates], bool)
    places = np.flatnonzero(begins[columns.order]) if len(columns.order) else ()
    for place in places:
        if place + 1 < len(columns.order):
            waits, updates = pairs[semaphore[place]]
            own_waits, own_updates = pairs[semaphore[place + 1]]
            pair = waits + own_waits, updates + own_updates
            if pair not in known:
                known[pair] = len(pairs)
                pairs.append(pair)
            semaphore[place + 1] = known[pair]
    return pairs


def _described(program: Program, template: Instruction) -> dict[str, Any]:
    row, source, text = template.row, "", ""
    if isinstance(template.location, int) and template.location < len(program.locations):
        place = program.locations[template.location]
        source, text = f"{place.file}:{place.line}", place.text.strip()
    operands = []
    for name, value in zip(row.field_names, template.values):
        if isinstance(value, AccessPattern):
            operands.append(f"{name}: {_operand(program, value)}")
        elif value is not None and not row.control:
            operands.append(f"{name}: {getattr(value, 'name', value)}")
    return {
        "name": row.name,
        "source": source,
        "text": text,
        "operands": operands,
        "asynchronous": bool(row.asynchronous),
    }


def _operand(program: Program, pattern: AccessPattern) -> str:
    counts = [count for _, count in pattern.dims]
    if pattern.memory.on_chip:
        return f"{pattern.dtype}{[pattern.partitions, *counts]} in {pattern.memory.value}"
    name = program.tensors[pattern.tensor].name if pattern.tensor >= 0 else "?"
    return f"{name}{counts} {pattern.dtype}"


# -- memories over time ---------------------------------------------------------------------------


def _memories(
    program: Program,
    number: int,
    begun: Sequence[tuple[float, Box]],
    total: float,
    packed: Packed,
    names: dict[str, int],
) -> Iterator[dict[str, Any]]:
    """The allocations of a core by memory: bytes, name, from when and until when."""
    target = resolve(program.target)
    sizes = {
        Memory.sbuf: target.sbuf_bytes_per_partition.value,
        Memory.psum: target.psum_bytes_per_partition.value,
    }
    tick = max(total, 1.0) / TICKS
    for memory, size in sizes.items():
        rows = [(time, box) for time, box in begun if box[0] is memory]
        labels = _names(program.cores[number].storages, rows)
        ends = _ends(rows, total)
        yield {
            "kind": memory.value,
            "core": number,
            "bytes": size,
            "used": max((box[3] + box[4] for _, box in rows), default=size),
            "begin": packed.add([time / tick for time, _ in rows]),
            "end": packed.add([end / tick for end in ends]),
            "offset": packed.add([box[3] for _, box in rows]),
            "size": packed.add([box[4] for _, box in rows]),
            "label": packed.add([names.setdefault(label, len(names)) for label in labels]),
        }


Box = tuple[Memory, int, int, int, int]
"""Memory, first partition, partitions, first byte of a partition, bytes."""


def _begun(
    streams: Mapping[Engine, StreamColumns], core: CoreTimeline
) -> Iterator[tuple[float, Box]]:
    """When allocations begin: with the next instruction of their stream."""
    for engine, columns in streams.items():
        first = np.full(columns.order.size + 1, np.inf)
        for lane in core.lanes:
            if lane.engine is engine and lane.queue < 0 and lane.spans:
                start, _, index = _spans(lane)
                kept = index >= 0
                np.minimum.at(first, index[kept], start[kept])
        first = np.minimum.accumulate(first[::-1])[::-1]
        for place, pattern, offset in _allocations(columns):
            if first[place] < np.inf:
                size = elements(pattern) * DTYPES[pattern.dtype].size
                shape = pattern.start_partition, pattern.partitions
                yield float(first[place]), (pattern.memory, *shape, offset, size)


def _allocations(columns: StreamColumns) -> list[tuple[int, AccessPattern, int]]:
    """Where in a stream allocations begin, which, and from which byte on."""
    found = []
    for template, places, numbers in zip(columns.templates, columns.places(), columns.numbers):
        if template.row is StorageBegin:
            pattern = template.values[0]
            moves = moving(template) == [0]
            offsets = numbers[:, 1].tolist() if moves else [int(pattern.offset)] * places.size
            found += [(place, pattern, offset) for place, offset in zip(places.tolist(), offsets)]
    return sorted(found, key=lambda one: one[0])


def _names(storages: Sequence[StorageRecord], rows: Sequence[tuple[float, Box]]) -> list[str]:
    """The name of each allocation: those of one place have their names in the order of time."""
    known: dict[tuple[Any, ...], list[str]] = {}
    for one in storages:
        key = one.memory, one.start_partition, one.offset
        known.setdefault(key, []).append(one.name)
    taken: dict[tuple[Any, ...], int] = {}
    found = []
    for _, (memory, partition, _, offset, _) in rows:
        key = memory.value, partition, offset
        names, use = known.get(key, ["?"]), taken.get(key, 0)
        found.append(names[min(use, len(names) - 1)])
        taken[key] = use + 1
    return found


def _ends(rows: Sequence[tuple[float, Box]], total: float) -> list[float]:
    """Until when each allocation has its bytes: another one begins there, or the run ends."""
    ends = [total] * len(rows)
    alive: list[int] = []
    for number, (time, box) in enumerate(rows):
        left = []
        for other in alive:
            if _share(box, rows[other][1]):
                ends[other] = time
            else:
                left.append(other)
        alive = [*left, number]
    return ends


def _share(one: Box, other: Box) -> bool:
    return (
        one[3] < other[3] + other[4]
        and other[3] < one[3] + one[4]
        and one[1] < other[1] + other[2]
        and other[1] < one[1] + one[2]
    )
