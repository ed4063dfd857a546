"""The `nki` command group: its commands, how their results are printed, how failures end."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextvars import copy_context
from functools import cache

import click

from nki.cli.compile import compile_command
from nki.cli.disasm import disasm_command
from nki.cli.doctor import doctor_command
from nki.cli.errors import errors_command
from nki.cli.exit_codes import CLOSED, INTERRUPTED, USAGE, exit_code_table
from nki.cli.failure import Presentation, keep_frames, report_failure, report_usage
from nki.cli.ir import ir_command
from nki.cli.isa import isa_command
from nki.cli.profile import profile_command
from nki.cli.run import run_command

COMMANDS = (
    run_command,
    compile_command,
    profile_command,
    ir_command,
    disasm_command,
    isa_command,
    errors_command,
    doctor_command,
)
"""Every command, in the order in which a new user meets them."""


class _Group(click.Group):
    """Lists commands in the order of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@cache
def group() -> click.Group:
    """The `nki` command with all its subcommands."""
    result = _Group(
        name="nki",
        help="Write, compile, run and time NKI kernels without a Neuron device.",
        epilog="\b\nExit codes:\n" + exit_code_table(),
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for command in COMMANDS:
        result.add_command(command)
    return click.version_option(_version(), prog_name="nki")(result)


def _version() -> str:
    import nki

    return nki.__version__


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Without a command, show the help."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    presentation = Presentation("--json" in given, "--traceback" in given)
    try:
        code = copy_context().run(_invoke, given[:] or ["--help"], presentation)
        code = code if given else USAGE.number
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Python flushes stdout once more when it exits; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED.number


def _invoke(given: list[str], presentation: Presentation) -> int:
    try:
        if presentation.own_frames:
            keep_frames()
        # Not `main`, which would turn a closed stdout into an exit code of its own.
        with group().make_context("nki", given, obj=presentation) as context:
            return int(group().invoke(context))
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        where = getattr(error, "ctx", None)
        path = where.command_path if where else "nki"
        return report_usage(error.format_message(), f"{path} --help", presentation)
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED.number
    except BrokenPipeError:
        raise
    except Exception as error:
        return report_failure(error, presentation)
