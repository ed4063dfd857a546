"""Limits of what takes room on chip where no rule says which is best: plans to choose from."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Limits:
    """`right`: bytes of a partition that the right operand of a product in a group of rows may
    take. A weight that stays for all of the rows is loaded once, and leaves less room for the
    loads that come before their use. `asked`: the sizes that were compared with it."""

    right: int = 24 << 10
    asked: set[int] = field(default_factory=set)

    def allows(self, right: int) -> bool:
        """Whether a product with a right operand of so many bytes may be in a group."""
        self.asked.add(right)
        return right <= self.right

    def differs(self, other: Limits) -> bool:
        """Whether something that was compared is within only one of both."""
        return any((size <= self.right) != (size <= other.right) for size in self.asked)


def plans() -> tuple[Limits, ...]:
    """The limits to try; the first ones are for whoever tries no others."""
    return Limits(), Limits(right=8 << 10)
