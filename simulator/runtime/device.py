"""The device of a process: memory of tensors by core, and programs that are loaded."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from isa.dtypes import DTYPES
from isa.errors import NeuronError
from isa.files.container import load_contents
from isa.program import Program, TensorDeclaration
from isa.target import TARGETS
from simulator.checks.impossible import refuse_impossible
from simulator.parallel_slices import load
from simulator.ranks import World, in_world
from simulator.runtime.index_ranges import IndexRange, index_ranges
from simulator.runtime.status import NrtError, NrtpyError, Status, load_error, run_error
from simulator.runtime.visible_cores import execution_timeout, visible_cores
from simulator.views import Array


@dataclass(frozen=True)
class TensorMetadata:
    """A tensor of a model's interface. `size`: its bytes."""

    shape: list[int]
    size: int
    dtype: str


def metadata_of(declaration: TensorDeclaration) -> TensorMetadata:
    """What the interface of a model says of a tensor."""
    shape = [int(size) for size in declaration.shape]
    return TensorMetadata(
        shape, prod(shape) * DTYPES[declaration.dtype].numpy.itemsize, declaration.dtype
    )


class NrtTensor:
    """Bytes in the memory of a core."""

    def __init__(self, device: RuntimeDevice, core_id: int, size: int, name: str) -> None:
        self.core_id = core_id
        self.size = size
        self.name = name
        self._device = device
        self._bytes: Array | None = np.zeros(size, np.uint8)
        self._release = weakref.finalize(self, device.give_back, core_id, size)

    def bytes_for(self, verb: str) -> Array:
        """The bytes, to do with them what `verb` says. Raises NrtpyError where they are gone."""
        if self._device.closed:
            raise NrtpyError(f"Unable to {verb} a tensor of a runtime that was closed by reset().")
        if self._bytes is None:
            raise NrtpyError(f"Unable to {verb} a freed tensor ({self.name!r}).")
        return self._bytes

    def free(self) -> None:
        """Give the memory back, once."""
        self._bytes = None
        self._release()


class NrtModel:
    """A program on a core. `ranges`: the indices among its inputs."""

    def __init__(
        self,
        device: RuntimeDevice,
        program: Program,
        ranges: Sequence[IndexRange],
        core_id: int,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.program = program
        self.ranges = ranges
        self.rank = rank
        self.ranks = ranks
        self.core_id = core_id
        self._device = device
        self._loaded = load(program)

    def run(self, inputs: list[Array], traced: bool = False) -> Any:
        """Run the program (`simulator.execute.RunResult`). Raises NrtError and NrtpyError."""
        if self._device.closed:
            raise NrtpyError("Unable to execute a model of a runtime that was closed by reset().")
        world = self._device.world(self.ranks)
        try:
            with in_world(self.rank, world):
                return self._loaded.run(inputs, traced)
        except NeuronError as error:
            self._device.give_up(world)
            raise run_error(error, world.size) from error


class RuntimeDevice:
    """What one process holds of a machine, from its first use until `close`. `nrtpy` shows it as
    the object of `get_nrtpy_singleton`."""

    def __init__(self) -> None:
        self.closed = False
        self._cores = visible_cores()
        self._used: dict[int, int] = {}
        self._worlds: dict[int, World] = {}
        self._room = max(
            target.hbm_bytes_per_device.value // target.hbm_stacks_per_device.value
            for target in TARGETS.values()
        )

    def get_visible_neuron_core_count(self) -> int:
        """How many cores the process sees."""
        return len(self._cores)

    def allocate_tensor(self, size: int, core_id: int = 0, name: str | None = None) -> NrtTensor:
        """Memory of a core, filled with zeros. Raises NrtError NRT_INVALID, NRT_RESOURCE."""
        if core_id not in range(len(self._cores)):
            raise NrtError(Status.NRT_INVALID, "Failed to allocate tensor", self._seen(core_id))
        used = self._used.get(core_id, 0) + size
        if used > self._room:
            note = f"core {core_id} would hold {used} bytes of the {self._room} that it has"
            raise NrtError(Status.NRT_RESOURCE, "Failed to allocate tensor", note)
        self._used[core_id] = used
        return NrtTensor(self, core_id, size, name or "")

    def give_back(self, core_id: int, size: int) -> None:
        """Count memory of a core as free."""
        self._used[core_id] -= size

    def free_tensor(self, tensor: Any) -> None:
        """Free the memory of a tensor now; nothing happens to one that is free."""
        getattr(tensor, "tensor_ref", tensor).free()

    def world(self, ranks: int) -> World:
        """The ranks of this process that run together."""
        if ranks == 1:
            return World(1)
        return self._worlds.setdefault(ranks, World(ranks, True, execution_timeout()))

    def give_up(self, world: World) -> None:
        """A rank has failed: what others have exchanged with it is forgotten."""
        if self._worlds.get(world.size) is world:
            del self._worlds[world.size]

    def load_model(
        self, path: Any, core_id: int = 0, rank_id: int = 0, world_size: int = 1
    ) -> NrtModel:
        """The program of a container, on a core, as a rank of several. Raises NrtError."""
        try:
            contents = load_contents(path)
            refuse_impossible(contents.program)
            if core_id not in range(len(self._cores)):
                status = Status.NRT_LOAD_NOT_ENOUGH_NC
                raise NrtError(status, "Failed to load model", self._seen(core_id))
            if contents.program.symbols:
                note = "its sizes are launch symbols: compile it for the sizes of its tensors"
                raise NrtError(Status.NRT_INVALID, "Failed to load model", note)
            if rank_id not in range(world_size):
                note = f"there is no rank {rank_id} in a world of {world_size}"
                raise NrtError(Status.NRT_INVALID, "Failed to load model", note)
            ranges = index_ranges(contents.metadata, len(contents.program.parameters))
            return NrtModel(self, contents.program, ranges, core_id, rank_id, world_size)
        except NeuronError as error:
            raise load_error(error) from error

    def close(self) -> None:
        """End: tensors and models of this device cannot be used any more."""
        self.closed = True

    def _seen(self, core_id: int) -> str:
        return f"there is no core {core_id}: {len(self._cores)} are visible, numbered from 0"
