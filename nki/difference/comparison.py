"""Two runs of a kernel compared: the first instruction, in the author's order, that differs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.dtypes import normalise
from isa.errors import NeuronError
from isa.program import SourceLocation
from isa.spec import Instruction
from isa.target import TARGETS
from nki.difference.distance import Array, Unequal, unequal
from nki.difference.runs import MODES, RUNS, ComparedKernel
from nki.difference.watch import ComparedPlace, Watch
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Op, operations
from nki.kernel import Kernel

_FIRST_CHUNK, _CHUNK = 1 << 20, 1 << 27
"""Bytes of values that are kept at once: first, as most often the first place is the one, and at
most."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first instruction, in the author's order, whose results differ.

    `operand` of `operation` is the tensor `tensor`, of which a view of `shape` was written.
    `executed` is how often the operation had been executed before; `unequal` counts elements of
    the view in row-major order.

    >>> values = Unequal(1, 5, (1.0, 1.5), 5, (1.0, 1.5), distance=64.0)
    >>> dtypes = "bfloat16", "float32"
    >>> found = Difference("activation", "dst", "tile", dtypes, (2, 4), 0, 0, None, values)
    >>> found.coordinates(found.unequal.first)
    (1, 1)
    """

    operation: str
    operand: str
    tensor: str
    dtypes: tuple[str, str]
    shape: tuple[int, ...]
    core: int
    executed: int
    location: SourceLocation | None
    unequal: Unequal

    def coordinates(self, element: int) -> tuple[int, ...]:
        """Where an element is in the view."""
        if element >= math.prod(self.shape):
            return (element,)
        return tuple(int(i) for i in np.unravel_index(element, self.shape))


@dataclass(frozen=True, slots=True)
class ModeComparison:
    """Two ways of running a kernel: their first difference, if any, how many instructions were
    compared and how many of them differ, and the outputs that differ, by number.

    >>> ModeComparison(("eager", "device"), compared=3, unequal=0, first=None, outputs={}).agrees
    True
    """

    modes: tuple[str, str]
    compared: int
    unequal: int
    first: Difference | None
    outputs: dict[int, Unequal]

    @property
    def agrees(self) -> bool:
        return self.first is None and not self.outputs


def compare_modes(
    kernel: Kernel,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    modes: tuple[str, str] = ("eager", "device"),
    tolerance: float = 0.0,
) -> ModeComparison:
    """Run a kernel in two modes on the same inputs and compare what every instruction writes.

    `modes` are of `MODES`. Elements differ when they are more than `tolerance` units in the last
    place apart; NaN equals NaN. Inputs stay as they are.

    Raises unknown-mode, and what running the kernel raises.

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def third(a):
    ...     tile = nl.load(a)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1 / 3)
    ...     nl.store(out, tile)
    ...     return out
    >>> import ml_dtypes
    >>> a = np.ones((2, 4), ml_dtypes.bfloat16)
    >>> compare_modes(third, [a], {}).agrees
    True
    >>> first = compare_modes(third, [a], {}, ("device", "fp32")).first
    >>> first.operation, first.tensor, first.unequal.elements
    ('tensor_scalar', 'tile', 8)
    """
    for mode in modes:
        if mode not in MODES:
            raise NeuronError("unknown-mode", f"mode {mode!r} is none of {', '.join(MODES)}")
    return _Pair(ComparedKernel(kernel, args, kwargs), modes, tolerance).compare()


class _Pair:
    """Two runs of one subject, as often as is needed."""

    def __init__(self, subject: ComparedKernel, modes: tuple[str, str], tolerance: float) -> None:
        self.subject = subject
        self.modes = modes
        self.tolerance = tolerance

    def compare(self) -> ModeComparison:
        (one, outputs), (other, others) = self._run(), self._run(second=True)
        left, right = one.digests, other.digests
        common = [p for sequence in self.subject.sequence for p in sequence]
        common = [place for place in common if place in left and place in right]
        apart = [place for place in common if left[place][0] != right[place][0]]
        found = {
            number: difference
            for number, pair in enumerate(zip(outputs, others))
            if (difference := unequal(*pair, self.tolerance)) is not None
        }
        first = self._first(apart, left) if apart else None
        return ModeComparison(self.modes, len(common), len(apart), first, found)

    def _run(
        self, wanted: Sequence[ComparedPlace] = (), second: bool = False
    ) -> tuple[Watch, list[Array]]:
        watch = Watch(frozenset(wanted))
        outputs = RUNS[self.modes[second]](self.subject, watch)
        return watch, outputs

    def _first(
        self, apart: list[ComparedPlace], sizes: dict[ComparedPlace, tuple[bytes, int]]
    ) -> Difference | None:
        """The first of the places at which elements are further apart than the tolerance. Cores
        are compared one after the other; of each the author's order counts."""
        start, limit = 0, _FIRST_CHUNK
        while start < len(apart):
            size, stop = 0, start
            while stop < len(apart) and (stop == start or size < limit):
                size += sizes[apart[stop]][1]
                stop += 1
            chunk, limit = apart[start:stop], min(_CHUNK, limit * 8)
            one, _ = self._run(chunk)
            other, _ = self._run(chunk, second=True)
            for place in chunk:
                pairs = zip(one.values[place], other.values[place])
                for number, (left, right) in enumerate(pairs):
                    found = unequal(left, right, self.tolerance)
                    if found is not None:
                        return self._described(place, number, left, right, found)
            start = stop
        return None

    def _described(
        self, place: ComparedPlace, number: int, left: Array, right: Array, found: Unequal
    ) -> Difference:
        core, operation, part, executed = place
        traced = self.subject.traced
        op = list(operations(traced.bodies[core]))[operation]
        instruction = _instructions(op, traced.target)[part]
        row, values = instruction.row, instruction.values
        written = [i for i in row.writes if values[i] is not None]
        access = values[written[number]]
        assert isinstance(access, Access)
        names = [name for name, value in zip(op.row.field_names, op.values) if value is access]
        return Difference(
            op.row.name,
            names[0] if names else row.field_names[written[number]],
            access.storage.name,
            (normalise(left.dtype), normalise(right.dtype)),
            tuple(left.shape) if not all(type(n) is int for n in access.shape) else access.shape,
            core,
            executed,
            resolve(op.location),
            found,
        )


def _instructions(op: Op, target: str) -> list[Instruction]:
    """The instructions of an operation that compute or move data."""
    machine = TARGETS[target]
    expanded = op.row.expand(op.row.resolve(op.values, machine), machine)
    return [instruction for instruction in expanded if not instruction.row.control]
