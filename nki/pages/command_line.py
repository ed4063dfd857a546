"""The page of the `nki` command: commands, options, input grammar, exit codes."""

from __future__ import annotations

import inspect
from textwrap import dedent

import click

from nki import expected
from nki.cli import input_specs
from nki.cli.application import all_commands
from nki.cli.exit_codes import EXIT_CODES
from nki.row_pages.markdown import code, page, table


def command_line_page() -> str:
    """`docs/command-line.md`."""
    return page(
        "# The nki command",
        "`python -m nki.cli` is the same command. Every command takes `--help`.",
        "",
        "On a terminal, commands that take more than a second show their progress on one line: "
        "trace, passes with their numbers, proof, run, timing, advice. It goes when the results "
        "come. Nothing of it is written where standard output or standard error is piped.",
        *(_command(command) for command in all_commands()),
        "## Inputs",
        _after_title(input_specs.__doc__),
        "## Comparison with --expect",
        _after_title(expected.__doc__),
        "## Exit codes",
        table(
            ("code", "name", "meaning"),
            ((row.number, row.name, row.meaning) for row in EXIT_CODES),
        ),
        "Errors go to stderr, as text: code, what, where, why, try. With `--json` they go to "
        'stdout as `{"error": {"code", "number", "what", "why", "hint", "notes", "location"}, '
        '"exit_code"}`.',
    )


def _after_title(document: str | None) -> str:
    """A module's description without its first line; indented blocks become code."""
    parts = inspect.cleandoc(document or "").split("\n\n")[1:]
    return "\n\n".join(
        f"```text\n{dedent(part)}\n```" if part.startswith("    ") else part for part in parts
    )


def _command(command: click.Command, parent: str = "nki") -> str:
    name = f"{parent} {command.name}"
    if isinstance(command, click.Group):
        inner = (_command(one, name) for one in command.commands.values())
        return "\n\n".join([f"## {name}", _help(command), *inner])
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option)]
    usage = " ".join([name, *(_metavar(argument) for argument in arguments), "[OPTIONS]"])
    rows = ((_names(option), option.help or "", _default(option)) for option in options)
    parts = [
        f"## {name}",
        _help(command),
        f"```text\n{usage}\n```",
        table(("option", "meaning", "default"), rows),
    ]
    return "\n\n".join(parts)


def _metavar(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _names(option: click.Option) -> str:
    names = ", ".join(option.opts)
    if option.is_flag:
        return code(names)
    return code(f"{names} {option.metavar or option.type.name.upper()}")


def _default(option: click.Option) -> str:
    value = option.default
    if option.is_flag or not option.show_default or value is None:
        return ""
    return code(value)


def _help(command: click.Command) -> str:
    """The command's description; what follows the mark that stops rewrapping is code."""
    parts = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(
        "```text\n" + dedent(part.replace("\b\n", "")) + "\n```" if part.startswith("\b") else part
        for part in parts
    )
