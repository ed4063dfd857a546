"""Entry to and exit from per-device code: the custom calls that jax's shard_map leaves in HLO.

`xla.sdy.GlobalToLocalShape` gives each rank its part of global arrays, `LocalToGlobalShape` joins
the parts again. Shardings name mesh axes for every dimension, as the Shardy dialect writes them:
`<@mesh, [{"dp"}, {}]>`; rank numbers count through the mesh in row-major order.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.custom import meaning
from graph_compiler.hlo.operators.row import Array, Evaluation, RankContext, subject
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction

_MESH = re.compile(r"(\w+)\s*=\s*#sdy\.mesh<\[([^\]]*)\]")
_AXIS = re.compile(r'"([^"]+)"\s*=\s*(\d+)')
_SHARDING = re.compile(r"<@(\w+),\s*\[((?:\{[^{}]*\}|[^\[\]{}])*)\]")
_DIMENSION = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r'"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Sharding:
    """Which mesh axes split each dimension of a value. `sizes`: of all axes of the mesh."""

    sizes: dict[str, int]
    dimensions: tuple[tuple[str, ...], ...]

    def part(self, rank: int, shape: tuple[int, ...]) -> tuple[slice, ...]:
        """The block of a global array of `shape` that belongs to a rank."""
        places = dict(zip(self.sizes, np.unravel_index(rank, tuple(self.sizes.values()))))
        index = []
        for axis, size in enumerate(shape):
            place = 0
            for name in self._names(axis):
                place = place * self.sizes[name] + int(places[name])
            length = size // self.parts(axis)
            index.append(slice(place * length, (place + 1) * length))
        return tuple(index)

    def parts(self, axis: int) -> int:
        """Into how many parts a dimension is cut."""
        return math.prod(self.sizes[name] for name in self._names(axis))

    def owners(self, rank: int, rank_of_array: int) -> list[int]:
        """The ranks with the parts of an array of so many dimensions, in row-major order: those
        that are where `rank` is along all other axes."""
        names = [name for axis in range(rank_of_array) for name in self._names(axis)]
        own = dict(zip(self.sizes, np.unravel_index(rank, tuple(self.sizes.values()))))
        counts = [self.sizes[name] for name in names]
        places = np.indices(counts).reshape(len(names), math.prod(counts))
        chosen = [places[names.index(n)] if n in names else own[n] for n in self.sizes]
        owners = np.ravel_multi_index(chosen, tuple(self.sizes.values()))
        return [int(owner) for owner in np.atleast_1d(owners)]

    def _names(self, axis: int) -> tuple[str, ...]:
        return self.dimensions[axis] if axis < len(self.dimensions) else ()


def shardings(instruction: Instruction, attribute: str, context: RankContext) -> list[Sharding]:
    """The shardings that a frontend attribute states. Raises NeuronError hlo-invalid."""
    text = instruction.frontend_attributes.get(attribute, "").replace('\\"', '"')
    record = context.module.attributes.get("frontend_attributes")
    stated = "" if record is None else record.map.get("xla.sdy.meshes", "")
    meshes = {
        name: {axis: int(size) for axis, size in _AXIS.findall(axes)}
        for name, axes in _MESH.findall(stated.replace('\\"', '"'))
    }
    found = []
    for mesh, dimensions in _SHARDING.findall(text):
        names = tuple(tuple(_NAME.findall(axes)) for axes in _DIMENSION.findall(dimensions))
        sizes = meshes.get(mesh, {})
        if any(name not in sizes for axes in names for name in axes):
            raise _refused(instruction, f"its sharding {text} names axes outside {meshes}.")
        found.append(Sharding(sizes or {"": context.ranks}, names))
    return found


def _refused(instruction: Instruction, fact: str) -> NeuronError:
    return NeuronError(
        "hlo-invalid",
        f"{subject(instruction)}: {fact}",
        why="The shardings of a shard_map name axes of a mesh of the module, whose sizes multiply"
        " to the number of ranks.",
        hint="Evaluate with as many ranks as the mesh has devices.",
    )


def checked_shardings(
    instruction: Instruction, attribute: str, context: RankContext, count: int
) -> list[Sharding]:
    """The shardings of so many values. Raises NeuronError hlo-invalid where they do not fit."""
    found = shardings(instruction, attribute, context)
    if len(found) != count:
        raise _refused(instruction, f"it has {len(found)} shardings for {count} values.")
    for sharding in found:
        devices = math.prod(sharding.sizes.values())
        if devices != context.ranks:
            raise _refused(
                instruction, f"its mesh has {devices} devices; there are {context.ranks} ranks."
            )
    return found


def _result(instruction: Instruction, values: list[Array]) -> Any:
    return tuple(values) if instruction.shape.is_tuple else values[0]


@meaning("xla.sdy.GlobalToLocalShape")
def _global_to_local(instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
    """The part of each global array that belongs to this rank."""
    parts = checked_shardings(instruction, "xla.sdy.in_shardings", context, len(operands))
    values = [
        array[sharding.part(context.rank, array.shape)] for array, sharding in zip(operands, parts)
    ]
    return _result(instruction, values)


@meaning("xla.sdy.LocalToGlobalShape")
def _local_to_global(instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
    """Global arrays, joined from the parts of all ranks."""
    parts = checked_shardings(instruction, "xla.sdy.out_shardings", context, len(operands))
    gathered = context.exchange(instruction, tuple(range(context.ranks)), operands)
    shapes = instruction.shape.tuple_shapes or (instruction.shape,)
    values = []
    for position, (shape, sharding) in enumerate(zip(shapes, parts)):
        whole: Array = np.empty(shape.dimensions, shape.numpy_dtype())
        for rank, local in enumerate(gathered):
            whole[sharding.part(rank, shape.dimensions)] = local[position]
        values.append(whole)
    return _result(instruction, values)
