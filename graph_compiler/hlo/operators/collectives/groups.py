"""Which ranks take part in a collective together.

Groups are stated as lists, as numbers that are reshaped and transposed, or as axes of a mesh; they
follow the StableHLO specification, "Collective ops": of replicas for every partition without a
channel, of replicas with all partitions with one, of ranks where ids are global.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.row import RankContext, require_shape, subject
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction

GROUP_FIELDS = (
    "replica_groups",
    "collective_device_list",
    "iota_collective_device_list",
    "mesh_axes_replica_group_list",
    "channel_id",
    "use_global_device_ids",
)
"""Fields of the proto that say which ranks meet. XLA states one of the first four."""


@dataclass(frozen=True, slots=True)
class RankOrder:
    """Ranks in an array of `sizes`, transposed by `order`, cut into `count` groups of `size`.

    `devices`: the rank at each place, as ids or as (sizes, order) of a numbering; () for 0, 1, ...
    """

    count: int
    size: int
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    devices: tuple[Any, ...] = ()

    @property
    def total(self) -> int:
        return self.count * self.size

    def is_whole(self) -> bool:
        """Whether sizes, order and groups fit together."""
        positive = self.size > 0 and all(size > 0 for size in self.sizes)
        permuted = sorted(self.order) == list(range(len(self.sizes)))
        return positive and permuted and math.prod(self.sizes) == self.total

    def groups(self) -> list[list[int]]:
        ids = np.arange(self.total)
        if self.devices and isinstance(self.devices[0], tuple):
            sizes, order = self.devices
            ids = ids.reshape(sizes).transpose(order or range(len(sizes))).reshape(-1)
        elif self.devices:
            ids = np.array(self.devices)
        transposed = ids.reshape(self.sizes).transpose(self.order)
        return transposed.reshape(self.count, self.size).tolist()


def _of_iota(iota: Any) -> RankOrder:
    count, size = int(iota.num_replica_groups), int(iota.num_devices_per_group)
    sizes = tuple(iota.iota_reshape_dims) or (count * size,)
    order = tuple(iota.iota_transpose_perm) or tuple(range(len(sizes)))
    return RankOrder(count, size, sizes, order)


def _of_mesh(stated: Any) -> RankOrder | None:
    """Groups along axes of a mesh, the other axes outside; None for axes that it does not have."""
    if stated.mesh is None:
        return None
    sizes: list[int] = []
    places: dict[int, int] = {}
    parts = {axis.mesh_axis_index: axis.sub_axis_info for axis in stated.axes}
    for index, axis in enumerate(stated.mesh.axes):
        part = parts.get(index)
        if part is None:
            places[index] = len(sizes)
            sizes.append(axis.size)
            continue
        if part.pre_size <= 0 or part.size <= 0 or axis.size % (part.pre_size * part.size):
            return None
        places[index] = len(sizes) + 1
        sizes += [part.pre_size, part.size, axis.size // (part.pre_size * part.size)]
    if len(parts) != len(stated.axes) or any(index not in places for index in parts):
        return None
    inside = [places[axis.mesh_axis_index] for axis in stated.axes]
    outside = [place for place in range(len(sizes)) if place not in inside]
    size = math.prod(sizes[place] for place in inside)
    count = math.prod(sizes[place] for place in outside)
    devices: tuple[Any, ...] = tuple(stated.mesh.device_ids)
    transposed = stated.mesh.iota_transform
    if transposed is not None:
        devices = (tuple(transposed.reshape_dims), tuple(transposed.transpose_perm))
    return RankOrder(count, size, tuple(sizes), (*outside, *inside), devices)


def _numbering(instruction: Instruction) -> RankOrder | None:
    """Groups that are stated by numbers or axes. Raises NeuronError hlo-shape-mismatch."""
    mesh = instruction.attributes.get("mesh_axes_replica_group_list")
    devices = instruction.attributes.get("collective_device_list")
    iota = instruction.attributes.get("iota_collective_device_list")
    if iota is None and devices is not None:
        iota = devices.iota_replica_group_list
    if mesh is None and (iota is None or not iota.num_replica_groups):
        return None
    found = _of_mesh(mesh) if mesh is not None else _of_iota(iota)
    require_shape(
        found is not None and found.is_whole(),
        instruction,
        f"its groups are {found or mesh}.",
        "The sizes have a number for every rank, the order names each of them once, and axes are "
        "those of the mesh.",
    )
    return found


def stated_groups(instruction: Instruction) -> list[list[int]]:
    """The groups as the instruction states them; [] where it leaves them out."""
    numbering = _numbering(instruction)
    if numbering is not None:
        return numbering.groups()
    devices = instruction.attributes.get("collective_device_list")
    groups = instruction.attribute("replica_groups")
    if not groups and devices is not None:
        groups = devices.replica_groups
    return [list(group.replica_ids) for group in groups if group.replica_ids]


def group_size(instruction: Instruction) -> int | None:
    """Ranks a group, None where all take part. Raises NeuronError hlo-shape-mismatch."""
    numbering = _numbering(instruction)
    if numbering is not None:
        return numbering.size
    groups = stated_groups(instruction)
    return len(groups[0]) if groups else None


def group_of(
    instruction: Instruction, context: RankContext, across_partitions: bool
) -> tuple[int, ...]:
    """The ranks that take part together with this one, in order.

    `across_partitions`: what a channel means: groups of partitions (all-to-all, permute) rather
    than of replicas with all partitions.
    """
    partitions = context.partitions
    replicas = context.ranks // partitions
    replica, partition = divmod(context.rank, partitions)
    channel = (instruction.attribute("channel_id") or 0) > 0
    numbering = _numbering(instruction)
    if numbering is not None and numbering.total > context.ranks:
        number = f"{numbering.count} of {numbering.size} ranks"
        raise _no_group(instruction, context, number)
    groups = stated_groups(instruction)
    if instruction.attribute("use_global_device_ids"):
        if not channel or not groups:
            raise NeuronError(
                "hlo-invalid",
                f"{subject(instruction)} has global device ids and no "
                f"{'groups' if channel else 'channel'}.",
                why="Ids are of devices only where there is a channel and groups are stated.",
            )
        candidates = groups
    elif channel and across_partitions:
        groups = groups or [list(range(partitions))]
        candidates = [[replica * partitions + one for one in group] for group in groups]
    elif channel:
        groups = groups or [list(range(replicas))]
        candidates = [
            [other * partitions + one for one in range(partitions) for other in group]
            for group in groups
        ]
    else:
        groups = groups or [list(range(replicas))]
        candidates = [[other * partitions + partition for other in group] for group in groups]
    for candidate in candidates:
        if context.rank in candidate:
            if max(candidate) >= context.ranks:
                break
            return tuple(candidate)
    raise _no_group(instruction, context, str(stated_groups(instruction)))


def _no_group(instruction: Instruction, context: RankContext, groups: str) -> NeuronError:
    partitions = context.partitions
    return NeuronError(
        "hlo-invalid",
        f"{subject(instruction)}: groups {groups} do not fit rank {context.rank} of"
        f" {context.ranks} ({context.ranks // partitions} replicas of {partitions} partitions).",
        why="Every rank is in exactly one group, and groups name existing ranks.",
        hint="Evaluate with the number of ranks that the graph was made for.",
    )
