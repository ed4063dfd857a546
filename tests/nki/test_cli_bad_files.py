"""Containers and command lines that cannot work are refused, and leave no file behind."""

import hashlib
import random
import re
import struct

import numpy as np
import pytest
from refusals import refused

import nki
import nki.isa as nisa
import nki.language as nl
from isa.files.text import assemble, disassemble
from nki import CompiledKernel
from nki.cli import exit_codes
from nki.cli.application import run as run_command_line

F32 = np.float32
HEADER = 1024
VERSION = slice(40, 168)
FEATURES = slice(548, 556)
HEADER_HASH = slice(556, 588)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Runs in an empty folder; what is in `expected` may be there afterwards, nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    expected = {}
    yield expected
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == expected


@nki.jit
def doubled(a):
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)  # here
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    """The bytes of a good container of `doubled`."""
    path = tmp_path_factory.mktemp("good") / "k.neff"
    nki.compile(doubled, nki.TensorSpec((8, 4), nl.float32), target="trn2").save(path)
    return path.read_bytes()


@pytest.fixture
def stored(folder):
    """Writes k.neff into the folder."""

    def write(data):
        folder["k.neff"] = bytes(data)
        with open("k.neff", "wb") as file:
            file.write(data)
        return "k.neff"

    return write


def resealed(data):
    """A container whose header was changed on purpose, with the right checksum in it."""
    header = bytearray(data[:HEADER])
    header[HEADER_HASH] = bytes(32)
    header[HEADER_HASH] = hashlib.sha256(header).digest()
    return bytes(header) + bytes(data[HEADER:])


# Containers


def test_a_good_container_runs(container, stored):
    a = np.arange(32, dtype=F32).reshape(8, 4)
    np.testing.assert_array_equal(nki.load(stored(container))(a), 2 * a)


@pytest.mark.parametrize("keep", [0, 8, 16, 1000, 1023, 1024, 1025, 3000, -1])
def test_a_truncated_container(container, stored, keep):
    data = container[:keep]
    values = [] if len(data) < HEADER else [len(data) - HEADER, len(container) - HEADER]
    with refused("container-truncated", *values):
        nki.load(stored(data))


def test_a_container_with_a_flipped_bit(container, stored):
    rng = random.Random(0)
    bits = [8 * rng.randrange(HEADER) + rng.randrange(8) for _ in range(40)]
    bits += [rng.randrange(8 * HEADER, 8 * len(container)) for _ in range(40)]
    for bit in bits:
        data = bytearray(container)
        data[bit // 8] ^= 1 << bit % 8
        path = stored(data)
        with pytest.raises(nki.NeuronError) as caught:
            nki.load(path)
        assert caught.value.code.startswith("container-"), bit
        assert bit >= 8 * HEADER or caught.value.what, bit
    with refused("container-corrupt", "SHA-256"):
        nki.load(path)


def test_a_container_of_another_version(container, stored):
    data = bytearray(container)
    version = bytes(data[VERSION]).replace(b"format 4", b"format 9")
    assert version != data[VERSION]
    data[VERSION] = version
    with refused("container-version", "format 9", "format 4"):
        nki.load(stored(resealed(data)))


def test_a_container_of_the_vendor(stored):
    """A file in the documented layout: no mark and no feature bit of ours."""
    header = bytearray(HEADER)
    struct.pack_into("<5Q128s", header, 0, 1, HEADER, 64, 2, 0, b"2.21.18209.0+043b1bf7")
    with refused("container-vendor", "2.0", "2.21.18209"):
        nki.load(stored(bytes(header) + bytes(64)))


@pytest.mark.parametrize("data", [b"\x7fELF" + bytes(2000), b"#!/bin/sh\n", bytes(4096)])
def test_a_file_that_is_no_container(stored, data):
    with refused("container-corrupt", "no container"):
        nki.load(stored(data))


def test_a_file_that_is_not_there():
    with refused("file-not-found", "missing.neff"):
        nki.load("missing.neff")


def test_a_place_that_cannot_be_written():
    compiled = nki.compile(doubled, nki.TensorSpec((8, 4), nl.float32))
    with refused("not-writable", "no/such/folder/k.neff"):
        compiled.save("no/such/folder/k.neff")


# Programs written by hand


def test_a_program_that_waits_for_ever():
    """The addition waits for its load, whose update was taken out."""
    program = nki.compile(doubled, nki.TensorSpec((8, 4), nl.float32)).program
    text = disassemble(program)
    wait = re.search(r"\$S\[(\d+)\]-=\d+", text[text.index("TensorTensor") :])
    assert wait is not None
    update = re.compile(rf" \$S\[{wait[1]}\]\+=\d+@complete")
    assert len(update.findall(text)) == 1
    broken = CompiledKernel(assemble(update.sub("", text)))
    with refused("deadlock", f"S[{wait[1]}]", "TensorTensor", kernel="doubled"):
        broken(np.zeros((8, 4), F32))


@pytest.mark.parametrize(
    "old, new, values",
    [
        ("TensorTensor", "TensorTenser", ("TensorTenser",)),
        (".results t1", ".results t7", ("t7",)),
    ],
)
def test_assembler_text_with_a_mistake(old, new, values):
    text = disassemble(nki.compile(doubled, nki.TensorSpec((8, 4), nl.float32)).program)
    assert old in text
    with pytest.raises(nki.NeuronError) as caught:
        assemble(text.replace(old, new, 1))
    for value in values:
        assert value in caught.value.what


# The command line


KERNELS = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def copied(a, scale=1.0):
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def wrong(a):
    tile = nl.ndarray((256, 4), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    return a


@nki.jit
def unwritten(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    return out


@nki.jit
def crashes(a):
    return a.shape[0] / 0
"""


@pytest.fixture
def kernels(folder):
    folder["kernels.py"] = KERNELS.encode()
    with open("kernels.py", "w") as file:
        file.write(KERNELS)


GOOD = "a=ones(8,4)"
SAVE = ("-o", "k.neff")

MISTAKES = {
    "unknown kernel": (
        ("run", "kernels.py:copyed", "--input", GOOD),
        "unknown-kernel",
        ("copyed", "copied", "wrong"),
        "copied",
    ),
    "unknown file": (
        ("run", "kernel.py:copied", "--input", GOOD),
        "file-not-found",
        ("kernel.py",),
        "",
    ),
    "unknown input": (
        ("run", "kernels.py:copied", "--input", GOOD, "--input", "b=ones(8,4)"),
        "unknown-input",
        ("b", "copied"),
        "a",
    ),
    "missing input": (("run", "kernels.py:copied"), "unknown-input", ("a", "copied"), "--input"),
    "bad input": (
        ("run", "kernels.py:copied", "--input", "a=normal(8,4"),
        "bad-input-spec",
        ("a=normal(8,4",),
        "normal",
    ),
    "unknown kind": (
        ("run", "kernels.py:copied", "--input", "a=randn(8,4)"),
        "bad-input-spec",
        ("randn", "normal"),
        "",
    ),
    "unknown dtype": (
        ("run", "kernels.py:copied", "--input", "a=ones(8,4):float31"),
        "bad-input-spec",
        ("float31",),
        "",
    ),
    "missing array": (
        ("run", "kernels.py:copied", "--input", "a=@none.npy"),
        "file-not-found",
        ("none.npy",),
        "",
    ),
    "unknown target": (
        ("run", "kernels.py:copied", "--input", GOOD, "--target", "trn9"),
        "unknown-target",
        ("trn9",),
        "trn2",
    ),
    "unknown mode": (
        ("run", "kernels.py:copied", "--input", GOOD, "--mode", "fast"),
        "unknown-mode",
        ("fast", "device", "reference", "eager"),
        "",
    ),
    "unknown stage": (
        ("ir", "kernels.py:copied", "--input", "a=(8,4)", "--after", "magic"),
        "unknown-stage",
        ("magic", "trace", "allocate"),
        "",
    ),
    "a kernel that is refused": (
        ("compile", "kernels.py:wrong", "--input", "a=(256,4)", *SAVE),
        "partition-limit",
        ("256", "128"),
        "kernels.py:18 in wrong",
    ),
    "a run that fails": (
        ("run", "kernels.py:unwritten", "--input", GOOD, "--save-outputs", "results"),
        "output-not-written",
        ("out", "32"),
        "kernels.py:25 in unwritten",
    ),
    "a folder that is not there": (
        ("compile", "kernels.py:copied", "--input", "a=(8,4)", "-o", "none/k.neff"),
        "not-writable",
        ("none/k.neff",),
        "",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_on_the_command_line(kernels, capsys, name):
    arguments, code, values, advice = MISTAKES[name]
    exit_code = run_command_line(list(arguments))
    printed = capsys.readouterr()
    number = nki.errors.CATALOGUE[code].number
    assert exit_code == exit_codes.exit_code_of(code, number).number != 0
    assert printed.out == ""
    first, second = printed.err.splitlines()[:2]
    assert first.startswith(f"error[NKI{number:04d}] {code}: ")
    assert second.startswith("   what: ")
    for value in values:
        assert value in second
    assert advice in printed.err
    assert "    why: " in printed.err and "    try: " in printed.err
    assert "Traceback" not in printed.err


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_container_on_the_command_line(container, stored, capsys, damage):
    data = bytearray(container)
    if damage == "truncated":
        del data[-100:]
    else:
        data[HEADER + 700] ^= 4
    path = stored(data)
    for command in (("run", path, "--input", GOOD), ("disasm", path)):
        assert run_command_line(list(command)) == exit_codes.CONTAINER.number
        printed = capsys.readouterr()
        assert printed.out == "" and "Traceback" not in printed.err
        code = {"truncated": "container-truncated", "flipped": "container-corrupt"}[damage]
        assert f"] {code}: " in printed.err.splitlines()[0]


def test_a_kernel_that_raises_shows_its_own_line_only(kernels, capsys):
    assert run_command_line(["run", "kernels.py:crashes", "--input", GOOD]) != 0
    error = capsys.readouterr().err
    assert "return a.shape[0] / 0" in error and "ZeroDivisionError" in error
    ours = ("tracer.py", "/nki/kernel/", "/nki/compiled.py")
    assert [name for name in ours if name in error] == []


def test_own_frames_only_on_demand(kernels, capsys):
    arguments = ["run", "kernels.py:wrong", "--input", "a=ones(256,4)"]
    run_command_line(arguments)
    assert "allocation.py" not in capsys.readouterr().err
    run_command_line([*arguments, "--traceback"])
    error = capsys.readouterr().err
    assert "allocation.py" in error
    assert error.count("    try: ") == 1
