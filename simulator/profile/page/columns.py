"""What the page of a profile draws, in columns of 32-bit integers behind one another.

Times are in ticks of which the run has 2^30, so that none is rounded by more than a billionth of
the run. An instruction is its template and its semaphores (`isa.files.stream`), of which there are
few.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any

import numpy as np

from isa.access import AccessPattern
from isa.files.stream import Pairs, StreamColumns, in_columns
from isa.machine.control import StorageBegin
from isa.program import Program
from isa.spec import Instruction
from simulator.profile.memory_maps import MemoryMap, memory_maps
from simulator.profile.perfetto import describe_track, shown_fields, track_order
from simulator.timing.timeline import Timeline, Track

TICKS = 1 << 30
"""Ticks of a run."""

CellPlace = tuple[int, int] | None
"""The first byte of a column and how many numbers it has."""


class Packed:
    """Columns behind one another, and where each stands."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, numbers: Any) -> CellPlace:
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
        for track in sorted(core.tracks, key=track_order):
            if track.spans:
                drawn = _track(track, tick, packed)
                shared = {"core": number, "stream": numbered[track.engine]}
                tracks.append({**drawn, **shared})
        for one in memory_maps(program, number, own, core, timeline.total_ns):
            memories.append(_memory(one, number, tick, packed, names))
    tables = {
        "tick": tick,
        "ticks": TICKS,
        "streams": streams,
        "tracks": tracks,
        "memories": memories,
        "names": list(names),
    }
    return tables, packed.text()


def _track(track: Track, tick: float, packed: Packed) -> dict[str, Any]:
    assert track.spans is not None
    start, end, index = track.spans.columns()
    begin = np.rint(start / tick)
    return {
        "name": describe_track(track),
        "engine": track.engine.name,
        "queue": track.queue,
        "start": packed.add(begin),
        "length": packed.add(np.rint(end / tick) - begin),
        "index": packed.add(index),
    }


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
    row, place = template.row, program.place(template.location)
    operands = [
        f"{name}: {_operand(program, value) if isinstance(value, AccessPattern) else value}"
        for name, value in shown_fields(template)
    ]
    return {
        "name": row.name,
        "source": "" if place is None else f"{place.file}:{place.line}",
        "text": "" if place is None else place.text.strip(),
        "operands": operands,
        "asynchronous": bool(row.asynchronous),
    }


def _operand(program: Program, pattern: AccessPattern) -> str:
    counts = [count for _, count in pattern.dims]
    if pattern.memory.on_chip:
        return f"{pattern.dtype}{[pattern.partitions, *counts]} in {pattern.memory.value}"
    name = program.tensors[pattern.tensor].name if pattern.tensor >= 0 else "?"
    return f"{name}{counts} {pattern.dtype}"


def _memory(
    one: MemoryMap, core: int, tick: float, packed: Packed, names: dict[str, int]
) -> dict[str, Any]:
    """The allocations of a memory: bytes, name, from when and until when."""
    return {
        "kind": one.memory.value,
        "core": core,
        "bytes": one.bytes,
        "used": one.used,
        "begin": packed.add([held.begin / tick for held in one.held]),
        "end": packed.add([held.end / tick for held in one.held]),
        "offset": packed.add([held.offset for held in one.held]),
        "size": packed.add([held.bytes for held in one.held]),
        "label": packed.add([names.setdefault(held.name, len(names)) for held in one.held]),
    }
