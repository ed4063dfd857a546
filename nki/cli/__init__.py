"""The `nki` command. `main` is its entry point; each module holds one family of commands.

Where another package shadows one of ours there are no commands; `main` says which one it is.

`application` is the group of commands: it runs one, prints its result, and ends with a code of
`exit_codes`, or after a `failure`. What commands take: `kernel_files` (FILE:KERNEL), `input_specs`
and `input_values` (--input), `options`; `specialise` traces a kernel for given shapes, `launch`
starts it. `array_files` and `output_files` read and write, `bash_completion` completes. The other
modules are the commands of their names.
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
