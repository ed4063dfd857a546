"""Paths that several tests need (kernels of the tutorials and of the tests), options, and what
tests of the native loop share."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from simulator.watchdog import held_memory

if TYPE_CHECKING:
    from isa.spec import Instruction

ROOT = Path(__file__).resolve().parent.parent

sys.path[:0] = [
    str(ROOT / "tutorials"),
    str(ROOT / "tests"),
    str(ROOT / "tests" / "nki"),
    str(ROOT / "tests" / "kernels"),
]


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
    parser.addoption(
        "--all-surface",
        action="store_true",
        help="run every public function for every dtype on every target",
    )
    parser.addoption(
        "--all-native",
        action="store_true",
        help="compare native code with NumPy in every generated case",
    )
    parser.addoption(
        "--all-cases",
        action="store_true",
        help="run every combination of parameters, not only enough to have each value of each",
    )
    parser.addoption(
        "--site",
        type=Path,
        metavar="PATH",
        help="the built documentation, which a browser opens",
    )
    parser.addoption(
        "--all-tutorials",
        action="store_true",
        help="with --site: tutorials that need jax or torch have been executed, too",
    )
    parser.addoption(
        "--all-settings",
        action="store_true",
        help="tune a kernel with 64 settings, against exhaustive search",
    )
    from checkouts import REPOSITORIES

    for repository in REPOSITORIES:
        help = f"a checkout of {repository.name}, whose kernels tests/kernels runs"
        parser.addoption(repository.option, type=Path, metavar="PATH", help=help)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The processes of `-n auto`: two for the whole suite, as far as there are CPUs, and this one
    alone for files that are named, so that debuggers work. Memory is meant for two at a time."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    return 2 if not named and (os.cpu_count() or 1) > 1 else 0


def pytest_configure(config: pytest.Config) -> None:
    from combinations import MARK

    config.addinivalue_line("markers", f"{MARK}: runs with --all-cases only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what `combinations.combined` marks, but for cases that are named."""
    if config.getoption("--all-cases") or any("[" in argument for argument in config.args):
        return
    from combinations import MARK

    further = [item for item in items if item.get_closest_marker(MARK)]
    if further:
        config.hook.pytest_deselected(items=further)
        items[:] = [item for item in items if not item.get_closest_marker(MARK)]


GROWTH = 256 << 20
"""Bytes that the tests of some files may leave before cyclic garbage is collected: looking through
all that is alive takes seconds towards the end."""


@pytest.fixture(scope="session")
def _held() -> dict[str, int]:
    """The memory of the process after the last collection."""
    return {"bytes": held_memory()}


@pytest.fixture(autouse=True, scope="module")
def _collected(_held: dict[str, int]) -> Iterator[None]:
    """Errors that pytest holds are in cycles with frames, and so with what eager mode has of a
    device; tracing and running make collections rare (`isa.gc_pause`)."""
    yield
    now = held_memory()
    if not now or now > _held["bytes"] + GROWTH:
        gc.collect()
        _held["bytes"] = held_memory()


# The default tier gives the same verdict every time, on machines of any speed; `search` looks for
# new counterexamples: python -m pytest --hypothesis-profile=search
settings.register_profile("tier", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("tier")


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[Instruction]:
    """The instructions that Python executes in place of native code, as they come."""
    from simulator.native.loop.program import NativeProgram

    found: list[Instruction] = []
    execute = NativeProgram._execute

    def noted(self: Any, number: int, preparation: Any, index: int) -> int:
        found.append(preparation.stream.instructions[index])
        return execute(self, number, preparation, index)

    monkeypatch.setattr(NativeProgram, "_execute", noted)
    return found


@pytest.fixture
def no_kept_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measured times are found nowhere: neither in this process nor on disk."""
    from nki.tuning import stored_times

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(stored_times, "_TIMES", {})
