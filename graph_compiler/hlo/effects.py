"""Instructions with side effects, which must run though nobody uses their value."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape


def has_effect(item: Instruction) -> bool:
    """Whether other ranks, or the world, wait for an instruction. Of a custom call that gives
    tokens alone nothing else can be wanted."""
    attributes = item.attributes
    if "channel_id" in attributes or attributes.get("custom_call_has_side_effect"):
        return True
    return item.opcode == "custom-call" and _has_no_value(item.shape)


def _has_no_value(shape: Shape) -> bool:
    if shape.is_tuple:
        return all(map(_has_no_value, shape.tuple_shapes))
    return not shape.is_array
