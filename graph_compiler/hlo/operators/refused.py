"""Opcodes of XLA that have no row in the operator table, and why."""

from __future__ import annotations

_NO_CHANNEL = (
    "A graph gets its data as parameters and gives it back as results: while it runs, nothing goes "
    "in or out, and `neuronx-cc list-operators` has no operator for it."
)
_NO_PEER = (
    "A graph exchanges data with other ranks by collectives; `neuronx-cc list-operators` has no "
    "operator for messages to a single peer or to the host."
)

REFUSED: dict[str, str] = {
    "infeed": _NO_CHANNEL,
    "outfeed": _NO_CHANNEL,
    "send": _NO_PEER,
    "send-done": _NO_PEER,
    "recv": _NO_PEER,
    "recv-done": _NO_PEER,
    "set-dimension-size": "It makes a size dynamic, and every size is known when a graph is "
    "compiled (NCC_EMOD025).",
    "scaled-dot": "The Neuron front-ends state block-scaled products as the custom call "
    "`__op$block_scaled_dot` (NCC_EVRF043).",
}
"""Reasons by opcode; with the rows of the table these are all opcodes of XLA."""
