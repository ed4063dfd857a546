"""What the instructions of one run wrote, by the operation of the trace that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from isa.enums import Engine
from isa.errors import NeuronError
from isa.spec import MachineInstruction
from nki.difference.distance import Array
from nki.ir.locations import resolve
from nki.ir.nodes import Op, operations
from nki.ir.nodes import TracedKernel as TracedKernel
from simulator.views import Indirect

ComparedPlace = tuple[int, int, int, int]
"""An instruction that was executed: core, number of its operation in the core's body, number of the
instruction in the operation, and how often it was executed before."""


class Watch:
    """What every instruction of one run wrote: digests by place, and the values at the places
    `wanted`."""

    def __init__(self, wanted: frozenset[ComparedPlace] = frozenset()) -> None:
        self.wanted = wanted
        self.digests: dict[ComparedPlace, tuple[bytes, int]] = {}
        self.values: dict[ComparedPlace, list[Array]] = {}

    def note(
        self, place: ComparedPlace, row: type[MachineInstruction], values: Sequence[Any]
    ) -> None:
        """An instruction has been executed on these values."""
        written = [_elements(values[i]) for i in row.writes if values[i] is not None]
        digest = blake2b(digest_size=8)
        for array in written:
            digest.update(np.ascontiguousarray(array).tobytes())
        self.digests[place] = digest.digest(), sum(array.nbytes for array in written)
        if place in self.wanted:
            self.values[place] = [array.copy() for array in written]


def _elements(value: Any) -> Array:
    if isinstance(value, Indirect):
        value = value.gather()[0]
    array: Array = value
    return array if array.ndim else array.reshape(1)


class InOrder:
    """Follows cores that execute operations in the author's order, as `nki.eager.launch` sees
    them: those of `sequence`, the same in another run. Raises value-not-allowed where the runs take
    other ways."""

    def __init__(
        self, watch: Watch, traced: TracedKernel, sequence: list[list[ComparedPlace]]
    ) -> None:
        self.watch = watch
        self._sequence = sequence
        self._operations = [list(operations(body)) for body in traced.bodies]
        self._executed = [0 for _ in traced.bodies]

    def __call__(
        self, core: int, op: Op, row: type[MachineInstruction], values: Sequence[Any]
    ) -> None:
        """An instruction of an operation has been executed."""
        position, sequence = self._executed[core], self._sequence[core]
        expected = None
        if position < len(sequence):
            expected = self._operations[core][sequence[position][1]]
        if expected is None or expected.row is not op.row:
            raise another_way(core, op, expected)
        self._executed[core] += 1
        self.watch.note(sequence[position], row, values)


def another_way(core: int, op: Op, expected: Op | None) -> NeuronError:
    """The error of runs that do not execute the same operations."""
    return NeuronError(
        "value-not-allowed",
        what=f"core {core} executes {op.row.name} where the traced kernel has "
        + ("ended" if expected is None else expected.row.name),
        why="Results can be compared where both runs execute the same operations. A kernel "
        "does what its arguments say; it may not ask what changes from call to call.",
        hint="Compare modes reference and device, which run one trace.",
        location=resolve(op.location),
    )


class InStreams:
    """Follows the streams of a program: `places` are by core, engine and the instruction's index;
    None for what belongs to no operation of the trace. `sequence` are those that were executed, by
    the core."""

    def __init__(
        self, watch: Watch, places: dict[tuple[int, Engine], list[ComparedPlace | None]]
    ) -> None:
        self.watch = watch
        self.places = places
        self.sequence: dict[int, list[ComparedPlace]] = {core: [] for core, _ in places}
        self._executed: dict[ComparedPlace, int] = {}

    def __call__(self, core: int, engine: Engine, index: int, row: Any, values: Any) -> None:
        """The instruction at `index` of a stream has been executed."""
        static = self.places[core, engine][index]
        if static is not None:
            times = self._executed[static] = self._executed.get(static, -1) + 1
            place = (*static[:3], times)
            self.sequence[core].append(place)
            self.watch.note(place, row, values)
