"""Steps that emit themselves, of one view and for another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from graph_compiler.schedule.views import Buffer, View


@dataclass(frozen=True)
class FillStep:
    """A step that writes a view, and reads none."""

    target: View

    inner: ClassVar[tuple[list[Any], ...]] = ()

    @property
    def views(self) -> list[View]:
        """What is read and written."""
        return [self.target]

    @property
    def reads(self) -> list[Buffer]:
        return []

    @property
    def writes(self) -> list[Buffer]:
        return [self.target.buffer]


@dataclass(frozen=True)
class MoveStep(FillStep):
    """A step that reads one view and writes another."""

    source: View

    @property
    def views(self) -> list[View]:
        return [self.source, self.target]

    @property
    def reads(self) -> list[Buffer]:
        return [self.source.buffer]
