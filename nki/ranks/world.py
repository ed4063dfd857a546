"""Ranks of a distributed kernel in one process: a thread each, which meet at collectives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple

import numpy as np

from isa.errors import NeuronError
from nki.ranks.group import ReplicaGroup
from nki.trace.call import is_array, map_tensors


class World:
    """The ranks that run together, and what they have brought to their meetings so far."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._changed = threading.Condition()
        self._brought: dict[tuple[Any, int], dict[int, Any]] = {}
        self._counts: dict[tuple[Any, int], int] = {}
        self._ended: set[int] = set()
        self._waiting: dict[int, tuple[str, tuple[int, ...], dict[int, Any]]] = {}
        self._stuck = ""

    def meet(self, rank: int, members: tuple[int, ...], what: str, message: Any) -> dict[int, Any]:
        """What every rank of `members` brings to its meeting of this kind and number. Waits for
        all of them. Raises deadlock when no rank goes on any more, and value-not-allowed for
        members that do not run."""
        if max(members) >= self.size:
            raise NeuronError(
                "value-not-allowed",
                what=f"{what} of ranks {list(members)}, where {self.size} "
                + ("rank runs" if self.size == 1 else "ranks run"),
                why="Every rank of a group takes part in each of its collectives.",
                hint="Run the kernel with nki.collectives.simulate_ranks, which takes the "
                "arguments of each rank.",
            )
        with self._changed:
            number = self._counts.get(((what, members), rank), 0)
            self._counts[(what, members), rank] = number + 1
            brought = self._brought.setdefault(((what, members), number), {})
            brought[rank] = message
            self._waiting[rank] = what, members, brought
            self._changed.notify_all()
            try:
                while len(brought) < len(members):
                    if self._problem():
                        raise NeuronError(
                            "deadlock",
                            what=self._stuck,
                            why="Every rank of a group takes part in each of its collectives.",
                            hint="Call the collective on all ranks of the replica group, in the "
                            "same order.",
                        )
                    self._changed.wait()
            finally:
                del self._waiting[rank]
            return brought

    def _problem(self) -> str:
        """Why the meetings in which ranks wait never come about; "" while any rank goes on, so that
        it does not depend on which is the fastest."""
        stuck = set(self._waiting)
        while free := {r for r in stuck if not self._missing(r) & (stuck | self._ended)}:
            stuck -= free
        if stuck and not self._stuck and len(stuck | self._ended) == self.size:
            rank = min(stuck)
            other = min(self._missing(rank) & (stuck | self._ended))
            self._stuck = f"rank {rank} waits in {self._waiting[rank][0]}" + (
                f" for rank {other}, which waits in {self._waiting[other][0]}"
                if other in stuck
                else f", rank {other} does not come"
            )
            self._changed.notify_all()
        return self._stuck

    def _missing(self, rank: int) -> set[int]:
        """The ranks that a waiting rank waits for."""
        _, members, brought = self._waiting[rank]
        return set(members) - set(brought)

    def end(self, rank: int) -> None:
        """A rank has ended; who waits for it learns that."""
        with self._changed:
            self._ended.add(rank)
            self._changed.notify_all()


class Place(NamedTuple):
    """A rank and the world that it is in."""

    rank: int
    world: World


_PLACE: ContextVar[Place | None] = ContextVar("rank", default=None)


def place() -> Place:
    """Where the running kernel is: rank 0 of a world of one, unless `simulate_ranks` runs it."""
    return _PLACE.get() or Place(0, World(1))


def run_ranks(run: Callable[..., Any], arguments: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The results of `run`, which executes eagerly, for the arguments of each rank by parameter
    name. Raises the error of the first rank that failed."""
    world = World(len(arguments))
    results: list[Any] = [None] * world.size
    errors: dict[int, BaseException] = {}

    def start(rank: int) -> Callable[[], None]:
        def main() -> None:
            _PLACE.set(Place(rank, world))
            try:
                results[rank] = run(**arguments[rank])
            except BaseException as error:
                errors[rank] = error
            finally:
                world.end(rank)

        return main

    threads = [
        threading.Thread(target=copy_context().run, args=(start(rank),), name=f"rank {rank}")
        for rank in range(world.size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        # A rank that waited in vain fails because another one did.
        raise min(errors.items(), key=lambda item: (_is_deadlock(item[1]), item[0]))[1]
    return results


def _is_deadlock(error: BaseException) -> bool:
    return isinstance(error, NeuronError) and error.code == "deadlock"


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


__all__ = ["Place", "World", "place", "ranks_of", "run_ranks", "same_on_all_ranks"]
