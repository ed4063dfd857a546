"""The report of a compiled graph: modelled time beside its bounds, and where it goes.

`report_of` makes plain data, `html` a page of it. The time is that of the timing model without
data; a program whose control flow depends on data is not timed, and the report says so.
"""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from graph_compiler.hot_spots import KINDS, hot_spots
from graph_compiler.timing import static_timeline
from isa.sections import Facts, Section, Table
from isa.sections import html as sections_html

if TYPE_CHECKING:
    from graph_compiler.compiled import Compiled
    from graph_compiler.hlo.graph import Module
    from simulator.profile import Profile


def report_of(compiled: Compiled) -> dict[str, Any]:
    """Everything that the report shows, as data for JSON. Times are ns.

    >>> from graph_compiler import compile, parse_text
    >>> module = parse_text("HloModule m\\nENTRY e {\\n x = f32[6] parameter(0)\\n"
    ...     " ROOT r = f32[6] tanh(x)\\n}")
    >>> report = report_of(compile(module, "trn2"))
    >>> report["graph"], report["bytes"]["hbm_read"], report["regions"][0]["instruction"]
    ('m', 24, 'r')
    """
    from simulator.profile import profile

    module, program = compiled.module, compiled.kernel.program
    facts: dict[str, Any] = {
        "graph": module.name,
        "target": program.target,
        "cores": len(program.cores),
        "instructions": program.instruction_count,
        "loops": [asdict(note) for note in compiled.notes.loops],
        "generic_schedules": _generic(module, compiled),
    }
    timeline = static_timeline(program, keep_path=True, never=compiled.notes.finite)
    if timeline is None:
        return facts | {"not_timed": "its control flow depends on data; Compiled.profile times it"}
    found = profile(program, timeline)
    bound = max(found.lower_bounds_ns.values(), default=0.0)
    return facts | {
        "total_ns": found.total_ns,
        "lower_bounds_ns": found.lower_bounds_ns,
        "roofline_percent": 100 * bound / found.total_ns if found.total_ns else 0.0,
        "bound": found.bound,
        "reason": found.reason,
        "flops": found.flops,
        "bytes": {
            "hbm_read": found.dma.hbm_read_bytes,
            "hbm_write": found.dma.hbm_write_bytes,
            **found.dma.bytes,
        },
        "engines": [asdict(engine) for engine in found.engines],
        "regions": _regions(module, found),
        "hot_spots": {by: [asdict(s) for s in hot_spots(module, found, by)] for by in KINDS},
    }


def _generic(module: Module, compiled: Compiled) -> list[dict[str, Any]]:
    """The instructions that have no schedule made for them."""
    items = {item.name: item for item in module.instructions()}
    return [
        {
            "instruction": remark.instruction,
            "operator": items[remark.instruction].opcode,
            "shape": str(items[remark.instruction].shape),
            "source": items[remark.instruction].source,
            "schedule": remark.schedule,
        }
        for remark in compiled.notes.remarks
        if remark.instruction in items
    ]


def _regions(module: Module, profile: Profile) -> list[dict[str, Any]]:
    """What is emitted for each instruction that is computed into memory, longest first: what its
    engines and transfers are occupied."""
    from graph_compiler.lower.places import name_of

    items = {item.name: item for part in module.computations for item in part.instructions}
    engines: dict[str, dict[str, float]] = {}
    for line in profile.lines:
        of_region = engines.setdefault(name_of(line.text), {})
        for engine, ns in line.by_engine.items():
            of_region[engine] = of_region.get(engine, 0.0) + ns
    regions = []
    for spot in hot_spots(module, profile):
        item = items.get(spot.name)
        if item is None:
            continue
        regions.append(
            {
                "instruction": item.name,
                "operator": item.opcode,
                "shape": str(item.shape),
                "source": item.source,
                "path_ns": spot.path_ns,
                "path_percent": spot.path_percent,
                "engines_ns": engines.get(item.name, {}),
            }
        )
    return regions


_STYLE = (
    "body{font:14px sans-serif;margin:2em;max-width:70em}table{border-collapse:collapse}"
    "td,th{padding:.2em .8em;border-bottom:1px solid #ccc;text-align:left}"
)


def html(report: dict[str, Any]) -> str:
    """A page without scripts or other files."""
    name = escape(report["graph"])
    style = f"<meta charset='utf-8'><title>{name}</title><style>{_STYLE}</style>"
    body = f"<h1>{name} on {escape(report['target'])}</h1>{sections_html(_sections(report))}"
    return f"<!doctype html><html><head>{style}</head><body>{body}</body></html>\n"


def _sections(report: dict[str, Any]) -> list[Section]:
    plain = ((key, value) for key, value in report.items() if not isinstance(value, (dict, list)))
    found: list[Section] = [
        Facts("", tuple((_words(key), _text(value)) for key, value in plain)),
        _records("Loops", report["loops"]),
        _records("Generic schedules", report["generic_schedules"]),
    ]
    if "regions" in report:
        found += [
            Table.of("Bounds", ("bound", ">ns"), _pairs(report["lower_bounds_ns"])),
            Table.of("Bytes moved", ("between", ">bytes"), _pairs(report["bytes"])),
            _records("Regions", report["regions"]),
            *(_records(f"Time by {by}", spots) for by, spots in report["hot_spots"].items()),
            _records("Engines", report["engines"]),
        ]
    return found


def _pairs(values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(_words(key), _text(value)) for key, value in values.items()]


def _records(title: str, records: list[dict[str, Any]]) -> Table:
    first = records[0] if records else {}
    columns = [">" * isinstance(value, (int, float)) + _words(key) for key, value in first.items()]
    return Table.of(title, columns, [tuple(map(_text, record.values())) for record in records])


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {ns:,.0f}" for key, ns in value.items())
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
