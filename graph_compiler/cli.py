"""`nki hlo`: whole graphs on the command line: what is in one, running, converting, checking.

`python -m graph_compiler.cli` is `neuronx-cc` (`graph_compiler.command`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nki import progress
from nki.cli import options
from nki.cli.exit_codes import CHECK_FAILED, GRAPH, OK
from nki.report import Facts, Report, Section, Table

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module

_FEW = 20
"""Rows of a table that are shown without --all."""

_OUTPUT = "--output"

_ALL = click.option("--all", "everything", is_flag=True, help="Show every row of every table.")
_FILE = click.argument("file", metavar="FILE")


@click.group("hlo", no_args_is_help=False)
def hlo_command() -> None:
    """Read, run, convert and check whole graphs.

    FILE is a HloModuleProto (also in a HloProto or HloSnapshot), HLO text or, with the extra
    `jax`, StableHLO as text or bytecode; its content says which.
    """


def _shown(table: Table, everything: bool) -> Table:
    """A table cut to its first rows, with a last one that says so."""
    if everything or len(table.rows) <= _FEW:
        return table
    more = f"... and {len(table.rows) - _FEW} more (--all)"
    last = (more, *[""] * (len(table.columns) - 1))
    return Table(table.title, table.columns, (*table.rows[:_FEW], last))


def _size(count: int) -> str:
    """Bytes for people: 1536 is "1.5 KiB"."""
    value, units = float(count), ("bytes", "KiB", "MiB", "GiB", "TiB")
    for unit in units[:-1]:
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} {units[-1]}"


@hlo_command.command("info")
@_FILE
@_ALL
@options.presented
@click.pass_context
def info_command(context: click.Context, file: str, everything: bool) -> int:
    """Show what a graph consists of.

    Sizes, parameters and results, which outputs take the memory of which parameters, how often
    each opcode occurs, and the number of operations (bodies of loops count once).
    """
    from graph_compiler.description import describe
    from graph_compiler.frontends.sniff import load_with_format

    module, form = load_with_format(file)
    facts = describe(module)
    head = Facts.of(
        "",
        module=facts["name"],
        format=form,
        computations=f"{facts['computations']:,}",
        instructions=f"{facts['instructions']:,}",
        parameters=f"{len(facts['parameters'])}, {_size(facts['parameter_bytes'])}",
        results=f"{len(facts['results'])}, {_size(facts['result_bytes'])}",
        constants=_size(facts["constant_bytes"]),
        flops=f"{facts['flops']:,}",
        transcendentals=f"{facts['transcendentals']:,}",
        channels=facts["channels"] or None,
    )
    tables = [
        *(
            Table.of(
                title,
                ("name", "shape", ">bytes"),
                ((row["name"], row["shape"], f"{row['bytes']:,}") for row in facts[title]),
            )
            for title in ("parameters", "results")
        ),
        Table.of(
            "aliases",
            ("output", "parameter", "component", "kind"),
            (
                (row["output"], row["parameter"], row["component"], row["kind"])
                for row in facts["aliases"]
            ),
        ),
        *(
            Table.of(title.replace("_", " "), (word, ">count"), facts[title].items())
            for title, word in (
                ("opcodes", "opcode"),
                ("element_types", "type"),
                ("custom_calls", "target"),
            )
        ),
    ]
    sections: list[Section] = [head, *(_shown(t, everything) for t in tables if t.rows)]
    options.show(context, Report({"file": file, "format": form, **facts}, sections))
    return OK.number


@hlo_command.command("check")
@_FILE
@options.presented
@click.pass_context
def check_command(context: click.Context, file: str) -> int:
    """Check a graph and list everything that is wrong with it.

    Structure, shapes, element types, attributes and aliases are checked; each finding has the code
    of an error. Ends with exit code 7 when there are findings. Remarks (custom calls without a
    meaning, values that nothing uses) are no findings.
    """
    from graph_compiler.description import remarks
    from graph_compiler.frontends.sniff import load_with_format
    from graph_compiler.hlo.verify import findings
    from nki.cli.failure import error_data
    from nki.errors import explain

    module, form = load_with_format(file, check=False)
    errors = list(findings(module))
    noted = [] if errors else remarks(module)
    data = {
        "file": file,
        "format": form,
        "module": module.name,
        "findings": [error_data(error) for error in errors],
        "remarks": noted,
    }
    number = f"{len(errors)} finding{'s' * (len(errors) != 1)}"
    head = Facts.of("", module=module.name, format=form, result=number if errors else "correct")
    sections: list[Section] = [head, *map(explain, errors)]
    if noted:
        sections.append("\n".join(f"remark: {text}" for text in noted))
    options.show(context, Report(data, sections))
    return (GRAPH if errors else OK).number


@hlo_command.command("convert")
@_FILE
@click.option(
    "--to",
    "form",
    type=click.Choice(["proto", "text", "stablehlo"]),
    metavar="FORMAT",
    help="The format to write: proto (HloModuleProto), text (HLO text), or stablehlo (StableHLO "
    "text; needs the extra `jax`). Default: as the suffix of --output says (.pb, .txt or .mlir), "
    "else text.",
)
@click.option(
    _OUTPUT,
    "-o",
    "path",
    metavar="PATH",
    help="The file to write. Default: texts go to the standard output.",
)
@click.option(
    "--plain",
    is_flag=True,
    help="HLO text as XLA prints it, without the comments that keep what it leaves out.",
)
@click.option("--no-check", "unchecked", is_flag=True, help="Convert a graph that is not right.")
@options.presented
@click.pass_context
def convert_command(
    context: click.Context,
    file: str,
    form: str | None,
    path: str | None,
    plain: bool,
    unchecked: bool,
) -> int:
    """Write a graph in another format.

    Names that several computations of a text have become unique in a proto, as XLA wants them.

    Example:

    \b
      nki hlo convert model.hlo.pb -o model.txt
    """

    from graph_compiler.frontends.sniff import load_with_format
    from isa.files.complete import complete
    from nki.cli.output_files import check_writable

    form = form or _form_of(path)
    if path is None and form not in _TEXTS:
        raise click.UsageError(f"--to {form} writes bytes: name a file with {_OUTPUT}.", context)
    check_writable(path)
    module, source = load_with_format(file, check=not unchecked)
    if source == "text" and form not in _TEXTS:
        module.make_names_unique()
    data = _written(module, form, plain)
    facts: dict[str, Any] = {"file": file, "from": source, "to": form, "bytes": len(data)}
    if path is None:
        text = data.decode()
        report = Report({**facts, "text": text}, [text.rstrip("\n")])
    else:
        with complete(path) as part:
            part.write_bytes(data)
        report = Report({**facts, "saved": path}, [f"wrote {path}"])
    options.show(context, report)
    return OK.number


_SUFFIXES = {".pb": "proto", ".txt": "text", ".mlir": "stablehlo"}
_TEXTS = frozenset({"text", "stablehlo"})


def _form_of(path: str | None) -> str:
    """The format that the suffix of a file stands for."""
    import os

    if path is None:
        return "text"
    suffix = os.path.splitext(path)[1]
    if suffix not in _SUFFIXES:
        raise click.UsageError(
            f"the suffix of {path} is none of {', '.join(_SUFFIXES)}: name the format with --to."
        )
    return _SUFFIXES[suffix]


def _written(module: Module, form: str, plain: bool) -> bytes:
    from graph_compiler.frontends import stablehlo
    from graph_compiler.hlo.proto import to_proto
    from graph_compiler.hlo.text import print_text

    writers: dict[str, Any] = {
        "proto": lambda: to_proto(module),
        "text": lambda: print_text(module, exact=not plain).encode(),
        "stablehlo": lambda: stablehlo.from_module(module).encode(),
    }
    return writers[form]()


@hlo_command.command("run")
@_FILE
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=SPEC",
    help="One parameter, by its name in the graph: x=normal(2,3):bfloat16 (also uniform, zeros, "
    "ones, arange), x=[1,2], or x=@file.npy. Others get seeded values: normal floats, integers "
    "in [0, 8).",
)
@options.seed
@click.option(
    "--executor",
    metavar="NAME",
    help="What computes the outputs: host (compiled for this CPU), reference (NumPy, instruction "
    "by instruction, any number of ranks) or xla (needs the extra `jax`). Default: host for one "
    "rank, reference for several.",
)
@click.option(
    "--compare",
    metavar="NAME",
    help="Another executor that must give the same outputs.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0.0),
    metavar="NUMBER",
    help="Relative tolerance of --compare. Default: by the element type of the output.",
)
@click.option(
    "--ranks",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    metavar="NUMBER",
    help="Simulated ranks; all get the same inputs, and the outputs are those of rank 0.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 1024),
    metavar="NUMBER",
    help="How many of the ranks are partitions of one replica. Default: as the graph says.",
)
@click.option(
    "--loop-limit",
    type=click.IntRange(0),
    metavar="NUMBER",
    help="Iterations of all loops together after which a run counts as endless. Default: 4194304.",
)
@click.option(
    "--save-outputs",
    "folder",
    metavar="DIR",
    help="Write every output as DIR/output0.npy and so on.",
)
@_ALL
@options.presented
@click.pass_context
def run_command(
    context: click.Context,
    file: str,
    inputs: tuple[str, ...],
    seed: int,
    executor: str | None,
    compare: str | None,
    tolerance: float | None,
    ranks: int,
    partitions: int | None,
    loop_limit: int | None,
    folder: str | None,
    everything: bool,
) -> int:
    """Run a graph on the host and show its outputs.

    Example:

    \b
      nki hlo run model.hlo.pb --input 'tokens=@tokens.npy' --compare reference
    """
    from dataclasses import replace

    from graph_compiler.runs import GraphRun, chosen_executor, default_executor
    from nki.cli.output_files import check_folder_writable, save_arrays

    check_folder_writable(folder)
    executor = executor or default_executor(ranks)
    first = chosen_executor(executor, ranks)
    second = None if compare is None else chosen_executor(compare, ranks)
    run = GraphRun.prepared(file, inputs, seed, ranks, partitions)
    if loop_limit is not None:
        run = replace(run, loop_limit=loop_limit)
    progress.stage(f"run ({executor})")
    outputs = run.execute(first)
    comparisons = None
    if second is not None:
        progress.stage(f"run ({compare})")
        comparisons = run.compared(outputs, run.execute(second), tolerance)
    named = {f"output{number}": output for number, output in enumerate(outputs)}
    saved = [] if folder is None else save_arrays(folder, named)
    report = run.report(executor, compare, named, comparisons, saved)
    report.sections = [
        _shown(section, everything) if isinstance(section, Table) else section
        for section in report.sections
    ]
    options.show(context, report)
    failed = comparisons is not None and not all(one.agrees for one in comparisons)
    return (CHECK_FAILED if failed else OK).number


if __name__ == "__main__":
    from graph_compiler.command import main

    raise SystemExit(main())
