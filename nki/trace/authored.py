"""Contexts that an author's Python code calls: what they ask of its frames and source."""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Any, ClassVar

from nki.ir.builder.core_builder import CoreBuilder
from nki.ir.builder.declarations import Declarations
from nki.ir.context import Location
from nki.ir.locations import call_path, is_while_condition
from nki.ir.nodes import Tensor
from nki.superseded import hint_at_call
from nki.trace.shared import SharedTensors


class Authored(CoreBuilder):
    """A core whose operations an author's function calls; `shared` pairs what the cores make in
    shared HBM. `below` is the code that calls the function."""

    below: ClassVar[CodeType]

    def __init__(self, declarations: Declarations, core: int, shared: SharedTensors) -> None:
        super().__init__(declarations, core)
        self.shared = shared

    def _shared(
        self, shape: tuple[Any, ...], dtype: str, name: str, location: Location, data: Any
    ) -> Tensor:
        """The shared HBM tensor that every core gets from its call at this place."""
        self.loops.refuse_shared()
        path = () if self.cores == 1 else call_path(self.below)
        paired = self.shared.pair(self.core, name, path, shape, dtype, location, data)
        if paired is not None:
            return paired
        storage = super()._shared(shape, dtype, name, location, data)
        self.shared.add(self.core, name, path, storage)
        return storage

    def truth(self, register: Any, frame: FrameType) -> bool:
        location = (frame.f_code, frame.f_lasti)
        if not is_while_condition(location):
            return super().truth(register, frame)
        hint_at_call("while register:")
        return self.while_condition(register, location, frame)
