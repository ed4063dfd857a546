"""What a compiled graph takes in HBM."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from simulator.tensors import size_of

if TYPE_CHECKING:
    from isa.program import Program


class MemoryUse(NamedTuple):
    """Bytes in HBM: `inputs`, of which the graph updates `updated` in place; `weights`, which are
    constants of the program; `outputs` beside those; `intermediates`, and `unshared`, what these
    would take if none used the bytes of another one.

    >>> print(MemoryUse(8192, 4096, 0, 4096, 1048576, 3145728))
    weights        0.00 MiB
    inputs         0.01 MiB, 0.00 MiB of them updated in place
    outputs        0.00 MiB
    intermediates  1.00 MiB, 3.00 MiB without reuse
    """

    inputs: int
    updated: int
    weights: int
    outputs: int
    intermediates: int
    unshared: int

    @property
    def total(self) -> int:
        """Bytes of all of it."""
        return self.inputs + self.weights + self.outputs + self.intermediates

    def __str__(self) -> str:
        mib = {name: f"{value / 2**20:.2f} MiB" for name, value in self._asdict().items()}
        return "\n".join(
            [
                f"weights        {mib['weights']}",
                f"inputs         {mib['inputs']}, {mib['updated']} of them updated in place",
                f"outputs        {mib['outputs']}",
                f"intermediates  {mib['intermediates']}, {mib['unshared']} without reuse",
            ]
        )


def memory_use(program: Program, unshared: int) -> MemoryUse:
    """What a program takes; `unshared` bytes were its intermediates before they shared any."""
    of: Counter[str] = Counter()
    for tensor in program.tensors:
        if tensor.within is None:
            of[tensor.role] += size_of(tensor)
    inputs = of["input"] + of["inout"]
    return MemoryUse(inputs, of["inout"], of["constant"], of["output"], of["internal"], unshared)
