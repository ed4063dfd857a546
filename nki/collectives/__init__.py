"""`nki.collectives`: communication between the ranks of a distributed kernel.

`simulate_ranks` runs the ranks in one process; the rest is what their kernels call.
"""

from nki.collectives.operations import (
    all_gather,
    all_reduce,
    all_to_all,
    collective_permute,
    collective_permute_implicit,
    collective_permute_implicit_current_processing_rank_id,
    collective_permute_implicit_reduce,
    rank_id,
    reduce_scatter,
)
from nki.collectives.simulated import simulate_ranks
from nki.collectives.variable_sizes import all_gather_v, all_to_all_v
from nki.ranks.group import ReplicaGroup

__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_gather_v",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "collective_permute_implicit_reduce",
    "rank_id",
    "reduce_scatter",
    "simulate_ranks",
]


def __dir__() -> list[str]:
    return sorted(__all__)
