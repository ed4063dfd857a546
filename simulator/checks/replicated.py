"""Writes that two cores both make: allowed as long as both write the same bytes.

A kernel that runs alike on the cores of a logical core often lets each of them store the whole of
a small result, or clear a tensor and then fill it. Nothing orders these stores of different cores,
and nothing needs to while the cores agree: whichever comes last, it leaves the same bytes. The
proof of a program (`simulator.checks.order`) therefore takes twins out, and a run compares them.

Twins are instructions of one row, from one source line, that write the same place of a shared HBM
tensor on different cores and read no shared HBM that they write. What they write follows from what
they read, so the comparison is of their sources and indices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from isa.access import AccessPattern
from isa.enums import Memory
from isa.errors import NeuronError
from isa.program import Program
from isa.spec import Instruction
from simulator.views import Indirect

Key = tuple[Any, ...]


def twin_key(instruction: Instruction) -> Key | None:
    """Equal for instructions that are twins; None for those that cannot be one."""
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


def twins(cores: Iterable[Iterable[Instruction]]) -> dict[Key, set[int]]:
    """The cores that have an instruction of each key."""
    found: dict[Key, set[int]] = {}
    for number, instructions in enumerate(cores):
        for instruction in instructions:
            key = twin_key(instruction)
            if key is not None:
                found.setdefault(key, set()).add(number)
    return found


class Replicated:
    """The twins of a program, and what each core has read for them since its last barrier."""

    def __init__(self, program: Program) -> None:
        found = twins(
            [i for stream in core.streams.values() for i in stream] for core in program.cores
        )
        self.keys = frozenset(key for key, cores in found.items() if len(cores) > 1)
        self._executed: dict[Key, dict[int, list[tuple[int, bytes]]]] = {}

    def restart(self) -> None:
        for cores in self._executed.values():
            for executed in cores.values():
                executed.clear()

    def comparing(
        self,
        instruction: Instruction,
        core: int,
        barriers: Callable[[], int],
        values: Sequence[Any],
        compute: Callable[[], Any],
    ) -> Callable[[], Any]:
        """`compute`, with a comparison to the same execution on other cores.

        `barriers` counts those that this core has passed; `values` are the operands, current when
        the result is called. Raises race when what the cores write, or where, differs with no
        barrier between them.
        """
        key = twin_key(instruction)
        if key is None or key not in self.keys:
            return compute
        cores = self._executed.setdefault(key, {})
        mine = cores.setdefault(core, [])
        row = instruction.row
        reads = [i for i, _, _ in row.operands if i not in row.writes]

        def call() -> Any:
            now = (barriers(), _digest(values, reads, row.writes))
            for number, executed in cores.items():
                if number == core or len(executed) <= len(mine):
                    continue
                then = executed[len(mine)]
                if then[0] == now[0] and then != now:
                    raise NeuronError(
                        "race",
                        what=f"core {core} and core {number} both write here, nothing orders "
                        "them, and they write different values",
                    )
            mine.append(now)
            return compute()

        return call


def _digest(values: Sequence[Any], reads: Sequence[int], writes: Sequence[int]) -> bytes:
    """What an instruction's effect follows from: sources, places, and indices of either."""
    digest = hashlib.blake2b(digest_size=16)
    for position in (*reads, *writes):
        value = values[position]
        if isinstance(value, Indirect):
            digest.update(np.ascontiguousarray(value.index).tobytes())
            value = value.base
        if position in writes:
            digest.update(value.ctypes.data.to_bytes(8, "little"))
        else:
            digest.update(np.ascontiguousarray(value).tobytes())
    return digest.digest()


__all__ = ["Key", "Replicated", "twin_key", "twins"]
