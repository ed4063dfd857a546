"""`nki profile`: run a kernel or a container and say where its time goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from nki.cli import options
from nki.cli.exit_codes import CHECK_FAILED, OK
from nki.report import Report, Section

if TYPE_CHECKING:
    from isa.program import Program
    from nki.cli.launch import Launch
    from simulator.execute import RunResult
    from simulator.profile import Profile
    from simulator.timing import Timeline


_PICTURES = (".png", ".svg", ".pdf")
"""Suffixes of the pictures that --plot draws."""


@dataclass(slots=True)
class Profiled:
    """A launch that has run and was timed."""

    program: Program
    arrays: list[Any]
    result: RunResult
    timeline: Timeline
    found: Profile


def profiled(launch: Launch, spans: bool) -> Profiled:
    """Run and time a launch, with its critical path, and with `spans` where they are drawn."""
    from nki import progress
    from nki.compiled import add_pictures, run_settings
    from nki.settings import native_wanted, threads_wanted
    from simulator.parallel_slices import load
    from simulator.profile import profile
    from simulator.timing import simulate

    program, arrays = launch.bound_program()
    loaded = load(program, launch.checked, native_wanted(), threads_wanted())
    with run_settings():
        progress.stage("run")
        result = loaded.run(arrays)
        progress.stage("timing")
        timeline = simulate(program, result.trace, spans, keep_path=True)
    assert launch.compiled is not None
    found = profile(program, timeline, launch.compiled.advisor(program, result.trace, timeline))
    add_pictures(found, program, result.trace)
    found.launched_with(launch.given_values())
    return Profiled(program, arrays, result, timeline, found)


def _check_suffix(plot: str | None) -> None:
    """Refuse a picture of a kind that is not drawn, before there is work."""
    if plot is not None and not plot.lower().endswith(_PICTURES):
        what = f"{plot} ends in none of {', '.join(_PICTURES)}, which say how it is drawn"
        raise click.BadParameter(what, param_hint="--plot")


@click.command("profile")
@options.choosing("FILE:KERNEL|FILE.neff", options.inputs, options.transformations, options.seed)
@options.expect
@options.tolerance
@click.option(
    "--perfetto",
    metavar="FILE",
    help="Write a trace that ui.perfetto.dev opens; gzipped when the name ends in .gz.",
)
@click.option(
    "--plot",
    metavar="FILE",
    help="Draw the timeline and the map of on-chip memory (.png, .svg, .pdf; needs the extra viz).",
)
@click.option(
    "--html",
    metavar="FILE",
    help="Write a page with timeline, memories, roofline and source; it needs no network.",
)
@click.option(
    "--compare",
    metavar="KERNEL",
    help="Say what changed from another kernel, FILE:KERNEL, FILE:KERNEL@TARGET, @TARGET, or @.",
)
@click.option(
    "--compare-arg",
    "compare_arguments",
    metavar="NAME=VALUE",
    multiple=True,
    help="A compile-time argument of the other kernel, instead of --arg.",
)
@click.option(
    "--compare-transform",
    "compare_transformations",
    metavar="NAME",
    multiple=True,
    help="A --transform of the other kernel. `--compare @` is the same kernel as it is written.",
)
@click.option(
    "--against",
    metavar="FILE",
    help="Compare with a measured profile, exported by neuron-explorer as JSON or parquet.",
)
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    default=10,
    show_default=True,
    help="How many of the kernel's lines to list, hottest first.",
)
@options.presented
def profile_command(
    context: click.Context,
    choice: options.KernelChoice,
    expect: str | None,
    tolerance: float | None,
    perfetto: str | None,
    plot: str | None,
    html: str | None,
    compare: str | None,
    compare_arguments: tuple[str, ...],
    compare_transformations: tuple[str, ...],
    against: str | None,
    lines: int,
) -> int:
    """Run a kernel and show where its time goes.

    Shows the time, where it goes along the critical path by cause and by line, and what ended its
    stalls. Shows changes that would shorten it, each of them timed; and engines, DMA and memory.

    Example:

    \b
      nki profile matmul_kernels.py:tiled --input 'lhsT=normal(1024,1024):bfloat16' \\
          --input 'rhs=normal(1024,1024):bfloat16' --target trn2 \\
          --expect matmul_numpy --perfetto t.json
    """
    from nki.cli.launch import changed_tensors, copies, load_expected, prepare
    from nki.cli.output_files import check_writable
    from nki.cli.run import compare_outputs, comparison_table
    from simulator.profile import write_perfetto, write_plot
    from simulator.profile.comparison import ProfileComparison
    from simulator.profile.measured import against as beside_measured

    written = (
        (perfetto, "; open it in ui.perfetto.dev"),
        (plot, ""),
        (html, "; open it in a browser"),
    )
    for path, _ in written:
        check_writable(path)
    _check_suffix(plot)
    launch = prepare(choice)
    function = load_expected(launch, expect)
    before = copies(launch.tensors)
    other = comparison = None
    if compare is not None:
        name, _, other_target = compare.partition("@")
        beside = replace(
            choice,
            kernel=name or choice.kernel,
            arguments=compare_arguments or (() if name else choice.arguments),
            target=other_target or choice.target,
            transformations=compare_transformations,
        )
        other = profiled(prepare(beside), spans=False).found
    timed = profiled(launch, spans=bool(perfetto or plot or against))
    program, timeline, found = timed.program, timed.timeline, timed.found
    arrays, result = timed.arrays, timed.result
    for array, after in zip(arrays, result.inputs_after):
        array[...] = after
    updated = changed_tensors(launch, before)
    outputs = tuple(result.outputs)
    comparisons = compare_outputs(function, launch, before, outputs, updated, tolerance)
    if perfetto is not None:
        write_perfetto(perfetto, program, timeline)
    if plot is not None:
        write_plot(plot, program, timeline)
    if html is not None:
        found.save_html(html, other)

    sections: list[Section] = []
    if other is not None:
        comparison = ProfileComparison(other, found)
        sections += comparison.sections()
    sections += found.sections(lines)
    measured = None if against is None else beside_measured(against, program, timeline)
    if measured is not None:
        sections += measured.sections()
    if comparisons is not None:
        names = [f"output{number}" for number in range(len(outputs))] or list(updated)
        sections.append(comparison_table(comparisons, names))
    sections += [f"wrote {path}{how}" for path, how in written if path is not None]
    data = {
        "profile": found.to_dict(),
        "inputs": launch.inputs_data(),
        "comparison": None if comparisons is None else [c.data() for c in comparisons],
        "perfetto": perfetto,
        "plot": plot,
        "html": html,
        "against": None if measured is None else measured.to_dict(),
        "compared": None if comparison is None else comparison.to_dict(),
    }
    options.show(context, Report(data, sections))
    failed = comparisons is not None and not all(c.agrees for c in comparisons)
    return (CHECK_FAILED if failed else OK).number
