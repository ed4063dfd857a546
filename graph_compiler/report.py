"""The report of a compiled graph: modelled time beside its bounds, and where it goes.

`report_of` makes plain data, `html` a page of it. The time is that of the timing model without
data; a program whose control flow depends on data is not timed, and the report says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from graph_compiler.hot_spots import KINDS, hot_spots
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module
    from isa.program import Program
    from simulator.profile import Profile

_UNTIMED = "missing-argument"
"""The code of programs that cannot be timed without data."""


def report_of(module: Module, program: Program) -> dict[str, Any]:
    """Everything that the report shows, as data for JSON. Times are ns.

    >>> from graph_compiler import compile, parse_text
    >>> module = parse_text("HloModule m\\nENTRY e {\\n x = f32[6] parameter(0)\\n"
    ...     " ROOT r = f32[6] tanh(x)\\n}")
    >>> report = report_of(module, compile(module, "trn2").kernel.program)
    >>> report["graph"], report["bytes"]["hbm_read"], report["regions"][0]["instruction"]
    ('m', 24, 'r')
    """
    from simulator.profile import profile
    from simulator.timing import simulate

    facts = {
        "graph": module.name,
        "target": program.target,
        "cores": len(program.cores),
        "instructions": program.instruction_count,
    }
    try:
        timeline = simulate(program, keep_spans=False, keep_path=True)
    except NeuronError as error:
        if error.code != _UNTIMED:
            raise
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
    "td,th{padding:.2em .8em;border-bottom:1px solid #ccc;text-align:left}td.n{text-align:right}"
)


def html(report: dict[str, Any]) -> str:
    """A page without scripts or other files."""
    parts = [f"<h1>{escape(report['graph'])} on {escape(report['target'])}</h1>"]
    plain = [(key, value) for key, value in report.items() if not isinstance(value, (dict, list))]
    parts.append(_table(("", ""), plain))
    if "regions" in report:
        parts.append("<h2>Bounds</h2>")
        parts.append(_table(("bound", "ns"), report["lower_bounds_ns"].items()))
        parts.append("<h2>Bytes moved</h2>")
        parts.append(_table(("between", "bytes"), report["bytes"].items()))
        parts.append("<h2>Regions</h2>")
        parts.append(_records(report["regions"]))
        for by, spots in report["hot_spots"].items():
            parts.append(f"<h2>Time by {escape(by)}</h2>")
            parts.append(_records(spots))
        parts.append("<h2>Engines</h2>")
        parts.append(_records(report["engines"]))
    head = f"<meta charset='utf-8'><title>{escape(report['graph'])}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _records(records: list[dict[str, Any]]) -> str:
    columns = tuple(records[0]) if records else ()
    return _table(columns, (tuple(record.values()) for record in records))


def _table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    heading = "".join(f"<th>{escape(column.replace('_', ' '))}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{heading}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return f"<td>{escape(', '.join(f'{key} {ns:,.0f}' for key, ns in value.items()))}</td>"
    if isinstance(value, float):
        return f"<td class='n'>{value:,.1f}</td>"
    kind = " class='n'" if isinstance(value, int) else ""
    return f"<td{kind}>{escape(str(value))}</td>"
