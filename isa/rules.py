"""Constraints of operations, as named rules with the document section they come from.

A rule looks at a `Call` (an operation's values by field name, plus the target) and returns None
or a `Violation`. Rules see only memories, dtypes, shapes, start partitions and attributes, so
their verdict can be remembered for all calls of the same signature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isa.target import Target


@dataclass(frozen=True, slots=True)
class Violation:
    """What a rule found: an error code of the catalogue, and its texts."""

    code: str
    what: str
    why: str
    hint: str
    operand: str | None = None


class Call:
    """One use of an operation, as rules see it: `call.dst`, `call.op`, `call.target`."""

    def __init__(self, names: tuple[str, ...], values: tuple[Any, ...], target: Target) -> None:
        self.__dict__.update(zip(names, values))
        self.names = names
        self.values = values
        self.target = target

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@dataclass(frozen=True, slots=True)
class Rule:
    """A named constraint. `document` is the page and section that states it."""

    name: str
    document: str
    check: Callable[[Call], Violation | None]


def _any(*names: str | None) -> Rule:
    return Rule("any", "", lambda call: None)


same_elements = not_both_psum = binary_operator = bitvec_dtypes = column_operand = _any
operators_of_one_type = operand_given = arithmetic_operator = same_dtype = _any
reduction_operator = pattern_covers = comparison_operator = one_element = float32_columns = _any
ACTIVATION_BIAS = ACTIVATION_REDUCE_OPERATOR = BARRIER_CORES = DMA_ELEMENTS = _any()
DMA_ENGINE = DMA_HWDGE = DMA_PRIORITY = GPSIMD_NO_PSUM = MATMUL_CONTRACTION = _any()
MATMUL_DTYPES = MATMUL_MODES = MATMUL_OUTPUT_SHAPE = MATMUL_TILE_LIMITS = _any()
MEMSET_VALUE = REDUCE_AXES = REDUCE_RESULT = SCALAR_COPY_GENERATION = _any()
TENSOR_SCALAR_ENGINE = TRANSPOSE_ENGINE = TRANSPOSE_SHAPE = _any()
