"""Tables of the conformance tests, printed at the end of a run."""

from __future__ import annotations

from collections.abc import Callable

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
