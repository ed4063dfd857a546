"""Collective operations over ranks: `groups` says which ranks meet, `exchanges` what they do,
`started` what they do in two halves."""

from graph_compiler.hlo.operators.collectives.exchanges import (
    Collective,
    CollectivePermute,
    PartitionId,
)

__all__ = [
    "Collective",
    "CollectivePermute",
    "PartitionId",
]
