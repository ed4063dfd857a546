"""Simulated ranks of one module: a thread each, meeting at collectives.

Exchanges are matched by instruction and group, in the order in which a rank comes to them. What
ranks compute never depends on timing: a group's values are handed over in the group's order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from graph_compiler.hlo.operators.row import Value, subject
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction

T = TypeVar("T")


class Meeting:
    """Where `ranks` threads exchange values."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._condition = threading.Condition()
        self._values: dict[tuple[Any, ...], dict[int, Value]] = {}
        self._visits: dict[tuple[Any, ...], int] = {}
        self._taken: dict[tuple[Any, ...], int] = {}
        self._waiting: dict[int, tuple[tuple[Any, ...], Instruction]] = {}
        self._ended = 0
        self._failed = False

    def exchange(
        self, instruction: Instruction, rank: int, group: tuple[int, ...], value: Value
    ) -> list[Value]:
        """The values of all ranks of `group`, when all have come. Raises NeuronError deadlock."""
        with self._condition:
            visit_key = (instruction, rank)
            visit = self._visits[visit_key] = self._visits.get(visit_key, 0) + 1
            key = (instruction, group, visit)
            arrived = self._values.setdefault(key, {})
            arrived[rank] = value
            self._waiting[rank] = (key, instruction)
            self._condition.notify_all()
            while len(arrived) < len(group):
                self._check()
                self._condition.wait()
            self._waiting.pop(rank, None)
            values = [arrived[other] for other in group]
            self._taken[key] = self._taken.get(key, 0) + 1
            if self._taken[key] == len(group):
                del self._values[key], self._taken[key]
            return values

    def _check(self) -> None:
        """Raises NeuronError deadlock when no rank can come to what others wait for."""
        if self._failed:
            raise _RankAborted
        stuck = [
            instruction
            for key, instruction in self._waiting.values()
            if key in self._values and len(self._values[key]) < len(key[1])
        ]
        if len(stuck) + self._ended == self.ranks:
            where = sorted({subject(instruction) for instruction in stuck})
            raise NeuronError(
                "deadlock",
                f"{len(stuck)} of {self.ranks} ranks wait at {', '.join(where)}.",
                why="Every rank of a group must come to the collective.",
                hint="Control flow around collectives has to go the same way on all ranks.",
            )

    def end(self, failed: bool) -> None:
        """A rank has finished, or given up."""
        with self._condition:
            self._ended += 1
            self._failed = self._failed or failed
            self._condition.notify_all()


class Alone(Meeting):
    """The meeting of one rank."""

    def __init__(self) -> None:
        super().__init__(1)


class _RankAborted(Exception):
    """This rank stops because another one failed."""


def run_ranks(meeting: Meeting, run: Callable[[int], T]) -> list[T]:
    """`run(rank)` for every rank at once. Raises what the first rank that failed raised."""
    results: dict[int, T] = {}
    failures: dict[int, BaseException] = {}

    def work(rank: int) -> None:
        failed = True
        try:
            results[rank] = run(rank)
            failed = False
        except _RankAborted:
            pass
        except BaseException as error:
            failures[rank] = error
        finally:
            meeting.end(failed)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(meeting.ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[min(failures)]
    return [results[rank] for rank in range(meeting.ranks)]
