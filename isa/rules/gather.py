"""Rules of operations that move elements by index."""

from __future__ import annotations

from typing import Any

from isa.affine import bounds
from isa.machine.gather import GPSIMD_PARTITIONS, KEEP
from isa.memory import QUADRANT, start_partition_allowed, start_partitions
from isa.rules.form import (
    OWN_PAGE,
    OperationCall,
    Rule,
    Violation,
    free_elements,
    partitions,
    plural,
    rule,
    shape_text,
)
from isa.rules.starts import possible_starts, starts_in_memory
from isa.spec import ISA

_MOST_POSITIONS = 4096


@rule(
    ISA + "nc_stream_shuffle",
    "shuffle_mask has 32 entries from 0 to 31, or 255 to keep a partition; src has the partitions "
    "that it names.",
)
def shuffle_mask(call: OperationCall) -> Violation | None:
    mask = tuple(call.shuffle_mask)
    if len(mask) != QUADRANT or not all(x == KEEP or 0 <= x < QUADRANT for x in mask):
        return Violation(
            "value-not-allowed",
            f"shuffle_mask is {mask}",
            why=f"A mask names, for each of {QUADRANT} partitions, the one to copy from: "
            f"0 to {QUADRANT - 1}, or {KEEP} to keep what is there.",
            operand="shuffle_mask",
        )
    written, read = partitions(call.dst), partitions(call.src)
    if type(written) is not int or type(read) is not int:
        return _symbolic_shuffle(call, mask)
    for row in range(written):
        source = row - row % QUADRANT + mask[row % QUADRANT]
        if mask[row % QUADRANT] != KEEP and source >= read:
            return Violation(
                "value-not-allowed",
                f"partition {row} of dst copies partition {source} of src, which has {read}",
                why="Each quadrant of dst is filled from the same quadrant of src.",
                hint=f"Shuffle one quadrant of {QUADRANT} partitions at a time.",
                operand="shuffle_mask",
            )
    return None


def _symbolic_shuffle(call: OperationCall, mask: tuple[int, ...]) -> Violation | None:
    """Partitions that a mask names are there for all sizes: where it names ones behind those that
    are filled, src has whole quadrants."""
    written, read = partitions(call.dst), partitions(call.src)
    behind = any(source != KEEP and source > row for row, source in enumerate(mask))
    if written <= read and not (behind and read % QUADRANT != 0):
        return None
    return Violation(
        "value-not-allowed",
        f"shuffle_mask names partitions that src {shape_text(call.src)} may lack",
        why="Each quadrant of dst is filled from the same quadrant of src.",
        hint=f"Make its partitions a multiple of {QUADRANT}.",
        operand="shuffle_mask",
    )


@rule(
    ISA + "nc_stream_shuffle",
    "dst and src start where the larger of both may: at 0, 32, 64 or 96 up to 32 partitions, at 0 "
    "or 64 up to 64, at 0 beyond.",
)
def shuffle_starts(call: OperationCall) -> Violation | None:
    most = max(bounds(partitions(access))[1] or QUADRANT for access in (call.dst, call.src))
    active = -(-most // QUADRANT) * QUADRANT
    for name in ("dst", "src"):
        for start in possible_starts(call.field(name)):
            if not start_partition_allowed(start, active):
                allowed = " or ".join(str(s) for s in start_partitions(active))
                return Violation(
                    "view-not-allowed",
                    f"{name} starts at partition {start}; where dst or src has {most} partitions, "
                    f"both start at {allowed}",
                    why="A shuffle works on whole quadrants, as many for dst as for src.",
                    operand=name,
                )
    return None


@rule(ISA + "local_gather", "index has a multiple of 16 partitions.")
def gather_groups(call: OperationCall) -> Violation | None:
    if partitions(call.index) % GPSIMD_PARTITIONS == 0:
        return None
    return Violation(
        "shape-mismatch",
        f"index {shape_text(call.index)} has {plural(partitions(call.index), 'partition')}, "
        f"expected a multiple of {GPSIMD_PARTITIONS}",
        why=f"Each core of the GpSimd engine gathers in its {GPSIMD_PARTITIONS} partitions.",
        operand="index",
    )


def same_lanes(first: str, second: str) -> Rule:
    """Two operands are in the same partitions: a core of the GpSimd engine reads and writes those
    that it is connected to."""

    def check(call: OperationCall) -> Violation | None:
        one, other = (starts_in_memory(call.field(name)) for name in (first, second))
        if not one or not other or set(one) & set(other):
            return None
        return Violation(
            "view-not-allowed",
            f"{first} starts at partition {one[0]}, {second} at {other[0]}",
            why=f"Each core of the GpSimd engine works on the {GPSIMD_PARTITIONS} partitions that "
            "it is connected to.",
            hint=f"Slice {first} and {second} alike, or copy one to the partitions of the other.",
            operand=second,
        )

    text = f"{first} and {second} are in the same partitions."
    return Rule("same_lanes", OWN_PAGE, check, text)


def gather_positions(index: Any) -> Any:
    """How many positions each group of 16 partitions of an index tile has."""
    return GPSIMD_PARTITIONS * free_elements(index)


@rule(
    ISA + "local_gather",
    "A group has at most 4096 positions, num_valid_indices is no more than its elements of index, "
    "and dst has num_elem_per_idx elements for each.",
)
def gather_count(call: OperationCall) -> Violation | None:
    most = gather_positions(call.index)
    count = most if call.num_valid_indices is None else call.num_valid_indices
    if not 0 < count <= most or count > _MOST_POSITIONS:
        return Violation(
            "value-not-allowed",
            f"{count} positions from index {shape_text(call.index)}, expected 1 to "
            f"{min(most, _MOST_POSITIONS)}",
            operand="num_valid_indices",
        )
    expected = count * call.num_elem_per_idx
    if free_elements(call.dst) == expected:
        return None
    return Violation(
        "shape-mismatch",
        f"dst {shape_text(call.dst)} has {plural(free_elements(call.dst), 'element')} per "
        f"partition, expected {count} x {call.num_elem_per_idx}",
        operand="dst",
    )
