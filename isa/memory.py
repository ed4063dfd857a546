"""The memories: geometry, which engine may read or write each, and where a tensor may start.

Sources: SDK nki/guides/architecture/trainium_inferentia2_arch.rst (ARCH2: start partitions, ports,
conflicts) and trainium2_arch.rst (ARCH3: which conflicts NeuronCore-v3 lifts).
"""

from __future__ import annotations

from dataclasses import dataclass

from isa.enums import Engine, Memory
from isa.target import Target

_ARCH2 = "ARCH2"
_ARCH3 = "ARCH3"

_COMPUTE = frozenset({Engine.scalar, Engine.vector, Engine.gpsimd})
_PSUM_PORTS = frozenset({Engine.scalar, Engine.vector})
_DMA = frozenset({Engine.dma})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Who reaches a memory. Sequencers move single registers to and from it besides."""

    memory: Memory
    readers: frozenset[Engine]
    writers: frozenset[Engine]
    partitioned: bool
    shared_by_cores: bool
    source: str


MEMORIES: dict[Memory, MemoryRow] = {
    row.memory: row
    for row in (
        MemoryRow(
            memory=Memory.sbuf,
            readers=_COMPUTE | _DMA | {Engine.tensor},
            writers=_COMPUTE | _DMA,
            partitioned=True,
            shared_by_cores=False,
            source=_ARCH2,
        ),
        # nki.isa.dma_copy takes SBUF and HBM only.
        MemoryRow(
            memory=Memory.psum,
            readers=_PSUM_PORTS,
            writers=_PSUM_PORTS | {Engine.tensor},
            partitioned=True,
            shared_by_cores=False,
            source=_ARCH2,
        ),
        MemoryRow(
            memory=Memory.private_hbm,
            readers=_DMA,
            writers=_DMA,
            partitioned=False,
            shared_by_cores=False,
            source="nki/get-started/about/memory-hierarchy-overview.rst",
        ),
        MemoryRow(
            memory=Memory.shared_hbm,
            readers=_DMA,
            writers=_DMA,
            partitioned=False,
            shared_by_cores=True,
            source="nki/get-started/about/lnc.rst",
        ),
    )
}
"""Access to each memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortConflict:
    """Two engines that cannot access one memory at the same time, in some generations.

    `same_bank`: only when both access the same PSUM bank. `fast_modes_only`: only while the first
    engine runs a performance mode; the hardware then arbitrates.
    """

    memory: Memory
    engines: tuple[Engine, Engine]
    generations: tuple[int, ...]
    same_bank: bool = False
    fast_modes_only: bool = False
    source: str


PORT_CONFLICTS: tuple[PortConflict, ...] = (
    PortConflict(
        memory=Memory.sbuf,
        engines=(Engine.vector, Engine.gpsimd),
        generations=(2,),
        source=_ARCH2,
    ),
    PortConflict(
        memory=Memory.psum,
        engines=(Engine.vector, Engine.scalar),
        generations=(2,),
        source=_ARCH2,
    ),
    PortConflict(
        memory=Memory.psum,
        engines=(Engine.vector, Engine.scalar),
        generations=(3, 4),
        same_bank=True,
        source=_ARCH3,
    ),
    PortConflict(
        memory=Memory.sbuf,
        engines=(Engine.vector, Engine.gpsimd),
        generations=(3, 4),
        fast_modes_only=True,
        source=_ARCH3,
    ),
)
"""Accesses that the hardware serialises."""

QUADRANT = 32
"""Partitions of a quadrant of SBUF or PSUM (ARCH2, "Accessing SBUF/PSUM tensors")."""

_STARTS: tuple[tuple[int, tuple[int, ...]], ...] = (
    (32, (0, 32, 64, 96)),
    (64, (0, 64)),
    (128, (0,)),
)
"""(largest partition count, allowed start partitions) (ARCH2, "Accessing SBUF/PSUM tensors")."""


def start_partitions(count: int) -> tuple[int, ...]:
    """Where an access of `count` partitions (1..128) may start; () for any other count."""
    if count < 1:
        return ()
    return next((starts for limit, starts in _STARTS if count <= limit), ())


def start_partition_allowed(start: int, count: int) -> bool:
    """Whether one access of an engine may cover partitions start .. start + count - 1."""
    return start in start_partitions(count)


def bytes_per_partition(memory: Memory, target: Target) -> int:
    """Capacity of one partition of SBUF or PSUM in bytes."""
    if memory is Memory.sbuf:
        return target.sbuf_bytes_per_partition.value
    if memory is Memory.psum:
        return target.psum_bytes_per_partition.value
    raise ValueError(f"{memory.name} has no partitions")


def alignment(memory: Memory, target: Target) -> int:
    """What byte offsets in a partition of SBUF or PSUM are multiples of; 1 for HBM."""
    if memory is Memory.sbuf:
        return target.sbuf_alignment.value
    return target.psum_alignment.value if memory is Memory.psum else 1


def psum_bank(byte_offset: int, target: Target) -> int:
    """The PSUM bank that holds a byte offset of a partition."""
    return byte_offset // target.psum_bank_bytes.value
