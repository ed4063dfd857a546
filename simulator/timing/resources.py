"""Limits inside a core that make an instruction start later or take longer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from isa.enums import Engine
from isa.target import Target

PortQueues = dict[tuple[Engine, Engine], deque[tuple[float, float, int]]]
"""(owner, reader) -> what owner has occupied and reader has not passed yet: from, until, mask."""


class Throttle:
    """The TensorE limit of gen3 and gen4 (SDK tools/neuron-explorer/overview-summary-page.rst).

    The engine starts at a fraction of its rate. After a window in which it was busier than the
    threshold it runs at full rate; after one in which it was not, the limit is back.
    """

    __slots__ = ("busy", "fraction", "limited", "lost", "spill", "threshold", "until", "window")

    def __init__(self, target: Target) -> None:
        self.window = target.throttle_window_ns.value
        self.fraction = target.throttle_fraction.value
        self.threshold = target.throttle_threshold.value * self.window
        self.limited = True
        self.until = float("-inf")
        self.busy = self.spill = self.lost = 0.0

    def stretched(self, start: float, ns: float) -> float:
        """How long work of `ns` at full rate takes from `start` on."""
        window = self.window
        if not window:
            return ns
        if start >= self.until:
            if start >= self.until + window:
                self.limited = True
                self.until = start + window
                self.busy = 0.0
            else:
                self.limited = self.busy < self.threshold
                self.until += window
                self.busy = min(self.spill, window)
            self.spill = 0.0
        length = ns
        if self.limited:
            length = ns / self.fraction
            self.lost += length - ns
        over = start + length - self.until
        if over > 0:
            self.busy += length - over
            self.spill = over
        else:
            self.busy += length
        return length


def port_queues(engines: Iterable[Engine]) -> PortQueues:
    """Empty queues for the pairs of engines that share a port, of those there are."""
    pairs = ((Engine.vector, Engine.scalar), (Engine.vector, Engine.gpsimd))
    present = set(engines)
    found: PortQueues = {}
    for a, b in pairs:
        if a in present and b in present:
            found[a, b] = deque()
            found[b, a] = deque()
    return found


class Ports:
    """Memory ports of an engine that another one may occupy at the same time."""

    __slots__ = ("mine", "others")

    def __init__(self, queues: PortQueues, engine: Engine) -> None:
        self.mine = [found for (owner, _), found in queues.items() if owner is engine]
        self.others = [found for (_, reader), found in queues.items() if reader is engine]

    def occupy(self, start: float, ns: float, mask: int) -> float:
        """The first time from `start` on at which `mask` is free for `ns`; it is taken then."""
        moved = True
        while moved:
            moved = False
            for taken in self.others:
                while taken and taken[0][1] <= start:
                    taken.popleft()
                for since, until, ports in taken:
                    if since >= start + ns:
                        break
                    if ports & mask and until > start:
                        start = until
                        moved = True
        for taken in self.mine:
            taken.append((start, start + ns, mask))
        return start
