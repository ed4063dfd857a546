"""Small programs built by hand, for tests of the simulator."""

from __future__ import annotations

from typing import Any

from isa.access import AccessPattern
from isa.dtypes import DTYPES
from isa.enums import DgeMode, Engine, Memory, OobMode
from isa.machine import control, dma
from isa.program import (
    CoreProgram,
    Program,
    Queue,
    RegisterReference,
    SourceLocation,
    TensorDeclaration,
)
from isa.spec import Instruction


def reg(number: int) -> RegisterReference:
    return RegisterReference(number)


def contiguous(shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Row-major (stride, count) dimensions."""
    dims = []
    step = 1
    for count in reversed(shape):
        dims.append((step, count))
        step *= count
    return tuple(reversed(dims))


def sbuf(
    dtype: str,
    offset: int,
    partitions: int,
    *free: int,
    start: int = 0,
    registers: tuple[tuple[int, int], ...] = (),
    memory: Memory = Memory.sbuf,
) -> AccessPattern:
    return AccessPattern(
        memory, dtype, offset, contiguous(free), start, partitions, registers=registers
    )


def psum(dtype: str, offset: int, partitions: int, *free: int) -> AccessPattern:
    return sbuf(dtype, offset, partitions, *free, memory=Memory.psum)


def hbm(
    tensor: int,
    dtype: str,
    dims: tuple[tuple[int, int], ...],
    element: int = 0,
    registers: tuple[tuple[int, int], ...] = (),
    **vector: Any,
) -> AccessPattern:
    """`element`: first element; `dims`: (stride, count) outermost first."""
    return AccessPattern(
        Memory.shared_hbm,
        dtype,
        element * DTYPES[dtype].size,
        dims,
        tensor=tensor,
        registers=registers,
        **vector,
    )


class Builder:
    """Collects the streams of a program. `add` returns the index of the instruction."""

    def __init__(self, cores: int = 1, target: str = "trn2") -> None:
        self.target = target
        self.tensors: list[TensorDeclaration] = []
        self.parameters: list[int] = []
        self.results: list[int] = []
        self.cores: list[dict[Engine, list[Instruction]]] = [{} for _ in range(cores)]
        self.locations: list[SourceLocation] = []

    def tensor(
        self, name: str, dtype: str, shape: tuple[int, ...], role: str, data: Any = None
    ) -> int:
        index = len(self.tensors)
        self.tensors.append(TensorDeclaration(name, dtype, shape, role, data=data))
        if role in ("input", "inout"):
            self.parameters.append(index)
        if role == "output":
            self.results.append(index)
        return index

    def add(
        self,
        engine: Engine,
        row: Any,
        *values: Any,
        waits: tuple[tuple[int, int], ...] = (),
        updates: tuple[tuple[int, int], ...] = (),
        core: int = 0,
    ) -> int:
        stream = self.cores[core].setdefault(engine, [])
        line = len(self.locations) + 1
        self.locations.append(SourceLocation("kernel.py", line, 0, 1, "kernel", f"line {line}"))
        stream.append(Instruction(row, engine, values, waits, updates, line - 1))
        return len(stream) - 1

    def dma(self, engine: Engine, dst: Any, src: Any, skip: bool = False, **options: Any) -> int:
        mode = OobMode.skip if skip else OobMode.error
        return self.add(engine, dma.DmaCopy, dst, src, 0, DgeMode.none, mode, **options)

    def begin(self, engine: Engine, pattern: AccessPattern, **options: Any) -> int:
        return self.add(engine, control.StorageBegin, pattern, **options)

    def finish(self) -> Program:
        for core in self.cores:
            for engine, stream in core.items():
                stream.append(Instruction(control.Halt, engine, ()))
        return Program(
            name="kernel",
            target=self.target,
            cores=[CoreProgram(core, [Queue("q0", Engine.sync)]) for core in self.cores],
            tensors=self.tensors,
            parameters=self.parameters,
            parameter_names=[self.tensors[i].name for i in self.parameters],
            results=self.results,
            locations=self.locations,
        )
