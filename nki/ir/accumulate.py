"""Which matmul overwrites its PSUM tile and which adds to it (`accumulate=None`).

The first matmul into a region since its allocation overwrites, later ones accumulate (SDK
nki.isa.nc_matmul, "accumulate"). State follows allocations, never addresses. A region that
another instruction wrote counts as not started: accumulating onto it is undefined before
NeuronCore-v4 (same section), so the next matmul overwrites, and may not be told to accumulate.

A rolled loop that may run no iteration leaves its regions undecided: behind it, a matmul into one
of them must say what it does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.affine import Affine, bounds, prove, structure
from isa.dtypes import DTYPES
from isa.errors import NeuronError
from nki.ir.nodes import Access, Tensor


class Accumulation:
    """What matmuls have written so far, per PSUM allocation of one core of a generation."""

    __slots__ = ("_adds_to_data", "_loop", "_tiles")

    def __init__(self, generation: int) -> None:
        self._adds_to_data = generation >= 4
        self._tiles: dict[Tensor, list[_Region]] = {}
        self._loop: _RolledLoop | None = None

    def enter_loop(self, trips: Any) -> None:
        """A rolled loop of so many iterations begins; None: only the device knows how many."""
        self._loop = _RolledLoop(trips, self._loop)

    def leave_loop(self) -> None:
        """The innermost loop ends."""
        assert self._loop is not None
        self._loop.open = False
        self._loop = self._loop.outer

    def begin(self, tensor: Tensor) -> None:
        """A tensor begins: what an earlier iteration wrote to it is no part of it."""
        self._tiles.pop(tensor, None)

    def matmul(self, dst: Access, accumulate: Any) -> Any:
        """The flag of a matmul into `dst`: `accumulate` itself where it is given (bool or
        predicate), else whether matmuls have written all of the region before.

        Raises psum-overlap when they have written a part of it, or registers decide whether they
        have. Raises accumulation-undecided when that depends on a loop that may not run, and
        accumulation-not-started when another instruction wrote what the flag says to add to. Sums
        onto what nothing wrote are found when the kernel runs, as reads of uninitialised data.
        """
        if dst.vector_offset is not None:
            if accumulate is not None:
                return accumulate
            raise NeuronError(
                "accumulation-undecided",
                what=f"a matmul scatters into columns of {dst.storage.name!r} that indices pick, "
                "and accumulate is not given",
                why="Which columns hold a sum already is known on the device only.",
                hint="Pass accumulate=True or accumulate=False to nc_matmul.",
            )
        regions = self._tiles.get(dst.storage)
        if regions:
            last = regions[-1]
            if last.access is dst and last.key is not None and last.loop is self._loop:
                return True if accumulate is None else accumulate
        offset = dst.offset
        if offset.__class__ is not int:
            if accumulate is not None:
                return self._moving(dst, accumulate)
            raise NeuronError(
                "psum-overlap",
                what=f"a matmul writes to {dst.storage.name!r} at a position that changes from "
                "one iteration to the next, and accumulate is not given",
                why="Whether a matmul starts an accumulation or continues it is decided while "
                "tracing, for regions that are known then.",
                hint="Pass accumulate=True or accumulate=False to nc_matmul.",
            )
        region = _Region(dst, _place(dst), True, self._loop)
        if regions is None:
            regions = self._tiles[dst.storage] = []
        for other in reversed(regions):
            if not other.started:
                break
            if other.key == region.key:
                if other.loop is None or other.loop is self._loop:
                    return True if accumulate is None else accumulate
                if accumulate is None and other.certain:
                    return True
        if accumulate is None:
            accumulate = _started(regions, region)
        elif self._must_be_started(accumulate) and _data(regions, region).any():
            raise _not_started(region)
        regions.append(region)
        return accumulate

    def _moving(self, dst: Access, accumulate: Any) -> Any:
        """`matmul` at a position that registers decide: any of the tile."""
        regions = self._tiles.setdefault(dst.storage, [])
        region = _Region(dst, None, True, self._loop)
        if self._must_be_started(accumulate) and _data(regions, region).all():
            raise _not_started(region)
        last = regions[-1] if regions else None
        if last is None or not (last.started and last.key is None and last.loop is self._loop):
            regions.append(region)
        return accumulate

    def _must_be_started(self, accumulate: Any) -> bool:
        """Whether a matmul adds for certain, and to nothing but sums of matmuls."""
        return isinstance(accumulate, (bool, np.bool_)) and bool(
            accumulate and not self._adds_to_data
        )

    def overwritten(self, dst: Access) -> None:
        """An instruction other than a matmul writes `dst`."""
        regions = self._tiles.get(dst.storage)
        if regions is None and not self._adds_to_data:
            regions = self._tiles[dst.storage] = []
        if dst.vector_offset is not None:  # any of the columns that indices choose from
            shape = (dst.shape[0], dst.vector_bound)
            dst = Access(dst.storage, dst.dtype, shape, dst.strides, dst.offset)
        if regions is not None:
            region = _Region(dst, None, False, self._loop)
            if _symbolic(dst.shape):
                # What it is sure to write over: the same elements.
                here = _place(dst)
                regions[:] = [
                    r for r in regions if r.loop is not self._loop or _place(r.access) != here
                ]
            elif region.covers(dst.storage):
                # What the same iterations wrote before is gone. The rest is if they run.
                regions[:] = [
                    r for r in regions if self._loop is not None and r.loop is not self._loop
                ]
            regions.append(region)


class _RolledLoop:
    """A rolled loop; `outer` is the one around it, `open` whether its body is being traced."""

    __slots__ = ("open", "outer", "trips")

    def __init__(self, trips: Any, outer: _RolledLoop | None) -> None:
        self.open = True
        self.outer = outer
        self.trips = trips

    def runs(self) -> bool:
        """Whether it has an iteration at every launch; a guard may make it so."""
        if self.trips is None:
            return False
        proven = prove(self.trips, ">")
        if proven is None and not isinstance(self.trips, Affine):
            return bool(self.trips >= 1)
        return proven is True


class _Region:
    """The bytes of a PSUM view: `started` says whether a matmul or another op wrote them.

    `first` and `last` bound its partitions, `low` and `high` its bytes in each; the upper ends
    are exclusive, and taken at a symbolic size's maximum. Negative `first`: not measured yet.
    """

    __slots__ = ("access", "exact", "first", "high", "key", "last", "loop", "low", "started")

    def __init__(self, access: Access, key: Any, started: bool, loop: _RolledLoop | None) -> None:
        self.access = access
        self.key = key
        self.started = started
        self.loop = loop
        self.first = -1

    @property
    def certain(self) -> bool:
        """Whether the write has happened here: loops that have ended since then did run."""
        loop = self.loop
        while loop is not None and not loop.open:
            if not loop.runs():
                return False
            loop = loop.outer
        return True

    def measure(self) -> None:
        """Find the bounds; most regions are never compared with another one."""
        access = self.access
        storage = access.storage
        size = DTYPES[access.dtype].size
        pitch = storage.row_bytes
        if type(access.offset) is not int:
            # Anywhere in the tile.
            self.exact = False
            self.first, self.last, self.low, self.high = 0, _most(storage.shape[0]), 0, pitch
            return
        self.first, self.low = divmod(access.offset * size, pitch)
        shape = [_most(count) for count in access.shape]
        self.exact = all(type(count) is int for count in access.shape)
        self.last = self.first + shape[0]
        reach = sum((n - 1) * step for n, step in zip(shape[1:], access.strides[1:]))
        self.high = self.low + (reach + 1) * size

    def covers(self, storage: Tensor) -> bool:
        """Whether this is all of the storage."""
        return self.access.shape == storage.shape and self.access.dtype == storage.dtype

    def apart(self, other: _Region) -> bool:
        """Whether the bounding boxes have nothing in common."""
        for region in (self, other):
            if region.first < 0:
                region.measure()
        return (
            self.last <= other.first
            or other.last <= self.first
            or self.high <= other.low
            or other.high <= self.low
        )

    def paint(self, mask: np.ndarray, value: bool) -> None:
        """Set this region's bytes in a [partitions, bytes] mask."""
        part = self.view(mask) if type(self.access.offset) is int else mask
        part[...] = value

    def view(self, mask: np.ndarray) -> np.ndarray:
        size = DTYPES[self.access.dtype].size
        return np.lib.stride_tricks.as_strided(
            mask[self.first :, self.low :],
            [_most(count) for count in self.access.shape] + [size],
            [mask.strides[0]] + [stride * size for stride in self.access.strides[1:]] + [1],
        )


def _symbolic(shape: tuple[Any, ...]) -> bool:
    """Whether a size depends on launch symbols: then no comparison of sizes may be put to guards,
    which would bind them."""
    for size in shape:  # noqa: SIM110 - a generator takes as long as all the rest
        if size.__class__ is not int:
            return True
    return False


def _place(access: Access) -> tuple[Any, ...]:
    """Where a view is in its tensor, so that equal places are the same elements for all sizes."""
    shape, strides = access.shape, access.strides
    offset = access.offset
    if _symbolic(shape):
        shape, strides = tuple(map(structure, shape)), tuple(map(structure, strides))
        offset = structure(offset)
    return offset, shape, strides, access.dtype


def _most(count: Any) -> int:
    """A size, or the most it can be."""
    most = bounds(count)[1]
    assert most is not None  # storage on chip has a largest size
    return most


def _started(regions: list[_Region], region: _Region) -> bool:
    """Whether matmuls have written all of a region before (True) or nothing of it (False)."""
    touching = [other for other in regions if not region.apart(other)]
    if not any(other.started for other in touching):
        return False
    storage = region.access.storage
    width = storage.row_bytes
    sure = np.zeros((_most(storage.shape[0]), width), bool)
    maybe = np.zeros_like(sure)
    for other in touching:
        definite = other.exact and other.certain
        if definite or not other.started:
            other.paint(sure, other.started)
        if definite or other.started:
            other.paint(maybe, other.started)
    if not region.view(maybe).any():
        return False
    if region.view(sure).all():
        return True
    if not all(other.certain for other in touching):
        raise NeuronError(
            "accumulation-undecided",
            what=f"a loop before this matmul writes to {storage.name!r} and may run no iteration",
        )
    known = all(type(other.access.offset) is int for other in touching)
    raise NeuronError(
        "psum-overlap",
        what=f"this matmul writes {list(region.access.shape)} elements of {storage.name!r}, and "
        + (
            "earlier matmuls wrote only a part of them"
            if known
            else "registers decide which of them earlier instructions wrote"
        ),
        hint="Let matmuls that accumulate write the same region, allocate a new PSUM tile, or pass "
        "accumulate=True or accumulate=False.",
    )


def _data(regions: list[_Region], region: _Region) -> np.ndarray:
    """The bytes of a region, or of all that it may be: which of them another instruction than a
    matmul wrote last, for certain."""
    touching = [other for other in regions if not region.apart(other)]
    if all(other.started for other in touching):
        return np.zeros(1, bool)
    storage = region.access.storage
    width = storage.row_bytes
    others = np.zeros((_most(storage.shape[0]), width), bool)
    for other in touching:
        if other.started or (other.exact and other.certain):
            other.paint(others, not other.started)
    return region.view(others) if type(region.access.offset) is int else others


def _not_started(region: _Region) -> NeuronError:
    return NeuronError(
        "accumulation-not-started",
        what=f"accumulate=True, and another instruction than a matmul wrote to "
        f"{region.access.storage.name!r} last",
    )
