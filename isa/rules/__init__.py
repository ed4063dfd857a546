"""Constraints of operations, as named rules with the document section they come from.

`check_call` checks one use of an operation: what its field declarations say, then its rules.

`form` says what a rule is, and `generic` has the checks that follow from declarations. Rules of
many operations are in `operands`, `operators`, `sizes` and `starts`; those of a family in the file
of its name: `array`, `banks` and `matmul` (tensor engine), `movement`, `dma_sum`, `gather` and
`indirection` (moves), `accumulate`, `activation2`, `random`, `sequence`, `mx`. Rows name a
rule with its file, as `rules.sizes.row_elements`.
"""

from isa.rules import (
    accumulate,
    activation2,
    array,
    banks,
    dma_sum,
    gather,
    indirection,
    matmul,
    movement,
    mx,
    operands,
    operators,
    random,
    sequence,
    sizes,
    starts,
)
from isa.rules.form import OperationCall, Rule, Suspicion, Violation, is_tensor
from isa.rules.generic import check_call

__all__ = [
    "OperationCall",
    "Rule",
    "Suspicion",
    "Violation",
    "accumulate",
    "activation2",
    "array",
    "banks",
    "check_call",
    "dma_sum",
    "gather",
    "indirection",
    "is_tensor",
    "matmul",
    "movement",
    "mx",
    "operands",
    "operators",
    "random",
    "sequence",
    "sizes",
    "starts",
]
