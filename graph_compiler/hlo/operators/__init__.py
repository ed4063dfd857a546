"""The operator table: one row per HLO opcode, in files by family.

`OPERATORS` maps opcodes to rows, `BUILDERS` the names of `neuronx-cc list-operators` (and of the
XLA builder) to them. A row states names, attributes, shape and type rule and NumPy meaning.

>>> OPERATORS["add"].stablehlo, BUILDERS["DotGeneral"].opcode
('add', 'dot')
"""

from graph_compiler.hlo.operators import (
    binary,
    collectives,
    comparison,
    contraction,
    control,
    conversion,
    convolution,
    custom,
    indexing,
    linear_algebra,
    movement,
    normalisation,
    randomness,
    reduction,
    shard_map,
    slicing,
    sorting,
    transcendental,
    unary,
)
from graph_compiler.hlo.operators.custom import CUSTOM_CALLS
from graph_compiler.hlo.operators.row import OPERATORS, Context, Operator, check_counts

FAMILIES = (
    unary,
    transcendental,
    binary,
    comparison,
    conversion,
    movement,
    slicing,
    indexing,
    reduction,
    sorting,
    contraction,
    convolution,
    linear_algebra,
    normalisation,
    randomness,
    control,
    collectives,
    custom,
    shard_map,
)
"""The files of the table."""

BUILDERS: dict[str, type[Operator]] = {
    builder: row for row in OPERATORS.values() for builder in row.builders
}
"""Rows by the name of an XLA builder function."""

__all__ = [
    "BUILDERS",
    "CUSTOM_CALLS",
    "FAMILIES",
    "OPERATORS",
    "Context",
    "Operator",
    "check_counts",
    "operator",
]


def operator(opcode: str) -> type[Operator]:
    """The row of an opcode. Raises NeuronError hlo-unknown-opcode."""
    row = OPERATORS.get(opcode)
    if row is None:
        from difflib import get_close_matches

        from isa.errors import NeuronError

        near = get_close_matches(opcode, OPERATORS, 1)
        raise NeuronError(
            "hlo-unknown-opcode",
            f"{opcode!r} is not an opcode of the operator table.",
            hint=f"Did you mean {near[0]!r}?" if near else "",
        )
    return row
