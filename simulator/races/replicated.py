"""Writes that two cores both make: allowed as long as both write the same bytes.

Some kernels run alike on the cores of a logical core. Such a kernel often lets each core store the
whole of a small result, or clear a tensor and then fill it. Nothing orders these stores of
different cores, and nothing needs to while the cores agree: whichever comes last, it leaves the
same bytes. The documents know disjoint parts only (SDK nki.isa.core_barrier); nki-library
core/router_topk and core/qkv let both cores write all of a result that they have made from parts
that they exchanged.

Where one core goes on with such bytes while the other may still be writing them, the order is that
of cores that run in step. Public kernels rely on it (nki-library core/moe/moe_cte/
bwmm_shard_on_I.py clears the output on both cores and then adds to it). The proof of a program
(`simulator.races.findings`) takes replicas as made together, and says so, if both cores make their
values alike from the same data (`simulator.races.same_writes`). Else it refuses them, whatever the
values are in a run. Where indices or registers decide the place, a run compares the values.

Replicas are instructions of one row, from one source line, that write the same place of a shared
HBM tensor on different cores, and do not add to it. What they write follows from what they read, so
the comparison is of their sources and indices.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.enums import Memory
from isa.errors import NeuronError
from isa.program import Program
from isa.spec import Instruction, Row
from simulator.races.dynamic_accesses import DynamicAccesses
from simulator.views import Indirect

Key = tuple[Any, ...]


def replica_key(instruction: Instruction) -> Key | None:
    """Equal for instructions that are replicas; None for those that cannot be one."""
    row, values = instruction.row, instruction.values
    if instruction.location is None or set(row.reads) & set(row.writes):
        return None
    for position in row.writes:
        pattern = values[position]
        if isinstance(pattern, AccessPattern) and pattern.memory is Memory.shared_hbm:
            return (
                row,
                instruction.location,
                pattern.tensor,
                pattern.dtype,
                pattern.offset,
                pattern.dims,
                pattern.partitions,
                pattern.registers,
                pattern.vector_offset is None,
            )
    return None


def replicas(cores: Iterable[Iterable[Instruction]]) -> dict[Key, set[int]]:
    """The cores that have an instruction of each key."""
    found: dict[Key, set[int]] = {}
    for number, instructions in enumerate(cores):
        for instruction in instructions:
            key = replica_key(instruction)
            if key is not None:
                found.setdefault(key, set()).add(number)
    return found


class Effect(NamedTuple):
    """What the effect of an execution follows from: sources, places, and indices of either, as a
    digest; the rows that it scatters to (None: it does not scatter); and what it writes."""

    digest: bytes
    rows: frozenset[int] | None
    written: tuple[Any, ...]

    @property
    def places(self) -> list[Any]:
        """Where the operands that it writes begin."""
        bases = (value.base if isinstance(value, Indirect) else value for value in self.written)
        return [base.ctypes.data if isinstance(base, np.ndarray) else base for base in bases]


class Execution(NamedTuple):
    """One execution of a replica: its effect, its result."""

    effect: Effect
    result: Any


class _Executions:
    """The executions of a replica by one core since its last barrier: how many, and by number those
    whose effect was looked at."""

    __slots__ = ("count", "kept")

    def __init__(self) -> None:
        self.count = 0
        self.kept: dict[int, Execution] = {}

    def append(self, execution: Execution) -> None:
        """The next one."""
        self.kept[self.count] = execution
        self.count += 1


class SharedRowWarning(RuntimeWarning):
    """Two cores scatter to one row of a tensor, and nothing orders them."""


def _warn(core: int, other: int, rows: frozenset[int]) -> None:
    warnings.warn(
        f"core {core} and core {other} scatter to the same rows ({min(rows)}, {len(rows)} in all) "
        "and nothing orders them: what stays there is not determined",
        SharedRowWarning,
        stacklevel=2,
    )


class InStep:
    """What each core has executed of the replicas.

    The first core to come to a replica executes it; for the others it has happened then. So it
    comes before whatever follows it on any of its cores, as on cores that run in step.
    """

    def __init__(self) -> None:
        # By core: the barriers that it has passed, and what it has executed since the last one.
        self._executed: dict[int, tuple[int, dict[Key, _Executions]]] = {}

    def restart(self) -> None:
        self._executed.clear()

    def once(self, key: Key, core: int, barriers: int, compute: Callable[[], Any]) -> None:
        """Call `compute`, unless another core has made this execution, with no barrier between.
        Whether the two write the same is found otherwise, and nothing is kept of them."""
        mine = self._since(key, core, barriers)
        if all(theirs.count <= mine.count for _, theirs in self._others(key, core, barriers)):
            compute()
        mine.count += 1

    def run(
        self,
        key: Key,
        core: int,
        barriers: int,
        effect: Effect,
        compute: Callable[[], Any],
    ) -> Any:
        """The result of `compute`, which runs unless another core has made this execution, with
        this `effect` and no barrier between them. Raises race when that one wrote something else.
        Scatters that differ are no replicas; where they share rows a warning says so, because
        kernels send what is padding to one row (nki-library core/moe/moe_cte)."""
        for other, then in self._unpaired(key, core, barriers):
            if then.effect.digest != effect.digest:
                rows, others = effect.rows, then.effect.rows
                if rows is not None and others is not None:
                    if rows & others:
                        _warn(core, other, rows & others)
                    continue
                raise NeuronError(
                    "race",
                    what=f"core {core} and core {other} both write here, nothing orders them, "
                    "and they write different values",
                )
            self._since(key, core, barriers).append(then)
            return then.result
        result = compute()
        self._since(key, core, barriers).append(Execution(effect, result))
        return result

    def _since(self, key: Key, core: int, barriers: int) -> _Executions:
        """What a core has executed of a replica since its last barrier."""
        passed, executed = self._executed.get(core, (-1, {}))
        if passed != barriers:  # no other core comes to an earlier stretch any more
            self._executed[core] = barriers, (executed := {})
        found = executed.get(key)
        if found is None:
            found = executed[key] = _Executions()
        return found

    def _others(self, key: Key, core: int, barriers: int) -> Iterator[tuple[int, _Executions]]:
        """What the other cores have executed of a replica behind as many barriers."""
        for other, (passed, executed) in self._executed.items():
            if other != core and passed == barriers and key in executed:
                yield other, executed[key]

    def _unpaired(self, key: Key, core: int, barriers: int) -> Iterator[tuple[int, Execution]]:
        """Other cores that have executed the replica of the next execution of this one, with no
        barrier between."""
        done = self._since(key, core, barriers).count
        for other, executed in self._others(key, core, barriers):
            if done in executed.kept:
                yield other, executed.kept[done]


class Replicated(InStep):
    """The replicas of a program, by `keys`, and what the cores have executed of them."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        found = replicas(
            [i for stream in core.streams.values() for i in stream] for core in program.cores
        )
        self.keys = frozenset(key for key, cores in found.items() if len(cores) > 1)
        self.accesses = DynamicAccesses(
            program, lambda instruction: replica_key(instruction) in self.keys
        )
        self._apart: set[Key] = set()

    def restart(self) -> None:
        super().restart()
        self.accesses.restart()
        self._apart.clear()

    def takes(self, instruction: Instruction) -> bool:
        """Whether an instruction has to be run by `comparing`."""
        if not self.keys and not self.accesses.tensors:
            return False
        return replica_key(instruction) in self.keys or self.accesses.concern(instruction)

    def comparing(
        self,
        instruction: Instruction,
        core: int,
        barriers: Callable[[], int],
        values: Sequence[Any],
        compute: Callable[[], Any],
    ) -> Callable[[], Any]:
        """`compute` as `InStep.run` does it. `barriers` counts those that this core has passed;
        `values` are the operands, current when the result is called."""
        key = replica_key(instruction)
        noting = compute
        if self.accesses.concern(instruction):
            noting = self.accesses.checking(instruction, core, barriers, values, compute)
        if key is None or key not in self.keys:
            return noting
        row, location = instruction.row, instruction.location

        def call() -> Any:
            if key in self._apart:
                return noting()
            now, effect = barriers(), effect_of(row, values)
            if any(
                then.effect.places != effect.places for _, then in self._unpaired(key, core, now)
            ):
                self._part(key, core, now, location)
                return noting()
            return self.run(key, core, now, effect, compute)

        return call

    def _part(self, key: Key, core: int, barriers: int, location: Any) -> None:
        """Registers move writes of one key to different places: no replicas, but writes that may
        meet. Those of other cores to which this one has none are noted belatedly."""
        self._apart.add(key)
        done = self._since(key, core, barriers).count
        for other, executed in self._others(key, core, barriers):
            for number, then in executed.kept.items():
                for value in then.effect.written if number >= done else ():
                    self.accesses.note(other, barriers, value, location)


def effect_of(row: type[Row], values: Sequence[Any]) -> Effect:
    """The effect of an instruction. A source that is the destination itself is only a place."""
    digest = hashlib.blake2b(digest_size=16)
    places = set()
    rows: frozenset[int] | None = None
    for position in (*row.writes, *row.reads):
        value = values[position]
        if isinstance(value, Indirect):
            indices = np.ascontiguousarray(value.index)
            digest.update(indices.tobytes())
            value = value.base
            if position in row.writes:
                inside = indices[(indices >= 0) & (indices < len(value))]
                rows = frozenset(inside.reshape(-1).tolist())
        if not isinstance(value, np.ndarray):
            digest.update(repr(value).encode())
            continue
        place = (value.ctypes.data, value.shape, value.strides, value.dtype.str)
        if position in row.writes:
            places.add(place)
        if place in places:
            digest.update(repr(place).encode())
        else:
            digest.update(np.ascontiguousarray(value).tobytes())
    return Effect(digest.digest(), rows, tuple(values[position] for position in row.writes))
