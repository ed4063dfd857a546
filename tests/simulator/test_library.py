"""Compiled micro-kernels on disk: reused, repaired, and not needed."""

from __future__ import annotations

import functools
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from tiles import State

from isa.enums import Engine
from isa.machine.elementwise import TensorCopy
from isa.object_cache import Cache
from simulator import native
from simulator.kernels import fixed
from simulator.native.codegen import library as library_module
from simulator.native.codegen.library import Library
from simulator.native.codegen.text import FunctionText
from simulator.native.plans import table
from simulator.native.rows.copy import CopyRows

KERNEL = CopyRows(4, 2)


def assert_copies(library: Library) -> None:
    """Check that the library's function copies rows."""
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    target = np.zeros_like(source)
    words = (target.ctypes.data, source.ctypes.data, 2, 3, 12, 4, 12, 4)
    library.function(KERNEL)((library_module.ctypes.c_int64 * 8)(*words))
    np.testing.assert_array_equal(target, source)


def objects(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_objects_are_kept_and_found_again(tmp_path: Path) -> None:
    assert_copies(Library(Cache("key", tmp_path)))
    first = objects(tmp_path)
    assert len(first) == 1

    class OnlyReads(Cache):
        def write(self, name: str, code: bytes) -> None:
            raise AssertionError("compiled again")

    assert_copies(Library(OnlyReads("key", tmp_path)))
    assert objects(tmp_path) == first


def test_compiling_is_deterministic(tmp_path: Path) -> None:
    assert_copies(Library(Cache("a", tmp_path / "a")))
    assert_copies(Library(Cache("a", tmp_path / "b")))
    assert objects(tmp_path / "a") == objects(tmp_path / "b")


@pytest.mark.parametrize("damage", (b"", b"short", None))
def test_a_damaged_object_is_replaced(tmp_path: Path, damage: bytes | None) -> None:
    assert_copies(Library(Cache("key", tmp_path)))
    intact = objects(tmp_path)
    (path,) = (tmp_path / "key").iterdir()
    contents = path.read_bytes()
    path.write_bytes(contents[:-1] + b"?" if damage is None else damage)
    cache = Cache("key", tmp_path)
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert_copies(Library(cache))
    assert objects(tmp_path) == intact
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_copies(Library(cache))


def test_a_cache_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    cache = Cache("key", blocked)
    with pytest.warns(RuntimeWarning) as caught:
        assert_copies(Library(cache))
        assert_copies(Library(cache))
    assert len(caught) == 1


def test_another_version_has_a_folder_of_its_own(tmp_path: Path) -> None:
    assert_copies(Library(Cache("old", tmp_path)))
    assert_copies(Library(Cache("new", tmp_path)))
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]


def test_without_llvm_numpy_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(store: Cache | None = None) -> Library:
        raise ImportError("no llvmlite")

    monkeypatch.setattr(library_module, "Library", broken)
    monkeypatch.setattr(table, "library", functools.cache(library_module.library.__wrapped__))
    monkeypatch.setattr(native, "_PLANS", {})
    with pytest.warns(RuntimeWarning, match="no llvmlite") as caught:
        for width in (3, 4):
            source, target = np.ones((3, width), np.float32), np.zeros((3, width), np.float32)
            fixed(TensorCopy, Engine.vector, State(), (target, source), native=True)()
            np.testing.assert_array_equal(target, source)
    assert len(caught) == 1


@pytest.mark.parametrize("width", [4, 8, 16, 32])
@pytest.mark.parametrize(("wide", "narrow"), [("i32", "i16"), ("i32", "i8"), ("i64", "i32")])
def test_the_first_lanes_are_stored_alone(
    width: int, wide: str, narrow: str, tmp_path: Path
) -> None:
    """LLVM 22, for AVX-512, writes one lane of a narrowed vector as wide as it was before."""

    class Kernel:
        def __init__(self, count: int) -> None:
            self.count = count

        def __repr__(self) -> str:
            return f"first lanes of {narrow} {self.count} {width} {wide}"

        def text(self, name: str) -> str:
            f = FunctionText(name)
            value = f.load(f.word(0, "ptr"), wide, width)
            f.store_first(f.convert("trunc", value, narrow), f.word(1, "ptr"), self.count)
            return f.text()

    size = int(narrow[1:]) // 8
    numbers = np.arange(1, width + 1, dtype=f"i{int(wide[1:]) // 8}") * 0x01010101
    library = Library(Cache("lanes", tmp_path))
    for count in range(1, width + 1):
        room = np.full(width * size, 0xEE, np.uint8)
        words = (numbers.ctypes.data, room.ctypes.data)
        library.function(Kernel(count))((library_module.ctypes.c_int64 * 2)(*words))
        wanted = numbers.astype(f"i{size}")[:count].tobytes()
        assert room.tobytes() == wanted + b"\xee" * (room.size - len(wanted))
