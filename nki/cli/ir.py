"""`nki ir`: the kernel after any stage of the compiler, as text."""

from __future__ import annotations

import click

from nki.cli import options
from nki.cli.exit_codes import OK
from nki.report import Report


@click.command("ir")
@options.choosing("FILE:KERNEL", options.shapes, options.transformations)
@click.option(
    "--after",
    "stage",
    default="trace",
    show_default=True,
    metavar="STAGE",
    help="trace, a pass, schedule (instructions in their order), or program (assembler text). An "
    "unknown name lists them.",
)
@options.presented
def ir_command(
    context: click.Context,
    choice: options.KernelChoice,
    stage: str,
) -> int:
    """Print a kernel after a stage of the compiler.

    Example:

    \b
      nki ir softmax.py:softmax --input 'a=(256,512):float32' --after allocate
    """
    from nki.cli.specialise import specialise
    from nki.pipeline import stage_text

    traced = specialise(choice)
    text = stage_text(traced, stage)
    data = {"kernel": traced.name, "target": traced.target, "stage": stage, "text": text}
    options.show(context, Report(data, [text.rstrip("\n")]))
    return OK.number
