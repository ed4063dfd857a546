"""Parts of explicit access patterns: dtype units, partition steps, reach inside the storage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from isa.affine import Affine, bounds, identical, in_words
from isa.affine.polynomial import exact_quotient
from isa.dtypes import DTYPES, normalise
from isa.errors import NeuronError
from nki.ir.nodes import Access
from nki.ir.views import layout
from nki.ir.views.indexing import index_form, require


class DtypeScale:
    """Conversion of element counts from one dtype's units to another's."""

    __slots__ = ("new", "new_size", "old_size")

    def __init__(self, old: str, new: Any) -> None:
        self.new = normalise(new)
        self.old_size = DTYPES[old].size
        self.new_size = DTYPES[self.new].size

    def form(self, value: Any, what: str) -> Any:
        """`value` elements of the old dtype in elements of the new one, which must be exact."""
        if self.old_size == self.new_size:
            return value
        scaled = value * self.old_size
        if isinstance(scaled, Affine):
            quotient = None
            parts = [scaled.constant, *(c for _, c in scaled.terms)]
            if all(exact_quotient(part, self.new_size) is not None for part in parts):
                quotient = scaled // self.new_size
        else:
            quotient = exact_quotient(scaled, self.new_size)
        if quotient is None:
            raise NeuronError(
                "view-not-allowed",
                what=f"the {what}, {value} elements of {self.old_size} bytes, is no whole number "
                f"of {self.new} elements of {self.new_size} bytes",
                why="A reinterpreted view begins and steps at whole elements of the new dtype.",
                hint="Align the view to the new element size.",
            )
        return quotient


def pairs_of(pattern: Any) -> list[tuple[Any, Any]]:
    """The (stride, count) of every dimension of an access pattern, as index forms."""
    try:
        pairs = [(stride, count) for stride, count in pattern]
    except (TypeError, ValueError):
        raise NeuronError(
            "value-not-allowed",
            what=f"the pattern of an access is {pattern!r}",
            why="A pattern is a list with one pair [stride, count] for each dimension (SDK "
            "nki-aps.rst, NKI API for the Access Pattern).",
            hint="For example t.ap(pattern=[[512, 128], [1, 512]], offset=0).",
        ) from None
    return [(index_form(s, "stride"), index_form(c, "count")) for s, c in pairs]


def constant_part(form: Any) -> Any:
    """A form without its variables."""
    return form.constant if isinstance(form, Affine) else form


def reach(shape: Sequence[Any], strides: Sequence[Any]) -> Any:
    """Distance from the first to the last element."""
    total: Any = 0
    for count, stride in zip(shape, strides):
        total = total + (count - 1) * stride
    return total


def _backward(stride: Any) -> bool:
    """Whether a dimension steps down; one that may do either is refused by `check_pattern`."""
    highest = bounds(stride)[1]
    return highest is not None and highest < 0


def ends(shape: Sequence[Any], strides: Sequence[Any]) -> tuple[Any, Any]:
    """Distances from the element at the offset to the lowest and to the highest one.

    >>> ends((3, 4), (8, -1))
    (-3, 16)
    """
    pairs = list(zip(shape, strides))
    down = [(count, stride) for count, stride in pairs if _backward(stride)]
    up = [(count, stride) for count, stride in pairs if not _backward(stride)]
    return tuple(reach([c for c, _ in some], [s for _, s in some]) for some in (down, up))


def by_partition(
    view: Access, strides: tuple[Any, ...], scale: DtypeScale, pitch: Any
) -> tuple[Any, ...]:
    """The strides of an `ap` pattern, the first one in elements of the storage's partitions.

    "The element count of the entire free dimension of the tensor" (SDK nki-aps.rst) is `pitch` for
    the storage, and less for a view of adjacent elements of each partition: both mean the next one.
    """
    if not pitch or not strides or not view.shape or identical(strides[0], pitch):
        return strides
    own = math.prod(view.shape[1:]) * scale.old_size
    step = view.strides[0] * scale.old_size
    next_one = identical(strides[0] * scale.new_size, own)
    whole_rows = identical(step, pitch * scale.new_size)
    if next_one and whole_rows and layout.is_dense(view.shape[1:], view.strides[1:]):
        return (pitch, *strides[1:])
    return strides


def check_pattern(
    view: Access, pattern: Any, shape: tuple[Any, ...], strides: tuple[Any, ...], pitch: Any
) -> None:
    """Counts, strides and the partition step of an `ap` pattern.

    A pattern stands for nested loops that step through the elements (SDK nki-aps.rst, "Semantics of
    the Access Pattern"); a negative step goes down from the offset. Rows go up: on chip they follow
    each other, and authors of public kernels report that DMA queues take no others.
    """
    for stride, count in zip(strides, shape):
        lowest = bounds(stride)[0]
        either = (lowest is None or lowest < 0) and not _backward(stride)
        if either or bounds(count)[1] == 0:
            raise NeuronError(
                "view-not-allowed",
                what=f"the pair [{in_words(stride)}, {in_words(count)}] of the pattern",
                why="Counts are at least 1, and all values that a stride takes have one sign.",
                hint="Take a stride that is known while tracing.",
            )
    if not shape:
        raise NeuronError("view-not-allowed", what="an empty pattern", hint="Give [stride, count].")
    if _backward(strides[0]):
        raise NeuronError(
            "view-not-allowed",
            what=f"the first pair [{strides[0]}, {shape[0]}] of {pattern}",
            why="The rows of a pattern go up; elements within a row may go down.",
            hint="Copy row by row, or reverse along a free dimension.",
        )
    if pitch and not identical(strides[0], pitch) and not identical(shape[0], 1):
        raise NeuronError(
            "view-not-allowed",
            what=f"the partition step is {strides[0]}, but {view.storage.name!r} has {pitch} "
            "elements a partition",
            why="An instruction reads consecutive partitions (SDK nki-aps.rst, "
            '"Restriction on SBUF/PSUM Tensors").',
            hint=f"Make the first pair [{pitch}, partitions].",
        )


def check_reach(
    view: Access,
    shape: tuple[Any, ...],
    strides: tuple[Any, ...],
    free: Any,
    pitch: Any,
    first: int,
    scale: DtypeScale,
    rows_by_index: bool,
) -> None:
    """An `ap` pattern stays inside its storage (on chip: inside each partition)."""
    kept = 1 if pitch or rows_by_index else 0
    lowest, highest = ends(shape[kept:], strides[kept:])
    start, last = free + lowest, free + highest
    storage = view.storage
    if pitch:
        limit = pitch
        require(
            storage.shape[0] - first - shape[0],
            f"partitions {first} to {first + shape[0] - 1} of {view.storage.name!r}, which has "
            f"{storage.shape[0]}",
        )
    else:
        limit = DtypeScale(storage.dtype, scale.new).form(math.prod(storage.shape), "size")
    message = f"elements {start} to {last} of {view.storage.name!r}, which has {limit}"
    require(start, message)
    require(limit - 1 - last, message + (" a partition" if pitch else ""))


def known_partition(start: Any) -> int:
    """A start partition, which must be known while tracing."""
    if type(start) is not int:
        raise NeuronError(
            "view-not-allowed",
            what=f"the start partition is {in_words(start)}, which changes from one iteration or "
            "size to the next",
            why="The start partition of an instruction is fixed when it is compiled.",
            hint="Index a free dimension, unroll the loop over ints, or use a tensor in HBM.",
        )
    return start
