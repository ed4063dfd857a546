"""Indices that are known when the kernel runs: a register, one element, a column of rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from isa.affine import affine, identical
from isa.enums import Memory
from isa.errors import NeuronError
from nki.ir.context import current
from nki.ir.locations import author_location
from nki.ir.nodes import Access, Register
from nki.ir.views.indexing import index_form
from nki.ir.views.shape_views import ShapeViews

if TYPE_CHECKING:
    from nki.ir.views.tensor import NkiTensor


def scalar_index(view: ShapeViews, index: Any) -> Any:
    """A run-time index of a view as an index form; loads it into a register when it is a tensor."""
    _refuse_second(view)
    if isinstance(index, Register):
        return affine(index)
    if isinstance(index, ShapeViews):
        size = math.prod(index.shape)
        if index.storage.memory is not Memory.sbuf or not identical(size, 1):
            raise NeuronError(
                "indirect",
                what=f"the index is {_described(index)}",
                why="A run-time index is one element in SBUF, or a register.",
                hint="Copy it into an SBUF tensor of shape (1, 1) first.",
            )
        location = author_location()
        assert location is not None
        context = current("a run-time index")
        return affine(context.register_from_tensor(cast("NkiTensor", index), location))
    return index_form(index, "scalar_offset")


def index_rows(view: ShapeViews, vector_offset: Any, one_column: bool = True) -> Any:
    """The number of rows of a vector of run-time indices of a view."""
    _refuse_second(view)
    if view.storage.memory.on_chip:
        raise NeuronError(
            "indirect",
            what=f"row indices on a tensor in {view.storage.memory.value}",
            why="Per-row indices address rows in HBM.",
            hint="Keep the indexed tensor in HBM.",
        )
    if (
        not isinstance(vector_offset, Access)
        or vector_offset.storage.memory is not Memory.sbuf
        or vector_offset.dtype not in ("int32", "uint32")
        or (one_column and not identical(math.prod(vector_offset.shape[1:]), 1))
    ):
        raise NeuronError(
            "indirect",
            what=f"vector_offset is {_described(vector_offset)}",
            why="Row indices are an SBUF tensor of shape (rows, 1) in int32 or uint32.",
            hint="Load them as such a tensor: nl.load(indices, dtype=nl.int32).",
        )
    return vector_offset.shape[0]


def reinterpreted(dtype: str) -> NeuronError:
    """The error of a view of what indices select as another data type."""
    return NeuronError(
        "indirect",
        what=f"view({dtype}) of an indirect view",
        why="What run-time indices select keeps its data type.",
        hint="Take the view of the tensor before selecting from it.",
    )


def _described(index: Any) -> str:
    """What was given as indices, without what a tensor holds in eager mode."""
    if not isinstance(index, Access):
        return repr(index)
    where = f"dtype={index.dtype}, buffer={index.storage.memory.value}"
    return f"{index.storage.name}, shape={tuple(index.shape)}, {where}"


def _refuse_second(view: ShapeViews) -> None:
    if view.indirect_dim is not None:
        raise NeuronError("indirect", what="a run-time index on a view that already has one")
