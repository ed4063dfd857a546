"""Shardings and lists of devices in HLO text."""

from __future__ import annotations

import re
from typing import Any

from graph_compiler.hlo.record import Record
from graph_compiler.hlo.text_scan import inside, integer, integers, split

_TILES = re.compile(r"devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))\Z")
_IOTA = re.compile(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?\Z")

_KINDS = {
    "replicated": "REPLICATED",
    "manual": "MANUAL",
    "unknown": "UNKNOWN",
    "unreduced": "UNREDUCED",
    "maximal": "MAXIMAL",
}
_SUBGROUPS = {"replicated": "REPLICATED", "manual": "MANUAL", "unreduced": "UNREDUCED"}
_GROUPS = {"shard_as": "AS", "shard_like": "LIKE"}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(integer(part) for part in split(text))


def _joined(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def parse_sharding(text: str) -> Record:
    """The OpSharding that `{devices=[2,1]<=[2]}` and the like state. Raises ValueError."""
    content = inside(text).strip()
    if content.startswith("{") or not content:
        parts = tuple(parse_sharding(part) for part in split(content))
        return Record("OpSharding", type="TUPLE", tuple_shardings=parts)
    values: dict[str, Any] = {}
    words = content.split(" ")
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word in _KINDS:
            values["type"] = _KINDS[word]
        elif word.startswith("device="):
            values["tile_assignment_dimensions"] = (1,)
            values["tile_assignment_devices"] = (integer(word[7:]),)
        elif found := _TILES.match(word):
            dimensions, reshape, transpose, devices = found.groups()
            values["type"] = "OTHER"
            values["tile_assignment_dimensions"] = _numbers(dimensions)
            if devices:
                values["tile_assignment_devices"] = _numbers(devices)
            else:
                values["iota_reshape_dims"] = _numbers(reshape)
                values["iota_transpose_perm"] = (
                    _numbers(transpose)
                    if transpose
                    else tuple(range(len(values["iota_reshape_dims"])))
                )
        elif word == "last_tile_dim_replicate":
            values["replicate_on_last_tile_dim"] = True
        elif word.startswith("last_tile_dims="):
            while not words[position - 1].endswith("}"):
                word += words[position]
                position += 1
            names = split(inside(word[15:]))
            values["last_tile_dims"] = tuple(_SUBGROUPS[name] for name in names)
        elif word in _GROUPS and position < len(words):
            values["is_shard_group"] = True
            values["shard_group_id"] = integer(words[position])
            if word != "shard_as":
                values["shard_group_type"] = _GROUPS[word]
            position += 1
        else:
            raise ValueError(f"sharding not understood at {word[:40]!r}")
    if values.get("type") == "REPLICATED":
        del values["type"]
    return Record("OpSharding", **values)


def show_sharding(sharding: Record) -> str | None:
    """A sharding as text; None where the text form has no place for what it states."""
    if sharding.type == "TUPLE":
        parts = [show_sharding(part) for part in sharding.tuple_shardings]
        if any(part is None for part in parts):
            return None
        return "{" + ", ".join(part or "" for part in parts) + "}"
    names = {number: name for name, number in _KINDS.items()}
    if sharding.type == "MAXIMAL":
        devices = sharding.tile_assignment_devices
        words = ["maximal", f"device={devices[0]}" if devices else ""]
    elif sharding.type in names:
        words = [names[sharding.type]]
    elif sharding.type == "OTHER":
        words = [_shown_tiles(sharding)]
    else:
        return None
    if sharding.replicate_on_last_tile_dim:
        words.append("last_tile_dim_replicate")
    if sharding.last_tile_dims:
        shown = {number: name for name, number in _SUBGROUPS.items()}
        if not all(kind in shown for kind in sharding.last_tile_dims):
            return None
        kinds = ", ".join(shown[kind] for kind in sharding.last_tile_dims)
        words.append("last_tile_dims={" + kinds + "}")
    if sharding.is_shard_group:
        kind = "shard_as" if sharding.shard_group_type == "AS" else "shard_like"
        words.append(f"{kind} {sharding.shard_group_id}")
    return "{" + " ".join(word for word in words if word) + "}"


def _shown_tiles(sharding: Record) -> str:
    text = f"devices=[{_joined(sharding.tile_assignment_dimensions)}]"
    reshape = sharding.iota_reshape_dims
    if not reshape:
        return text + _joined(sharding.tile_assignment_devices)
    text += f"<=[{_joined(reshape)}]"
    transpose = sharding.iota_transpose_perm
    if transpose and transpose != tuple(range(len(transpose))):
        text += f"T({_joined(transpose)})"
    return text


def parse_devices(text: str) -> Record:
    """The CollectiveDeviceListProto of `{{0,1},{2,3}}` or `[2,2]<=[4]`. Raises ValueError."""
    text = text.replace(" ", "")
    if found := _IOTA.match(text):
        groups, size, reshape, transpose = found.groups()
        shape = _numbers(reshape)
        iota = Record(
            "IotaReplicaGroupListProto",
            num_replica_groups=integer(groups),
            num_devices_per_group=integer(size),
            iota_reshape_dims=shape,
            iota_transpose_perm=_numbers(transpose) if transpose else tuple(range(len(shape))),
        )
        return Record("CollectiveDeviceListProto", iota_replica_group_list=iota)
    groups = tuple(
        Record("ReplicaGroup", replica_ids=integers(part)) for part in split(inside(text))
    )
    if not groups:
        return Record("CollectiveDeviceListProto")
    return Record("CollectiveDeviceListProto", replica_groups=groups)


def show_devices(devices: Record) -> str:
    """A list of devices as text."""
    iota = devices.iota_replica_group_list
    if iota is None:
        return show_groups(devices.replica_groups)
    text = f"[{iota.num_replica_groups},{iota.num_devices_per_group}]"
    text += f"<=[{_joined(iota.iota_reshape_dims)}]"
    transpose = iota.iota_transpose_perm
    if transpose and transpose != tuple(range(len(transpose))):
        text += f"T({_joined(transpose)})"
    return text


def show_groups(groups: tuple[Record, ...]) -> str:
    return "{" + ",".join("{" + _joined(group.replica_ids) + "}" for group in groups) + "}"


_MESH = re.compile(r"mesh\[([^\[\]]*)\]\s*\{([^{}]*)\}")
_AXIS = re.compile(r"'([^']*)'=(\d+)")


def parse_mesh_axes(text: str) -> Record:
    """The MeshAxesReplicaGroupListProto of `mesh['a'=2,'b'=4] {'b'}`. Raises ValueError."""
    found = _MESH.fullmatch(text)
    if found is None:
        raise ValueError(f"axes of a mesh expected, found {text[:40]!r}")
    sizes: dict[str, int] = {}
    for part in split(found.group(1)):
        axis = _AXIS.fullmatch(part)
        if axis is None:
            raise ValueError(f"an axis with its size expected, found {part[:40]!r}")
        sizes[axis.group(1)] = integer(axis.group(2))
    order = list(sizes)
    names = [part.strip("'") for part in split(found.group(2))]
    if any(name not in sizes for name in names):
        raise ValueError(f"the mesh has the axes {', '.join(order)}")
    rows = tuple(Record("MeshAxis", name=name, size=size) for name, size in sizes.items())
    numbers = (order.index(name) for name in names)
    axes = tuple(
        Record("AxisRefProto", **({"mesh_axis_index": number} if number else {}))
        for number in numbers
    )
    mesh = Record("MeshProto", **({"axes": rows} if rows else {}))
    return Record("MeshAxesReplicaGroupListProto", mesh=mesh, **({"axes": axes} if axes else {}))


def show_mesh_axes(stated: Record) -> str | None:
    """Groups along axes of a mesh as text; None for parts of axes and devices in another order."""
    mesh = stated.mesh
    if mesh is None or mesh.device_ids or mesh.iota_transform is not None:
        return None
    if any(axis.sub_axis_info is not None for axis in stated.axes):
        return None
    names = [axis.name for axis in mesh.axes]
    if any(not 0 <= axis.mesh_axis_index < len(names) for axis in stated.axes):
        return None
    sizes = ",".join(f"'{axis.name}'={axis.size}" for axis in mesh.axes)
    chosen = ",".join(f"'{names[axis.mesh_axis_index]}'" for axis in stated.axes)
    return f"mesh[{sizes}] {{{chosen}}}"
