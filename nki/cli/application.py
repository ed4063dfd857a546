"""The `nki` command group: its commands, how their results are printed, how failures end.

Packages beside `nki` add commands by entry points (`nki.extensions`); one is imported when it is
called, or listed with its help.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import cache

import click
from click.shell_completion import add_completion_class, shell_complete

from nki.cli.bash_completion import WholeLineBashComplete
from nki.cli.compile import compile_command
from nki.cli.diff import diff_command
from nki.cli.disasm import disasm_command
from nki.cli.doctor import doctor_command
from nki.cli.errors import errors_command
from nki.cli.exit_codes import CLOSED, INTERRUPTED, USAGE, exit_code_table
from nki.cli.failure import Presentation, keep_frames, report_failure, report_usage
from nki.cli.ir import ir_command
from nki.cli.isa import isa_command
from nki.cli.migrate import migrate_command
from nki.cli.profile import profile_command
from nki.cli.run import run_command

COMMANDS = (
    run_command,
    compile_command,
    profile_command,
    diff_command,
    ir_command,
    disasm_command,
    isa_command,
    migrate_command,
    errors_command,
    doctor_command,
)
"""The commands of `nki` itself, in the order in which a new user meets them."""


def extension_commands(own: bool = False) -> list[str]:
    """Names of commands that other packages add; with `own`, those of this distribution."""
    from nki.extensions import COMMANDS as GROUP
    from nki.extensions import extensions

    known = {command.name for command in COMMANDS}
    return [name for name in extensions(GROUP, own) if name not in known]


def all_commands() -> list[click.Command]:
    """Every command of this distribution, those of its other packages included."""
    return [*COMMANDS, *(_load(name) for name in extension_commands(own=True))]


def _load(name: str) -> click.Command:
    """The command that another package adds under a name."""
    from nki.extensions import COMMANDS as GROUP
    from nki.extensions import extensions

    return extensions(GROUP)[name].load()


class _Group(click.Group):
    """Lists commands in the order of `COMMANDS`, then those of other packages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *extension_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in extension_commands():
            return own
        try:
            return _load(cmd_name)
        except ImportError as error:
            return _Unloadable(cmd_name, error)


class _Unloadable(click.Command):
    """A command whose package cannot be imported: listed as such, raises why when called."""

    def __init__(self, name: str, error: ImportError) -> None:
        settings = {"ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(name, context_settings=settings, short_help=f"cannot be loaded: {error}")
        self.error = error

    def invoke(self, ctx: click.Context) -> None:
        raise self.error


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
    if arguments is None and (wanted := _completion()):
        add_completion_class(WholeLineBashComplete)
        return shell_complete(group(), {}, "nki", "NKI_COMPLETE", wanted)
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


def _completion() -> str:
    """What a shell asks for, in place of a command; nothing where other packages shadow ours."""
    with suppress(ImportError):
        from nki import settings

        return settings.completion_wanted()
    return ""


def _invoke(given: list[str], presentation: Presentation) -> int:
    from nki import progress

    try:
        if presentation.own_frames:
            keep_frames()
        # Not `main`, which would turn a closed stdout into an exit code of its own.
        made = group().make_context("nki", given, obj=presentation)
        with made as context, progress.shown():
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
