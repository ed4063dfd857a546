"""Orders the machine instructions of each basic block, so that engines wait less.

Dependences follow from the author's order and from the addresses of tensors. Within them, an engine
whose next instruction has to wait may run a later one that need not
(`nki.passes.order.list_schedule`). Times are those of the cost model. Where the new order is not
faster by them, the author's order stays.

An operation's instructions stay together. Loops, branches, barriers and register instructions are
not crossed; nor is an operation moved ahead of more than `WINDOW` others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from isa.affine import bounds
from isa.columns import (
    Integers,
    Lists,
    distinct,
    elements,
    flags_of,
    joined,
    numbered,
    numbered_lists,
    starts_of,
)
from isa.enums import Engine
from isa.fields import Kind
from isa.spec import Instruction
from isa.target import Target
from nki.ir.nodes import Access, Op, Register
from nki.passes.analysis.body import Body
from nki.passes.analysis.dependences import Dependences
from nki.passes.analysis.engine_state import carries
from nki.passes.analysis.steps import ENGINE_INDEX, ENGINES, Step
from nki.passes.emit.addresses import Addresses
from nki.passes.order.list_schedule import NEVER, NO_TENSORS, list_schedule

TENSOR = ENGINE_INDEX[Engine.tensor]

WINDOW = 128
"""Operations that may be overtaken at once."""

GAIN = 0.98
"""The part of the author's time below which a new order is taken."""

SPACED: ContextVar[bool] = ContextVar("spaced", default=False)
"""Whether products that add to the same sums are ordered as if each had to wait for the one before,
so that others come between. They need not, but a list schedule takes what may begin first, and
either order may turn out to be the faster one."""

Timing = Sequence[tuple[int, float, float, tuple[float, float, float, float] | None, str | None]]
"""Of each step of an operation (engine, interval, completion, transfer, table), in ns: the transfer
is (dispatch, work, tail, mean) or None, the table the activation table that it needs, or None. Work
is that of the DMA engine that has the most to do, the mean that of all of them."""


def schedule(
    body: Body,
    dependences: Dependences,
    costs: tuple[list[Timing], Integers],
    target: Target,
    window: int = WINDOW,
    gain: float = GAIN,
) -> Integers:
    """The steps of a body in a new order, by their numbers: those of a stretch change places.
    `costs` are those of its operations (`Costs.of`)."""
    operations = body.operations.size - 1
    order = np.arange(operations)
    if operations > 1:
        timings, which = costs
        before, after = dependences.of_operations(issues=True)
        ends = np.searchsorted(body.operations, body.stretches)
        first, alike = _alike(ends, which, before)
        low, high = ends[:-1][first], ends[1:][first]
        length = int((high - low).sum())
        columns = which, *timing_columns(timings), *before, *after, *waiting_ns(target)
        list_schedule(length, low, high, *columns, gain, window, *NO_TENSORS, order)
        for stretch in np.flatnonzero(~flags_of(ends.size - 1, first)).tolist():
            here, there = ends[stretch], int(ends[first[alike[stretch]]])
            length = int(ends[stretch + 1] - here)
            order[here : here + length] = order[there : there + length] + (here - there)
    return elements(body.operations, order)[1]


def _alike(ends: Integers, which: Integers, before: Lists) -> tuple[Integers, Integers]:
    """Stretches that differ, and for each stretch the number of the one of these that it is like:
    its operations take the same times, and follow one another alike."""
    starts, earlier = before
    known: dict[tuple[bytes, ...], int] = {}
    first, alike = list[int](), list[int]()
    for stretch, (low, high) in enumerate(pairwise(ends.tolist())):
        start, end = starts[low], starts[high]
        own = earlier[start:end]
        key = (
            which[low:high].tobytes(),
            (starts[low:high] - start).tobytes(),
            np.where(own < 0, own + low, own - low).tobytes(),
        )
        alike.append(known.setdefault(key, len(known)))
        if alike[-1] == len(first):
            first.append(stretch)
    return np.array(first, np.int64), np.array(alike, np.int64)


def carried_state(body: Body) -> set[tuple[int, str]]:
    """The engine state that passes from one operation of a body to another."""
    rows = {step.instruction.row for step in body.steps}
    found: set[tuple[int, str]] = set()
    if any(row.state for row in rows):
        for number in distinct(body.operation_kind).first.tolist():
            found |= carries(body.operation(number))
    return found


# -- times ----------------------------------------------------------------------------------------


@cache
def costs_of(target: Target) -> Costs:
    """The costs on a target; those that were met are known to all kernels."""
    return Costs(target)


class Costs:
    """What steps cost, by the cost model; steps that differ in addresses only cost the same."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._known: dict[Any, Any] = {}

    def of(self, body: Body) -> tuple[list[Timing], Integers]:
        """Different timings, and by operation the number of its."""
        accesses = body.accesses
        _, memory = numbered([tensor.memory for tensor in accesses.tensors])
        view = joined([accesses.view, memory[accesses.tensor]])[accesses.which]
        views = numbered_lists(body.starts[body.operations], view)
        fixed = np.zeros(body.operations.size - 1, np.int64)
        stays = body.fixed[body.operations[:-1]]
        fixed[stays] = 1
        _, first, which = distinct(joined([body.operation_kind, views, fixed]))
        timings: list[Timing] = [
            [] if stays[at] else self._timing(body.operation(at)) for at in first.tolist()
        ]
        return timings, which

    def of_operation(self, op: Op) -> Timing:
        """What an operation takes."""
        form: list[Any] = [*op.values, op.row]
        for index, _ in op.row.accesses:
            view = form[index]
            if view is not None and isinstance(view, Access):
                direct = view.vector_offset is None
                form[index] = view.storage.memory, view.dtype, view.shape, view.strides, direct
        key = tuple(form)
        try:
            found: Timing | None = self._known.get(key)
        except TypeError:  # a value that cannot be a key
            key = tuple(map(repr, form))
            found = self._known.get(key)
        if found is None:
            steps = [
                Step(one, ENGINE_INDEX.get(one.engine, -1), op)
                for one in op.row.expand(op.values, self.target)
            ]
            found = self._known[key] = self._timing(steps)
        return found

    def _timing(self, steps: Sequence[Step]) -> Timing:
        """What steps of one operation cost. Where the tensor engine loads tiles while it multiplies
        by the ones before, a load takes what it is longer than the product behind it."""
        costs = [self._cost(step) for step in steps]
        if not self.target.tile_loads_hidden.value:
            return costs
        for at, step in enumerate(steps[:-1]):
            row: Any = step.instruction.row  # to type checkers a class of it has no hash
            if _loads_tile(row):
                engine, interval, *others = costs[at]
                costs[at] = engine, max(0.0, interval - costs[at + 1][1]), *others
        return costs

    def _cost(self, step: Step) -> Any:
        """What a step costs alone, as in `Timing`."""
        instruction = step.instruction
        row: Any = instruction.row  # to type checkers a class of it has no hash
        signature: list[Any] = [row, step.engine]
        for access in step.accesses:
            signature += access.storage.memory, access.dtype, access.shape, access.strides
        for index in _decisive(row):
            value = instruction.values[index]
            signature.append(getattr(value, "name", value))
        key = tuple(signature)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._measure(step)
        return found

    def _measure(self, step: Step) -> Any:
        from simulator.timing.dma import plan_transfer

        instruction = step.instruction
        row = instruction.row
        addresses = Addresses(defaultdict(int), defaultdict(lambda: (0, 0)))
        values = tuple(
            addresses.pattern(_largest(value), _NO_REGISTERS)
            if isinstance(value, Access)
            else value
            for value in instruction.values
        )
        sized = Instruction(row, instruction.engine, values)
        assert row.cost is not None
        measured = row.cost.measure(sized, self.target)
        transfer = None
        if row.asynchronous:
            planned = plan_transfer(sized, self.target)
            work = max((ns for _, ns in planned.work), default=0.0)
            mean = planned.engine_ns / self.target.dma_engines.value
            transfer = planned.dispatch_ns, work, planned.tail_ns, mean
        tables = [
            instruction.values[index].loaded_table
            for index, _, attribute in row.attributes
            if attribute.kind is Kind.activation
        ]
        table = tables[0] if tables else None
        return step.engine, measured.interval_ns, measured.completion_ns, transfer, table


@cache
def _loads_tile(row: Any) -> bool:
    """Whether a machine instruction loads a tile that products multiply by."""
    from simulator.timing import events
    from simulator.timing.templates import kind_of

    return kind_of(row) == events.LOAD_TILE


@cache
def _decisive(row: Any) -> tuple[int, ...]:
    """The positions of the attributes on which times depend."""
    functions = (i for i, _, a in row.attributes if a.kind is Kind.activation)
    return (*row.cost.attributes(row), *functions)


_NO_REGISTERS: dict[Register, int] = {}


def _largest(access: Access) -> Access:
    """The view at the largest launch sizes and at the start of its tensor."""
    vector = access.vector_offset
    return Access(
        access.storage,
        access.dtype,
        tuple(_most(count) for count in access.shape),
        tuple(_most(stride) for stride in access.strides),
        0,
        None if vector is None else _largest(vector),
        _most(access.vector_stride),
        _most(access.vector_bound),
    )


def _most(form: Any) -> int:
    if type(form) is int:
        return form
    most = bounds(form)[1]
    return 1 << 16 if most is None else int(most)


def busy_ns(timings: Iterable[Timing]) -> list[float]:
    """How long operations keep each engine busy and, last, the DMA engines."""
    busy = [0.0] * (ENGINES + 1)
    for timing in timings:
        for engine, interval, _, transfer, _ in timing:
            busy[engine] += interval
            if transfer is not None:
                busy[ENGINES] += transfer[1]
    return busy


def waiting_ns(target: Target) -> tuple[float, float]:
    """What a wait for another engine takes, and another activation table."""
    return target.semaphore_ns.value, target.activation_table_load_ns.value


def timing_columns(timings: Sequence[Timing]) -> list[Any]:
    """Timings in columns: where each starts, then step by step the engine, the interval, the
    completion, the release (when what follows on the same engine may begin, if that is sooner than
    others may), the activation table (-1: none), and of the transfer whether there is one, the
    dispatch, the work and the tail."""
    steps = [step for timing in timings for step in timing]
    tables: dict[str | None, int] = {None: -1}
    transfers = [transfer or (0.0, 0.0, 0.0, 0.0) for *_, transfer, _ in steps]
    dispatch, work, tail, _ = np.array(transfers, np.float64).reshape(-1, 4).T
    return [
        starts_of(np.array([len(timing) for timing in timings], np.int64)),
        np.array([engine for engine, *_ in steps], np.int64),
        np.array([interval for _, interval, *_ in steps], np.float64),
        np.array([completion for _, _, completion, *_ in steps], np.float64),
        np.array(list(map(_release, steps)), np.float64),
        np.array([tables.setdefault(table, len(tables)) for *_, table in steps], np.int64),
        np.array([transfer is not None for *_, transfer, _ in steps], np.bool_),
        dispatch.copy(),
        work.copy(),
        tail.copy(),
    ]


def _release(step: Any) -> float:
    """When what follows a step on its engine may begin. Products follow one another at once, also
    where they add to the same sums (`simulator.timing.events`)."""
    engine, interval, *_ = step
    return float(interval) if engine == TENSOR and not SPACED.get() else NEVER
