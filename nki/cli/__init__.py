"""The `nki` command. `main` is its entry point; each module holds one family of commands.

Nothing here imports `isa` or `simulator` before a command needs it, so that `nki doctor` can
report packages that shadow ours.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: `sys.argv[1:]`) and return its exit code.

    The codes are those of `nki.cli.exit_codes`.
    """
    from nki.cli.application import run

    return run(arguments)


__all__ = ["main"]
