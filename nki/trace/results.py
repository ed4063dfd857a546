"""What the cores of a kernel share: HBM tensors made by each, and the results."""

from __future__ import annotations

from collections.abc import Iterable
from types import GeneratorType
from typing import Any

import numpy as np

from isa.affine import identical
from isa.enums import Memory
from isa.errors import NeuronError
from nki.ir.nodes import Tensor
from nki.language.tensor import NkiTensor
from nki.trace.context import Location
from nki.trace.locations import resolve, return_location


class Results(list[Any]):
    """What a kernel returns, in order; `container` is the type that holds it, tuple or list, or
    None where the kernel returns a tensor itself, or nothing."""

    __slots__ = ("container",)

    def __init__(self, items: Iterable[Any], container: type | None = None) -> None:
        super().__init__(items)
        self.container = container


class SharedTensors:
    """The shared HBM tensors of a kernel: every core's n-th one is the same tensor, and those
    with a name pair by name (SDK nki/get-started/about/lnc.rst). Core 0 makes each first."""

    def __init__(self) -> None:
        self._named: dict[str, Tensor] = {}
        self._unnamed: list[Tensor] = []
        self._taken: dict[int, set[Tensor]] = {}
        self._positions: dict[int, int] = {}

    def pair(
        self,
        core: int,
        name: str,
        shape: tuple[Any, ...],
        dtype: str,
        location: Location,
        data: Any,
    ) -> Tensor | None:
        """The tensor that an earlier core made at this place; None on the first core."""
        if core == 0:
            return None
        if name:
            tensor = self._named.get(name)
        else:
            position = self._positions.get(core, 0)
            self._positions[core] = position + 1
            tensor = self._unnamed[position] if position < len(self._unnamed) else None
        what = (
            f"core {core} makes shared tensor {name!r}"
            if name
            else f"core {core}'s next shared tensor"
        )
        if tensor is None:
            raise _mismatch(f"{what} {dtype}{list(shape)} has no partner on core 0", location)
        self._taken.setdefault(core, set()).add(tensor)
        if tensor.dtype != dtype or not _same_shape(tensor.shape, shape):
            raise _mismatch(
                f"{what} is {dtype}{list(shape)}, core 0 has {tensor.name!r} "
                f"{tensor.dtype}{list(tensor.shape)}",
                location,
            )
        if (data is None) != (tensor.data is None) or (
            data is not None and not np.array_equal(data, tensor.data)
        ):
            raise _mismatch(f"{what} holds other data than core 0's {tensor.name!r}", location)
        return tensor

    def add(self, name: str, tensor: Tensor) -> None:
        """A tensor of the first core; a name may be used once."""
        if not name:
            self._unnamed.append(tensor)
        elif self._named.setdefault(name, tensor) is not tensor:
            raise NeuronError(
                "value-not-allowed",
                what=f"two shared HBM tensors are named {name!r}",
                why="The cores of a kernel pair shared tensors by name.",
                hint="Give them different names, or none.",
            )

    def finish(self, core: int) -> None:
        """A core's trace ended: it must have made every shared tensor."""
        taken = self._taken.get(core, set())
        missing = [t for t in (*self._named.values(), *self._unnamed) if t not in taken]
        if core > 0 and missing:
            raise _mismatch(
                f"core {core} does not make {missing[0].name!r}, which core 0 makes",
                missing[0].location,
            )

    def agreed(self, results: list[Results]) -> Results:
        """The tensors behind the results, which all cores return alike, in the shapes returned."""
        first = results[0]
        for core, other in enumerate(results[1:], 1):
            same = len(first) == len(other) and all(
                a.storage is b.storage and _same_shape(a.shape, b.shape)
                for a, b in zip(first, other)
            )
            own = [v.storage for v in (*first, *other) if v.storage.memory is Memory.private_hbm]
            if not same and own:
                raise NeuronError(
                    "core-mismatch",
                    what=f"every core returns a tensor {own[0].name!r} of its own, in "
                    f"{own[0].memory.value}",
                    why="The cores of a kernel return the same tensors.",
                    hint="Allocate the result with buffer=nl.shared_hbm, of which each core writes "
                    "a part.",
                    location=resolve(own[0].location),
                )
            if not same:
                raise _mismatch(
                    f"core 0 returns {_names(first)}, core {core} returns {_names(other)}", None
                )
        shapes: dict[Tensor, tuple[Any, ...]] = {}
        for view in first:
            if not _same_shape(shapes.setdefault(view.storage, view.shape), view.shape):
                raise _no_result(view, "It is returned in another shape as well.")
        for storage, shape in shapes.items():
            storage.shape = shape
        return Results((view.storage for view in first), first.container)


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


def results_of(returned: Any, function: Any) -> Results:
    """The tensors that a kernel function returned, in order. Raises output-not-hbm."""
    if returned is None:
        return Results(())
    container = next((kind for kind in (tuple, list) if isinstance(returned, kind)), None)
    try:
        return Results(map(_result, returned if container else (returned,)), container)
    except NeuronError as error:
        error.location = error.location or resolve(return_location(function))
        raise


_HINTS = (
    (dict, "Return the tensors as a tuple; the caller can name them."),
    ((tuple, list), "Return all tensors in one tuple, not in tuples of tuples."),
    (GeneratorType, "`yield` makes a generator of the function: write `return`."),
    (object, "Copy the result into nl.ndarray(..., buffer=nl.shared_hbm) and return that."),
)
"""What to do about values of these types, of which the first that fits counts."""


def _result(item: Any) -> NkiTensor:
    if not isinstance(item, NkiTensor):
        raise NeuronError(
            "output-not-hbm",
            what=f"the kernel returns {item!r}",
            why="A kernel returns tensors in HBM: one, or a tuple or list of them.",
            hint=next(hint for kind, hint in _HINTS if isinstance(item, kind)),
        )
    storage = item.storage
    if storage.memory.on_chip:
        raise NeuronError(
            "output-not-hbm",
            what=f"the kernel returns {storage.name!r}, which is in {storage.memory.value}",
        )
    whole = (
        item.dtype == storage.dtype
        and identical(_elements(item.shape), _elements(storage.shape))
        and identical(item.offset, 0)
        and not item.is_indirect()
        and item.is_contiguous()
    )
    if not whole:
        raise _no_result(item, "A result is all of a tensor in HBM, in any shape.")
    if storage.role in ("input", "inout") and not _same_shape(item.shape, storage.shape):
        raise _no_result(item, "An input is returned in the shape in which it came.")
    return item


def _no_result(view: NkiTensor, why: str) -> NeuronError:
    storage = view.storage
    return NeuronError(
        "output-not-hbm",
        what=f"the kernel returns a view of {storage.name!r}: shape {list(view.shape)} of "
        f"{list(storage.shape)}",
        why=why,
        hint="Allocate the result in the shape to return, and write views of it.",
    )


def _elements(shape: tuple[Any, ...]) -> Any:
    product: Any = 1
    for size in shape:
        product = product * size
    return product


def _same_shape(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return len(left) == len(right) and all(identical(a, b) for a, b in zip(left, right))


def _names(views: list[NkiTensor]) -> str:
    return ", ".join(f"{v.storage.name!r} {list(v.shape)}" for v in views) or "nothing"


def _mismatch(what: str, location: Any) -> NeuronError:
    return NeuronError("core-mismatch", what=what, location=resolve(location))
