"""The container: header, determinism, refusal of damage, all or nothing on disk."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_strategies import programs
from sealed_containers import FILES, OFFICIAL, flipped, refused, sample, sealed

from isa.enums import Engine
from isa.errors import NeuronError
from isa.files.archive import pack_archive
from isa.files.container import (
    HEADER_SIZE,
    OPEN_ENCODING,
    load,
    load_contents,
    read,
    read_contents,
    read_header,
    save,
    write,
)

QUICK = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))


@QUICK
@given(programs())
def test_read_inverts_write(program):
    data = write(program)
    again = read(data)
    assert again == program
    assert write(again) == data


def test_the_header_has_the_documented_layout():
    data = write(sample())
    fields = OFFICIAL.unpack_from(data)
    assert OFFICIAL.size == HEADER_SIZE == fields[1] == 1024
    assert fields[0] == 1
    assert fields[2] == len(data) - 1024
    assert fields[3:5] == (2, 0)
    assert fields[5].startswith(b"opennki ")
    assert fields[6] == 2
    assert fields[7] == hashlib.sha256(data[1024:]).digest()
    assert fields[9].rstrip(b"\0") == b"matmul"
    assert (fields[10], fields[11][0], fields[12], fields[13]) == (2, 2, OPEN_ENCODING, 2)
    header = read_header(data)
    assert (header.name, header.num_tpb, header.hash) == ("matmul", 2, fields[7])


def test_metadata_travels_with_the_program(tmp_path):
    note = {"source": "matmul.py", "options": [1, None, {"x": 0.5}]}
    save(sample(), tmp_path / "k.neff", note)
    contents = load_contents(tmp_path / "k.neff")
    assert contents.metadata == note
    assert contents.program == sample()
    with pytest.raises(NeuronError) as caught:
        write(sample(), {"x": {1, 2}})
    assert caught.value.code == "not-encodable"


def test_two_processes_write_the_same_bytes():
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]; import hashlib, test_container as t;"
        "print(hashlib.sha256(t.write(t.sample(), {'b': 1, 'a': 2})).hexdigest())"
    )
    root = Path(__file__).resolve().parents[2]
    other = subprocess.run(
        [sys.executable, "-c", script, str(root), str(Path(__file__).parent)],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert os.environ.get("PYTHONHASHSEED") != "1"
    assert other == hashlib.sha256(write(sample(), {"a": 2, "b": 1})).hexdigest() + "\n"


def test_every_flipped_bit_of_the_header_is_refused():
    data = write(sample())
    for bit in range(8 * HEADER_SIZE):
        assert refused(flipped(data, bit)) == "container-corrupt"


def test_every_truncation_is_refused():
    data = write(sample())
    for length in [
        *range(0, 1100, 7),
        1023,
        1024,
        1025,
        *range(1100, len(data), 997),
        len(data) - 1,
    ]:
        assert refused(data[:length]) == "container-truncated"
    assert refused(data + b"\0") == "container-corrupt"


def test_other_files_are_refused():
    vendor = OFFICIAL.pack(2, 1024, 3, 2, 0, b"2.21.0", 1, b"", b"", b"net", 1, b"", 0x1FF, 1, b"")
    assert refused(vendor + b"\x1f\x8b\x08") == "container-vendor"
    with pytest.raises(NeuronError, match=r"NEFF of version 2\.0, built by '2\.21\.0'.*0x1ff"):
        read(vendor)
    assert refused(b"#!/bin/sh\n") == "container-corrupt"
    assert refused(b"\x7fELF" + bytes(2000)) == "container-corrupt"


def test_another_version_is_refused_and_both_are_named():
    archive = write(sample())[1024:]
    assert read(sealed(archive)) == sample()
    other = sealed(archive, build=b"opennki format 5 isa 00000000")
    assert refused(other) == "container-version"
    with pytest.raises(
        NeuronError, match=r"`opennki format 5 isa 00000000`.*`opennki format 4 isa"
    ):
        read(other)
    assert refused(sealed(archive, features=OPEN_ENCODING | 2)) == "container-version"


@settings(QUICK, max_examples=250)
@given(
    st.sampled_from(sorted(FILES)),
    st.integers(0, 10**6),
    st.integers(0, 4),
    st.sampled_from([b"", b"null", b"[]", b"{}", b'"M"', b"-1", b"0.5", b"[[", b"\xff", b"1e999"]),
)
def test_well_sealed_nonsense_never_crashes(name, position, removed, inserted):
    """Also a file with right checksums is read as data that may be wrong anywhere."""
    content = FILES[name]
    at = position % (len(content) + 1)
    changed = {**FILES, name: content[:at] + inserted + content[at + removed :]}
    try:
        read_contents(sealed(pack_archive(changed)))
    except NeuronError as error:
        assert error.code == "container-corrupt"


def test_two_launch_symbols_of_one_name_are_refused():
    graph = json.loads(FILES["graph.json"])
    graph["symbols"] += graph["symbols"]
    changed = {**FILES, "graph.json": json.dumps(graph).encode()}
    assert refused(sealed(pack_archive(changed))) == "container-corrupt"


def test_save_replaces_the_whole_file_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "k.neff"
    path.write_bytes(b"old")
    bad = sample()
    bad.cores[0].streams[Engine.vector][0].values = ()
    with pytest.raises(NeuronError, match="LoopBegin"):
        save(bad, path)
    assert path.read_bytes() == b"old"

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(NeuronError, match="No space left") as caught:
            save(sample(), path)
    assert caught.value.code == "not-writable"
    assert [p.name for p in tmp_path.iterdir()] == ["k.neff"]
    assert path.read_bytes() == b"old"
    save(sample(), path)
    assert load(path) == sample()
    assert [p.name for p in tmp_path.iterdir()] == ["k.neff"]


def test_paths_that_cannot_be_used(tmp_path):
    for path in (tmp_path / "missing" / "k.neff", tmp_path):
        with pytest.raises(NeuronError) as caught:
            save(sample(), path)
        assert caught.value.code == "not-writable"
        with pytest.raises(NeuronError) as caught:
            load(path)
        assert caught.value.code == "file-not-found"
    save(sample(), os.devnull)
    assert not Path(os.devnull).is_file()


def test_save_follows_a_link(tmp_path):
    target, link = tmp_path / "target.neff", tmp_path / "link.neff"
    link.symlink_to(target)
    save(sample(), link)
    assert link.is_symlink() and load(target) == sample()
