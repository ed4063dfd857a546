"""What the DMA engines of a run move, and how busy they are."""

from __future__ import annotations

from dataclasses import dataclass

from isa.enums import DgeMode
from isa.program import Program
from isa.target import Target
from simulator.timing.timeline import CoreTimeline, ModeTraffic, Timeline

MADE_BY = {
    "static": (DgeMode.none,),
    "software_dynamic": (DgeMode.swdge,),
    "hardware_dynamic": (DgeMode.hwdge,),
    "dynamic": (DgeMode.swdge, DgeMode.hwdge),
}
"""Kinds of transfers by who makes their descriptors, as the vendor's profiler calls them."""


def percent(part: float, whole: float) -> float:
    """`part` in percent of `whole`; 0 where there is nothing."""
    return 100.0 * part / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class DmaProfile:
    """The DMA engines of all cores. `active`: at least one of a core's engines moves bytes.
    `engines_ns` is what all engines together take, `transfers_ns` what all transfers do. `modes`:
    by who makes descriptors, as `MADE_BY` has it, active on the core where that is longest.

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... ''')
    >>> from simulator.profile import profile
    >>> from simulator.timing import simulate
    >>> dma = profile(program, simulate(program)).dma
    >>> dma.transfers, dma.moved_bytes, dma.queues
    (0, 0, 0)
    """

    active_ns: float
    active_percent: float
    bytes: dict[str, int]
    hbm_read_bytes: int
    hbm_write_bytes: int
    transfers: int
    descriptors: int
    bytes_per_descriptor: float
    bytes_per_ns: float
    peak_bytes_per_ns: float
    busy_percent: float
    engines_ns: float
    transfers_ns: float
    queues: int
    modes: dict[str, ModeTraffic]

    @property
    def moved_bytes(self) -> int:
        """Bytes that all transfers write."""
        return sum(self.bytes.values())


def dma_profile(program: Program, timeline: Timeline, target: Target) -> DmaProfile:
    """Of a bound program and its timing."""
    cores = timeline.cores
    moved: dict[str, int] = {}
    for core in cores:
        for direction, size in core.bytes.items():
            moved[direction] = moved.get(direction, 0) + size
    total, size = timeline.total_ns, sum(moved.values())
    descriptors = sum(c.descriptors for c in cores)
    capacity = total * target.dma_engines.value * len(cores)
    return DmaProfile(
        active_ns=timeline.dma_active_ns,
        active_percent=percent(timeline.dma_active_ns, total),
        bytes=moved,
        hbm_read_bytes=sum(c.hbm_read_bytes for c in cores),
        hbm_write_bytes=sum(c.hbm_write_bytes for c in cores),
        transfers=sum(c.transfers for c in cores),
        descriptors=descriptors,
        bytes_per_descriptor=size / descriptors if descriptors else 0.0,
        bytes_per_ns=size / total if total else 0.0,
        peak_bytes_per_ns=target.dma_bytes_per_ns * len(cores),
        busy_percent=percent(sum(c.dma_work for c in cores), capacity),
        engines_ns=sum(c.dma_work for c in cores),
        transfers_ns=sum(c.transfer_ns for c in cores),
        queues=sum(len(core.queues) for core in program.cores),
        modes={name: _together(cores, modes) for name, modes in MADE_BY.items()},
    )


def _together(cores: list[CoreTimeline], modes: tuple[DgeMode, ...]) -> ModeTraffic:
    which = modes[0] if len(modes) == 1 else DgeMode.unknown
    counted = [core.modes[mode] for core in cores for mode in modes]
    return ModeTraffic(
        max((core.modes[which].active for core in cores), default=0.0),
        sum(one.descriptors for one in counted),
        sum(one.bytes for one in counted),
    )
