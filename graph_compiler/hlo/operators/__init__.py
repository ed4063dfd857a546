"""The operator table: one row per HLO opcode, in files by family.

`OPERATORS` maps opcodes to rows, `BUILDERS` the names of `neuronx-cc list-operators` (and of the
XLA builder) to them. A row (`row`) states names, attributes, shape and type rule and NumPy meaning,
with `numerics` for how element types compute and `folding` for computations that fold. `refused`
has opcodes without a row, `examples` what pages show. All other modules are families of rows.

>>> OPERATORS["add"].stablehlo, BUILDERS["DotGeneral"].opcode
('add', 'dot')
"""

from graph_compiler.hlo.operators import (
    contraction,
    control,
    convolution,
    indexing,
    linear_algebra,
    movement,
    normalisation,
    randomness,
    reduction,
    slicing,
    sorting,
)
from graph_compiler.hlo.operators.collectives import exchanges, started
from graph_compiler.hlo.operators.custom import CUSTOM_CALLS, known_targets, shard_map
from graph_compiler.hlo.operators.elementwise import (
    binary,
    comparison,
    conversion,
    transcendental,
    unary,
)
from graph_compiler.hlo.operators.refused import REFUSED
from graph_compiler.hlo.operators.row import OPERATORS, Evaluation, HloOperator, check_counts

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
    exchanges,
    started,
    known_targets,
    shard_map,
)
"""The files of the table."""

BUILDERS: dict[str, type[HloOperator]] = {
    builder: row for row in OPERATORS.values() for builder in row.builders
}
"""Rows by the name of an XLA builder function."""

__all__ = [
    "BUILDERS",
    "CUSTOM_CALLS",
    "FAMILIES",
    "OPERATORS",
    "REFUSED",
    "Evaluation",
    "HloOperator",
    "check_counts",
    "operator",
]


def operator(opcode: str, owner: str = "") -> type[HloOperator]:
    """The row of an opcode.

    `owner`: the instruction, for the message. Raises NeuronError hlo-unknown-opcode, and
    hlo-not-supported for opcodes that XLA has and the table has not.

    >>> operator("add").builders
    ('Add',)
    """
    row = OPERATORS.get(opcode)
    if row is not None:
        return row
    from isa.errors import NeuronError

    what = f"{opcode!r} is not an opcode of the operator table" + (f": {owner}." if owner else ".")
    if opcode in REFUSED:
        raise NeuronError("hlo-not-supported", what, why=REFUSED[opcode])
    from isa.wording import did_you_mean

    hint = did_you_mean(opcode, OPERATORS, quoted=True)
    raise NeuronError("hlo-unknown-opcode", what, hint=hint)
