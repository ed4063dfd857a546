"""Files of kernels, and the generated pages."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file of kernels, in a folder of its own."""
    from command_lines import KERNELS

    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return str(path)


@pytest.fixture(scope="session")
def generated() -> dict[str, str]:
    """The text of each generated page."""
    from nki.pages import pages

    return pages()


@pytest.fixture
def on_trn2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that name no target are for trn2."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
