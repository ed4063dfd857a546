"""Containers with something changed and all checksums made anew: by seed, the same every time."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from typing import Any, TypeVar
from unittest import mock

import numpy as np
from text_mutations import edited

import nki
import nki.isa as nisa
import nki.language as nl
from isa.files import container
from isa.files.archive import Files, unpack_archive
from isa.files.text import assemble, disassemble
from isa.program import Program

T = TypeVar("T")

NUMBERS = (0, 1, -1, 2, 7, 63, 64, 127, 128, 255, 4096, 2**31, 2**40, 2**63, 10**30, 0.5)
VALUES = (None, True, "", "x", [], {}, [[]], *NUMBERS)


@nki.jit
def scaled(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nl.store(out, tile)
    return out


@nki.jit
def product(a, b):
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.psum)
    for block in range(a.shape[0] // 32):
        rows = nl.ds(block * 32, 32)
        nisa.nc_matmul(dst=total, stationary=nl.load(a[rows, :]), moving=nl.load(b[rows, :]))
    nl.store(out, nl.exp(nl.copy(total)))
    return out


@nki.jit
def rolled(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)

    def row(at):
        nl.store(out[nl.ds(at, 4), :], nl.sqrt(nl.load(a[nl.ds(at, 4), :])))

    nl.fori_loop(0, a.shape[0], row, 4)
    return out


@nki.jit
def repeated(a, times):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    register = nisa.register_alloc()
    nisa.register_load(register, nl.load(times))
    tile = nl.load(a)

    def twice(_):
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)

    nl.fori_loop(0, register, twice)
    nl.store(out, tile)
    return out


@nki.jit
def gathered(a, rows):
    out = nl.ndarray((rows.shape[0], a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(out.shape, dtype=a.dtype, buffer=nl.sbuf)
    index = nl.load(rows)
    nisa.dma_copy(dst=tile, src=a.vector_select(0, index))
    ones = nl.load(nl.shared_constant(np.ones(out.shape, np.float32)))
    nl.store(out, nl.add(tile, ones))
    return out


@nki.jit
def shared(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    held = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows, core = a.shape[0] // 2, nl.program_id(0)
    nl.store(held[nl.ds(core * rows, rows), :], nl.load(a[nl.ds(core * rows, rows), :]))
    nisa.core_barrier(held, (0, 1))
    other = nl.ds((1 - core) * rows, rows)
    nl.store(out[other, :], nl.load(held[other, :]))
    return out


def _spec(*shape: Any, dtype: Any = nl.float32) -> Any:
    return nki.TensorSpec(shape, dtype)


@cache
def sources() -> list[Files]:
    """The files of containers that are mutated."""
    rows = nki.symbol("M", max=64, multiple_of=32)
    compiled = [
        nki.compile(scaled, _spec(8, 16), target="trn2"),
        nki.compile(product, _spec(32, 16), _spec(32, 8), target="trn2"),
        nki.compile(product, _spec(64, 16, dtype=nl.bfloat16), _spec(64, 8, dtype=nl.bfloat16)),
        nki.compile(rolled, _spec(8, 8), target="trn2"),
        nki.compile(rolled, _spec(128, 8), target="trn2"),
        nki.compile(repeated, _spec(8, 8), _spec(1, 1, dtype=nl.int32), target="trn2"),
        nki.compile(gathered, _spec(8, 16), _spec(4, 1, dtype=nl.int32), target="trn2"),
        nki.compile(shared[2], _spec(32, 8), target="trn2"),
        nki.compile(scaled, _spec(rows, 8), target="trn1"),
    ]
    programs = [one.program for one in compiled]
    kept = [*programs[:1], *map(_without_idle_streams, programs[1:])]
    return [unpack_archive(container.write(one)[container.HEADER_SIZE :]) for one in kept]


def _without_idle_streams(program: Program) -> Program:
    """Fewer streams take less time; one source keeps all, as compiled programs have them."""
    text = disassemble(program)
    return assemble(_IDLE.sub("", text))


_IDLE = re.compile(r"^\.stream \w+\n +0: Halt #0\n", re.MULTILINE)


@cache
def texts() -> list[str]:
    """The programs of these containers as assembler text."""
    return [disassemble(container.read(sealed(files))) for files in sources()]


def _one_of(of_programs: list[T], random_: random.Random) -> T:
    """What belongs to one of the programs: the shorter a program, the more often it is chosen."""
    return random_.choices(of_programs, _shares())[0]


@cache
def _shares() -> list[float]:
    return [len(text) ** -2 for text in texts()]


def drawn(seed: int) -> str | bytes:
    """What a seed changes, one to three things each: a program's text, or a container with all
    checksums right. Two of three are changed as text."""
    random_ = random.Random(seed)
    if random_.random() < 2 / 3:
        return edited(_one_of(texts(), random_), random_)
    return _changed_container(random_)


def made(changed: str | bytes) -> tuple[bytes, str | None]:
    """The container of what a seed has changed, and the text of its program where that was changed.

    Raises NeuronError where the text is refused.
    """
    if isinstance(changed, bytes):
        return changed, None
    program = assemble(changed)
    return container.write(program), disassemble(program)


def _changed_container(random_: random.Random) -> bytes:
    files = dict(_one_of(sources(), random_))
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        name = random_.choice(sorted(files))
        if random_.random() < 0.02:
            del files[name]
        elif name.endswith(".json") and random_.random() < 0.9:
            files[name] = _changed_json(files[name], random_)
        else:
            files[name] = _changed_bytes(files[name], random_)
        if not files:
            break
    return sealed(files)


def sealed(files: Files) -> bytes:
    """The container of some files."""
    with mock.patch.object(container, "program_files", lambda *_: files):
        return container.write(Program("mutant", "trn2", [], [], [], [], []))


def _changed_bytes(data: bytes, random_: random.Random) -> bytes:
    changed = bytearray(data)
    at = random_.randrange(len(changed) + 1)
    kind = random_.randrange(6)
    if kind == 0 or at == len(changed):
        changed[at:at] = random_.randbytes(random_.choice((1, 2, 4, 8, 64)))
    elif kind == 1:
        changed[at] ^= 1 << random_.randrange(8)
    elif kind == 2:
        changed[at] = random_.choice((0, 1, 127, 128, 255))
    elif kind == 3:
        del changed[at : at + random_.choice((1, 2, 4, 8, 64))]
    elif kind == 4:
        size = random_.choice((2, 4, 8))
        changed[at : at + size] = random_.choice(NUMBERS[:13]).to_bytes(16, "little", signed=True)[
            :size
        ]
    else:
        other = random_.randrange(len(changed))
        size = random_.choice((4, 8, 16, 64))
        changed[at : at + size] = changed[other : other + size]
    return bytes(changed)


def _changed_json(data: bytes, random_: random.Random) -> bytes:
    try:
        value = json.loads(data)
    except ValueError:
        return _changed_bytes(data, random_)
    places: list[tuple[Any, Any]] = []
    _collect(value, places)
    if not places:
        return json.dumps(random_.choice(VALUES)).encode()
    holder, key = random_.choice(places)
    old = holder[key]
    kind = random_.randrange(6)
    if kind == 0 and isinstance(holder, list):
        holder.insert(key, old)
    elif kind == 1:
        del holder[key]
    elif kind == 2:
        holder[key] = random_.choice(VALUES)
    elif kind == 3:
        other, place = random_.choice(places)
        holder[key] = json.loads(json.dumps(other[place])) if other is not holder else old
    elif type(old) is int:
        holder[key] = old + random_.choice((-1, 1, 1, 2, -8, 64, old))
    elif isinstance(old, str) and old:
        at = random_.randrange(len(old))
        holder[key] = old[:at] + random_.choice(("0", "9", "-", "*", "x", "")) + old[at + 1 :]
    else:
        holder[key] = random_.choice(VALUES)
    return json.dumps(value).encode()


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    """Where values stand: (what holds it, its key)."""
    keys: Any = ()
    if isinstance(value, dict):
        keys = sorted(value)
    elif isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        places.append((value, key))
        _collect(value[key], places)
