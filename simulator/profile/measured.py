"""A measured profile beside the modelled one, instruction by instruction.

The measured one is what Neuron Explorer exports: JSON with a list "instruction", or the parquet
table of instructions (SDK tools/neuron-explorer/profile-schema-reference.rst, Instruction). Both
sides are matched by engine and line of the kernel, in the order of time, as opcodes are the
vendor's. Where the vendor's compiler made another number of instructions of a line, the rest of
either side has no partner.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isa.errors import NeuronError
from isa.program import Program
from isa.sections import Facts, Section, Table
from simulator.profile.critical_lines import us
from simulator.timing.timeline import Timeline

Key = tuple[str, str]
"""Engine, and "file.py:line"."""

SHOWN = 20
"""Lines of a report, those that differ most first."""


@dataclass(frozen=True, slots=True)
class MeasuredInstruction:
    """One instruction, modelled and measured; times in ns, None where one side has it not."""

    engine: str
    source: str
    modelled_ns: float | None
    measured_ns: float | None


@dataclass(frozen=True, slots=True)
class Against:
    """All pairs, and how long both runs take."""

    pairs: list[MeasuredInstruction]
    modelled_total_ns: float
    measured_total_ns: float

    def sections(self) -> list[Section]:
        """Totals, and the lines whose time differs most."""
        matched = sum(p.modelled_ns is not None and p.measured_ns is not None for p in self.pairs)
        difference = 100 * (self.modelled_total_ns / self.measured_total_ns - 1)
        head = Facts.of(
            "against a measured profile",
            measured=f"{us(self.measured_total_ns)} us",
            modelled=f"{us(self.modelled_total_ns)} us, {difference:+.1f} %",
            instructions=f"{matched:,} of {len(self.pairs):,} on both sides",
        )
        rows = sorted(self._lines(), key=lambda row: -abs(row[2] - row[3]))
        columns = ("engine", "line", ">modelled us", ">measured us", ">modelled", ">measured")
        cells = (
            (e, source, us(one), us(two), f"{a:,}", f"{b:,}")
            for e, source, one, two, a, b in rows[:SHOWN]
        )
        return [head, Table.of("lines that differ most (time, and instructions)", columns, cells)]

    def _lines(self) -> Iterable[tuple[str, str, float, float, int, int]]:
        sums: dict[Key, list[float]] = {}
        for pair in self.pairs:
            entry = sums.setdefault((pair.engine, pair.source), [0.0, 0.0, 0, 0])
            for side, ns in enumerate((pair.modelled_ns, pair.measured_ns)):
                if ns is not None:
                    entry[side] += ns
                    entry[side + 2] += 1
        return ((*key, one, two, int(a), int(b)) for key, (one, two, a, b) in sums.items())

    def to_dict(self) -> dict[str, Any]:
        """Every pair as plain data."""
        return {
            "modelled_total_ns": self.modelled_total_ns,
            "measured_total_ns": self.measured_total_ns,
            "instructions": [
                {
                    "engine": pair.engine,
                    "nki_source_location": pair.source,
                    "modelled_ns": pair.modelled_ns,
                    "measured_ns": pair.measured_ns,
                }
                for pair in self.pairs
            ],
        }


def against(path: str, program: Program, timeline: Timeline) -> Against:
    """A timeline with spans beside the export in a file.

    Raises file-not-found, input-mismatch for a file that is no export, missing-extra for parquet
    without a reader.
    """
    rows = read_instructions(path)
    measured: dict[Key, list[tuple[float, float]]] = {}
    for start, ns, engine, source in rows:
        measured.setdefault((engine, source), []).append((start, ns))
    modelled = _modelled(program, timeline)
    pairs = []
    for key in {**modelled, **measured}:
        ours = [ns for _, ns in sorted(modelled.get(key, []))]
        theirs = [ns for _, ns in sorted(measured.get(key, []))]
        for number in range(max(len(ours), len(theirs))):
            one = ours[number] if number < len(ours) else None
            two = theirs[number] if number < len(theirs) else None
            pairs.append(MeasuredInstruction(*key, one, two))
    begin = min(start for start, *_ in rows)
    total = max(start + ns for start, ns, *_ in rows) - begin
    return Against(pairs, timeline.total_ns, total)


def _modelled(program: Program, timeline: Timeline) -> dict[Key, list[tuple[float, float]]]:
    found: dict[Key, list[tuple[float, float]]] = {}
    for core, times in zip(program.cores, timeline.cores):
        for track in times.tracks:
            if track.queue >= 0 or not track.spans:
                continue
            stream = core.streams[track.engine]
            for start, end, index, _ in track.spans:
                place = program.place(stream[index].location) if index >= 0 else None
                if place is not None:
                    key = track.engine.name, f"{Path(place.file).name}:{place.line}"
                    found.setdefault(key, []).append((start, end - start))
    return found


MeasuredRow = tuple[float, float, str, str]
"""Start and duration in ns, engine, and line of an instruction."""


def read_instructions(path: str) -> list[MeasuredRow]:
    """The instructions of an export that have a line, in its order."""
    file = Path(path)
    if not file.is_file():
        raise NeuronError("file-not-found", f"There is no file {path}.")
    rows = _parquet(file) if file.suffix == ".parquet" else _json(file)
    try:
        found = [_row(row) for row in rows if row.get("nki_source_location")]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _no_export(path, f"an instruction lacks {error}") from None
    if not found:
        raise _no_export(path, "no instruction of it has a line of a kernel")
    return found


def _row(row: Mapping[str, Any]) -> MeasuredRow:
    """An instruction by the names of the schema, or those of the earlier JSON."""
    start = row["start_ts"] if "start_ts" in row else row["timestamp"]
    ns = row["duration_ns"] if "duration_ns" in row else row["duration"]
    engine = str(row.get("engine") or row.get("label", "")).lower().removesuffix("matrix")
    file, _, line = str(row["nki_source_location"]).rpartition(":")
    return float(start), float(ns), engine, f"{Path(file).name}:{int(line)}"


def _json(file: Path) -> Any:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        rows = data["instruction"]
    except (ValueError, KeyError, TypeError):
        raise _no_export(str(file), 'it has no list "instruction"') from None
    if not isinstance(rows, list):
        raise _no_export(str(file), '"instruction" is no list')
    return rows


def _parquet(file: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise NeuronError(
            "missing-extra",
            "Reading parquet needs pyarrow, which is not installed.",
            hint="pip install pyarrow, or export the profile as JSON.",
        ) from None
    return parquet.read_table(file).to_pylist()


def _no_export(path: str, why: str) -> NeuronError:
    return NeuronError(
        "input-mismatch",
        f"{path} is no profile of instructions: {why}",
        hint="Export with neuron-explorer view --output-format json, or give the parquet table of "
        "instructions.",
    )
