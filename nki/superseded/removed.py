"""Names of the first-generation API that have no successor of the same name, and what to write.

Kernels for `neuronxcc.nki` name them; SDK nki/migration/index.rst explains the changes.
"""

from __future__ import annotations

_INDEX = "index with slices and nl.ds(start, size), or take a view with NkiTensor.ap"
_CAST = "give dtype= to nl.copy or to the function that makes the tile"
_GRID = "launch on cores with kernel[2](...) and ask nl.program_id(0)"
_MASK = "slice operands to the size that counts; nisa.affine_select masks by position"

REMOVED: dict[str, str] = {
    "arange": _INDEX,
    "mgrid": _INDEX,
    "par_dim": "write n for nl.par_dim(n): dimension 0 of a tensor on chip is the partition "
    "dimension; make a list of tiles for dimensions before it",
    "static_cast": _CAST,
    "cast": _CAST,
    "fp32": "write float(numpy.finfo(numpy.float32).min)",
    "loop_reduce": "add up in a tile of your own with nisa.tensor_tensor",
    "nc": _GRID,
    "spmd_dim": _GRID,
    "program_axes": _GRID,
    "all_reduce": "see nki.collectives, or nisa.tensor_partition_reduce within a core",
    "atomic_rmw": "use nisa.dma_compute with a vector_offset",
    "mask": _MASK,
    "static_assert": "use Python's assert, which runs while tracing",
}
"""What to do instead, by name in `nki.language`."""

KEYWORDS: dict[str, str] = {"mask": _MASK}
"""What to write instead of keywords that calls of `nki.language` and `nki.isa` took."""

OPERANDS: dict[str, str] = {
    "dst": "Pass a tile of your own, made with nl.ndarray, as dst=: operations of the first "
    "generation returned their result, those of this API write where they are told."
}
"""What to write where an operand is missing that calls did not have."""


def advice(name: str) -> str | None:
    """The message of the AttributeError for a name that is gone; None for other names.

    >>> advice("par_dim").partition(";")[0]  # doctest: +ELLIPSIS
    'nl.par_dim is not part of this API: write n for nl.par_dim(n): ... the partition dimension'
    >>> advice("parameter_dim") is None
    True
    """
    if name not in REMOVED:
        return None
    return f"nl.{name} is not part of this API: {REMOVED[name]}"
