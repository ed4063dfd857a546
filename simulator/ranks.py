"""Ranks that run together in one process: a thread each, which meet where they exchange data.

What ranks compute does not depend on their speed: messages are handed over by rank, and meetings
are told apart by their members and their number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, TypeVar

from isa.errors import NeuronError

T = TypeVar("T")


class World:
    """The ranks that run together, and what they have brought to their meetings so far.

    `in_turns`: one rank at a time runs, until it ends or waits (`turn`). `seconds`: how long a rank
    waits for others that have not ended.
    """

    def __init__(self, size: int, in_turns: bool = False, seconds: float | None = None) -> None:
        self.size = size
        self._turn = threading.Lock() if in_turns else None
        self._seconds = seconds
        self._changed = threading.Condition()
        self._brought: dict[tuple[Any, int], dict[int, Any]] = {}
        self._taken: dict[tuple[Any, int], int] = {}
        self._counts: dict[tuple[Any, int], int] = {}
        self._ended: set[int] = set()
        self._waiting: dict[int, tuple[str, tuple[int, ...], dict[int, Any]]] = {}
        self._stuck = ""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """What is run inside is not interrupted by other ranks, where these run in turns."""
        if self._turn is not None:
            self._turn.acquire()
        try:
            yield
        finally:
            if self._turn is not None:
                self._turn.release()

    @contextmanager
    def _others_run(self) -> Iterator[None]:
        if self._turn is not None:
            self._turn.release()
        try:
            yield
        finally:
            if self._turn is not None:
                self._turn.acquire()

    def meet(
        self, rank: int, members: tuple[int, ...], what: str, message: Any, key: Any = None
    ) -> dict[int, Any]:
        """What every rank of `members` brings to its meeting of this kind and number. Waits for
        all of them. `what` names the kind, and tells it from others if there is no `key`. Raises
        deadlock when no rank goes on any more, and value-not-allowed for members that do not run.
        """
        if max(members) >= self.size:
            raise NeuronError(
                "value-not-allowed",
                what=f"{what} of ranks {list(members)}, where {self.size} "
                + ("rank runs" if self.size == 1 else "ranks run"),
                why="Every rank of a group takes part in each of its collectives.",
                hint="Run a kernel with nki.collectives.simulate_ranks, which takes the arguments "
                "of each rank, a graph with evaluate_ranks, and a compiled one with "
                "Compiled.run_ranks.",
            )
        with self._others_run():
            return self._met(rank, members, what, message, what if key is None else key)

    def _met(
        self, rank: int, members: tuple[int, ...], what: str, message: Any, key: Any
    ) -> dict[int, Any]:
        with self._changed:
            visits = (key, members), rank
            number = self._counts[visits] = self._counts.get(visits, 0) + 1
            meeting = (key, members), number
            brought = self._brought.setdefault(meeting, {})
            brought[rank] = message
            self._waiting[rank] = what, members, brought
            self._changed.notify_all()
            try:
                while len(brought) < len(members):
                    if self._problem():
                        raise _absent(self._stuck)
                    if not self._changed.wait(self._seconds):
                        late = sorted(set(members) - set(brought))
                        raise _absent(f"rank {rank} waits in {what} for ranks {late}")
            finally:
                del self._waiting[rank]
            taken = self._taken[meeting] = self._taken.get(meeting, 0) + 1
            if taken == len(members):
                del self._brought[meeting], self._taken[meeting]
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


def _absent(what: str) -> NeuronError:
    return NeuronError(
        "deadlock",
        what=what,
        why="Every rank of a group takes part in each of its collectives.",
        hint="Call the collective on all ranks of the replica group, in the same order.",
    )


class RankPlace(NamedTuple):
    """A rank and the world that it is in."""

    rank: int
    world: World


_PLACE: ContextVar[RankPlace | None] = ContextVar("rank", default=None)


def place() -> RankPlace:
    """Where the running code is: rank 0 of a world of one, unless `in_world` or `run_world` says
    otherwise."""
    return _PLACE.get() or RankPlace(0, World(1))


@contextmanager
def in_world(rank: int, world: World) -> Iterator[None]:
    """What runs inside is a rank of a world."""
    token = _PLACE.set(RankPlace(rank, world))
    try:
        with world.turn():
            yield
    finally:
        _PLACE.reset(token)


def run_world(world: World, runs: Sequence[Callable[[], T]]) -> list[T]:
    """What each rank gives. Raises the error of the first rank that failed."""
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def start(rank: int) -> Callable[[], None]:
        def main() -> None:
            try:
                with in_world(rank, world):
                    results[rank] = runs[rank]()
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
    return [results[rank] for rank in range(world.size)]


def _is_deadlock(error: BaseException) -> bool:
    return isinstance(error, NeuronError) and error.code == "deadlock"
