"""A finding of the happens-before check, and its message."""

from __future__ import annotations

from dataclasses import dataclass, replace

from isa.enums import Engine
from isa.errors import CATALOGUE, NeuronError
from isa.program import SourceLocation

Bounds = tuple[int, int | None]
"""First and one-after-last of a range; None: up to the end of the memory."""


@dataclass(frozen=True, slots=True)
class Site:
    """One side of a race: an instruction, in one iteration of the loops around it.

    `queue` is the DMA queue that moves its bytes, -1 when the engine itself does.
    """

    core: int
    engine: Engine
    index: int
    iteration: tuple[int, ...]
    instruction: str
    queue: int
    writes: bool
    location: SourceLocation | None

    def __str__(self) -> str:
        rounds = f", iteration {', '.join(map(str, self.iteration))}" if self.iteration else ""
        engine = "" if self.engine is Engine.unknown else f"{self.engine.name}[{self.index}] "
        where = f"core {self.core} {engine}{self.instruction}{rounds}"
        line = f" ({self.location.file}:{self.location.line})" if self.location else ""
        queue = f" on queue {self.queue}" if self.queue >= 0 else ""
        return where + queue + line


@dataclass(frozen=True, slots=True)
class Race:
    """A finding. `kind` is "RAW", "WAR", "WAW" (same core) or "cross-core" for unordered accesses;
    "semaphore-shared" for a semaphore whose units have no one order; "queue-shared" for a queue
    that several engines feed; "barrier-shared" for core barriers of one core without an order;
    "deadlock" for streams that can never go on; "absent" for a core that waits for another which
    never comes, "partner" for cores that exchange tiles which do not fit.

    `first` and `second` are the two instructions in the order of iterations and source lines. What
    they share lies in `partitions` (None in HBM) and, within a partition or the tensor, in
    `bytes`; an upper bound of None means up to the end.
    """

    kind: str
    first: Site
    second: Site
    memory: str
    partitions: Bounds | None = None
    bytes: Bounds = (0, 0)
    detail: str = ""
    code: str = "race"

    def what(self) -> str:
        """The fact, in one sentence."""
        if self.detail:
            return self.detail
        first = "writes" if self.first.writes else "reads"
        second = "writes" if self.second.writes else "reads"
        return (
            f"{self.kind}: {self.second} {second} {self.where()} of {self.memory}, which "
            f"{self.first} {first}; nothing orders the two"
        )

    def differing(self) -> Race:
        """The finding for writes that both cores make, if each may write something else."""
        return replace(
            self,
            detail=f"cross-core: core {min(self.first.core, self.second.core)} and core "
            f"{max(self.first.core, self.second.core)} both write {self.where()} of {self.memory}; "
            "nothing orders the two, and it depends on the core how the program makes the values",
        )

    def where(self) -> str:
        """The bytes that both touch, as text."""
        within = _span("bytes", self.bytes)
        if self.partitions is None:
            return within
        return f"{_span('partitions', self.partitions)}, {within}"

    def explain(self) -> str:
        """What, where, why and the way out, as a text of several lines."""
        entry = CATALOGUE[self.code]
        lines = [f"[NKI{entry.number:04d} {self.code}] {self.what()}"]
        for site in (self.first, self.second):
            if site.location is not None:
                lines.append(f"  at {site.location.file}:{site.location.line}")
                lines.append(f"     {site.location.text.strip()}")
        lines.append(f"  why: {entry.rule}")
        lines.append(f"  try: {entry.hint}")
        return "\n".join(lines)

    def error(self) -> NeuronError:
        """The finding as an error at the second instruction's line."""
        return NeuronError(self.code, self.what(), location=self.second.location)


def _span(name: str, bounds: Bounds) -> str:
    """A range in words: "bytes 0..63"."""
    first, end = bounds
    return f"{name} {first}.." + ("" if end is None else str(end - 1))
