"""Files of what running programs print."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from isa.errors import NeuronError
from simulator.printed import FILES, PrintedFiles, printed_to


def test_each_message_of_each_core_counts_by_itself(tmp_path: Path) -> None:
    files = PrintedFiles(str(tmp_path))
    for message, core, value in (("x", 0, 1), ("x", 0, 2), ("x", 1, 3), ("y", 0, 4)):
        files.write(message, core, np.full((2, 3), value, np.int32))
    found = {
        str(path.relative_to(tmp_path).parent): np.load(path)[0, 0].item()
        for path in tmp_path.rglob("tensor.npy")
    }
    assert found == {"x/core_0/0": 1, "x/core_0/1": 2, "x/core_1/0": 3, "y/core_0/0": 4}


def test_types_that_numpy_files_lack_are_words_with_a_name(tmp_path: Path) -> None:
    values = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
    PrintedFiles(str(tmp_path)).write("half", 0, values)
    place = tmp_path / "half" / "core_0" / "0"
    assert json.loads((place / "tensor.json").read_text()) == {"dtype": "bfloat16", "shape": [1, 2]}
    words = np.load(place / "tensor.npy")
    assert words.dtype == np.uint16 and (words.view(ml_dtypes.bfloat16) == values).all()


@pytest.mark.parametrize("message", ["a/b", "..", "", "nul\0"])
def test_no_message_leaves_the_folder(tmp_path: Path, message: str) -> None:
    folder = tmp_path / "inside"
    PrintedFiles(str(folder)).write(message, 0, np.zeros(1, np.float32))
    (file,) = tmp_path.rglob("tensor.npy")
    assert file.relative_to(folder).parts[1:] == ("core_0", "0", "tensor.npy")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("in the way")
    with pytest.raises(NeuronError) as caught:
        PrintedFiles(str(tmp_path)).write("x", 0, np.zeros(1))
    assert caught.value.code == "not-writable"


def test_files_are_written_inside_only(tmp_path: Path) -> None:
    with printed_to(str(tmp_path)):
        assert FILES.get() is not None
        with printed_to(None):
            assert FILES.get() is None
    assert FILES.get() is None
