"""The HTML file of a profile: what the text says, a timeline to zoom, memories over time, the
roofline, and the source with the time of each line."""

from __future__ import annotations

import html as markup
import json
import linecache
import os
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from isa.files.complete import complete
from isa.program import Program
from isa.sections import html
from isa.target import resolve
from simulator.profile.comparison import ProfileComparison
from simulator.profile.page.columns import drawn
from simulator.profile.perfetto import require_spans
from simulator.profile.report import Profile
from simulator.timing.timeline import Timeline

_AROUND = 3
"""Lines of source that are shown around those that take time."""


def write_html(
    path: str | os.PathLike[str],
    program: Program,
    timeline: Timeline,
    found: Profile,
    other: Profile | None = None,
) -> None:
    """Write a profile as one HTML file; `other` is an earlier profile that it is compared with.

    `timeline` has spans. The file needs no network and appears complete or not at all. Raises
    NeuronError not-writable, and missing-argument for a timeline without spans.
    """
    require_spans(timeline)
    with complete(path) as temporary:
        temporary.write_text(page(program, timeline, found, other), encoding="utf-8")


def page(program: Program, timeline: Timeline, found: Profile, other: Profile | None = None) -> str:
    """The text of the file."""
    tables, columns = drawn(program, timeline)
    tables["roofline"] = _roofline(found, other)
    tables["profile"] = found.to_dict()
    maps = range(len(tables["memories"]))
    parts = [
        f"<h1>{markup.escape(found.kernel)} on {found.target}</h1>",
        '<p class="note">Times are predicted (is_simulation): no device ran this.</p>',
        f'<p id="verdict">{found.total_us:,.2f} us. {markup.escape(found.verdict)}</p>',
        "<h2>Timeline</h2>",
        '<p><button id="closer">zoom in</button><button id="wider">zoom out</button>'
        '<button id="all">all</button><label><input type="checkbox" id="semaphores"> semaphores'
        '</label> <span class="note">wheel zooms, dragging moves, a click selects and draws '
        "arrows from what it waited for and to what waited for it; green marks give units of a "
        "semaphore, red ones take them</span></p>",
        '<canvas id="timeline"></canvas><div id="details"></div>',
        "<h2>On-chip memory</h2>",
        *(f'<canvas id="memory{number}"></canvas>' for number in maps),
        '<h2>Roofline</h2><canvas id="roofline"></canvas>',
        f'<h2>Source</h2><div id="source">{_source(found)}</div>',
    ]
    if other is not None:
        compared = html(ProfileComparison(other, found).sections())
        parts.insert(2, f'<h2>Comparison</h2><div id="comparison">{compared}</div>')
    parts.append(f'<h2>Report</h2><div id="report">{html(found.sections(40))}</div>')
    folder = files("simulator.profile.page")
    style = folder.joinpath("report.css").read_text(encoding="utf-8")
    script = folder.joinpath("report.js").read_text(encoding="utf-8")
    data = json.dumps(tables, separators=(",", ":"), default=str).replace("</", "<\\/")
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>'
        f"{markup.escape(found.kernel)}</title><style>{style}</style></head><body>"
        + "\n".join(parts)
        + f'<script type="application/json" id="data">{data}</script>'
        f'<script type="text/plain" id="columns">{columns}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def _roofline(found: Profile, other: Profile | None) -> dict[str, Any]:
    target = resolve(found.target)
    hbm = target.hbm_bytes_per_ns_per_device.value
    shown = [found] if other is None else [other, found]
    return {
        "peak_tflops": found.peak_tflops,
        "bytes_per_ns": min(found.dma.peak_bytes_per_ns, hbm),
        "points": [
            {
                "name": one.kernel,
                "intensity": one.arithmetic_intensity,
                "tflops": one.flops / one.total_ns / 1e3 if one.total_ns else 0.0,
            }
            for one in shown
        ],
    }


def _source(found: Profile) -> str:
    """The lines of the kernel with the time that their instructions occupy, and their part of the
    critical path."""
    busy: dict[tuple[str, int], float] = {}
    path: dict[tuple[str, int], float] = {}
    texts: dict[tuple[str, int], str] = {}
    for one in found.lines:
        key = one.file, one.line
        busy[key] = busy.get(key, 0.0) + one.total_ns
        texts[key] = one.text
    for part in found.path_lines:
        if part.file:
            key = part.file, part.line
            path[key] = path.get(key, 0.0) + part.percent
            texts[key] = part.text
    tables = []
    for file in sorted({file for file, _ in texts}):
        rows = [
            _source_row(line, _text(file, line, texts), busy.get((file, line)), path, file)
            for line in _shown(sorted(line for name, line in texts if name == file))
        ]
        head = "<tr><th>line</th><th>busy us</th><th>critical path</th><th></th></tr>"
        tables.append(f"<h3>{markup.escape(file)}</h3><table>{head}{''.join(rows)}</table>")
    return "\n".join(tables)


def _shown(lines: Sequence[int]) -> list[int]:
    near = {line + by for line in lines for by in range(-_AROUND, _AROUND + 1)}
    return sorted(line for line in near if line > 0)


def _text(file: str, line: int, texts: dict[tuple[str, int], str]) -> str:
    return linecache.getline(file, line).rstrip() or texts.get((file, line), "")


def _source_row(
    line: int,
    text: str,
    busy: float | None,
    path: dict[tuple[str, int], float],
    file: str,
) -> str:
    percent = path.get((file, line), 0.0)
    bar = f'<span class="bar" style="width:{2 * percent:.0f}px"></span> {percent:.1f} %'
    cells = (
        f'<td align="right">{line}</td>',
        f'<td align="right">{"" if busy is None else f"{busy / 1e3:,.2f}"}</td>',
        f"<td>{bar if percent else ''}</td>",
        f"<td>{markup.escape(text)}</td>",
    )
    return f"<tr{' class=hot' if percent >= 10 else ''}>{''.join(cells)}</tr>"
