"""The `nki` command. `main` is its entry point; each module holds one family of commands.

Where another package shadows one of ours there are no commands; `main` says which one it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: `sys.argv[1:]`) and return its exit code.

    The codes are those of `nki.cli.exit_codes`.
    """
    from nki.shadowed import ShadowedPackageError

    try:
        from nki.cli.application import run
    except ShadowedPackageError as error:
        from nki.cli.exit_codes import CHECK_FAILED, INTERNAL

        asked = "doctor" in (sys.argv[1:] if arguments is None else arguments)
        print(error, file=sys.stdout if asked else sys.stderr)
        return (CHECK_FAILED if asked else INTERNAL).number
    return run(arguments)


__all__ = ["main"]
