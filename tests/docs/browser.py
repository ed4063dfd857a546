"""A headless browser, where the machine has one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium: that of playwright, or the system's; skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright: the extra [dev]")
    with playwright.sync_playwright() as driver:
        program = next(filter(None, map(shutil.which, _NAMES)), None)
        try:
            opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except playwright.Error:
            pytest.skip("no Chromium: `playwright install chromium`, or the system's package")
        try:
            yield opened
        finally:
            opened.close()
