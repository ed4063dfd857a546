"""Rules of sums that the DMA engines form."""

from __future__ import annotations

from typing import Any

from isa.affine import Affine, identical
from isa.dtypes import DTYPES
from isa.enums import Memory, OobMode
from isa.rules.form import OperationCall, Violation, elements, is_tensor, rule, shape_text
from isa.spec import ISA

_SUM = ISA + "dma_compute"


def has_rows(access: Any) -> bool:
    """Whether an operand is an access with row indices."""
    return getattr(access, "vector_offset", None) is not None


def is_in_hbm(access: Any) -> bool:
    """Whether an operand is an access in HBM."""
    return is_tensor(access) and not access.storage.memory.on_chip


def _sources(call: OperationCall) -> list[tuple[str, Any]]:
    return [(name, access) for name, access in call.tensors() if name != "dst"]


@rule(
    _SUM,
    "dst and the sources have the same number of elements, no packed dtype, and addresses without "
    "registers.",
)
def sum_elements(call: OperationCall) -> Violation | None:
    dst = call.dst
    for name, access in call.tensors():
        if DTYPES[access.dtype].is_packed:
            return Violation(
                "dtype-not-allowed",
                f"{name} is {access.dtype}",
                why="The DMA engines add in fp32; packed types have no value there.",
                operand=name,
            )
        if elements(access) != elements(dst):
            return Violation(
                "shape-mismatch",
                f"dst {shape_text(dst)} has {elements(dst)} elements, {name} {shape_text(access)} "
                f"has {elements(access)}",
                operand=name,
            )
        if isinstance(access.offset, Affine):
            return Violation(
                "view-not-allowed",
                f"{name} ({access.storage.name}) starts where a register says",
                why="The descriptors of a sum are made before the program runs, unless row indices "
                "select the rows.",
                hint="Copy the tiles to fixed places with nisa.dma_copy and add them there.",
                operand=name,
            )
    return None


@rule(_SUM, "scales, if given, is 1.0 for every source.")
def sum_scales(call: OperationCall) -> Violation | None:
    scales, count = call.scales, len(_sources(call))
    if scales is None or (len(scales) == count and all(scale == 1 for scale in scales)):
        return None
    return Violation(
        "value-not-allowed",
        f"scales is {list(scales)} for {count} sources",
        why="The DMA engines add; every scale is 1.0.",
        hint="Leave scales out, and scale with nisa.tensor_scalar in SBUF.",
        operand="scales",
    )


def _same(left: Any, right: Any) -> bool:
    """Whether two accesses are the same elements in the same order."""
    if left is None or right is None:
        return left is right
    return (
        left.storage is right.storage
        and left.dtype == right.dtype
        and len(left.shape) == len(right.shape)
        and identical(left.offset, right.offset)
        and all(identical(a, b) for a, b in zip(left.shape, right.shape))
        and all(identical(a, b) for a, b in zip(left.strides, right.strides))
        and _same(left.vector_offset, right.vector_offset)
    )


@rule(
    _SUM,
    "Row indices: two sources, of which one is dst's view; scatter adds a tile in SBUF to rows in "
    "HBM, gather adds rows in HBM to a tile in SBUF. unique_indices is True. Without row indices, "
    "oob_mode is error.",
)
def sum_indices(call: OperationCall) -> Violation | None:
    dst, sources = call.dst, _sources(call)
    indexed = [access for _, access in sources if has_rows(access)]
    if not indexed and not has_rows(dst):
        if call.oob_mode is OobMode.error:
            return None
        return Violation(
            "indirect",
            "oob_mode is skip for tensors without row indices",
            why="Only indices can be outside of a tensor.",
            hint="Leave oob_mode out.",
            operand="oob_mode",
        )
    if not call.unique_indices:
        return Violation(
            "indirect",
            "unique_indices is False",
            why="The DMA engines read, add and write rows independently; of equal indices one "
            "result would be lost.",
            hint="Make the indices differ, and pass unique_indices=True.",
            operand="unique_indices",
        )
    plain = [access for _, access in sources if not has_rows(access)]
    if len(sources) == 2 and len(indexed) == 1 and is_tensor(plain[0]):
        if has_rows(dst):
            fits = _same(indexed[0], dst) and plain[0].storage.memory is Memory.sbuf
        else:
            fits = _same(plain[0], dst) and dst.storage.memory is Memory.sbuf
        if fits:
            return None
    return Violation(
        "indirect",
        f"row indices on {'dst and ' if has_rows(dst) else ''}{len(indexed)} of {len(sources)} "
        "sources do not form a scatter or gather",
        why="Scatter: srcs are dst's rows and a tile in SBUF. Gather: srcs are rows in HBM and dst "
        "itself, in SBUF.",
        hint="Pass srcs=[dst, tile], with the same view as dst.",
        operand="dst",
    )
