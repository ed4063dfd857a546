"""The ranks of a distributed graph: how many it is for, and which one is meant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from graph_compiler.evaluate import MOST_RANKS
from graph_compiler.hlo.operators import OPERATORS
from graph_compiler.hlo.operators.collectives import Collective, CollectivePermute, PartitionId
from graph_compiler.hlo.operators.collectives.groups import stated_groups
from graph_compiler.hlo.operators.custom.shard_map import shardings
from graph_compiler.hlo.operators.row import HloOperator, subject
from graph_compiler.partitions import partitions_of
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction, Module


@dataclass(slots=True)
class Member:
    """A rank, as `group_of` and `shardings` want to know it."""

    module: Module
    rank: int
    ranks: int
    partitions: int


def members_of(module: Module, ranks: int) -> list[Member]:
    """All ranks that run a graph."""
    partitions = partitions_of(module, ranks)
    partitions = partitions if ranks % partitions == 0 else 1
    return [Member(module, rank, ranks, partitions) for rank in range(ranks)]


def ranks_of(module: Module) -> int:
    """How many ranks a graph is for, as it states them: 1 for one without collectives. Raises
    NeuronError hlo-too-large."""
    distributed = [item for item in module.instructions() if is_distributed(item)]
    if not distributed:
        return 1
    counts = [_stated(module, "replica_count") * _stated(module, "num_partitions")]
    devices = module.attributes.get("device_assignment")
    if devices is not None:
        counts.append(int(devices.replica_count) * int(devices.computation_count))
    for item in distributed:
        if item.opcode == _CUSTOM_CALL:
            alone = Member(module, 0, 1, 1)
            for attribute in ("xla.sdy.in_shardings", "xla.sdy.out_shardings"):
                parts = shardings(item, attribute, alone)
                counts += [math.prod(sharding.sizes.values()) for sharding in parts]
        elif item.opcode in _PAIRED:
            pairs = item.attribute("source_target_pairs")
            counts += [1 + max(pair.source, pair.target) for pair in pairs]
        elif item.opcode not in _ALONE:
            counts += [1 + max(group) for group in stated_groups(item)]
        if max(counts) > MOST_RANKS:
            raise NeuronError(
                "hlo-too-large",
                f"{subject(item)}: the graph is for {max(counts):,} ranks.",
                why=f"A graph is compiled for {MOST_RANKS:,} ranks at most.",
            )
    return max(counts)


def is_distributed(item: Instruction) -> bool:
    """Whether several ranks take part in an instruction, or it depends on which one runs."""
    if item.opcode == _CUSTOM_CALL:
        return item.attribute("custom_call_target") in (TO_LOCAL, TO_GLOBAL)
    return _distributes(item.opcode)


@cache
def _distributes(opcode: str) -> bool:
    row = OPERATORS.get(opcode, HloOperator)
    return issubclass(row, (Collective, CollectivePermute, PartitionId))


TO_LOCAL, TO_GLOBAL = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"
"""The targets of custom calls around per-device code."""

_CUSTOM_CALL = "custom-call"
_PAIRED = frozenset({"collective-permute", "collective-permute-start"})
_ALONE = frozenset({"partition-id", "replica-id"})


def _stated(module: Module, name: str) -> int:
    stated = str(module.config.get(name, ""))
    return int(stated) if stated.isdecimal() and int(stated) > 0 else 1
