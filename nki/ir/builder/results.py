"""What a kernel returns: all of a tensor in HBM, or several of them."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import shorten
from types import GeneratorType
from typing import Any

from isa.affine import identical
from isa.errors import NeuronError
from nki.ir.context import Location
from nki.ir.locations import resolve
from nki.ir.nodes import Tensor, bytes_of
from nki.ir.views.tensor import NkiTensor


class Results(list[Any]):
    """What a kernel returns, in order; `container` is the type that holds it, tuple or list, or
    None where the kernel returns a tensor itself, or nothing."""

    __slots__ = ("container",)

    def __init__(self, items: Iterable[Any], container: type | None = None) -> None:
        super().__init__(items)
        self.container = container


def returned(views: Iterable[NkiTensor]) -> list[Tensor]:
    """The tensors behind results, which have the shape and data type in which they are returned.
    Raises output-not-hbm for one that is returned in two."""
    found: dict[Tensor, NkiTensor] = {}
    storages = []
    for view in views:
        if not alike(found.setdefault(view.storage, view), view):
            raise no_result(view, "It is returned in another shape or dtype as well.")
        storages.append(view.storage)
    for storage, view in found.items():
        storage.shape, storage.dtype = view.shape, view.dtype
    return storages


def constant_written(tensor: Tensor, location: Location) -> NeuronError:
    """The error of an operation that writes to a constant."""
    return NeuronError(
        "value-not-allowed",
        what=f"{tensor.name!r} is a constant, and is written",
        why="Constants are loaded with the program, once for all of its runs (SDK "
        "nki/api/nki/language/__init__.py, shared_constant).",
        hint="Copy it into nl.ndarray(..., buffer=nl.shared_hbm), and write to that.",
        location=resolve(location),
    )


_HINTS = (
    (dict, "Return the tensors as a tuple; the caller can name them."),
    ((tuple, list), "Return all tensors in one tuple, not in tuples of tuples."),
    (GeneratorType, "`yield` makes a generator of the function: write `return`."),
    (object, "Copy the result into nl.ndarray(..., buffer=nl.shared_hbm) and return that."),
)
"""What to do about values of these types, of which the first that fits counts."""


def result_of(item: Any) -> NkiTensor:
    """What a kernel returns, which must be all of a tensor in HBM. Raises output-not-hbm."""
    if not isinstance(item, NkiTensor):
        raise NeuronError(
            "output-not-hbm",
            what=f"the kernel returns {shorten(repr(item), 80, placeholder=' ...')}",
            why="A kernel returns tensors in HBM: one, or a tuple or list of them.",
            hint=next(hint for kind, hint in _HINTS if isinstance(item, kind)),
        )
    storage = item.storage
    if storage.memory.on_chip:
        raise NeuronError(
            "output-not-hbm",
            what=f"the kernel returns {_written(storage)}, which is in {storage.memory.value}",
        )
    whole = (
        identical(bytes_of(item), bytes_of(storage))
        and identical(item.offset, 0)
        and not item.is_indirect()
        and item.is_contiguous()
    )
    if not whole:
        raise no_result(item, "A result is all of a tensor in HBM, in any shape and dtype.")
    if storage.role in ("input", "inout") and not alike(item, storage):
        raise no_result(item, "An input is returned in the shape and dtype in which it came.")
    return item


def _written(tensor: Tensor) -> str:
    """The name of a tensor, or the call that makes it in a `return`."""
    place = resolve(tensor.location)
    if place is None or tensor.name != place.function:
        return repr(tensor.name)
    return place.text[place.column : place.end_column]


def no_result(view: NkiTensor, why: str) -> NeuronError:
    """The error of a view that cannot be returned."""
    storage = view.storage
    return NeuronError(
        "output-not-hbm",
        what=f"the kernel returns a view of {storage.name!r}: {view.dtype}{list(view.shape)} of "
        f"{storage.dtype}{list(storage.shape)}",
        why=why,
        hint="Allocate the result in the shape to return, and write views of it.",
    )


def alike(left: NkiTensor | Tensor, right: NkiTensor | Tensor) -> bool:
    """Whether two have one data type and shape."""
    return left.dtype == right.dtype and same_shape(left.shape, right.shape)


def same_shape(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Whether sizes are the same for all launches."""
    return len(left) == len(right) and all(identical(a, b) for a, b in zip(left, right))
