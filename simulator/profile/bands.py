"""What engines and queues do over time, as one small SVG for notebooks."""

from __future__ import annotations

from html import escape

import numpy as np

from simulator.profile.critical_lines import NAMES
from simulator.profile.perfetto import describe_track, track_order
from simulator.timing.timeline import Timeline, Track

_LEFT, _WIDTH, _ROW = 140, 640, 16
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2")


def bands(timeline: Timeline) -> str:
    """A row for each track of each core that did something, from 0 to the end of the run. Work less
    than a pixel apart is drawn as one piece. `timeline` has spans."""
    rows = [
        (f"core {number}, " if len(timeline.cores) > 1 else "", track)
        for number, core in enumerate(timeline.cores)
        for track in sorted(core.tracks, key=track_order)
        if track.spans
    ]
    total = timeline.total_ns or 1.0
    shapes = [_row(at, core, track, total) for at, (core, track) in enumerate(rows)]
    height = _ROW * (len(rows) + 1) + 4
    scale = "".join(
        f'<text x="{_LEFT + part * _WIDTH}" y="{height - 4}" font-size="11" '
        f'text-anchor="{anchor}" fill="currentColor">{part * total / 1e3:.4g} us</text>'
        for part, anchor in ((0, "start"), (0.5, "middle"), (1, "end"))
    )
    return (
        f'<svg width="{_LEFT + _WIDTH}" height="{height}" '
        f'viewBox="0 0 {_LEFT + _WIDTH} {height}" style="max-width:100%;height:auto" role="img">'
        f"{''.join(shapes)}{scale}</svg>"
    )


def _row(at: int, core: str, track: Track, total: float) -> str:
    assert track.spans is not None
    spans = np.array([(start, end) for start, end, *_ in track.spans])
    pixels = np.zeros(_WIDTH + 1, np.int64)  # +1 where a span begins, -1 behind its end
    first = np.clip(np.floor(spans[:, 0] / total * _WIDTH), 0, _WIDTH - 1).astype(int)
    last = np.clip(np.ceil(spans[:, 1] / total * _WIDTH), first + 1, _WIDTH).astype(int)
    np.add.at(pixels, first, 1)
    np.add.at(pixels, last, -1)
    filled = np.concatenate(([0], np.cumsum(pixels) > 0, [0])).astype(int)
    changes = np.flatnonzero(np.diff(filled))
    top = at * _ROW
    pieces = "".join(
        f'<rect x="{_LEFT + start}" y="{top + 2}" width="{end - start}" height="{_ROW - 4}"/>'
        for start, end in changes.reshape(-1, 2)
    )
    label = describe_track(track)
    if track.queue < 0:
        label = label.replace(track.engine.name, NAMES[track.engine])
    name = escape(core + label)
    colour = _COLOURS[track.engine.value % len(_COLOURS)]
    return (
        f'<text x="{_LEFT - 6}" y="{top + 12}" font-size="11" text-anchor="end" '
        f'fill="currentColor">{name}</text>'
        f'<g fill="{colour}"><title>{name}</title>{pieces}</g>'
    )
