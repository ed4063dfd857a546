"""`nki compile`: compile a kernel to a container."""

from __future__ import annotations

import os

import click

from nki.cli import options
from nki.cli.exit_codes import OK
from nki.report import Report


@click.command("compile")
@options.choosing("FILE:KERNEL", options.shapes, options.transformations)
@click.option("-o", "--output", metavar="FILE.neff", help="Where to write the container.")
@options.presented
def compile_command(
    context: click.Context,
    choice: options.KernelChoice,
    output: str | None,
) -> int:
    """Compile a kernel to a container.

    Shows the instructions of every engine, memory use, launch symbols and guards.

    Example:

    \b
      nki compile rows.py:scaled_rows --input 'a=(M,512):bfloat16' \\
          --symbol M:multiple_of=128,max=8192 --target trn2 -o rows.neff
    """
    from nki.cli.output_files import check_writable
    from nki.cli.specialise import specialise
    from nki.displays.program_facts import program_data, program_sections
    from nki.kernel import compile_traced

    check_writable(output)
    traced = specialise(choice)
    compiled = compile_traced(traced)
    data = program_data(compiled.program) | {"file": output, "bytes": None}
    sections = program_sections(data)
    if output is not None:
        compiled.save(output)
        data["bytes"] = os.path.getsize(output)
        sections.append(f"wrote {output}, {data['bytes']:,} bytes")
    options.show(context, Report(data, sections))
    return OK.number
