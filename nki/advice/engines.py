"""Another engine for a line: one that has less to do, or shares no port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isa.enums import DgeMode, Engine
from isa.fields import Kind
from isa.rules import check_call
from isa.target import TARGETS
from nki.advice.changed import Changed, Line, at_line, with_ops
from nki.ir.nodes import Kernel, Op

_NAMES = {Engine.vector: "VectorE", Engine.scalar: "ScalarE", Engine.gpsimd: "GpSimdE"}


def other_engine(kernel: Kernel, line: Line) -> Iterator[Changed]:
    """The line's operations on each other engine that runs all of them.

    Before:

        nisa.tensor_copy(dst=y, src=x, engine=nisa.engine.vector)

    After:

        nisa.tensor_copy(dst=y, src=x, engine=nisa.engine.scalar)
    """
    ops = [op for body in kernel.bodies for op in at_line(body, line) if _field(op) is not None]
    for engine, name in _NAMES.items():
        replaced = {op: _on(op, engine, kernel) for op in ops}
        if ops and all(new is not None and new is not op for op, new in replaced.items()):
            complete = {op: new for op, new in replaced.items() if new is not None}
            yield Changed("engine", f"run it on {name}", with_ops(kernel, complete))


def open_starter(kernel: Kernel, line: Line) -> Iterator[Changed]:
    """The line's transfers started by whichever engine has time, where the author names one, or by
    descriptors that the hardware writes, which two engines may command.

    Before:

        nisa.dma_copy(dst=x, src=a[here, :], engine=nisa.engine.sync)

    After:

        nisa.dma_copy(dst=x, src=a[here, :])
    """
    ops = [op for body in kernel.bodies for op in at_line(body, line)]
    for text, change in (
        ("leave open which engine starts it (no engine=)", _started_by_any),
        ("let two engines start it (dge_mode=nisa.dge_mode.hwdge)", _by_hardware),
    ):
        changed = {op: change(op, kernel) for op in ops}
        complete = {op: new for op, new in changed.items() if new is not None}
        if complete:
            yield Changed("DMA triggers", text, with_ops(kernel, complete))


def _field(op: Op) -> int | None:
    """The position of the engine among the values of an operation that computes."""
    for index, _, attribute in op.row.attributes:
        if attribute.kind is Kind.engine and not op.row.starters(_with(op, index, Engine.unknown)):
            return index
    return None


def _with(op: Op, index: int, value: Any) -> tuple[Any, ...]:
    return (*op.values[:index], value, *op.values[index + 1 :])


def _on(op: Op, engine: Engine, kernel: Kernel) -> Op | None:
    """The operation on another engine; None where that one does not run it."""
    index = _field(op)
    assert index is not None
    if op.values[index] is engine:
        return op
    attribute = next(a for i, _, a in op.row.attributes if i == index)
    if attribute.choices and engine not in attribute.choices:
        return None
    values = _with(op, index, engine)
    if check_call(op.row, values, TARGETS[kernel.target]) is not None:
        return None
    return Op(op.row, values, op.location, op.name, op.after)


def _started_by_any(op: Op, kernel: Kernel) -> Op | None:
    """The transfer without the engine that its author names; None where the author cannot name one,
    as for descriptors that are written before the run."""
    return None if DgeMode.none in op.values else _open(op)


def _by_hardware(op: Op, kernel: Kernel) -> Op | None:
    """The transfer with descriptors that the hardware writes, in place of prepared ones."""
    for index, _, attribute in op.row.attributes:
        if attribute.kind is Kind.dge_mode and op.values[index] is DgeMode.none:
            values = _with(op, index, DgeMode.hwdge)
            if check_call(op.row, values, TARGETS[kernel.target]) is None:
                return _open(Op(op.row, values, op.location, op.name, op.after))
    return None


def _open(op: Op) -> Op | None:
    for index, _, attribute in op.row.attributes:
        if attribute.kind is Kind.engine and op.values[index] is not Engine.unknown:
            values = _with(op, index, Engine.unknown)
            if op.values[index] in op.row.starters(values):
                return Op(op.row, values, op.location, op.name, op.after)
    return None
