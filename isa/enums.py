"""Enumerations shared by the public API, the instruction tables and the encoding.

Members and values are those of the public `nki.isa` namespace (SDK nki/api/nki/isa/__init__.py),
which exposes these classes under its own lower-case names.
"""

from __future__ import annotations

from enum import Enum


class _Choice(Enum):
    """Hashes by identity: members are singletons, and Enum's own hash is a Python call."""

    __hash__ = object.__hash__


class Engine(_Choice):
    """The engines of a NeuronCore that fetch instructions, and the DMA engines.

    `unknown` leaves the choice to the operation.

    Source: SDK nki/api/nki/isa/__init__.py (engine).

    >>> Engine.vector.value, Engine.dma in SEQUENCERS
    (5, False)
    """

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


SEQUENCERS = (Engine.tensor, Engine.scalar, Engine.gpsimd, Engine.vector, Engine.sync)
"""The five engines that run an instruction stream of their own, in a fixed order."""


STREAMS = (*SEQUENCERS, Engine.unknown)
"""What a core's instruction streams are of. That of `unknown` holds the instructions of all engines
in one order; no compiled program has one."""


class Memory(_Choice):
    """Where a tensor lives. Values are those of `nl.MemoryRegion`.

    Source: SDK nki/api/nki/language/__init__.py (MemoryRegion).

    >>> [memory.name for memory in Memory if memory.on_chip]
    ['sbuf', 'psum']
    """

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    def __init__(self, region: str) -> None:
        self.on_chip = region in ("sbuf", "psum")
        """Whether it is SBUF or PSUM, whose tensors have partitions."""


class ReduceCommand(_Choice):
    """What an instruction does with its engine's accumulate registers.

    `idle` leaves them alone, or undefined, as the operation says. `reset` sets them to the
    operator's identity. `reduce` goes on from what they hold, `reset_reduce` starts from the
    identity, `load_reduce` from a value that the operation is given.

    Source: SDK nki/api/nki/isa/__init__.py (reduce_cmd).

    >>> ReduceCommand(3).name
    'reset_reduce'
    """

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class DgeMode(_Choice):
    """Who generates the descriptors of a DMA (SDK nki/deep-dives/nki-dge.rst).

    `unknown` leaves the choice to the operation; `swdge`: software on the GpSimd engine, while the
    kernel runs; `hwdge`: the hardware generator; `none`: the host, before it runs.

    >>> DgeMode.hwdge.value
    2
    """

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class DmaEngine(_Choice):
    """Who moves the bytes between cores (SDK nki.isa.sendrecv).

    `dma`: the DMA engines that all transfers share; `gpsimd_dma`: that of the GpSimd engine.

    >>> DmaEngine.gpsimd_dma.value
    2
    """

    dma = 1
    gpsimd_dma = 2


class OobMode(_Choice):
    """What an indirect access outside its tensor does.

    `error` stops the kernel; `skip` leaves out the row, whose destination stays as it was.

    Source: SDK nki/api/nki/isa/__init__.py (oob_mode).

    >>> OobMode.skip.value
    1
    """

    error = 0
    skip = 1


class MatmulPerfMode(_Choice):
    """Performance modes of the tensor engine.

    `double_row` contracts two fp8 elements at a time.

    Source: SDK nki/api/nki/isa/__init__.py (matmul_perf_mode).

    >>> MatmulPerfMode("double_row").name
    'double_row'
    """

    none = "none"
    double_row = "double_row"


class NcVersion(_Choice):
    """NeuronCore generations; ordered.

    Source: SDK nki/api/nki/isa/__init__.py (nc_version).

    >>> NcVersion.gen2 < NcVersion.gen4, max(NcVersion).name
    (True, 'gen4')
    """

    gen2 = 2
    gen3 = 3
    gen4 = 4

    def __lt__(self, other: NcVersion) -> bool:
        return self.value < other.value

    def __le__(self, other: NcVersion) -> bool:
        return self.value <= other.value

    def __gt__(self, other: NcVersion) -> bool:
        return self.value > other.value

    def __ge__(self, other: NcVersion) -> bool:
        return self.value >= other.value


class Condition(_Choice):
    """Comparison of a branch instruction (register against a value)."""

    always = 0
    eq = 1
    ne = 2
    lt = 3
    le = 4
    gt = 5
    ge = 6


class RegisterOperation(_Choice):
    """Integer operations of a sequencer on its 32-bit registers; results wrap."""

    add = 0
    subtract = 1
    multiply = 2
    minimum = 3
    maximum = 4
