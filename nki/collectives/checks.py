"""What collective operations accept (SDK nki/api/nki/collectives/__init__.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from isa.errors import NeuronError
from isa.target import Target
from nki.ir.views.tensor import NkiTensor
from nki.ranks.group import ReplicaGroup

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "minimum": np.minimum,
    "maximum": np.maximum,
}

_ON_CHIP_DIMENSIONS = 2

_GATHERING_RANKS = 4
_GATHERING_CORES = 2
"""Ranks of a group and cores of a rank between which `all_gather_v` runs."""

_CHANNELS = 4
"""Most channels of a ring."""


def check_op(op: Any) -> Callable[[Any, Any], Any]:
    """The NumPy function of a reduction: nl.add, nl.minimum or nl.maximum."""
    found = _COMBINE.get(str(getattr(op, "name", getattr(op, "__name__", op))))
    if found is None:
        raise NeuronError(
            "operator-not-allowed",
            what=f"op is {op!r}, expected nl.add, nl.minimum or nl.maximum",
        )
    return found


def check_priority(priority: Any, target: Target) -> None:
    """None, or 0 to 3 from gen4 on."""
    if priority is None:
        return
    if target.generation < 4:
        raise NeuronError(
            "generation",
            what=f"priority={priority} on {target.name}",
            why="DMA priorities exist from NeuronCore-v4 on.",
        )
    if priority not in range(4):
        raise NeuronError("value-not-allowed", what=f"priority is {priority!r}, expected 0 to 3")


def check_group(what: str, replica_group: Any) -> ReplicaGroup:
    """The replica group, if it is one."""
    if isinstance(replica_group, ReplicaGroup):
        return replica_group
    raise NeuronError(
        "value-not-allowed",
        what=f"{what}: replica_group is {replica_group!r}, which is no ReplicaGroup",
        hint="Write nki.collectives.ReplicaGroup([[0, 1]]), with the ranks of each group.",
    )


def _check_list(what: str, tensors: Any) -> None:
    """A list of tensors, which a tensor alone is not."""
    listed = isinstance(tensors, (list, tuple))
    for given in tensors if listed else (tensors,):
        if not listed or not isinstance(given, NkiTensor):
            raise NeuronError(
                "not-a-tensor",
                what=f"{what} got {getattr(given, 'name', given)!r} in place of "
                + ("a tensor" if listed else "a list of tensors"),
                why="Sources and destinations are lists of tensors, which are exchanged together.",
                hint="Put the tensor into a list: [tensor].",
            )


def one(what: str, *lists: Sequence[NkiTensor]) -> None:
    """Each list has exactly one tensor."""
    for tensors in lists:
        _check_list(what, tensors)
        if len(tensors) != 1:
            raise NeuronError(
                "value-not-allowed", what=f"{what} takes one tensor, it got {len(tensors)}"
            )


def check_counts(what: str, channel_ids: Sequence[int], *channels: Sequence[Any]) -> None:
    """As many tensor lists of one tensor as channels, which are 0, 1, ..."""
    if list(channel_ids) != list(range(len(channel_ids))) or len(channel_ids) > _CHANNELS:
        raise NeuronError(
            "value-not-allowed",
            what=f"{what}: channel_ids is {list(channel_ids)}, expected 0, 1, ... in order, at "
            f"most {_CHANNELS}",
        )
    for lists in channels:
        if len(lists) != len(channel_ids):
            raise NeuronError(
                "value-not-allowed",
                what=f"{what}: {len(lists)} tensor lists for {len(channel_ids)} channels",
            )
        one(what, *lists)


def check_memory(
    what: str, srcs: Sequence[NkiTensor], dsts: Sequence[NkiTensor], hbm_only: bool = False
) -> None:
    """As many sources as destinations, all in HBM, or one of each in SBUF."""
    _check_list(what, srcs)
    _check_list(what, dsts)
    if len(srcs) != len(dsts) or not srcs:
        raise NeuronError(
            "value-not-allowed",
            what=f"{what}: {len(srcs)} sources and {len(dsts)} destinations",
        )
    on_chip = [tensor for tensor in (*srcs, *dsts) if tensor.on_chip]
    if on_chip and (hbm_only or len(on_chip) < 2 * len(srcs) or len(srcs) > 1):
        raise NeuronError(
            "wrong-memory",
            what=f"{what}: {on_chip[0].name!r} is in {on_chip[0].buffer.value}",
            why="All tensors are in HBM; where SBUF is supported, one source and one destination "
            "may both be there.",
            hint="Copy it with nisa.dma_copy.",
        )

    if any(tensor.ndim != _ON_CHIP_DIMENSIONS for tensor in on_chip):
        raise NeuronError(
            "shape-mismatch",
            what=f"{what}: {on_chip[0].name!r} has shape {list(on_chip[0].shape)}",
            why="Tensors in SBUF have two dimensions here, of which one is free.",
            hint="Join the free dimensions with reshape.",
        )


def check_metadata(metadata: NkiTensor, rows: int, ranks: int) -> None:
    """uint32, a column a rank; in SBUF all in one partition."""
    shape = (1, rows, ranks) if metadata.on_chip else (rows, ranks)
    if metadata.dtype != "uint32" or tuple(metadata.shape) != shape:
        raise NeuronError(
            "shape-mismatch",
            what=f"metadata_tensor is {metadata.dtype}{list(metadata.shape)}, expected "
            f"uint32{list(shape)}",
        )


def check_displacements(what: str, given: bool, target: Target) -> None:
    """Receivers say where chunks go from gen4 on only."""
    if given and target.generation < 4:
        raise NeuronError(
            "generation",
            what=f"{what}: has_rdispls on {target.name}",
            why="Row 3 of the metadata is read on instances with a NeuronSwitch (trn3).",
            hint="Leave has_rdispls out; chunks then come to slots of equal size.",
        )


def check_variable_gather(group: Any, displacements: bool, cores: int) -> None:
    """What `all_gather_v` is limited to for now (its page, "Current limitations")."""
    found = ""
    if displacements:
        found = "has_rdispls is True"
    elif cores != _GATHERING_CORES:
        found = f"the launch has {cores} core a rank, expected {_GATHERING_CORES}"
    elif isinstance(group, ReplicaGroup) and group.size != _GATHERING_RANKS:
        found = f"the groups have {group.size} ranks, expected {_GATHERING_RANKS}"
    if found:
        raise NeuronError(
            "not-supported",
            what=f"all_gather_v: {found}",
            why="For now it runs among four ranks of one chip, with two cores a rank (LNC=2), and "
            "puts chunks into slots of equal size.",
            hint="Leave has_rdispls out, launch kernel[2], and gather other groups with "
            "all_gather of padded tensors.",
        )


def check_dimension(
    what: str, tensors: Sequence[NkiTensor], dimension: Any, on_chip: tuple[int, ...]
) -> None:
    """`collective_dim`: 0, or for SBUF tensors one of `on_chip`."""
    for tensor in tensors:
        allowed = on_chip if tensor.on_chip else (0,)
        if dimension not in allowed or dimension >= tensor.ndim:
            raise NeuronError(
                "value-not-allowed",
                what=f"{what}: collective_dim is {dimension!r}, expected "
                + " or ".join(map(str, allowed)),
            )


def check_sizes(
    what: str,
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    larger: int,
    smaller: int,
    parts: int = 1,
) -> None:
    """Equal data types; `smaller` times src has as many elements as `larger` times dst; dimension 0
    of src splits into `larger` (or `parts`) parts."""
    for src, dst in zip(srcs, dsts):
        fits = src.dtype == dst.dtype and src.size * smaller == dst.size * larger
        if not fits or src.shape[0] % max(larger, parts):
            raise NeuronError(
                "shape-mismatch",
                what=f"{what}: src {src.dtype}{list(src.shape)}, dst {dst.dtype}{list(dst.shape)}",
                why="Sources and destinations have one data type, and dst has as many elements as "
                "come; dimension 0 of what is scattered splits into equal parts.",
                hint=f"Allocate dst as {src.dtype} with {src.size * smaller // larger} elements."
                if not fits
                else f"Pad dimension 0 of src to a multiple of {max(larger, parts)}.",
            )


def check_pairs(pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The source of every target; a rank sends once and receives once."""
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise NeuronError(
            "value-not-allowed",
            what=f"source_target_pairs is {pairs!r}, expected pairs (source, target)",
        )
    sources = {target: source for source, target in pairs}
    if len(sources) != len(pairs) or len(set(sources.values())) != len(pairs):
        raise NeuronError(
            "value-not-allowed",
            what=f"source_target_pairs is {list(pairs)}: a rank occurs twice on one side",
        )
    return sources
