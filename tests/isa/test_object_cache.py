"""A cache of compiled code that fails in every way: computing goes on, and it is said once."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isa import object_cache
from isa.object_cache import Cache
from simulator.native.codegen.levels import Form
from simulator.native.codegen.library import Library, library
from simulator.native.matmul.gemm_image import Image
from simulator.native.matmul.image_layout import HEADER, LINE, Word, image_bytes

pytestmark = pytest.mark.skipif(library() is None, reason="there is no LLVM")

KERNELS = (Image("float32", Form.wide), Image("uint8", Form.wide))


def assert_loaded(functions: Library) -> None:
    """Check that the kernels of a library make images."""
    for kernel in KERNELS:
        source = np.arange(6).reshape(2, 3).astype(kernel.dtype)
        image = np.zeros(image_bytes(2, 3), np.uint8)
        header = image[:HEADER].view(np.int64)
        header[Word.depth], header[Word.columns], header[Word.form] = 2, 3, -1
        header[Word.source], header[Word.along] = source.ctypes.data, source.strides[0]
        words = image.ctypes.data, 0, 3, 0
        functions.function(kernel)((ctypes.c_int64 * 4)(*words))
        panel = image[HEADER : HEADER + 2 * LINE].view(np.float32).reshape(2, -1)
        np.testing.assert_array_equal(panel[:, :3], source)
        assert header[Word.form] == Form.wide


def assert_reported_once(cache: Cache, match: str) -> None:
    with pytest.warns(RuntimeWarning, match=match) as caught:
        assert_loaded(Library(cache))
        assert_loaded(Library(cache))
    assert len(caught) == 1


def failing(error: OSError) -> Any:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("step", ("replace", "fdopen"))
def test_a_full_disk(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, step, failing(OSError(errno.ENOSPC, "No space left on device")))
        assert_reported_once(Cache("key", tmp_path), "cannot be written .*No space left")
    assert list((tmp_path / "key").iterdir()) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_loaded(Library(Cache("key", tmp_path)))


def test_folders_where_files_should_be(tmp_path: Path) -> None:
    assert_loaded(Library(Cache("key", tmp_path)))
    for path in (tmp_path / "key").iterdir():
        path.unlink()
        path.mkdir()
    assert_reported_once(Cache("key", tmp_path), "cannot be read")


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(Path, "read_bytes", failing(denied))
    cache = Cache("key", tmp_path)
    with pytest.warns(RuntimeWarning, match="cannot be read .*Permission denied") as caught:
        for kernel in KERNELS:
            assert cache.read(repr(kernel)) is None
    assert len(caught) == 1


def test_code_of_another_version_is_compiled_again(tmp_path: Path) -> None:
    """Objects of an older generator lie in another folder and are left alone."""
    older = tmp_path / "older"
    older.mkdir()
    (older / "kernel").write_bytes(b"of another version")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_loaded(Library(Cache("newer", tmp_path)))
    assert (older / "kernel").read_bytes() == b"of another version"
    assert len(list((tmp_path / "newer").iterdir())) == len(KERNELS)


def test_folders_that_were_not_used_for_longest_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When one is made, as far as the others are too large; nothing else there is touched."""
    monkeypatch.setattr(object_cache, "LIMIT", 250)
    names = [f"{number:024x}" for number in range(5)]
    for age, name in enumerate(names[:4]):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "kernel").write_bytes(bytes(100))
        os.utime(folder, (1000 - age, 1000 - age))
    (tmp_path / "notes").mkdir()
    os.utime(tmp_path / "notes", (1, 1))
    oldest = Cache(names[3], tmp_path)
    oldest.write("another", b"")
    os.utime(oldest.folder, (1, 1))
    assert oldest.read("another") == b""  # which counts as its use
    newest = Cache(names[4], tmp_path)
    for kernel in ("first", "second"):
        newest.write(kernel, bytes(1000))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"notes", names[0], names[3], names[4]}
    assert Cache(names[1], tmp_path).read("kernel") is None


def test_a_folder_that_is_removed_while_it_is_used(tmp_path: Path) -> None:
    cache = Cache("key", tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert_loaded(Library(cache))
            shutil.rmtree(cache.folder)
        assert_loaded(Library(cache))


def test_damage_of_every_kind_is_seen(tmp_path: Path) -> None:
    """Files cut anywhere, with a bit that flipped, with more behind them, and of other places."""
    code = bytes(range(24))
    whole = Cache("key", tmp_path)
    whole.write("kernel", code)
    assert whole.read("kernel") == code
    path = tmp_path / "key" / "kernel"
    intact = path.read_bytes()
    flipped = [bytearray(intact) for _ in intact]
    for place, contents in enumerate(flipped):
        contents[place] ^= 1 << place % 8
    cut = [intact[:length] for length in range(len(intact))]
    damaged = [*cut, *map(bytes, flipped), intact + b"\0", bytes(len(intact))]
    for contents in damaged:
        path.write_bytes(contents)
        with pytest.warns(RuntimeWarning, match="damaged file, kernel, which is replaced"):
            assert Cache("key", tmp_path).read("kernel") is None
    for folder, name in (("key", "another"), ("version", "kernel")):
        elsewhere = Cache(folder, tmp_path)
        elsewhere.folder.mkdir(exist_ok=True)
        (elsewhere.folder / name).write_bytes(intact)
        with pytest.warns(RuntimeWarning, match=f"damaged file, {name}"):
            assert elsewhere.read(name) is None


def test_no_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a user whom the system does not know: nothing is written to a directory named "~"."""
    monkeypatch.chdir(tmp_path)

    def unknown(*arguments: Any, **options: Any) -> Path:
        raise RuntimeError("could not determine the home directory")

    for find in (unknown, lambda *arguments, **options: Path("~/.cache/opennki")):
        monkeypatch.setattr("platformdirs.user_cache_path", find)
        assert_reported_once(Cache("key"), "cannot be read .the home directory is unknown")
    assert list(tmp_path.iterdir()) == []
