"""How a graph is divided over ranks: whether it is already, and how many ranks are partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from graph_compiler.hlo.operators.row import subject
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction, Module

_LEFT_BY_PARTITIONER = ("spmd_output_sharding", "spmd_parameters_shardings", "schedule")
"""Fields of a module that only XLA's partitioner, or what comes behind it, writes."""


def is_partitioned(module: Module) -> bool:
    """Whether XLA has divided the graph: shapes are those of one rank, and what its parameters
    still state as their sharding says how they came to be."""
    return str(module.config.get("is_scheduled", "")) == "true" or any(
        name in module.attributes for name in _LEFT_BY_PARTITIONER
    )


def undivided(module: Module) -> Iterator[Instruction]:
    """Instructions whose values a partitioner has yet to divide over ranks."""
    divided = set(module.parameters) if is_partitioned(module) else set()
    for item in module.instructions():
        sharding = item.attributes.get("sharding")
        if sharding is not None and sharding.type == "OTHER" and item not in divided:
            yield item


def refuse_undivided(module: Module) -> None:
    """Raises NeuronError hlo-not-supported where a partitioner has yet to divide the graph."""
    for item in undivided(module):
        raise NeuronError(
            "hlo-not-supported",
            f"{subject(item)} is to be divided over ranks, and there is no partitioner.",
            why="Shardings of whole arrays say what a partitioner has to do; ranks execute "
            "graphs that are divided already.",
            hint="Evaluate the graph with one rank, divide it with jax.shard_map, or take the "
            "graph that jax has divided: .lower(...).compile().as_text().",
        )


def partitions_of(module: Module, ranks: int) -> int:
    """How many of the ranks are partitions of one replica, as far as the module says."""
    stated = str(module.config.get("num_partitions", ""))
    if stated.isdecimal() and int(stated) > 1:
        return int(stated)
    devices = module.attributes.get("device_assignment")
    if devices is not None and devices.computation_count > 1:
        return int(devices.computation_count)
    partitioned = any(
        item.opcode == "partition-id" or (item.attributes.get("channel_id") or 0) > 0
        for item in module.instructions()
    )
    return ranks if partitioned else 1
