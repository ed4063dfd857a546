"""Rules of operations on sequences."""

from __future__ import annotations

from isa.machine.gather import GPSIMD_PARTITIONS
from isa.rules.form import (
    OperationCall,
    Violation,
    free_elements,
    partitions,
    rule,
    shape_text,
)
from isa.spec import ISA

_ELEMENTS = range(8, 65536)
_RESULTS = range(1, 32768)


@rule(
    ISA + "topk",
    "src has a multiple of 16 partitions, and n elements in each 16 of them; 8 <= n < 65536, "
    "1 <= K < 32768, K <= n.",
)
def top_k_counts(call: OperationCall) -> Violation | None:
    n, k = call.n, free_elements(call.val_dst)
    if partitions(call.src) % GPSIMD_PARTITIONS:
        return Violation(
            "shape-mismatch",
            f"src {shape_text(call.src)} has {partitions(call.src)} partitions, expected a "
            f"multiple of {GPSIMD_PARTITIONS}",
            why=f"A sequence lies across {GPSIMD_PARTITIONS} partitions.",
            operand="src",
        )
    room = GPSIMD_PARTITIONS * free_elements(call.src)
    if n not in _ELEMENTS or n > room:
        return Violation(
            "value-not-allowed",
            f"n is {n}, expected {_ELEMENTS.start} to {min(room, _ELEMENTS.stop - 1)}",
            why="n elements of a sequence are searched, and src has to hold them.",
            operand="n",
        )
    if k in _RESULTS and k <= n:
        return None
    return Violation(
        "shape-mismatch",
        f"val_dst {shape_text(call.val_dst)} asks for the {k} largest of {n} elements",
        why=f"K is at least 1, at most n, and less than {_RESULTS.stop}.",
        operand="val_dst",
    )
