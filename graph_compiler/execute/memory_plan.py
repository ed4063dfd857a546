"""Memory planning: which buffers share memory, and their offsets in one arena.

Two buffers become one where the second begins as a copy, or element by element a function, of the
first and the first is not needed any more: updates in place, and the values that loops carry.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from graph_compiler.schedule.steps import Host, JumpUnless, KernelCall, Label, ScheduleStep
from graph_compiler.schedule.views import Buffer

ALIGNMENT = 64

LoopSpan = tuple[int, int]
"""First and last position of a loop's steps."""


def accesses(step: ScheduleStep) -> list[Buffer]:
    if isinstance(step, (KernelCall, Host)):
        return [*step.reads, *step.writes]
    return [step.flag.buffer] if isinstance(step, JumpUnless) else []


class MemoryPlan:
    """The memory of a program: `memory_of(buffer)`, `dropped` (positions of copies onto
    themselves), `offsets` of arena memory, and the arena's `size`."""

    def __init__(self, steps: Sequence[ScheduleStep]) -> None:
        self.steps = steps
        self.loops = _loops(steps)
        self._inside = self._innermost()
        self._owner: dict[Buffer, Buffer] = {}
        self._at: dict[Buffer, deque[int]] = defaultdict(deque)
        for position, step in enumerate(steps):
            for buffer in dict.fromkeys(accesses(step)):
                self._at[buffer].append(position)
        for position, step in enumerate(steps):
            if isinstance(step, KernelCall) and step.aligned:
                for source in step.aligned:
                    self._try_join(position, step, source)
        self.dropped = {
            position
            for position, step in enumerate(steps)
            if isinstance(step, KernelCall)
            and step.moves
            and self.memory_of(step.aligned[0]) is self.memory_of(step.writes[0])
        }
        self.offsets, self.size = self._placed()

    def memory_of(self, buffer: Buffer) -> Buffer:
        memory = buffer
        while memory in self._owner:
            memory = self._owner[memory]
        # The next question goes there at once: chains of updates are as long as programs.
        while buffer in self._owner:
            following = self._owner[buffer]
            self._owner[buffer] = memory
            buffer = following
        return memory

    def _innermost(self) -> list[int]:
        """For each position the number of the innermost loop around it, -1 outside."""
        inside = [-1] * len(self.steps)
        for number in reversed(range(len(self.loops))):  # outer ones first
            first, last = self.loops[number]
            inside[first : last + 1] = [number] * (last + 1 - first)
        return inside

    def _try_join(self, position: int, step: KernelCall, source: Buffer) -> None:
        old, new = self.memory_of(source), self.memory_of(step.writes[0])
        # What a result holds stays until the end.
        if old is new or old.kind != "arena" or new.kind not in ("arena", "output"):
            return
        if old.size != new.size:
            return
        inside = self._inside
        before, after = self._at[old], self._at[new]
        if before[-1] != position or inside[before[0]] != inside[position]:
            return
        if after[0] != position and not (step.moves and self._is_back(before[0], position, new)):
            return
        self._owner[old] = new
        self._at[new] = _merged(before, after)

    def _is_back(self, first: int, position: int, state: Buffer) -> bool:
        """Whether a copy hands on what a loop carries: nothing reads the state from the first
        access to its next value on, but for the step that computes it element by element."""
        number = self._inside[position]
        if number < 0:
            return False
        end = self.loops[number][1]
        for at in self._at[state]:
            if at == first:
                step = self.steps[at]
                aligned = step.aligned if isinstance(step, KernelCall) else []
                if state not in {self.memory_of(buffer) for buffer in aligned}:
                    return False
                if any(
                    self.memory_of(buffer) is state and buffer not in aligned
                    for buffer in accesses(step)
                ):
                    return False
            elif first < at <= end and at != position:
                return False
        return True

    def _placed(self) -> tuple[dict[Buffer, int], int]:
        spans = []
        for buffer, positions in self._at.items():
            if buffer in self._owner or buffer.kind != "arena":
                continue
            used = [p for p in positions if p not in self.dropped] or list(positions)
            first, last = used[0], used[-1]
            for start, end in self.loops:
                if first < start and any(start <= p <= end for p in used):
                    last = max(last, end)
            spans.append((first, last, buffer))
        spans.sort(key=lambda span: (span[0], -span[2].size))
        offsets: dict[Buffer, int] = {}
        live: list[tuple[int, int, int]] = []  # offset, end, last position
        total = 0
        for first, last, buffer in spans:
            live = [item for item in live if item[2] >= first]
            size = -(-max(1, buffer.size) // ALIGNMENT) * ALIGNMENT
            best, place, end = None, 0, 0
            for offset, stop, _ in live:
                gap = offset - end
                if gap >= size and (best is None or gap < best):
                    best, place = gap, end
                end = max(end, stop)
            if best is None:
                place = end
            offsets[buffer] = place
            live.append((place, place + size, last))
            live.sort()
            total = max(total, place + size)
        return offsets, total


def _merged(before: deque[int], after: deque[int]) -> deque[int]:
    """Two ascending sequences as one, numbers once; what follows the other is only added to it."""
    if before[-1] != after[0]:
        return deque(sorted({*before, *after}))
    if len(before) < len(after):
        before.pop()
        after.extendleft(reversed(before))
        return after
    before.pop()
    before.extend(after)
    return before


def _loops(steps: Sequence[ScheduleStep]) -> list[LoopSpan]:
    """The loops, inner before outer: they begin and end with labels that nest."""
    found, open_ = [], []
    for position, step in enumerate(steps):
        if isinstance(step, Label) and step.loop:
            if step.loop > 0:
                open_.append(position)
            else:
                found.append((open_.pop(), position))
    return found
