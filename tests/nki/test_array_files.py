"""Arrays from files: what is read, which entry is taken, and what is said of others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from isa.errors import NeuronError
from nki.cli.array_files import array_of

SPEC: Any = SimpleNamespace(name="a", text="a=@FILE")
ONE, OTHER = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([7, 8], np.int8)


def test_arrays_come_back(tmp_path: Path) -> None:
    path = str(tmp_path / "one.npy")
    np.save(path, ONE)
    found = array_of(SPEC, path, None)
    assert found.dtype == np.float32 and np.array_equal(found, ONE)


@pytest.mark.parametrize(
    ("entries", "entry", "expected"),
    [
        ({"x": ONE}, None, ONE),
        ({"x": ONE, "a": OTHER}, None, OTHER),  # called as the parameter
        ({"x": ONE, "a": OTHER}, "x", ONE),
    ],
)
def test_an_entry_of_an_archive(
    tmp_path: Path, entries: dict[str, Any], entry: str | None, expected: Any
) -> None:
    path = str(tmp_path / "all.npz")
    np.savez(path, **entries)
    assert np.array_equal(array_of(SPEC, path, entry), expected)


def refused(path: str, entry: str | None = None) -> NeuronError:
    with pytest.raises(NeuronError) as caught:
        array_of(SPEC, path, entry)
    return caught.value


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    text, archive, single = (str(tmp_path / name) for name in ("t.npy", "two.npz", "one.npy"))
    Path(text).write_text("no array")
    np.savez(archive, x=ONE, y=OTHER)
    np.save(single, ONE)
    error = refused(text)
    assert error.code == "bad-input-spec" and "numpy.save" in error.hint
    error = refused(archive)
    assert "no array a, but x, y" in error.what and f"a=@{archive}:x" in error.hint
    assert "no array z" in refused(archive, "z").what
    assert "one array, and none called x" in refused(single, "x").what


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    path = str(tmp_path / "objects.npy")
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    assert refused(path).code == "bad-input-spec"
