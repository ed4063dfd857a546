"""Tables of the conformance tests, printed at the end of a run; a folder for a command's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

_TABLES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def report_table(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """A function that adds a table to the end of the run's output."""
    return pytestconfig.stash.setdefault(_TABLES, []).append


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    tables = config.stash.get(_TABLES, [])
    if tables:
        terminalreporter.section("conformance")
        terminalreporter.write("\n".join([*tables, ""]))


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder is the current one, and no variable of the environment chooses for the
    command `neuronx-cc`."""
    monkeypatch.chdir(tmp_path)
    for name in ("NEURON_COMPILE_CACHE_URL", "NEURON_LOGICAL_NC_CONFIG"):
        monkeypatch.delenv(name, raising=False)
