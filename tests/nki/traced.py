"""Running a function as a kernel, for tests that look at the traced IR."""

from collections.abc import Callable
from typing import Any

import pytest
from tile_ir.verify import verify

import nki
import nki.language as nl
from isa.errors import NeuronError
from isa.target import resolve
from nki.ir.nodes import Node, Op, TracedKernel, walk
from nki.trace.tracer import trace

FLOAT = "float32"


def traced(
    body: Callable[..., Any],
    *shapes: tuple[Any, ...],
    target: str = "trn2",
    cores: int = 1,
    dtype: str = FLOAT,
) -> TracedKernel:
    """The verified IR of `body(*inputs)`; a body that returns None gets an output of its own."""

    def kernel(inputs: Any) -> Any:
        return body(*inputs)

    specs = tuple(nki.TensorSpec(shape, dtype) for shape in shapes)
    result = trace(kernel, {"inputs": specs}, resolve(target), cores)
    verify(result)
    return result


def refused(code: str, body: Callable[..., Any], *shapes: Any, **options: Any) -> NeuronError:
    """The error that tracing `body` ends with, which must have this code."""
    with pytest.raises(NeuronError) as caught:
        traced(body, *shapes, **options)
    assert caught.value.code == code, str(caught.value)
    return caught.value


def operations(kernel: TracedKernel, name: str, core: int = 0) -> list[Op]:
    """All uses of one operation, in order, those in loops included."""
    return [n for n in walk(kernel.bodies[core]) if isinstance(n, Op) and n.row.name == name]


def loops(nodes: list[Node]) -> list[Any]:
    """The loops directly in a body."""
    return [n for n in nodes if not isinstance(n, Op)]


def value(op: Op, name: str) -> Any:
    """One field of an operation."""
    return op.values[op.row.field_names.index(name)]


def sbuf(*shape: Any, dtype: str = FLOAT) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def psum(*shape: Any) -> Any:
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
