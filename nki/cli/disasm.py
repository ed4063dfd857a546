"""`nki disasm`: the instructions of a container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from nki.cli import options
from nki.cli.exit_codes import OK
from nki.report import Report

if TYPE_CHECKING:
    from isa.enums import Engine
    from isa.program import Program


@click.command("disasm")
@click.argument("container", metavar="FILE.neff")
@click.option(
    "--engine",
    metavar="NAME",
    help="One stream only: tensor, scalar, gpsimd, vector or sync.",
)
@click.option(
    "--loops",
    is_flag=True,
    help="What is repeated how often, in place of every instruction: operands at offset 0, "
    "semaphores left out.",
)
@options.presented
@click.pass_context
def disasm_command(context: click.Context, container: str, engine: str | None, loops: bool) -> int:
    """Print the instructions of a container.

    The text assembles to the same program again, unless it is that of --engine or --loops.
    """
    from isa.files.container import load
    from isa.files.text import disassemble
    from nki.cli.kernel_files import read_reference

    chosen = None if engine is None else _engine(engine)
    reference = read_reference(container)
    if not reference.is_container:
        from isa.errors import NeuronError

        hint = "nki compile FILE:KERNEL -o FILE.neff makes a container of a kernel."
        raise NeuronError("unknown-kernel", f"{container} is a Python file", hint=hint)
    program = load(reference.file)
    if loops:
        text = "\n".join(_loop_lines(program, chosen))
    elif chosen is None:
        text = disassemble(program).rstrip("\n")
    else:
        text = "\n".join(_stream_lines(program, chosen))
    data = {"file": container, "target": program.target, "engine": engine, "text": text}
    options.show(context, Report(data, [text]))
    return OK.number


def _engine(name: str) -> Engine:
    from isa.enums import SEQUENCERS

    known = {engine.name: engine for engine in SEQUENCERS}
    if name not in known:
        raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint="--engine")
    return known[name]


def _stream_lines(program: Program, engine: Engine) -> Iterator[str]:
    from isa.files.text import print_instruction

    for number, core in enumerate(program.cores):
        yield f"; core {number}, {engine.name}"
        for index, instruction in enumerate(core.streams.get(engine, [])):
            yield f"  {index:>4}: {print_instruction(instruction)}"


def _loop_lines(program: Program, engine: Engine | None) -> Iterator[str]:
    from isa.files.reroll import outline, reroll
    from isa.rules.form import plural

    for number, core in enumerate(program.cores):
        for name, stream in core.streams.items():
            if engine is None or name is engine:
                yield f"; core {number}, {name.name}: {plural(len(stream), 'instruction')}"
                yield from (f"  {line}" for line in outline(reroll(stream)))
