"""`python -m nki.pages [--update] [FOLDER]`: compare or rewrite the generated pages."""

import argparse
import sys
from pathlib import Path

from nki.pages import difference, update


def main() -> int:
    """0 when the files equal the pages (with --update: always), else 1 and a list."""
    parser = argparse.ArgumentParser(prog="python -m nki.pages", description=__doc__)
    parser.add_argument("folder", nargs="?", default="docs", type=Path)
    parser.add_argument("--update", action="store_true", help="rewrite the files")
    options = parser.parse_args()
    if options.update:
        update(options.folder)
    found = difference(options.folder)
    for line in found:
        print(f"{options.folder}: {line}")
    if found:
        print("run python -m nki.pages --update", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
