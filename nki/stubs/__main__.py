"""`python -m nki.stubs [--update]`: compare or rewrite the stubs of the public namespaces."""

import argparse
import sys

from nki.stubs import difference, update


def main() -> int:
    """0 when the files equal the stubs (with --update: always), else 1 and a list."""
    parser = argparse.ArgumentParser(prog="python -m nki.stubs", description=__doc__)
    parser.add_argument("--update", action="store_true", help="rewrite the files")
    if parser.parse_args().update:
        update()
    found = difference()
    for path in found:
        print(f"{path} differs from the tables")
    if found:
        print("run python -m nki.stubs --update", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
