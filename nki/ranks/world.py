"""Ranks of a distributed kernel in one process (`simulator.ranks`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from nki.ranks.group import ReplicaGroup
from nki.trace.call import is_array, map_tensors
from simulator.ranks import World, run_world


def run_ranks(run: Callable[..., Any], arguments: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The results of `run`, which executes eagerly, for the arguments of each rank by parameter
    name. Raises the error of the first rank that failed."""
    return run_world(World(len(arguments)), [partial(run, **each) for each in arguments])


def ranks_of(arguments: Mapping[str, Any]) -> int:
    """How many ranks the replica groups among the arguments of a kernel imply; 1 without any."""
    groups = [value for value in arguments.values() if isinstance(value, ReplicaGroup)]
    return max((group.ranks for group in groups), default=1)


def same_on_all_ranks(run: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """The result of rank 0 when every rank of the arguments' replica groups gets the same
    arguments; rank 0's arrays are the given ones, and change in place."""

    def copied(value: Any, name: str) -> Any:
        return np.array(value) if is_array(value) else value

    others = [
        {name: map_tensors(value, name, copied) for name, value in arguments.items()}
        for _ in range(1, ranks_of(arguments))
    ]
    return run_ranks(run, [arguments, *others])[0]
