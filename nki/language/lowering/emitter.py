"""The operations of one call of a language function, at the line of the kernel that called."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from isa.affine import identical
from isa.alu import ACTIVATIONS, ALU
from isa.dtypes import DTYPES, normalise
from isa.enums import Memory
from isa.errors import NeuronError
from isa.operations.control import RegisterLoad
from isa.operations.gpsimd import TensorPartitionReduce
from isa.operations.scalar import Activation
from isa.operations.vector import (
    Memset,
    Reciprocal,
    ScalarTensorTensor,
    TensorCopy,
    TensorCopyPredicated,
    TensorReduce,
    TensorScalar,
    TensorTensor,
)
from isa.rules.form import shown
from isa.spec import Operation
from nki.ir.builder.emission import emit
from nki.ir.context import Location, current
from nki.ir.views.tensor import NkiTensor
from nki.language.allocation import allocate

FLOAT = "float32"


_ROOM: ContextVar[NkiTensor | None] = ContextVar("room", default=None)


@contextmanager
def into(room: NkiTensor | None) -> Iterator[None]:
    """The first function called inside whose result has the dtype and shape of `room` computes it
    there."""
    before = _ROOM.set(room)
    try:
        yield
    finally:
        _ROOM.reset(before)


class Emitter:
    """Emits operations for `nl.<function>`, called at `location`.

    Lowerings name operators as `nki.language` does; tiles that hold
    intermediate values (`part`) are fp32 in SBUF unless another dtype is asked for.
    """

    __slots__ = ("context", "function", "location")

    def __init__(self, function: str, location: Location) -> None:
        self.function = function
        self.context = current(f"nl.{function}")
        self.location = location

    def inside(self) -> Emitter:
        """An emitter for a part of the function: what it calls a result is an intermediate."""
        return _Inside(self.function, self.location)

    def __call__(self, row: type[Operation], **arguments: Any) -> None:
        """One operation of the table."""
        emit(self.context, row, arguments, self.location)

    # Tiles

    def tile(self, name: str, value: Any) -> NkiTensor:
        """`value`, which must be a tensor in SBUF or PSUM."""
        if not isinstance(value, NkiTensor):
            raise NeuronError(
                "not-a-tensor",
                what=f"{name} of nl.{self.function} is {shown(value)}, not a tile",
                hint="Make a tile with nl.load, of a constant with nl.full, of an array of the "
                "host with nl.load(nl.shared_constant(array)); numbers that are known while "
                "tracing are computed in Python: 2.0**0.5, math.exp(1.0).",
            )
        if not value.on_chip:
            raise NeuronError(
                "wrong-memory",
                what=f"{name} of nl.{self.function} ({value.name}) is in {value.buffer.value}",
                why="Engines compute on tiles in SBUF and PSUM.",
                hint="Load it first: nl.load(...).",
            )
        return value

    def result(self, shape: Any, dtype: str, memory: Memory = Memory.sbuf) -> NkiTensor:
        """The tile that the function returns; it has the name of the caller's variable. It is the
        one that `into` gives, if that is alike."""
        room = _ROOM.get()
        if room is not None and room.dtype == dtype and room.shape == tuple(shape):
            _ROOM.set(None)
            return room
        return allocate(self.context, shape, dtype, memory, "", None, self.location)

    def part(self, shape: Any, dtype: str = FLOAT, memory: Memory = Memory.sbuf) -> NkiTensor:
        """A tile for an intermediate value."""
        name = f"{self.function}_part"
        return allocate(self.context, shape, dtype, memory, name, None, self.location)

    def working(self, shape: Any, dtype: str, work: str = FLOAT) -> NkiTensor:
        """A tile of dtype `work` to compute in, which `finish` converts to `dtype`: the result
        itself if the two are one."""
        return self.result(shape, dtype) if dtype == work else self.part(shape, work)

    def finish(self, value: NkiTensor, dtype: str) -> NkiTensor:
        """A computed tile as the function's result."""
        if value.dtype == dtype:
            return value
        result = self.result(value.shape, dtype)
        self.copy(result, value)
        return result

    def in_sbuf(self, value: NkiTensor) -> NkiTensor:
        """The tile itself, or a copy of a PSUM tile in SBUF."""
        if value.buffer is Memory.sbuf:
            return value
        copied = self.part(value.shape, value.dtype)
        self.copy(copied, value)
        return copied

    def converted(self, value: NkiTensor, dtype: str) -> NkiTensor:
        """The tile itself, or a copy in another dtype."""
        if value.dtype == dtype:
            return value
        copied = self.part(value.shape, dtype)
        self.copy(copied, value)
        return copied

    # Operations

    def copy(self, dst: NkiTensor, src: NkiTensor) -> None:
        """dst = src, bit for bit between equal dtypes."""
        self(TensorCopy, dst=dst, src=src)

    def fill(self, dst: NkiTensor, value: Any) -> None:
        """dst = a number."""
        self(Memset, dst=dst, value=float(value) if DTYPES[dst.dtype].is_float else value)

    def tensors(self, dst: NkiTensor, x: NkiTensor, op: str, y: NkiTensor) -> None:
        """dst = x <op> y."""
        self(TensorTensor, dst=dst, data1=x, data2=y, op=ALU[op])

    def scalar(
        self,
        dst: NkiTensor,
        data: NkiTensor,
        op0: str,
        operand0: Any = None,
        op1: str | None = None,
        operand1: Any = None,
        reverse0: bool = False,
    ) -> None:
        """dst = (data <op0> operand0) <op1> operand1 with numbers or [P, 1] columns."""
        self(
            TensorScalar,
            dst=dst,
            data=data,
            op0=ALU[op0],
            operand0=operand0,
            reverse0=reverse0,
            op1=None if op1 is None else ALU[op1],
            operand1=operand1,
        )

    def scalar_then_tensor(
        self, dst: NkiTensor, data: NkiTensor, op0: str, operand0: Any, op1: str, y: NkiTensor
    ) -> None:
        """dst = (data <op0> operand0) <op1> y."""
        self(
            ScalarTensorTensor,
            dst=dst,
            data=data,
            op0=ALU[op0],
            operand0=operand0,
            op1=ALU[op1],
            operand1=y,
        )

    def activate(self, dst: NkiTensor, op: str, data: NkiTensor, **arguments: Any) -> None:
        """dst = op(data * scale + bias) on the scalar engine."""
        self(Activation, dst=dst, op=ACTIVATIONS[op], data=data, **arguments)

    def reduce(self, dst: NkiTensor, op: str, data: NkiTensor, axis: Any, **options: Any) -> None:
        """dst = data reduced over its last dimensions `axis`."""
        self(TensorReduce, dst=dst, op=ALU[op], data=data, axis=axis, **options)

    def choose(self, dst: NkiTensor, src: NkiTensor | float, predicate: NkiTensor) -> None:
        """dst = src where predicate is not zero."""
        self(TensorCopyPredicated, dst=dst, src=src, predicate=predicate)

    def invert(self, dst: NkiTensor, data: NkiTensor) -> None:
        """dst = 1 / data, on the vector engine, the more precise of the two that have it."""
        self(Reciprocal, dst=dst, data=data)

    # Control flow

    def if_any(self, predicate: NkiTensor) -> Iterator[None]:
        """`for _ in e.if_any(predicate): ...` computes what follows only where some element is not
        zero: a loop of one iteration or none. Where `nl.no_reorder` allows no loop, always."""
        if self.context.loops.ordered:
            yield
            return
        if len(predicate.shape) == 1:
            predicate = predicate.expand_dim(1)
        rows, free = predicate.shape[0], tuple(range(1, len(predicate.shape)))
        some, flag = self.part((rows, 1)), self.part((1, 1), "int32")
        self.reduce(some, "maximum", predicate, free)
        self(TensorPartitionReduce, dst=flag, op=ALU["maximum"], data=some)
        register = self.context.new_register(f"{self.function}_any", self.location)
        self(RegisterLoad, dst=register, src=flag)
        for _ in self.context.dynamic_range(0, register, 1, self.location):
            yield

    def repeat(self, count: int) -> Iterator[Any]:
        """`for _ in e.repeat(count): ...`, as a loop on the device unless `nl.no_reorder` allows
        none."""
        if self.context.loops.ordered:
            return iter(range(count))
        return self.context.dynamic_range(0, count, 1, self.location)

    # Shapes

    def same_shape(self, x: NkiTensor, y: NkiTensor, names: str = "x and y") -> None:
        """Raises shape-mismatch unless two tiles have one shape."""
        if not shapes_agree(x, y):
            raise NeuronError(
                "shape-mismatch",
                what=f"{names} of nl.{self.function} have shapes {list(x.shape)} and "
                f"{list(y.shape)}",
                why="Operands of a language function have the same shape, or one of them is a "
                "number or a [P, 1] column (NKI 0.4.0 release notes, Known Issues: no "
                "broadcasting).",
                hint="Turn one of them with nl.transpose(tile)."
                if [*map(str, x.shape)] == [*map(str, reversed(y.shape))]
                else "Broadcast with nl.broadcast_to(tile, shape) first.",
            )


class _Inside(Emitter):
    """`Emitter.inside`."""

    __slots__ = ()

    def result(self, shape: Any, dtype: str, memory: Memory = Memory.sbuf) -> NkiTensor:
        return self.part(shape, dtype, memory)


def shapes_agree(x: NkiTensor, y: NkiTensor) -> bool:
    """Whether two tiles have the same shape."""
    return len(x.shape) == len(y.shape) and all(map(identical, x.shape, y.shape))


def is_column(column: NkiTensor, tile: NkiTensor) -> bool:
    """Whether `column` has one element for each partition of `tile`."""
    rows = identical(column.shape[0], tile.shape[0])
    return rows and identical(math.prod(column.shape[1:]), 1)


def dtype_of(dtype: Any, default: str) -> str:
    """The dtype that the caller asked for, else the default."""
    return default if dtype is None else normalise(dtype)
