"""A picture of what an on-chip memory holds, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from isa.program import OnChipAllocation

_WIDTH, _ROW, _MOST_ROWS = 640, 14, 24
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d")


def memory_map(storages: Sequence[OnChipAllocation], capacity: int, title: str) -> str:
    """Allocations over the bytes of a partition; those that share bytes, at different times, stand
    below each other. Names and sizes show under the pointer."""
    ends: list[int] = []
    shapes, hidden = [], 0
    for storage in storages:
        start, end = storage.offset, storage.offset + storage.bytes_per_partition
        row = next((n for n, last in enumerate(ends) if last <= start), len(ends))
        if row == _MOST_ROWS:
            hidden += 1
            continue
        ends[row : row + 1] = [end]
        shapes.append(_shape(storage, row, _WIDTH / capacity))
    height = _ROW * max(len(ends), 1) + 18
    more = f", {hidden:,} more not drawn" if hidden else ""
    label = f"{title}: {max(ends, default=0):,} of {capacity:,} bytes of a partition{more}"
    return (
        f'<svg width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'style="max-width:100%;height:auto" role="img">'
        f'<text x="0" y="12" font-size="12" fill="currentColor">{escape(label)}</text>'
        f'<rect x="0" y="17" width="{_WIDTH}" height="{height - 18}" fill="none" stroke="#8888"/>'
        f"{''.join(shapes)}</svg>"
    )


def _shape(storage: OnChipAllocation, row: int, scale: float) -> str:
    colour = _COLOURS[sum(storage.name.encode()) % len(_COLOURS)]
    shape = " x ".join(map(str, storage.shape))
    text = (
        f"{storage.name} [{shape}] {storage.dtype}: {storage.bytes_per_partition:,} bytes from "
        f"{storage.offset:,}, {storage.partitions} partitions from {storage.start_partition}"
    )
    width = max(storage.bytes_per_partition * scale, 1.0)
    return (
        f'<rect x="{storage.offset * scale:.2f}" y="{17 + row * _ROW}" width="{width:.2f}" '
        f'height="{_ROW - 2}" fill="{colour}" stroke="#fff" stroke-width="0.5">'
        f"<title>{escape(text)}</title></rect>"
    )
