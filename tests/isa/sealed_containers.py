"""Containers that tests damage, with checksums that fit."""

from __future__ import annotations

import hashlib
import struct

import pytest

from isa.access import AccessPattern
from isa.affine import Symbol, polynomial
from isa.alu import ALU
from isa.enums import Engine, Memory
from isa.errors import NeuronError
from isa.files.archive import unpack_archive
from isa.files.container import read, write
from isa.machine.control import Halt, LoopBegin, LoopEnd
from isa.machine.elementwise import TensorTensor
from isa.program import (
    CoreProgram,
    Guard,
    OnChipAllocation,
    Program,
    Queue,
    RegisterReference,
    SourceLocation,
    TensorDeclaration,
)
from isa.spec import Instruction

OFFICIAL = struct.Struct("<5Q128sI32s16s256sI64sQI468s")
"""The documented header (neuron-runtime/explore/work-with-neff-files.rst)."""


def sample() -> Program:
    symbol = Symbol("M", 8192, multiple_of=128)
    size = polynomial(symbol)
    tiles = [
        AccessPattern(Memory.sbuf, "float32", offset, ((1, 512),), 0, 128)
        for offset in (0, 2048, size * 4)
    ]
    stream = [
        Instruction(LoopBegin, Engine.vector, (RegisterReference(0), 0, size // 128, 1, 3)),
        Instruction(TensorTensor, Engine.vector, (*tiles, ALU["add"]), ((3, 1),), ((4, 1),), 0),
        Instruction(LoopEnd, Engine.vector, (0,)),
        Instruction(Halt, Engine.vector, ()),
    ]
    return Program(
        "matmul",
        "trn2",
        [
            CoreProgram(
                {Engine.vector: stream},
                [Queue("qSyncIO0", Engine.sync)],
                [OnChipAllocation("tile", "sbuf", "float32", (128, 512), 0, 128, 0, 2048, 0)],
            ),
            CoreProgram({Engine.sync: [Instruction(Halt, Engine.sync, ())]}, []),
        ],
        [
            TensorDeclaration("a", "float32", (size, 512), "input"),
            TensorDeclaration("table", "uint8", (3,), "constant", 0, b"\x00\xff\x80"),
        ],
        [0],
        ["a"],
        [0],
        [symbol],
        [Guard(size - 256, "M >= 256", 0)],
        [SourceLocation("kernel.py", 12, 4, 37, "matmul", "nisa.tensor_tensor(...)")],
    )


def sealed(data: bytes, **fields: object) -> bytes:
    """`data` as an archive under a header whose checksums are right."""
    names = ("pkg", "header_size", "data_size", "major", "minor", "build", "tpb", "hash", "uuid")
    names += ("name", "requested", "per_node", "features", "lnc", "pad")
    header = dict(zip(names, OFFICIAL.unpack_from(write(sample()))))
    header |= {"data_size": len(data), "hash": hashlib.sha256(data).digest(), "pad": b""}
    header |= fields
    unsigned = OFFICIAL.pack(*header.values())
    header["pad"] = hashlib.sha256(unsigned).digest()
    return OFFICIAL.pack(*header.values()) + data


def refused(data: bytes) -> str:
    with pytest.raises(NeuronError) as caught:
        read(data)
    return caught.value.code


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


FILES = unpack_archive(write(sample())[1024:])
