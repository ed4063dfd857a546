"""What the cores of a kernel share: HBM tensors made by each, and the results."""

from __future__ import annotations

from collections.abc import Iterable
from types import GeneratorType
from typing import Any

import numpy as np

from isa.affine import identical
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.errors import NeuronError
from nki.ir.context import Location
from nki.ir.locations import CallPath, resolve, return_location
from nki.ir.nodes import Tensor
from nki.ir.views.tensor import NkiTensor

_Key = str | CallPath


class Results(list[Any]):
    """What a kernel returns, in order; `container` is the type that holds it, tuple or list, or
    None where the kernel returns a tensor itself, or nothing."""

    __slots__ = ("container",)

    def __init__(self, items: Iterable[Any], container: type | None = None) -> None:
        super().__init__(items)
        self.container = container


class SharedTensors:
    """The shared HBM tensors of a kernel. Cores share what they make by one name, or without a name
    for one variable (or by one call): the n-th on each core is the same tensor. What one core alone
    makes is its own: the cores run one program, but may branch on nl.program_id (SDK
    nki/get-started/about/lnc.rst), and no page asks for tensors that all of them make."""

    def __init__(self) -> None:
        self._made: dict[_Key, list[tuple[int, Tensor]]] = {}
        self._counts: dict[_Key, dict[int, int]] = {}

    def pair(
        self,
        core: int,
        name: str,
        path: CallPath,
        shape: tuple[Any, ...],
        dtype: str,
        location: Location,
        data: Any,
    ) -> Tensor | None:
        """The tensor that another core made already; None if it is for this core to `add`."""
        key = name or path
        counts = self._counts.setdefault(key, {})
        position = counts.get(core, 0)
        if name and position:
            raise NeuronError(
                "value-not-allowed",
                what=f"two shared HBM tensors are named {name!r}",
                why="The cores of a kernel pair shared tensors by name.",
                hint="Give them different names, or none.",
            )
        counts[core] = position + 1
        made = self._made.setdefault(key, [])
        if position == len(made):
            return None
        first, tensor = made[position]
        what = f"core {core} makes {tensor.name!r} as {dtype}{list(shape)}"
        if tensor.dtype != dtype or not _same_shape(tensor.shape, shape):
            other = f"{tensor.dtype}{list(tensor.shape)}"
            raise _mismatch(f"{what}, core {first} as {other}", location)
        if (data is None) != (tensor.data is None) or (
            data is not None and not np.array_equal(data, tensor.data)
        ):
            raise _mismatch(f"{what} with other data than core {first}", location)
        return tensor

    def add(self, core: int, name: str, path: CallPath, tensor: Tensor) -> None:
        """A tensor that no other core has made yet."""
        self._made[name or path].append((core, tensor))

    def check(self) -> None:
        """All cores ended: those that make tensors for one variable must have made equally many."""
        for key, counts in self._counts.items():
            if len(set(counts.values())) > 1:
                _, last = self._made[key][-1]
                each = ", ".join(f"core {c} {n}" for c, n in sorted(counts.items()))
                raise NeuronError(
                    "core-mismatch",
                    what=f"the cores make different numbers of shared tensors like {last.name!r}: "
                    f"{each}",
                    why="The n-th that each core makes for one variable is the same tensor.",
                    hint="Give them names (name=...), by which cores share them, or make what only "
                    "one core uses in nl.private_hbm.",
                    location=resolve(last.location),
                )

    def agreed(self, results: list[Results]) -> Results:
        """The tensors behind the results, which all cores return alike, as they are returned."""
        self.check()
        first = results[0]
        for core, other in enumerate(results[1:], 1):
            same = len(first) == len(other) and all(
                a.storage is b.storage and _alike(a, b) for a, b in zip(first, other)
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
                made = [v.storage.location for v in (*first, *other) if v.storage.location]
                raise NeuronError(
                    "core-mismatch",
                    what=f"core 0 returns {_names(first)}, core {core} returns {_names(other)}",
                    why="The cores of a kernel return the same tensors.",
                    hint="Make a result once, outside conditions on nl.program_id, or give it one "
                    "name (name=...) on all cores.",
                    location=resolve(made[0]) if made else None,
                )
        returned: dict[Tensor, NkiTensor] = {}
        for view in first:
            if not _alike(returned.setdefault(view.storage, view), view):
                raise _no_result(view, "It is returned in another shape or dtype as well.")
        for storage, view in returned.items():
            storage.shape, storage.dtype = view.shape, view.dtype
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
        identical(_bytes(item), _bytes(storage))
        and identical(item.offset, 0)
        and not item.is_indirect()
        and item.is_contiguous()
    )
    if not whole:
        raise _no_result(item, "A result is all of a tensor in HBM, in any shape and dtype.")
    if storage.role in ("input", "inout") and not _alike(item, storage):
        raise _no_result(item, "An input is returned in the shape and dtype in which it came.")
    return item


def _no_result(view: NkiTensor, why: str) -> NeuronError:
    storage = view.storage
    return NeuronError(
        "output-not-hbm",
        what=f"the kernel returns a view of {storage.name!r}: {view.dtype}{list(view.shape)} of "
        f"{storage.dtype}{list(storage.shape)}",
        why=why,
        hint="Allocate the result in the shape to return, and write views of it.",
    )


def _bytes(tensor: NkiTensor | Tensor) -> Any:
    product: Any = DTYPES[tensor.dtype].size
    for size in tensor.shape:
        product = product * size
    return product


def _alike(left: NkiTensor | Tensor, right: NkiTensor | Tensor) -> bool:
    return left.dtype == right.dtype and _same_shape(left.shape, right.shape)


def _same_shape(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return len(left) == len(right) and all(identical(a, b) for a, b in zip(left, right))


def _names(views: list[NkiTensor]) -> str:
    return ", ".join(f"{v.storage.name!r} {list(v.shape)}" for v in views) or "nothing"


def _mismatch(what: str, location: Any) -> NeuronError:
    return NeuronError("core-mismatch", what=what, location=resolve(location))
