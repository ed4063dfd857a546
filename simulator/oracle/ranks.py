"""What ranks exchange."""

from __future__ import annotations

from functools import cache

import numpy as np

from isa.errors import NeuronError
from isa.machine import ranks
from simulator.device_state import CoreState
from simulator.oracle.table import kernel
from simulator.ranks import place
from simulator.views import Array, bits


@kernel(ranks.RankExchange)
def rank_exchange(
    state: CoreState, dst: Array, src: Array, sources: tuple[int, ...], width: int, parted: bool
) -> None:
    """Raises value-not-allowed for another number of ranks than the table has, and deadlock."""
    rank, world = place()
    table = [sources[begin : begin + width] for begin in range(0, len(sources), max(width, 1))]
    blocks = width if parted else 1
    if width < 1 or src.size % blocks or dst.size != width * (src.size // blocks):
        raise NeuronError(
            "ir-invalid",
            f"RankExchange gets {width} blocks into {dst.size} elements from {src.size}.",
        )
    _check_ranks("RankExchange", len(table), world.size)
    sent = bits(src).reshape(blocks, -1).copy()
    members = _connected(sources, width)[rank]
    messages = world.meet(rank, members, "RankExchange", sent) if members else {}
    target = bits(dst)
    received = np.zeros((width, sent.shape[1]), target.dtype)
    for number, source in enumerate(table[rank]):
        if source >= 0:
            block = table[source].index(rank) if parted else 0
            received[number] = messages[source][block]
    target[...] = received.reshape(target.shape)


@kernel(ranks.RankNumber)
def rank_number(state: CoreState, dst: Array, numbers: tuple[int, ...]) -> None:
    """Raises value-not-allowed for another number of ranks than the list has."""
    rank, world = place()
    _check_ranks("RankNumber", len(numbers), world.size)
    dst[...] = np.array(numbers[rank], np.int64).astype(dst.dtype)


def _check_ranks(row: str, compiled: int, running: int) -> None:
    if compiled != running:
        raise NeuronError(
            "value-not-allowed",
            f"{row} is for {compiled} ranks, and {running} run.",
            why="A distributed program is compiled for a number of ranks.",
            hint="Run a graph with Compiled.run_ranks, or load its program on each rank with "
            "cc_enabled=True, rank_id and world_size.",
        )


@cache
def _connected(sources: tuple[int, ...], width: int) -> list[tuple[int, ...]]:
    """For each rank those that it meets: who is connected with it by any chain of exchanges. None
    for ranks that neither send nor receive."""
    count = len(sources) // width
    group = list(range(count))

    def root(rank: int) -> int:
        while group[rank] != rank:
            rank = group[rank]
        return rank

    taking = set()
    for number, source in enumerate(sources):
        if source >= 0:
            taking |= {source, number // width}
            group[root(number // width)] = root(source)
    roots = [root(rank) for rank in range(count)]
    members = {one: tuple(r for r in range(count) if roots[r] == one) for one in set(roots)}
    return [members[roots[rank]] if rank in taking else () for rank in range(count)]
