"""`nki profile`: run a kernel or a container and say where its time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nki.cli import options
from nki.cli.exit_codes import CHECK_FAILED, OK
from nki.report import Facts, Report, Section, Table, is_terminal

if TYPE_CHECKING:
    from simulator.profile import Profile


@click.command("profile")
@click.argument("kernel", metavar="FILE:KERNEL|FILE.neff")
@options.inputs
@options.arguments
@options.target
@options.cores
@options.expect
@options.tolerance
@options.seed
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
    "--lines",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    default=10,
    show_default=True,
    help="How many of the kernel's lines to list, hottest first.",
)
@options.presented
@click.pass_context
def profile_command(
    context: click.Context,
    kernel: str,
    inputs: tuple[str, ...],
    arguments: tuple[str, ...],
    target: str | None,
    cores: int,
    expect: str | None,
    tolerance: float | None,
    seed: int,
    perfetto: str | None,
    plot: str | None,
    lines: int,
) -> int:
    """Run a kernel and show where its time goes.

    Shows the time, the bound that limits it and why, utilisation and cycles of every engine, DMA,
    memory, and the hottest lines.

    Example:

    \b
      nki profile matmul_kernels.py:tiled --input 'lhsT=normal(1024,1024):bfloat16' \\
          --input 'rhs=normal(1024,1024):bfloat16' --target trn2 \\
          --expect matmul_numpy --perfetto t.json
    """
    from nki.cli.launch import changed_tensors, copies, load_expected, prepare
    from nki.cli.output_files import check_writable
    from nki.cli.run import compare_outputs, comparison_table
    from nki.compiled import run_settings
    from nki.settings import native_wanted, threads_wanted
    from simulator.lanes import load
    from simulator.profile import profile, write_perfetto, write_plot
    from simulator.timing import simulate

    check_writable(perfetto)
    check_writable(plot)
    launch = prepare(kernel, inputs, arguments, seed, target, cores)
    function = load_expected(launch, expect)
    before = copies(launch.tensors)
    program, arrays = launch.bound_program()
    loaded = load(program, launch.checked, native_wanted(), threads_wanted())
    with run_settings():
        result = loaded.run(arrays)
    timeline = simulate(program, result.trace, keep_spans=bool(perfetto or plot))
    found = profile(program, timeline)
    for array, after in zip(arrays, result.inputs_after):
        array[...] = after
    updated = changed_tensors(launch, before)
    outputs = tuple(result.outputs)
    comparisons = compare_outputs(function, launch, before, outputs, updated, tolerance)
    if perfetto is not None:
        write_perfetto(perfetto, program, timeline)
    if plot is not None:
        write_plot(plot, program, timeline)

    sections: list[Section]
    sections = profile_sections(found, lines) if is_terminal() else [found.text(lines).rstrip("\n")]
    if comparisons is not None:
        names = [f"output{number}" for number in range(len(outputs))] or list(updated)
        sections.append(comparison_table(comparisons, names))
    if perfetto is not None:
        sections.append(f"wrote {perfetto}; open it in ui.perfetto.dev")
    if plot is not None:
        sections.append(f"wrote {plot}")
    data = {
        "profile": found.to_dict(),
        "inputs": launch.inputs_data(),
        "comparison": None if comparisons is None else [c.data() for c in comparisons],
        "perfetto": perfetto,
        "plot": plot,
    }
    options.show(context, Report(data, sections))
    failed = comparisons is not None and not all(c.agrees for c in comparisons)
    return (CHECK_FAILED if failed else OK).number


def profile_sections(found: Profile, lines: int) -> list[Section]:
    """A profile as tables, for a terminal; `Profile.text` is the same as plain text."""
    cores = f", {found.cores} cores" if found.cores > 1 else ""
    matmul = None
    if found.flops:
        matmul = (
            f"{found.flops / 1e9:,.3f} GFLOP in {found.matmul_dtype}, {found.mfu_percent:.1f} % of "
            f"{found.peak_tflops:g} TFLOP/s; {found.arithmetic_intensity:,.0f} flop/byte "
            f"(balance {found.balance:,.0f})"
        )
    dma = found.dma
    sections: list[Section] = [
        Facts.of(
            "",
            kernel=f"{found.kernel} on {found.target}{cores}",
            time=f"{found.total_ns / 1e3:,.2f} us, and about {found.overhead_ns / 1e3:,.1f} us to "
            "start and stop a kernel",
            bound=f"{found.bound}: {found.reason}",
            matmul=matmul,
            throttling=f"{found.throttled_ns / 1e3:,.2f} us" if found.throttled_ns else None,
            DMA=f"active {dma.active_percent:.1f} %, {dma.bytes_per_ns:,.1f} of "
            f"{dma.peak_bytes_per_ns:,.0f} GB/s, {dma.transfers:,} transfers, "
            f"{dma.descriptors:,} descriptors of {dma.bytes_per_descriptor:,.0f} B",
        ),
        Table.of(
            "engines",
            (
                "engine",
                ">GHz",
                ">instructions",
                ">busy cycles",
                ">busy %",
                ">active %",
                "waits for",
            ),
            (
                (
                    engine.name,
                    f"{engine.clock_ghz:.2f}",
                    f"{engine.instructions:,}",
                    f"{engine.busy_cycles:,.0f}",
                    f"{engine.busy_percent:.1f}",
                    f"{engine.active_percent:.1f}",
                    engine.waits_for,
                )
                for engine in found.engines
            ),
        ),
        Table.of(
            "memory, bytes of a partition",
            ("", ">peak", ">capacity"),
            (
                (m.name, f"{m.peak_bytes_per_partition:,}", f"{m.bytes_per_partition:,}")
                for m in found.memories
            ),
        ),
    ]
    if lines and found.lines:
        rows = (
            (
                f"{line.total_ns / 1e3:,.2f}",
                f"{line.file.rpartition('/')[2]}:{line.line}",
                line.text,
                ", ".join(sorted(line.by_engine, key=line.by_engine.__getitem__, reverse=True)),
            )
            for line in found.lines[:lines]
        )
        sections.append(Table.of("hot lines", (">us", "line", "source", "engines"), rows))
    if found.provenance:
        notes = "\n".join(f"- {note}" for note in found.provenance)
        sections.append(f"not validated by any published measurement\n{notes}")
    return sections
