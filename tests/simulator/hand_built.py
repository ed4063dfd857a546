"""Programs written by hand, instruction by instruction, for the tests of the checks."""

from __future__ import annotations

from typing import Any

from superfluous_waits import superfluous_waits

from isa.access import AccessPattern
from isa.enums import SEQUENCERS, Condition, DgeMode, Engine, Memory, OobMode
from isa.machine import control, dma, elementwise
from isa.program import (
    CoreProgram,
    Program,
    Queue,
    RegisterReference,
    SourceLocation,
    TensorDeclaration,
)
from isa.spec import Instruction
from simulator.races.happens_before import check

TENSOR, SCALAR, GPSIMD, VECTOR, SYNC = SEQUENCERS


def sbuf(offset: int, count: int = 64, first: int = 0, partitions: int = 128, **more: Any):
    """`count` bytes of each partition."""
    dims = more.pop("dims", ((1, count),))
    return AccessPattern(Memory.sbuf, "uint8", offset, dims, first, partitions, **more)


def hbm(tensor: int, offset: int = 0, *dims: tuple[int, int], **more: Any):
    return AccessPattern(Memory.shared_hbm, "uint8", offset, dims, tensor=tensor, **more)


class Builder:
    """Writes streams in the order of its calls; each call is a source line of its own."""

    def __init__(self, cores: int = 1, tensors: int = 3, shared: bool = True) -> None:
        self.streams = [{engine: [] for engine in SEQUENCERS} for _ in range(cores)]
        self.locations: list[SourceLocation] = []
        self.tensors = [
            TensorDeclaration(f"t{i}", "uint8", (1 << 16,), "internal", None if shared else 0)
            for i in range(tensors)
        ]

    def add(self, engine, row, values, waits=(), updates=(), core=0):
        waits = tuple((w, 1) if isinstance(w, int) else w for w in waits)
        updates = tuple((u, 1) if isinstance(u, int) else u for u in updates)
        stream = self.streams[core][engine]
        line = len(self.locations)
        self.locations.append(
            SourceLocation("kernel.py", line, 4, 20, "kernel", f"    line {line}")
        )
        stream.append(Instruction(row, engine, tuple(values), waits, updates, line))
        return len(stream) - 1

    def copy(self, engine, dst, src, **sync):
        return self.add(engine, elementwise.TensorCopy, (dst, src), **sync)

    def fill(self, engine, dst, **sync):
        return self.add(engine, elementwise.Memset, (dst, 0), **sync)

    def dma(self, engine, dst, src, queue=0, **sync):
        values = (dst, src, queue, DgeMode.none, OobMode.error)
        return self.add(engine, dma.DmaCopy, values, **sync)

    def nop(self, engine, **sync):
        return self.add(engine, control.Nop, (), **sync)

    def loop(self, engine, register, lower, upper, body, core=0, step=1):
        begin = self.add(
            engine,
            control.LoopBegin,
            (RegisterReference(register), lower, upper, step, 0),
            core=core,
        )
        body()
        self.add(engine, control.LoopEnd, (begin,), core=core)
        stream = self.streams[core][engine]
        stream[begin].values = (*stream[begin].values[:-1], len(stream))

    def while_(self, engine, register, body, core=0):
        condition = (Condition.eq, RegisterReference(register), 0, 0)
        head = self.add(engine, control.Branch, condition, core=core)
        body()
        self.add(engine, control.Branch, (Condition.always, 0, 0, head), core=core)
        stream = self.streams[core][engine]
        stream[head].values = (*stream[head].values[:-1], len(stream))

    def program(self) -> Program:
        cores = []
        for streams in self.streams:
            ended = {e: [*s, Instruction(control.Halt, e, ())] for e, s in streams.items()}
            cores.append(CoreProgram(ended, [Queue(f"q{i}", SYNC) for i in range(4)]))
        return Program("k", "trn2", cores, self.tensors, [], [], [], locations=self.locations)


def kinds(program: Program, **options: Any) -> list[str]:
    return sorted({race.kind for race in check(program, **options)})


def without(program: Program, core: int, engine: Engine, index: int, what: str) -> Program:
    """The program with the waits or updates of one instruction gone."""
    streams = [
        {
            e: [
                Instruction(
                    i.row,
                    i.engine,
                    i.values,
                    () if what == "waits" and (c, e, n) == (core, engine, index) else i.waits,
                    () if what == "updates" and (c, e, n) == (core, engine, index) else i.updates,
                )
                for n, i in enumerate(stream)
            ]
            for e, stream in body.streams.items()
        }
        for c, body in enumerate(program.cores)
    ]
    cores = [CoreProgram(s, b.queues) for s, b in zip(streams, program.cores)]
    return Program("k", "trn2", cores, program.tensors, [], [], [])


def assert_minimal(program: Program) -> None:
    """It passes; without any one wait, or any one update, it does not."""
    assert check(program) == []
    for core, body in enumerate(program.cores):
        for engine, stream in body.streams.items():
            for index, instruction in enumerate(stream):
                if instruction.waits:
                    assert check(without(program, core, engine, index, "waits"))
                if instruction.updates:
                    assert check(without(program, core, engine, index, "updates"))
    assert superfluous_waits(program) == []
