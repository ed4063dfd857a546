"""What the cores of a kernel accessed in shared HBM while they ran without a program, one after the
other up to a barrier: eager mode finds here what the proof of a program (`happens_before`) finds.

Accesses of different cores behind as many meetings have no order. Places that registers or indices
decide are left out, as they are in the proof. What both cores write by one line is taken as made
together (`simulator.checks.replicated`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from isa.enums import Engine
from isa.program import SourceLocation
from simulator.checks.claims import Claim, hull, meet
from simulator.checks.race import Race, Site
from simulator.checks.replicated import Key

Array = np.ndarray[Any, Any]

Locate = Callable[[Any], SourceLocation | None]
"""Makes a location of the tracer's into that of a source line."""


class Accessed(NamedTuple):
    """One access: its claim, its row's name, its line, and its key if it may be a twin."""

    claim: Claim
    row: str
    location: Any
    key: Key | None


class Unordered:
    """Accesses by tensor and by how many meetings came before; within these by core. Equal ones are
    kept once."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], dict[int, dict[Key, Accessed]]] = {}
        self._tensors: dict[int, tuple[Array, str]] = {}
        self._keys: dict[int, set[Key]] = {}

    def note(
        self,
        core: int,
        meetings: int,
        tensor: tuple[Array, str],
        view: Array,
        writes: bool,
        row: str,
        location: Any,
        key: Key | None,
    ) -> None:
        """An instruction of a core accesses `view` of a tensor, given by its bytes and name."""
        memory = id(tensor[0])
        self._tensors[memory] = tensor
        if key is not None:
            self._keys.setdefault(core, set()).add(key)
        low, high = hull(view)
        mine = self._made.setdefault((memory, meetings), {}).setdefault(core, {})
        same = low, view.shape, view.strides, view.itemsize, writes, location
        if same not in mine:
            mine[same] = Accessed(Claim(low, high, view, None, writes), row, location, key)

    def races(self, locate: Locate) -> Iterator[tuple[Race, bool]]:
        """Pairs that nothing orders, and whether cores that run in step order them."""
        for (memory, _), cores in self._made.items():
            tensor = self._tensors[memory]
            numbers = sorted(cores)
            for at, core in enumerate(numbers):
                for other in numbers[at + 1 :]:
                    for pair in _meeting(list(cores[core].values()), list(cores[other].values())):
                        made = (self._made_by(other, pair[0]), self._made_by(core, pair[1]))
                        if not (all(made) and all(one.claim.writes for one in pair)):
                            yield _race(tensor, (core, other), pair, locate), any(made)

    def _made_by(self, core: int, access: Accessed) -> bool:
        """Whether a core makes the same write as another one."""
        return access.key is not None and access.key in self._keys.get(core, ())


def _meeting(left: list[Accessed], right: list[Accessed]) -> Iterator[tuple[Accessed, Accessed]]:
    """Pairs that share a byte that one of the two writes. Which of `right` may meet one of `left`
    is a range of them in the order of their first bytes."""
    right = sorted(right, key=lambda access: access.claim.low)
    low, high, writes = np.array([(*access.claim[:2], access.claim.writes) for access in right]).T
    reach = np.maximum.accumulate(high)
    for one in left:
        claim = one.claim
        begin = int(np.searchsorted(reach, claim.low, "right"))
        end = int(np.searchsorted(low, claim.high, "left"))
        near = high[begin:end] > claim.low
        if not claim.writes:
            near &= writes[begin:end] > 0
        for at in (begin + np.flatnonzero(near)).tolist():
            if meet(claim, right[at].claim):
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
        writes = access.claim.writes
        sites.append(Site(core, Engine.unknown, 0, (), access.row, -1, writes, line))
    first, second = sorted(sites, key=lambda site: site.location.line if site.location else 0)
    start = hull(tensor[0])[0]
    low = max(access.claim.low for access in pair) - start
    high = min(access.claim.high for access in pair) - start
    return Race("cross-core", first, second, f"HBM tensor '{tensor[1]}'", None, (low, high))


__all__ = ["Unordered"]
