"""A timeline and the map of on-chip memory as a picture (matplotlib, the extra `viz`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from isa.enums import Memory
from isa.errors import NeuronError
from isa.program import Program
from isa.target import resolve
from simulator.profile.files import complete
from simulator.profile.perfetto import describe_track, require_spans, track_order
from simulator.timing.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAP_ROWS = 40
"""Allocations of the memory map by name; the rest are drawn without."""


def plot(program: Program, timeline: Timeline, core: int = 0) -> Figure:
    """A matplotlib figure of one core: what every engine and DMA queue does over time, and where
    the on-chip allocations lie.

    `program` is bound, `timeline` its timing with spans. In a notebook the figure shows itself.
    Raises NeuronError missing-argument when the timeline has no spans, missing-extra without
    matplotlib.
    """
    require_spans(timeline)
    Figure = figure_class()
    lanes = [lane for lane in timeline.cores[core].lanes if lane.spans]
    lanes.sort(key=track_order)
    figure = Figure(figsize=(11, 2.5 + 0.3 * len(lanes) + 2.5), layout="constrained")
    over_time, over_bytes = figure.subplots(2, 1, height_ratios=[2 + len(lanes), 8])
    for row, lane in enumerate(lanes):
        assert lane.spans is not None
        bars = [(start / 1e3, (end - start) / 1e3) for start, end, _, _ in lane.spans]
        over_time.broken_barh(bars, (row - 0.4, 0.8), facecolors=f"C{lane.engine.value % 10}")
    over_time.set_yticks(range(len(lanes)), [describe_track(lane) for lane in lanes])
    over_time.invert_yaxis()
    over_time.set_xlim(0, timeline.total_ns / 1e3)
    over_time.set_xlabel("us")
    over_time.set_title(f"{program.name}, core {core} of {timeline.target}")
    _draw_memory(over_bytes, program, timeline, core)
    return figure


def write_plot(path: str | os.PathLike[str], program: Program, timeline: Timeline) -> None:
    """Write `plot` of the first core as a file; its suffix (.png, .svg, .pdf) says in which format.

    The file appears complete or not at all. Raises NeuronError not-writable, and what `plot` does.
    """
    figure = plot(program, timeline)
    try:
        with complete(path) as temporary:
            figure.savefig(temporary)
    except ValueError as error:
        raise NeuronError("not-writable", f"{path}: {error}") from None


def figure_class() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NeuronError(
            "missing-extra",
            "Pictures need matplotlib, which is not installed.",
            hint="Install it with the extra: pip install 'opennki[viz]'.",
        ) from None
    return Figure


def _draw_memory(axes: Any, program: Program, timeline: Timeline, core: int) -> None:
    """Allocations over their bytes, in order of allocation: shared columns are reused bytes."""
    target = resolve(timeline.target)
    sizes = {
        Memory.sbuf.value: target.sbuf_bytes_per_partition.value,
        Memory.psum.value: target.psum_bytes_per_partition.value,
    }
    # PSUM stands right of SBUF.
    starts = {Memory.sbuf.value: 0, Memory.psum.value: sizes[Memory.sbuf.value]}
    storages = program.cores[core].storages
    for row, storage in enumerate(storages):
        left = starts[storage.memory] + storage.offset
        axes.broken_barh(
            [(left / 1024, storage.bytes_per_partition / 1024)],
            (row - 0.4, 0.8),
            facecolors="C0" if storage.memory == Memory.sbuf.value else "C1",
        )
        if len(storages) <= _MAP_ROWS:
            axes.text(left / 1024, row, f" {storage.name}", va="center", fontsize=7)
    axes.axvline(sizes[Memory.sbuf.value] / 1024, color="black", linewidth=0.8)
    axes.set_xlim(0, sum(sizes.values()) / 1024)
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.set_xlabel("KiB a partition: SBUF, then PSUM")
    axes.set_ylabel("allocations")
