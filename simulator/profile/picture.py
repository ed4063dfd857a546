"""A timeline and the map of on-chip memory as a picture (matplotlib, the extra `viz`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from isa.enums import Memory
from isa.errors import NeuronError
from isa.errors.calls import named_arguments
from isa.files.complete import complete
from isa.files.stream import in_columns
from isa.program import Program
from simulator.profile.memory_maps import MemoryMap, memory_maps
from simulator.profile.perfetto import describe_track, require_spans, track_order
from simulator.timing.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@named_arguments
def plot(program: Program, timeline: Timeline, core: int = 0) -> Figure:
    """A matplotlib figure of one core: what every engine and DMA queue does over time, and
    below it which tensors lie where in SBUF and PSUM meanwhile.

    `program` is bound, `timeline` its timing with spans. In a notebook the figure shows itself.
    Raises NeuronError missing-argument when the timeline has no spans, missing-extra without
    matplotlib.

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... ''')
    >>> from simulator.timing import simulate
    >>> [axes.get_xlabel() for axes in plot(program, simulate(program)).axes][-1]
    'us'
    """
    require_spans(timeline)
    Figure = figure_class()
    tracks = [track for track in timeline.cores[core].tracks if track.spans]
    tracks.sort(key=track_order)
    figure = Figure(figsize=(11, 7 + 0.3 * len(tracks)), layout="constrained")
    ratios = [2 + len(tracks), 9, 6]
    over_time, *memories = figure.subplots(3, 1, height_ratios=ratios, sharex=True)
    for row, track in enumerate(tracks):
        assert track.spans is not None
        bars = [(start / 1e3, (end - start) / 1e3) for start, end, _, _ in track.spans]
        over_time.broken_barh(bars, (row - 0.4, 0.8), facecolors=f"C{track.engine.value % 10}")
    over_time.set_yticks(range(len(tracks)), [describe_track(track) for track in tracks])
    over_time.invert_yaxis()
    over_time.set_xlim(0, timeline.total_ns / 1e3)
    over_time.set_title(f"{program.name}, core {core} of {timeline.target}")
    streams = {
        engine: in_columns(stream, encoded=False)
        for engine, stream in program.cores[core].streams.items()
    }
    total, own = timeline.total_ns, timeline.cores[core]
    for axes, one in zip(memories, memory_maps(program, core, streams, own, total)):
        _draw_memory(axes, one, total)
    memories[-1].set_xlabel("us")
    return figure


@named_arguments
def write_plot(path: str | os.PathLike[str], program: Program, timeline: Timeline) -> None:
    """Write `plot` of the first core as a file; its suffix (.png, .svg, .pdf) says in which format.

    The file appears complete or not at all. Raises NeuronError not-writable, and what `plot` does.

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... ''')
    >>> import pathlib, tempfile
    >>> from simulator.timing import simulate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "run.svg")
    ...     write_plot(path, program, simulate(program))
    ...     "<svg" in path.read_text()
    True
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


def _draw_memory(axes: Any, one: MemoryMap, total: float) -> None:
    """Allocations over time, at their bytes, with the names that there is room for."""
    kib = 1024
    for held in one.held:
        begin, length = held.begin / 1e3, (held.end - held.begin) / 1e3
        color = _COLORS[one.memory]
        axes.broken_barh(
            [(begin, length)], (held.offset / kib, held.bytes / kib),
            facecolors=color, edgecolors="white", linewidth=0.5,
        )  # fmt: skip
        wide = length * 1e3 >= total * _LETTER * (len(held.name) + 1)
        if wide and held.bytes >= one.used * _LINE:
            middle = (held.offset + held.bytes / 2) / kib
            axes.text(begin, middle, f" {held.name}", va="center", fontsize=6)
    axes.set_ylim((one.used or one.bytes) / kib, 0)
    axes.set_ylabel(f"{one.memory.value.upper()}, KiB a partition\n(of {one.bytes // kib})")


_COLORS = {Memory.sbuf: "#a9cbe8", Memory.psum: "#f0cf9a"}
_LETTER, _LINE = 0.007, 0.022
"""The parts of the width and of the height of a map that a letter of a name takes."""
