"""Bits of elements as those of a narrower or wider type: another view of the same memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.schedule.fusion import contiguous
from graph_compiler.schedule.steps import item_size
from graph_compiler.schedule.views import View, row_major

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler


def other_width(scheduler: Scheduler, node: Node) -> View | None:
    """A bitcast-convert between types of different widths, the lowest bits first; None of types
    that the device does not hold in whole bytes."""
    (operand,) = node.operands
    if operand.type not in DTYPES or node.type not in DTYPES:
        return None
    if any(PRIMITIVE_TYPES[type].bits < 8 for type in (operand.type, node.type)):
        return None
    view = contiguous(scheduler.program, scheduler.value(operand))
    offset = view.offset * item_size(operand.type) // item_size(node.type)
    return View(view.buffer, node.type, node.dims, row_major(node.dims), offset)
