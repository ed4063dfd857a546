"""The command `neuronx-cc`: options (`arguments`), compiling (`session`), what it says (`journal`)
and the programs that it keeps (`cache`). Its reference is `docs/neuronx-cc.md`."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: `sys.argv[1:]`) and return its exit code, 0 for success.

    >>> main(["list-operators", "--framework", "XLA"]) # doctest: +ELLIPSIS
    Abs
    ...
    """
    from graph_compiler.command.session import run

    return run(arguments)


__all__ = ["main"]
