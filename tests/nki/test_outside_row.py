"""A row that states its meaning is all that an element-wise instruction costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_row_from_outside_runs_everywhere_and_has_text_page_and_checks() -> None:
    """In a process of its own, as rows stay in the tables."""
    script = Path(__file__).with_name("outside_row.py")
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
