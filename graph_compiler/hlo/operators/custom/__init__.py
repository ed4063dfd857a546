"""Custom calls: operations named by a target.

`known_targets` has a meaning for each; `shard_map` those of sharded functions; `unknown_targets`
says of the others what is supported.
"""

from graph_compiler.hlo.operators.custom.known_targets import (
    CUSTOM_CALLS,
    IDENTITIES,
    dimension_of,
    meaning,
)

__all__ = [
    "CUSTOM_CALLS",
    "IDENTITIES",
    "dimension_of",
    "meaning",
]
