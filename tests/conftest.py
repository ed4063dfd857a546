"""Paths that several tests need (kernels of the tutorials and of the tests), and an option."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

sys.path[:0] = [str(ROOT / "tutorials"), str(ROOT / "tests" / "nki")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update",
        action="store_true",
        help="rewrite files that are compared with generated ones (docs/)",
    )
    parser.addoption(
        "--all-conformance",
        action="store_true",
        help="run every conformance test, not only the quick ones",
    )
