"""Kernels named on the command line, FILE:KERNEL."""

from __future__ import annotations

from pathlib import Path

import pytest

from isa.errors import NeuronError
from nki.cli.kernel_files import load_function, load_module, read_reference

SOURCE = """
import neighbour
import nki

@nki.jit
def scaled(a):
    return a

def expected(a):
    return neighbour.VALUE
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "neighbour.py").write_text("VALUE = 7")
    path = tmp_path / "kernels_of_a_user.py"
    path.write_text(SOURCE)
    return str(path)


def test_references(file: str) -> None:
    assert read_reference(f"{file}:scaled").kernel == "scaled"
    assert read_reference(file).kernel is None and not read_reference(file).is_container
    container = Path(file).with_name("k.neff")
    container.write_bytes(b"")
    assert read_reference(str(container)).is_container


@pytest.mark.parametrize(
    ("name", "code"), [("missing.py:x", "file-not-found"), ("k.neff:x", "unknown-kernel")]
)
def test_what_is_no_file_with_kernels(file: str, name: str, code: str) -> None:
    Path(file).with_name("k.neff").write_bytes(b"")
    with pytest.raises(NeuronError) as caught:
        read_reference(str(Path(file).with_name(name.partition(":")[0])) + ":x")
    assert caught.value.code == code


def test_a_file_is_run_once_and_may_import_its_neighbours(file: str) -> None:
    module = load_module(file)
    assert load_module(file) is module and module.expected(0) == 7
    assert load_function("expected", file)(0) == 7
    assert load_function(f"{file}:scaled", "other.py").__name__ == "scaled"


def test_a_misspelt_function_is_named(file: str) -> None:
    with pytest.raises(NeuronError) as caught:
        load_function("expectd", file)
    assert caught.value.code == "unknown-function" and "Did you mean expected?" in caught.value.hint


def test_a_file_that_fails_may_be_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "wrong_at_first.py"
    path.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        load_module(str(path))
    path.write_text("right = True")
    assert load_module(str(path)).right
