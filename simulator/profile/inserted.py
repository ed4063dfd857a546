"""The transposes and copies that no call of the source is for: what inserted them, and their time.

A call that multiplies may need its operand transposed, and the transpose copied from PSUM to SBUF.
Those are inserted for the call. What a call moves and computes nothing with is its own purpose: a
transpose, or a copy where it transposes nothing. Loads from HBM and stores to it are never inserted
for a call that does nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from isa.access import AccessPattern
from isa.machine.dma import DmaCopy, DmaTranspose
from isa.machine.elementwise import TensorCopy
from isa.machine.mx import LoadStationaryMx
from isa.machine.scalar import Activate
from isa.machine.tensor import LoadStationary, LoadStationaryPairs
from isa.machine.vector import Transpose32
from isa.program import Program, SourceLocation
from isa.sections import Table
from isa.spec import Instruction
from isa.target import Target
from simulator.profile.critical_lines import NAMES, line_texts, place_at, shown_place, us
from simulator.profile.representatives import executed
from simulator.timing.flops import TRANSPOSES
from simulator.timing.timeline import Timeline

TRANSPOSE, COPY, WORK = "transpose", "copy", "work"
"""What an instruction does for its call: the first of these that a call has, from the end, is what
the call is for."""

SHOWN, SOURCE = 10, 40
"""Rows that a report shows, and characters of source; the JSON form has all."""

_TRANSPOSES = TRANSPOSES | {Transpose32, DmaTranspose}
_TILES = frozenset({LoadStationary, LoadStationaryPairs, LoadStationaryMx})


@dataclass(frozen=True, slots=True)
class Inserted:
    """Transposes, or copies, of one engine that were inserted for a call of a line of one core (for
    an instruction of a graph, where `line` is 0): how many, and the ns that they occupy the engine.
    Those of DMA are as if all DMA engines shared each evenly."""

    core: int
    file: str
    line: int
    text: str
    kind: str
    engine: str
    count: int
    ns: float


def inserted(program: Program, timeline: Timeline, target: Target) -> list[Inserted]:
    """Of a bound program and its timing, those that take most time first."""
    sums: dict[tuple[int, SourceLocation, str, str], list[float]] = {}
    purposes: dict[tuple[int, SourceLocation], set[str]] = {}
    for core, engine, instruction, count, ns, dma in executed(program, timeline):
        kind = _kind(instruction)
        place = place_at(program, instruction.location)
        if kind is None or not place.file:
            continue
        purposes.setdefault((core, place), set()).add(kind)
        if kind == WORK:
            continue
        moves = instruction.row.asynchronous
        on, spent = ("DMA", dma / target.dma_engines.value) if moves else (NAMES[engine], ns)
        entry = sums.setdefault((core, place, kind, on), [0, 0.0])
        entry[0] += count
        entry[1] += spent
    texts = line_texts(program)
    found = []
    for (core, place, kind, on), (times, spent) in sums.items():
        kinds = purposes[core, place]
        purpose = next(one for one in (WORK, TRANSPOSE, COPY) if one in kinds)
        if kind != purpose:
            text = texts.get(place, "")
            found.append(Inserted(core, place.file, place.line, text, kind, on, int(times), spent))
    return sorted(
        found, key=lambda one: (-one.ns, one.core, one.file, one.line, one.kind, one.engine)
    )


def _kind(instruction: Instruction) -> str | None:
    """What an instruction does for its call; None for what only prepares, or steers."""
    row, values = instruction.row, instruction.values
    if row in _TRANSPOSES:
        return TRANSPOSE
    if row.control or row in _TILES:
        return None
    if row is DmaCopy:
        operands = [value for value in values if isinstance(value, AccessPattern)]
        return COPY if len({one.memory.on_chip for one in operands[:2]}) == 1 else WORK
    if row is Activate:
        fields = dict(zip(row.field_names, values))
        plain = fields["bias"] is None and fields["scale"] in (None, 1.0)
        return COPY if plain and fields["op"].name == "copy" else WORK
    return COPY if row is TensorCopy else WORK


def table(found: list[Inserted], cores: bool) -> Table:
    """The first of them as a part of a report."""
    rows = (
        (
            us(one.ns),
            f"{one.count:,}",
            one.kind,
            one.engine,
            *((str(one.core),) if cores else ()),
            shown_place(one.file, one.line),
            one.text[:SOURCE],
        )
        for one in found[:SHOWN]
    )
    title = "transposes and copies that were inserted, and for whom"
    if len(found) > SHOWN:
        title += f", and {len(found) - SHOWN} more rows"
    core = ("core",) if cores else ()
    return Table.of(title, (">us", ">times", "what", "on", *core, "line", "for"), rows)
