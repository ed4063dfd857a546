"""The timeline of a run: spans of every engine and queue, and totals."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from isa.enums import DgeMode, Engine
from simulator.timing.critical import CriticalPath

TimelineSpan = tuple[float, float, int, int]
"""Start and end in ns, index of the instruction in its stream, iteration of its innermost loop."""


class Spans:
    """Many spans in little memory, in order of time.

    Start and end in ns.

    >>> import numpy as np
    >>> [list(span) for span in Spans.of(*np.array([[0, 5], [4, 9], [0, 1], [0, 0]]))]
    [[0.0, 4.0, 0, 0], [5.0, 9.0, 1, 0]]
    """

    __slots__ = ("end", "index", "iteration", "start")

    def __init__(self) -> None:
        self.start = array("d")
        self.end = array("d")
        self.index = array("l")
        self.iteration = array("l")

    @staticmethod
    def of(start: Any, end: Any, index: Any, iteration: Any) -> Spans:
        """Spans of four NumPy columns."""
        spans = Spans()
        spans.start.frombytes(start.astype("d").tobytes())
        spans.end.frombytes(end.astype("d").tobytes())
        spans.index.frombytes(index.astype("l").tobytes())
        spans.iteration.frombytes(iteration.astype("l").tobytes())
        return spans

    def columns(self) -> tuple[Any, Any, Any]:
        """Start, end and instruction of the spans, as NumPy columns."""
        import numpy as np

        index = np.frombuffer(self.index, f"i{self.index.itemsize}")
        return np.frombuffer(self.start), np.frombuffer(self.end), index

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[TimelineSpan]:
        return zip(self.start, self.end, self.index, self.iteration)


@dataclass(slots=True)
class Track:
    """A row of a timeline: an engine, or a DMA queue of an engine (`queue`: its index in the core,
    else -1). `beside`: what works beside the engine's data path, its sequencer or its tile loads.

    Spans of a queue are its transfers; indices name the triggers in the stream of `engine`. Where
    two transfers of a queue overlap, the later span begins at the end of the earlier one.

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... ''')
    >>> from simulator.timing import simulate
    >>> for track in simulate(program).cores[0].tracks:
    ...     print(track.name, track.beside, track.queue)
    sync False -1
    sync sequencer True -1
    """

    name: str
    engine: Engine
    queue: int = -1
    beside: bool = False
    spans: Spans | None = None


@dataclass(slots=True)
class EngineTime:
    """One engine of one core. Times in ns.

    `active`: some instruction executes, from its start to its completion: what profilers call
    active. `busy`: the data path is occupied, `computing`: for how long of that whatever the order
    of instructions. `sequencer`: control instructions and DMA triggers, which run beside the data
    path. `waited`: held up by a semaphore, by number. `executed`: how often each instruction of its
    stream ran, `by_instruction`: what they occupied in all, `dma_work`: what the DMA engines
    together spent on the transfers that they triggered. `finished`: when its last instruction
    completed. `instruction_ns`: from the start to the end of each of them, added up, overlaps too.

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... ''')
    >>> from simulator.timing import simulate
    >>> sync = simulate(program).cores[0].engines[Engine.sync]
    >>> list(sync.executed), list(sync.by_instruction), sync.finished
    ([1, 1], [68.0, 0.0], 68.0)
    """

    active: float = 0.0
    busy: float = 0.0
    computing: float = 0.0
    sequencer: float = 0.0
    finished: float = 0.0
    instruction_ns: float = 0.0
    waited: dict[int, float] = field(default_factory=dict)
    executed: array[int] = field(default_factory=lambda: array("q"))
    by_instruction: array[float] = field(default_factory=lambda: array("d"))
    dma_work: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class ModeTraffic:
    """The transfers whose descriptors come from one source: the time in which some of them is under
    way, their descriptors and bytes."""

    active: float = 0.0
    descriptors: int = 0
    bytes: int = 0


@dataclass(slots=True)
class CoreTimeline:
    """One core. `dma_active` is the time in which some transfer is under way, from its first byte
    until its last is written. `transfer_ns` is the sum of these times, `dma_work` what all engines
    spend together. `bytes` are by direction ("hbm->sbuf"), `modes` by who makes descriptors (that
    of `unknown` is active where any are made during the run). `throttled` is the time that the
    TensorE limit cost, `table_load_ns` that of activation-table loads.

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... ''')
    >>> from simulator.timing import simulate
    >>> core = simulate(program).cores[0]
    >>> [engine.name for engine in core.engines], core.transfers, core.bytes
    (['sync'], 0, {})
    """

    engines: dict[Engine, EngineTime] = field(default_factory=dict)
    tracks: list[Track] = field(default_factory=list)
    dma_active: float = 0.0
    dma_work: float = 0.0
    bytes: dict[str, int] = field(default_factory=dict)
    hbm_read_bytes: int = 0
    hbm_write_bytes: int = 0
    transfers: int = 0
    descriptors: int = 0
    flops: float = 0.0
    transpose_flops: float = 0.0
    throttled: float = 0.0
    table_loads: int = 0
    table_load_ns: float = 0.0
    barrier_ns: float = 0.0
    transfer_ns: float = 0.0
    modes: dict[DgeMode, ModeTraffic] = field(default_factory=dict)


class Worked(NamedTuple):
    """How long any engine or transfer of any core was active, and how long it is from the first
    moment of that to the last."""

    active_ns: float
    span_ns: float


@dataclass(slots=True)
class Timeline:
    """Result of `simulate`. Times in ns from the start of the first instruction.

    `total_ns`: until the last instruction and transfer have completed. `overhead_ns`: fixed cost of
    starting and stopping a kernel on the device, not part of `total_ns`. `critical`: where the time
    goes along the critical path, `worked` how long anything was active, if the path was kept.

    >>> from isa.files.text import assemble
    >>> from simulator.timing import simulate
    >>> timeline = simulate(assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... '''))
    >>> timeline.instructions, timeline.total_ns, timeline.cores[0].engines[Engine.sync].sequencer
    (2, 68.0, 68.0)
    """

    target: str
    total_ns: float
    overhead_ns: float
    cores: list[CoreTimeline]
    critical: CriticalPath | None = None
    worked: Worked | None = None

    @property
    def instructions(self) -> int:
        """Instructions executed, over all engines of all cores."""
        return sum(sum(e.executed) for core in self.cores for e in core.engines.values())

    def active_ns(self, engine: Engine) -> float:
        """Active time of an engine, on the core where it is longest."""
        return max((c.engines[engine].active for c in self.cores if engine in c.engines), default=0)

    @property
    def dma_active_ns(self) -> float:
        """Time with a transfer under way, on the core where it is longest."""
        return max((core.dma_active for core in self.cores), default=0.0)
