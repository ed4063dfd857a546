"""The archive in a container: its files, and what is refused."""

from __future__ import annotations

import io
import json
import tarfile

import pytest
from sealed_containers import FILES, flipped, refused, sample, sealed

from isa.files.archive import pack_archive
from isa.files.container import HEADER_SIZE, write


def test_the_archive_is_a_plain_tar_with_documented_names():
    with tarfile.open(fileobj=io.BytesIO(write(sample())[1024:])) as archive:
        members = {member.name: member for member in archive}
        graph = json.load(archive.extractfile("graph.json"))
    assert list(members) == sorted(members)
    assert {"info.json", "kernel_debug_info.json", "sg00/def.json", "sg01/SP.bin"} <= set(members)
    assert {"sg00/DVE.json", "sg00/DVE.bin", "constants/0001.bin"} <= set(members)
    assert {(m.mtime, m.uid, m.gid, m.uname, m.mode) for m in members.values()} == {
        (0, 0, 0, "", 0o644)
    }
    assert graph["guards"] == [["M - 256", "M >= 256", 0]]
    assert graph["tensors"][0]["shape"] == ["M", 512]


def test_flipped_bits_of_the_archive_are_refused():
    """Every bit of the first kilobytes and of the end, a prime stride between them."""
    data = write(sample())
    first, last = 8 * HEADER_SIZE, 8 * len(data)
    bits = {*range(first, first + 8 * 600), *range(first, last, 31), *range(last - 8 * 64, last)}
    for bit in sorted(bits):
        assert refused(flipped(data, bit)) == "container-corrupt"


def _with_member(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes = b"") -> None:
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE]
)
def test_archives_with_anything_but_files_are_refused(kind):
    buffer = io.BytesIO(write(sample())[1024:])
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        member = tarfile.TarInfo("sg00/extra")
        member.type, member.linkname = kind, "/etc/passwd"
        _with_member(archive, member)
    assert refused(sealed(buffer.getvalue())) == "container-corrupt"


@pytest.mark.parametrize("name", ["extra.bin", "../escape", "info.json"])
def test_unexpected_and_repeated_files_are_refused(name):
    buffer = io.BytesIO(write(sample())[1024:])
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        _with_member(archive, tarfile.TarInfo(name), b"{}")
    assert refused(sealed(buffer.getvalue())) == "container-corrupt"


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_missing_or_emptied_file_is_refused(name):
    without = {key: data for key, data in FILES.items() if key != name}
    assert refused(sealed(pack_archive(without))) == "container-corrupt"
    if not name.startswith("constants/") and FILES[name]:
        assert refused(sealed(pack_archive({**FILES, name: b""}))) == "container-corrupt"


def test_deeply_nested_json_is_refused():
    changed = {**FILES, "info.json": b"[" * 100_000}
    assert refused(sealed(pack_archive(changed))) == "container-corrupt"
