"""Rules of microscaled (MX) tensors: packed elements, and where their scales lie."""

from __future__ import annotations

from typing import Any

from isa.affine import maximum
from isa.machine.mx import SCALE_ROWS
from isa.memory import QUADRANT
from isa.rules.form import (
    OperationCall,
    Rule,
    Violation,
    free_elements,
    partitions,
    rule,
    shape_text,
)
from isa.rules.starts import start_partition
from isa.spec import ISA

_QUANTIZE = ISA + "quantize_mx"
_PACKED = 4


def scale_partitions(count: Any) -> Any:
    """Partitions that the scales of `count` partitions cover, from their first to their last."""
    return maximum(count - QUADRANT, 0) + SCALE_ROWS


def scales_of(data: str, scale: str) -> Rule:
    """The scales of a packed operand: one a packed value and group, in the operand's quadrants."""

    def check(call: OperationCall) -> Violation | None:
        packed, scales = call.field(data), call.field(scale)
        if free_elements(packed) != free_elements(scales):
            return Violation(
                "shape-mismatch",
                f"{scale} has shape {shape_text(scales)}, {data} {shape_text(packed)}",
                why="One scale belongs to the four values of a packed element, in 8 partitions.",
                hint=f"Give {scale} the free dimensions of {data}.",
                operand=scale,
            )
        count, rows = partitions(packed), partitions(scales)
        needed = scale_partitions(count)
        if rows < needed:
            return Violation(
                "shape-mismatch",
                f"{scale} has {rows} partitions, {data} with {count} needs {needed}",
                why="The four rows of scales of a quadrant of 32 partitions lie in that quadrant.",
                hint=f"Allocate the scales with {count} partitions.",
                operand=scale,
            )
        first, start = start_partition(packed), start_partition(scales)
        addresses = [getattr(t.storage, "address", None) for t in (packed, scales)]
        known = all(addresses) or not any(addresses)
        if known and first is not None and start is not None:
            first += addresses[0][0] if addresses[0] else 0
            start += addresses[1][0] if addresses[1] else 0
            if first // QUADRANT != start // QUADRANT:
                return Violation(
                    "view-not-allowed",
                    f"{scale} starts at partition {start}, {data} at {first}",
                    why="Scales lie in the quadrant of 32 partitions that they belong to.",
                    operand=scale,
                )
        return None

    return Rule(
        f"scales_of_{data}",
        _QUANTIZE,
        check,
        f"{scale} has the free elements of {data}, and four rows in each of its quadrants.",
    )


@rule(_QUANTIZE, "src [P, F] with P a multiple of 32 gives dst [P, F / 4].")
def quantize_shape(call: OperationCall) -> Violation | None:
    count, given = free_elements(call.src), free_elements(call.dst)
    if partitions(call.src) != partitions(call.dst) or count != _PACKED * given:
        return Violation(
            "shape-mismatch",
            f"src has shape {shape_text(call.src)}, dst {shape_text(call.dst)}",
            why="Four elements of src become one packed element of dst.",
            hint="Allocate dst as [P, F // 4] for a src of [P, F].",
            operand="dst",
        )
    depth = partitions(call.src)
    if depth % QUADRANT != 0:
        return Violation(
            "tile-limit",
            f"src has {depth} partitions, expected a multiple of {QUADRANT}",
            why="Groups are quantised by quadrants of 32 partitions.",
            hint="Pad src with zeros.",
            operand="src",
        )
    return None
