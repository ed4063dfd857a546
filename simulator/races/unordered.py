"""What the cores of a kernel accessed in shared HBM while they ran without a program, one after the
other up to a barrier: eager mode finds here what the proof of a program (`happens_before`) and its
run (`dynamic_accesses`) find.

Accesses of different cores behind as many meetings have no order. They are compared when the last
core comes to its next meeting or ends, and forgotten then. What both cores write by one line is
taken as made together (`simulator.races.replicated`), if the values have the same numbers
(`simulator.races.value_numbers`).

Where a register or an index decides the place, a write behind another core's read is a warning, as
in `dynamic_accesses`. As the cores ran one after the other, what came first is told by how many
instructions each core had executed: the order of cores that run in step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from isa.enums import Engine
from isa.program import SourceLocation
from simulator.races.dynamic_accesses import DynamicAccess, access_of, hull, meet, warn_of_read
from simulator.races.race import Race, Site
from simulator.races.replicated import Key
from simulator.races.value_numbers import Digests
from simulator.views import Array

NUMBERS = Digests()

Locate = Callable[[Any], SourceLocation | None]
"""Makes a location of the tracer's into that of a source line."""


class Accessed(NamedTuple):
    """One access: bytes, name of the row, line, and the key of a possible replica. `moves`: a
    register or an index decided the place. `number` is the instruction's: of equal reads the last,
    of equal writes the first."""

    touched: DynamicAccess
    row: str
    location: Any
    key: Key | None
    moves: bool
    number: int


class _BetweenMeetings:
    """Accesses behind one number of meetings, by tensor, then by core; equal ones are kept once."""

    def __init__(self) -> None:
        self.made: dict[int, dict[int, dict[Key, Accessed]]] = {}
        self.tensors: dict[int, tuple[Array, str]] = {}
        # What each core wrote by a key, one number for all of its writes in their order.
        self.written: dict[int, dict[Key, int]] = {}

    def made_by(self, core: int, access: Accessed) -> bool:
        """Whether a core makes the same write as another one."""
        return access.key is not None and access.key in self.written.get(core, ())

    def alike(self, core: int, other: int, access: Accessed) -> bool:
        """Whether two cores that make a write give it values of the same numbers, each time. Where
        a register or an index decides the place, their values of this run are compared instead."""
        key = access.key
        assert key is not None
        return access.moves or self.written[core][key] == self.written[other][key]


class Unordered:
    """Accesses of `cores` cores since the meetings that all of them have left behind."""

    def __init__(self, cores: int) -> None:
        self._stretches: dict[int, _BetweenMeetings] = {}
        self._over = [0] * cores

    def note(
        self,
        core: int,
        meetings: int,
        tensor: tuple[Array, str],
        value: Any,
        access: tuple[bool, bool, int],
        row: str,
        location: Any,
        key: Key | None,
        made: int,
    ) -> None:
        """An instruction of a core accesses `value`, a view of a tensor that is given by its bytes
        and name. `access`: whether it writes, and `Accessed.moves` and `number`. `made` is the
        number of what it writes."""
        writes, moves, number = access
        touched = access_of(value, writes)
        if touched is None:
            return
        stretch = self._stretches.get(meetings)
        if stretch is None:
            stretch = self._stretches[meetings] = _BetweenMeetings()
        memory = id(tensor[0])
        stretch.tensors[memory] = tensor
        if key is not None and writes:
            written = stretch.written.setdefault(core, {})
            written[key] = NUMBERS.of(written.get(key, -1), made)
        view = touched.view
        mine = stretch.made.setdefault(memory, {}).setdefault(core, {})
        same = (
            *(touched.low, view.shape, view.strides, view.itemsize, touched.rows),
            *(writes, moves, location),
        )
        if same not in mine or (moves and not writes):
            mine[same] = Accessed(touched, row, location, key, moves, number)

    def races(self, core: int, meetings: int | None, locate: Locate) -> Iterator[tuple[Race, bool]]:
        """A core has left this many meetings behind (None: it has ended). Pairs that nothing orders
        among the accesses that all cores have left behind now, and whether cores that run in step
        order them. Warns of writes behind reads where registers or indices decide."""
        noted = max(self._stretches, default=0) + 1
        self._over[core] = noted if meetings is None else meetings
        for number in sorted(n for n in self._stretches if n < min(self._over)):
            yield from _races(self._stretches.pop(number), locate)


def _races(stretch: _BetweenMeetings, locate: Locate) -> Iterator[tuple[Race, bool]]:
    for memory, cores in stretch.made.items():
        tensor = stretch.tensors[memory]
        numbers = sorted(cores)
        for at, core in enumerate(numbers):
            for other in numbers[at + 1 :]:
                for pair in _meeting(list(cores[core].values()), list(cores[other].values())):
                    made = stretch.made_by(other, pair[0]), stretch.made_by(core, pair[1])
                    both_write = all(one.touched.writes for one in pair)
                    if both_write and all(made):
                        if not all(stretch.alike(core, other, one) for one in pair):
                            yield _race(tensor, (core, other), pair, locate).differing(), False
                        continue
                    if any(one.moves for one in pair) and not both_write:
                        reads = int(pair[0].touched.writes)
                        read, write = pair[reads], pair[1 - reads]
                        if any(made) or read.number < write.number:
                            if not any(made):
                                two = (core, other)
                                place = locate(write.location)
                                warn_of_read(two[1 - reads], two[reads], place)
                            continue
                    yield _race(tensor, (core, other), pair, locate), any(made)


def _meeting(left: list[Accessed], right: list[Accessed]) -> Iterator[tuple[Accessed, Accessed]]:
    """Pairs that share a byte that one of the two writes. Which of `right` may meet one of `left`
    is a range of them in the order of their first bytes."""
    right = sorted(right, key=lambda access: access.touched.low)
    low, high, writes = np.array(
        [(*access.touched[:2], access.touched.writes) for access in right]
    ).T
    reach = np.maximum.accumulate(high)
    for one in left:
        touched = one.touched
        begin = int(np.searchsorted(reach, touched.low, "right"))
        end = int(np.searchsorted(low, touched.high, "left"))
        near = high[begin:end] > touched.low
        if not touched.writes:
            near &= writes[begin:end] > 0
        for at in (begin + np.flatnonzero(near)).tolist():
            if meet(touched, right[at].touched):
                yield one, right[at]


def _race(
    tensor: tuple[Array, str],
    cores: tuple[int, int],
    pair: tuple[Accessed, Accessed],
    locate: Locate,
) -> Race:
    sites = []
    for core, access in zip(cores, pair):
        line: SourceLocation | None = locate(access.location)
        writes = access.touched.writes
        sites.append(Site(core, Engine.unknown, 0, (), access.row, -1, writes, line))
    first, second = sorted(sites, key=lambda site: site.location.line if site.location else 0)
    start = hull(tensor[0])[0]
    low = max(access.touched.low for access in pair) - start
    high = min(access.touched.high for access in pair) - start
    return Race("cross-core", first, second, f"HBM tensor '{tensor[1]}'", None, (low, high))
