"""State of a simulated device: memories, tensors, registers and engine state of every core.

Arenas are zero pages until touched. The partition pitch is padded by 64 bytes, because a pitch
that is a power of two maps all partitions of a column to the same cache sets (6 to 7 times slower
column operations).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.enums import SEQUENCERS, Engine
from simulator.random import initial_states

if TYPE_CHECKING:
    from isa.target import Target

PITCH_PADDING = 64
"""Bytes between the end of one partition and the start of the next in an arena."""


ACCUMULATING = (Engine.scalar, Engine.vector)
"""The engines with accumulate registers (SDK nki.isa.activation, nki.isa.tensor_scalar_reduce)."""


class Arena:
    """An on-chip memory: `partitions` rows of `partition_bytes`, `pitch` bytes apart."""

    __slots__ = ("buffer", "partition_bytes", "partitions", "pitch")

    def __init__(self, partitions: int, partition_bytes: int) -> None:
        self.partitions = partitions
        self.partition_bytes = partition_bytes
        self.pitch = partition_bytes + PITCH_PADDING
        self.buffer: np.ndarray[Any, Any] = np.zeros(partitions * self.pitch, np.uint8)


class StationaryTile:
    """A tile in the PE array: a copy in its own dtype, and what `simulator.matmul` or
    `simulator.native.matmul` multiplies, made when it is first needed."""

    __slots__ = ("panels", "tile", "widened")

    def __init__(self, tile: np.ndarray[Any, Any]) -> None:
        self.tile = tile
        self.widened: np.ndarray[Any, Any] | None = None
        self.panels: np.ndarray[Any, Any] | None = None


class CoreState:
    """What the kernels of `simulator.oracle` and the executors see of one core.

    `stationary` holds the tiles [K, M] in the PE array by the (row, column) of their corner.
    `accumulators` are the accumulate registers of the engines that have some, one a partition;
    `random` the states of their random-number generators, uint32 [partitions, words].
    Before it calls a kernel, an executor sets `engine` to the engine that runs the instruction and
    `start_partition` to the first partition of the instruction's destination (of its source, if it
    has none): that selects the accumulate registers and generators.
    """

    __slots__ = (
        "accumulators",
        "device",
        "engine",
        "number",
        "psum",
        "random",
        "registers",
        "sbuf",
        "start_partition",
        "stationary",
    )

    def __init__(self, target: Target, device: Device | None = None, number: int = 0) -> None:
        partitions = int(target.partitions.value)
        self.sbuf = Arena(partitions, int(target.sbuf_bytes_per_partition.value))
        self.psum = Arena(partitions, int(target.psum_bytes_per_partition.value))
        self.device = device if device is not None else Device(target, cores=0)
        self.number = number
        self.stationary: dict[tuple[int, int], StationaryTile] = {}
        self.accumulators: dict[Engine, np.ndarray[Any, Any]] = {
            engine: np.empty(partitions, np.float32) for engine in ACCUMULATING
        }
        self.random: dict[Engine, np.ndarray[Any, Any]] = {}
        count = int(target.registers_per_engine.value)
        self.registers: dict[Engine, Any] = {e: (ctypes.c_int64 * count)() for e in SEQUENCERS}
        self.reset()

    def reset(self) -> None:
        """Engine state as at the start of a program: registers 0, accumulators hold nothing, random
        numbers from their beginning."""
        self.stationary.clear()
        for accumulators in self.accumulators.values():
            accumulators.fill(np.nan)
        self.random = initial_states(self.device.target.generation, self.sbuf.partitions)
        for registers in self.registers.values():
            registers[:] = [0] * len(registers)
        self.engine = Engine.unknown
        self.start_partition = 0


class Device:
    """Cores, and the HBM tensors of all of them: a tensor is its bytes, a uint8 array."""

    __slots__ = ("cores", "target", "tensors")

    def __init__(self, target: Target, cores: int = 1) -> None:
        self.target = target
        self.tensors: list[np.ndarray[Any, Any]] = []
        self.cores = [CoreState(target, self, number) for number in range(cores)]
