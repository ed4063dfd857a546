"""Which ranks take part in a collective operation together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isa.errors import NeuronError
from nki.errors import user_frames
from nki.ir.views.objects import NKIObject


@dataclass(frozen=True, init=False)
class ReplicaGroup(NKIObject):
    """Groups of ranks; every rank of a group works with the others of its group alone.

    `groups`: lists of rank numbers. Raises value-not-allowed for a rank that occurs twice, groups
    of different sizes, and what is no number.

    Source: SDK nki/api/nki/collectives/__init__.py (ReplicaGroup).

    >>> ReplicaGroup([[0, 1], [2, 3]]).group_of(2)
    (2, 3)
    """

    groups: tuple[tuple[int, ...], ...]

    @user_frames
    def __init__(self, groups: Any) -> None:
        try:
            rows = tuple(tuple(int(rank) for rank in group) for group in groups)
        except TypeError:
            raise _refused(groups, "Give a list of lists of rank numbers.") from None
        ranks = [rank for row in rows for rank in row]
        if len(set(ranks)) != len(ranks) or min(ranks, default=-1) < 0:
            raise _refused(groups, "A rank is a number from 0 and belongs to one group.")
        if len({len(row) for row in rows}) > 1:
            raise _refused(groups, "Groups have the same number of ranks.")
        object.__setattr__(self, "groups", rows)

    @property
    def size(self) -> int:
        """Ranks in a group."""
        return len(self.groups[0])

    @property
    def ranks(self) -> int:
        """Ranks that the groups imply: one more than the largest number."""
        return 1 + max(rank for group in self.groups for rank in group)

    def group_of(self, rank: int) -> tuple[int, ...]:
        """The group that a rank is in. Raises value-not-allowed when it is in none."""
        for group in self.groups:
            if rank in group:
                return group
        raise _refused(self.groups, f"Rank {rank} is in no group.")


def _refused(groups: Any, why: str) -> NeuronError:
    return NeuronError(
        "value-not-allowed",
        what=f"ReplicaGroup({groups!r})",
        why=why,
        hint="For example ReplicaGroup([[0, 1, 2, 3]]).",
    )
