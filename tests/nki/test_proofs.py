"""A container that was proven is loaded without a second proof; whatever else lies in the cache of
proofs, a program that races is refused."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.files.container import load_contents
from isa.files.container import save as save_program
from isa.object_cache import Cache
from nki.verification import proofs, verify_program


@nki.jit
def doubled(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nl.store(out, tile)
    return out


@nki.jit
def in_step(a):
    """Core 0 reads what both cores write: only their running in step orders the two."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    held = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(held, nl.load(a))
    if nl.program_id(0) == 0:
        nl.store(out, nl.load(held))
    return out


SPEC = nki.TensorSpec((4, 8), nl.float32)


@pytest.fixture
def proven(monkeypatch):
    """The programs that are proven from now on."""
    found = []

    def noted(program):
        found.append(program)
        return verify_program(program)

    monkeypatch.setattr(proofs, "WORTH", 0.0)
    monkeypatch.setattr("nki.verification.verify_program", noted)
    return found


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "doubled.neff"
    nki.compile(doubled, SPEC, target="trn2").save(path)
    return path


def racy(file, path):
    """The program of a file without the waits of one engine, as a container."""
    program = load_contents(file).program
    for stream in program.cores[0].streams.values():
        waited = {number for instruction in stream for number, _ in instruction.waits}
        if waited:
            break
    for instruction in stream:
        instruction.waits = ()
    for others in program.cores[0].streams.values():
        for other in others:
            other.updates = tuple(u for u in other.updates if u[0] not in waited)
    save_program(program, path)
    return path


def test_a_container_is_proven_once(file, tmp_path, proven):
    kept = Cache("0" * 24, tmp_path)
    for _ in range(3):
        proofs.prove(load_contents(file), kept)
    assert len(proven) == 1
    proofs.prove(load_contents(file), Cache("1" * 24, tmp_path))  # another checker
    assert len(proven) == 2


def test_load_keeps_proofs_of_its_checker(file, tmp_path, proven, monkeypatch):
    monkeypatch.setattr("isa.object_cache._of_user", lambda: tmp_path / "cache")
    data = np.ones((4, 8), np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(nki.load(file)(data), data + data)
    assert len(proven) == 1


def test_what_races_is_never_kept(file, tmp_path, proven):
    kept = Cache("0" * 24, tmp_path)
    proofs.prove(load_contents(file), kept)
    changed = load_contents(racy(file, tmp_path / "racy.neff"))
    for _ in range(2):
        with pytest.raises(nki.NeuronError, match="race"):
            proofs.prove(changed, kept)
    assert len(proven) == 3


def test_a_warning_comes_each_time(tmp_path, proven):
    path = tmp_path / "in_step.neff"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nki.compile(in_step[2], SPEC, target="trn2").save(path)
    kept = Cache("0" * 24, tmp_path)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="in step"):
            proofs.prove(load_contents(path), kept)


@pytest.mark.parametrize("damage", ["cut", "empty", "of another", "folder", "noise"])
def test_a_damaged_proof_is_no_proof(file, tmp_path, proven, damage):
    kept = Cache("0" * 24, tmp_path)
    contents = load_contents(file)
    proofs.prove(contents, kept)
    changed = load_contents(racy(file, tmp_path / "racy.neff"))
    good, place = (kept.folder / c.digest.hex() for c in (contents, changed))
    whole = good.read_bytes()
    if damage == "folder":
        place.mkdir()
    else:
        contained = {"cut": whole[:-1], "empty": b"", "of another": whole, "noise": os.urandom(80)}
        place.write_bytes(contained[damage])
    with (
        pytest.warns(RuntimeWarning, match="damaged|cannot be read"),
        pytest.raises(nki.NeuronError, match="race"),
    ):
        proofs.prove(changed, kept)
