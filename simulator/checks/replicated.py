"""Writes that two cores both make: allowed as long as both write the same bytes.

A kernel that runs alike on the cores of a logical core often lets each of them store the whole of
a small result. Nothing orders these stores, and nothing needs to while they agree. The proof of a
program (`simulator.checks.order`) therefore takes such twins out, and a run compares them.

Twins are instructions of one row, from one source line, that write the same bytes of a shared HBM
tensor on different cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isa.access import AccessPattern
from isa.enums import Memory
from isa.errors import NeuronError
from isa.program import Program
from isa.spec import Instruction

Key = tuple[Any, ...]


def destination(instruction: Instruction) -> AccessPattern | None:
    """The pattern in shared HBM that an instruction writes to, if it has one."""
    for position in instruction.row.writes:
        pattern = instruction.values[position]
        if isinstance(pattern, AccessPattern) and pattern.memory is Memory.shared_hbm:
            return pattern
    return None


def twin_key(instruction: Instruction) -> Key | None:
    """Equal for instructions that are twins; None for those that cannot be one."""
    pattern = destination(instruction)
    if pattern is None or pattern.vector_offset is not None or instruction.location is None:
        return None
    return (
        instruction.row,
        instruction.location,
        pattern.tensor,
        pattern.dtype,
        pattern.offset,
        pattern.dims,
        pattern.partitions,
        pattern.registers,
    )


class Replicated:
    """The twins of a program, and which core has executed which since its last barrier."""

    def __init__(self, program: Program) -> None:
        seen: dict[Key, set[int]] = {}
        for number, core in enumerate(program.cores if len(program.cores) > 1 else ()):
            for stream in core.streams.values():
                for instruction in stream:
                    key = twin_key(instruction)
                    if key is not None:
                        seen.setdefault(key, set()).add(number)
        self.keys = frozenset(key for key, cores in seen.items() if len(cores) > 1)
        self._executed: dict[Key, dict[int, int]] = {}

    def restart(self) -> None:
        self._executed.clear()

    def comparing(
        self,
        instruction: Instruction,
        core: int,
        epoch: Callable[[], int],
        view: Callable[[], Any],
        compute: Callable[[], Any],
    ) -> Callable[[], Any]:
        """`compute`, with a comparison when another core has made the same write since the last
        barrier. `epoch` counts this core's barriers, `view` is the destination.

        Raises race when the bytes differ.
        """
        key = twin_key(instruction)
        if key not in self.keys:
            return compute

        def call() -> Any:
            executed = self._executed.setdefault(key, {})
            now = epoch()
            unordered = [c for c, then in executed.items() if c != core and then == now]
            executed[core] = now
            if not unordered:
                return compute()
            before = np.array(view())
            result = compute()
            if before.tobytes() != np.array(view()).tobytes():
                raise NeuronError(
                    "race",
                    what=f"core {core} and core {unordered[0]} both write here, nothing orders "
                    "them, and they write different values",
                )
            return result

        return call


__all__ = ["Key", "Replicated", "destination", "twin_key"]
