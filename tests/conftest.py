"""Paths that several tests need: the kernels of the tutorials and of the tests."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

sys.path[:0] = [str(ROOT / "tutorials"), str(ROOT / "tests" / "nki")]
