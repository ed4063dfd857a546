"""Files that appear complete or not at all."""

from pathlib import Path

import pytest

from isa.errors import NeuronError
from isa.files.complete import complete


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "result.bin"
    with complete(path) as part:
        part.write_bytes(b"first")
        assert part.suffix == ".bin" and not path.exists()
    assert path.read_bytes() == b"first"
    with pytest.raises(RuntimeError), complete(path) as part:
        part.write_bytes(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"first"
    assert [file.name for file in tmp_path.iterdir()] == ["result.bin"]
    with pytest.raises(NeuronError, match="not-writable"), complete(tmp_path / "no" / "a") as part:
        part.write_bytes(b"")


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "result", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    with complete(link) as part:
        part.write_bytes(b"new")
    assert link.is_symlink() and path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
