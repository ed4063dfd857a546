"""State of a simulated device: memories, tensors, registers and engine state of every core.

Arenas are zero pages until touched. The partition pitch is padded by 64 bytes. A pitch that is a
power of two maps all partitions of a column to the same cache sets, and operations on columns are
slower by far.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from isa.array_tiles import ArrayTile
from isa.enums import STREAMS, Engine
from isa.errors import NeuronError
from isa.program import OnChipAllocation
from simulator.memory import bytes_at_line
from simulator.numerics.random import initial_states

if TYPE_CHECKING:
    from isa.target import Target

PITCH_PADDING = 64
"""Bytes between the end of one partition and the start of the next in an arena."""


ACCUMULATING = (Engine.scalar, Engine.vector)
"""The engines with accumulate registers (SDK nki.isa.activation, nki.isa.tensor_scalar_reduce)."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a core has room for: bytes of a partition of SBUF and of PSUM, and registers that the
    instructions of one stream can name."""

    sbuf: int
    psum: int
    registers: int

    @classmethod
    def of(cls, target: Target) -> Capacity:
        """What the cores of a target have."""
        return cls(
            int(target.sbuf_bytes_per_partition.value),
            int(target.psum_bytes_per_partition.value),
            int(target.registers_per_engine.value),
        )


class Arena:
    """An on-chip memory: `partitions` rows of `partition_bytes`, `pitch` bytes apart."""

    def __init__(self, partitions: int, partition_bytes: int) -> None:
        self.partitions = partitions
        self.partition_bytes = partition_bytes
        self.pitch = partition_bytes + PITCH_PADDING
        self.buffer = bytes_at_line(partitions * self.pitch, zero=True)


class StationaryTile:
    """A tile in the PE array: a copy in its own dtype, and what `simulator.numerics.matmul`
    multiplies, made when it is first needed."""

    __slots__ = ("tile", "widened")

    def __init__(self, tile: np.ndarray[Any, Any]) -> None:
        self.tile = tile
        self.widened: np.ndarray[Any, Any] | None = None


class ResidentTile(Protocol):
    """Memory of native code for the tile at one place of the array, which stays where it is."""

    refused: bool

    @property
    def loaded(self) -> StationaryTile | None:
        """The tile that it holds, if any."""

    def take(self, tile: StationaryTile | None) -> None:
        """Hold this tile, or none if it is none or does not fit."""


class LoadedTiles:
    """The tiles [K, M] in the PE array, by their places.

    Native code loads into residents without anything being said here, so that what they hold comes
    first; a tile that is set goes to them too. `strips` is its memory for tiles that are multiplied
    by them, for each thread.
    """

    def __init__(self) -> None:
        self.strips: list[Any] = []
        self._tiles: dict[ArrayTile, StationaryTile] = {}
        self._residents: dict[ArrayTile, ResidentTile] = {}

    def get(self, place: ArrayTile) -> StationaryTile | None:
        """The tile at a place, None if there is none."""
        resident = self._residents.get(place)
        loaded = None if resident is None else resident.loaded
        return self._tiles.get(place) if loaded is None else loaded

    def __setitem__(self, place: ArrayTile, tile: StationaryTile) -> None:
        self._tiles[place] = tile
        if place in self._residents:
            self._residents[place].take(tile)

    def resident(self, place: ArrayTile, make: Callable[[], Any]) -> Any:
        """The memory of native code for a place, made when it is first asked for."""
        if place not in self._residents:
            self._residents[place] = make()
            self._residents[place].take(self._tiles.get(place))
        return self._residents[place]

    def clear(self) -> None:
        """Nothing is loaded."""
        self._tiles.clear()
        for resident in self._residents.values():
            resident.take(None)

    def check(self) -> None:
        """Raise NeuronError ir-invalid where native code did not find the tile that it takes."""
        for place, resident in self._residents.items():
            if resident.refused:
                resident.refused = False
                raise NeuronError(
                    "ir-invalid",
                    "An instruction found no stationary tile of its shape and dtype at "
                    f"{place.name}.",
                )


class CoreState:
    """What the kernels of `simulator.oracle` and the executors see of one core.

    `stationary` holds the tiles [K, M] in the PE array. `accumulators` are the accumulate registers
    of the engines that have some, one a partition; `random` the states of their random-number
    generators, uint32 [partitions, words]. `allocations` are the program's on chip, if it says.
    Before it calls a kernel, an executor sets `engine` to the engine that runs the instruction. It
    also sets `start_partition` to the first partition of the instruction's destination, or of its
    source if it has none. Both select the accumulate registers and generators. `unknown_groups` are
    the groups [P / 8, n] of the source of the next `QuantizeMx` in which nothing is initialised, if
    some are.
    """

    def __init__(self, target: Target, device: Device | None = None, number: int = 0) -> None:
        self.device = device if device is not None else Device(target, cores=0)
        partitions, capacity = int(target.partitions.value), self.device.capacity
        self.sbuf = Arena(partitions, capacity.sbuf)
        self.psum = Arena(partitions, capacity.psum)
        self.number = number
        self.threads = 1
        self.allocations: Sequence[OnChipAllocation] = ()
        self.stationary = LoadedTiles()
        self.accumulators: dict[Engine, np.ndarray[Any, Any]] = {
            engine: np.empty(partitions, np.float32) for engine in ACCUMULATING
        }
        self.random: dict[Engine, np.ndarray[Any, Any]] = {}
        words = ctypes.c_int64 * capacity.registers
        self.registers: dict[Engine, Any] = {engine: words() for engine in STREAMS}
        self.reset()

    def reset(self) -> None:
        """Engine state as at the start of a program: registers 0, accumulators hold nothing, random
        numbers from their beginning."""
        self.stationary.clear()
        for accumulators in self.accumulators.values():
            accumulators.fill(np.nan)
        # Native code knows where the states are.
        first = initial_states(self.device.target.generation, self.sbuf.partitions)
        for engine, states in first.items():
            self.random.setdefault(engine, states)[...] = states
        for registers in self.registers.values():
            registers[:] = [0] * len(registers)
        self.engine = Engine.unknown
        self.start_partition = 0
        self.unknown_groups: np.ndarray[Any, Any] | None = None


class Device:
    """Cores, and the HBM tensors of all of them: a tensor is its bytes, a uint8 array.

    The `capacity` of its cores is that of the target unless another is given. `names` are the known
    names of tensors, for messages. `parts` are names of tensors within others, by (the other one,
    first byte, one past the last).
    """

    def __init__(self, target: Target, cores: int = 1, capacity: Capacity | None = None) -> None:
        self.target = target
        self.capacity = Capacity.of(target) if capacity is None else capacity
        self.names: Sequence[str] = ()
        self.parts: dict[tuple[int, int, int], str] = {}
        self.tensors: list[np.ndarray[Any, Any]] = []
        self.cores = [CoreState(target, self, number) for number in range(cores)]
