"""Another engine for a line: one that has less to do, or shares no port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from isa.alu import ACTIVATIONS, ALU
from isa.enums import DgeMode, Engine, ReduceCommand
from isa.fields import Kind
from isa.operations.scalar import Activation, ActivationReduce
from isa.operations.vector import TensorReduce, TensorScalar
from isa.rules import check_call
from isa.spec import Operation
from isa.target import TARGETS
from nki.advice.changed import Changed, Line, at_line
from nki.advice.reads import sums_rows
from nki.ir.locations import resolve
from nki.ir.nodes import Op, TracedKernel
from nki.transformations.rewrites import with_ops

_NAMES = {Engine.vector: "VectorE", Engine.scalar: "ScalarE", Engine.gpsimd: "GpSimdE"}


def other_engine(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """The line's operations on each other engine that runs all of them.

    Before:

        nisa.tensor_copy(dst=y, src=x, engine=nisa.engine.vector)

    After:

        nisa.tensor_copy(dst=y, src=x, engine=nisa.engine.scalar)

    Where a line has several calls, each of them, too.
    """
    ops = [op for op in at_line(kernel, line) if _is_movable(op)]
    calls = _by_call(ops)
    chosen = {"it": ops} if len(calls) == 1 else {"all of it": ops, **calls}
    for what, moved in chosen.items():
        for engine, name in _NAMES.items():
            replaced = {op: _on(op, engine, kernel) for op in moved}
            if moved and all(new is not None and new is not op for op, new in replaced.items()):
                complete = {op: new for op, new in replaced.items() if new is not None}
                rows = {new.row: None for op, new in complete.items() if new.row is not op.row}
                by = "".join(f", as nisa.{row.name}" for row in rows)
                same = ActivationReduce not in rows  # the order of a sum is another one
                changed = with_ops(kernel, complete)
                yield Changed("engine", f"run {what} on {name}{by}", changed, same)


def open_starter(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """The line's transfers started by whichever engine has time, where the author names one, or by
    descriptors that the hardware writes, which two engines may command.

    Before:

        nisa.dma_copy(dst=x, src=a[here, :], engine=nisa.engine.sync)

    After:

        nisa.dma_copy(dst=x, src=a[here, :])
    """
    ops = at_line(kernel, line)
    for text, change in (
        ("leave open which engine starts it (no engine=)", _started_by_any),
        ("let two engines start it (dge_mode=nisa.dge_mode.hwdge)", _by_hardware),
    ):
        changed = {op: change(op, kernel) for op in ops}
        complete = {op: new for op, new in changed.items() if new is not None}
        if complete:
            yield Changed("DMA triggers", text, with_ops(kernel, complete))


def _by_call(ops: list[Op]) -> dict[str, list[Op]]:
    """The operations by the text of the call that they come from, where a line has several."""
    found: dict[str, list[Op]] = {}
    for op in ops:
        place = resolve(op.location)
        text = "" if place is None else place.text[place.column : place.end_column]
        short = text if len(text) <= _CALL else f"{text[:_CALL]}..."
        found.setdefault(short or op.row.name, []).append(op)
    return found


_CALL = 40
"""Characters of a call that advice shows."""


def _is_movable(op: Op) -> bool:
    return _field(op) is not None or op.row in _SAME_ELSEWHERE


def _copy_elsewhere(op: Op, engine: Engine) -> Op | None:
    """An activation that only scales and shifts, as `tensor_scalar` on another engine."""
    given = op.fields
    plain = given["op"] is ACTIVATIONS["copy"] and given["reduce_cmd"] is ReduceCommand.idle
    if not plain or given["reduce_res"] is not None:
        return None
    fields = {"op0": ALU["multiply"], "operand0": given["scale"], "operand1": given["bias"]}
    fields["op1"] = None if given["bias"] is None else ALU["add"]
    return Op.of(TensorScalar, dst=given["dst"], data=given["data"], engine=engine, **fields)


def _sum_elsewhere(op: Op, engine: Engine) -> Op | None:
    """A sum of rows as that of an activation that copies them onto themselves."""
    given = op.fields
    if not sums_rows(given):
        return None
    onto = {"dst": given["data"], "data": given["data"], "op": ACTIVATIONS["copy"]}
    return Op.of(ActivationReduce, reduce_op=ALU["add"], reduce_res=given["dst"], **onto)


_SAME_ELSEWHERE: dict[type[Operation], Callable[[Op, Engine], Op | None]] = {
    Activation: _copy_elsewhere,
    TensorReduce: _sum_elsewhere,
}
"""Rows of one engine, and what does the same on others where something does."""


def _field(op: Op) -> int | None:
    """The position of the engine among the values of an operation that computes."""
    for index, _, attribute in op.row.attributes:
        if attribute.kind is Kind.engine and not op.row.starters(_with(op, index, Engine.unknown)):
            return index
    return None


def _with(op: Op, index: int, value: Any) -> tuple[Any, ...]:
    return (*op.values[:index], value, *op.values[index + 1 :])


def _on(op: Op, engine: Engine, kernel: TracedKernel) -> Op | None:
    """The operation on another engine; None where that one does not run it."""
    index = _field(op)
    if index is None:
        found = None if engine in op.row.engines else _SAME_ELSEWHERE[op.row](op, engine)
        if found is None or engine not in found.row.engines:
            return None
        found = op.with_values(found.values, found.row)
    elif op.values[index] is engine:
        return op
    else:
        attribute = next(a for i, _, a in op.row.attributes if i == index)
        if attribute.choices and engine not in attribute.choices:
            return None
        found = op.with_values(_with(op, index, engine))
    return found if check_call(found.row, found.values, TARGETS[kernel.target]) is None else None


def _started_by_any(op: Op, kernel: TracedKernel) -> Op | None:
    """The transfer without the engine that its author names; None where the author cannot name one,
    as for descriptors that are written before the run."""
    return None if any(value is DgeMode.none for value in op.values) else _open(op)


def _by_hardware(op: Op, kernel: TracedKernel) -> Op | None:
    """The transfer with descriptors that the hardware writes, in place of prepared ones."""
    for index, _, attribute in op.row.attributes:
        if attribute.kind is Kind.dge_mode and op.values[index] is DgeMode.none:
            values = _with(op, index, DgeMode.hwdge)
            if check_call(op.row, values, TARGETS[kernel.target]) is None:
                return _open(op.with_values(values))
    return None


def _open(op: Op) -> Op | None:
    for index, _, attribute in op.row.attributes:
        if attribute.kind is Kind.engine and op.values[index] is not Engine.unknown:
            values = _with(op, index, Engine.unknown)
            if op.values[index] in op.row.starters(values):
                return op.with_values(values)
    return None
