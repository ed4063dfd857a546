"""Files that tests of the command line read."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_lines import KERNELS


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file of kernels, in a folder of its own."""
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return str(path)
