"""What the cores of a traced kernel share: HBM tensors made by each, and the results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from isa.enums import Memory
from isa.errors import NeuronError
from isa.errors.warned import warn
from isa.operations.control import CoreBarrier, DevicePrint, StorageBegin
from nki.ir.builder.results import Results, alike, result_of, returned, same_shape
from nki.ir.context import Location
from nki.ir.locations import CallPath, definition, resolve, return_location
from nki.ir.nodes import Tensor
from nki.ir.views.tensor import NkiTensor

_Key = str | CallPath


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
        if tensor.dtype != dtype or not same_shape(tensor.shape, shape):
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
                a.storage is b.storage and alike(a, b) for a, b in zip(first, other)
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
        return Results(returned(first), first.container)


def warn_of_lost_results(
    function: Any, results: Results, written: bool, rows: Iterable[str]
) -> None:
    """Warn of a kernel that runs operations (the names of their `rows`) and shows nothing of it: it
    returns no tensor and has not `written` to an argument. Also warn of results in private HBM."""
    name = getattr(function, "__name__", "the kernel")
    quiet = {StorageBegin.name, CoreBarrier.name}
    if not results and not written and (ran := set(rows) - quiet) and DevicePrint.name not in ran:
        what = f"{name} returns nothing and writes to none of its arguments"
        warn("nothing-returned", what, resolve(definition(function)))
    for tensor in results:
        if tensor.memory is Memory.private_hbm and tensor.role not in ("input", "inout"):
            what = f"{name} returns {tensor.name!r}, which is in private_hbm"
            warn("private-result", what, resolve(tensor.location))


def results_of(returned: Any, function: Any) -> Results:
    """The tensors that a kernel function returned, in order. Raises output-not-hbm."""
    if returned is None:
        return Results(())
    container = next((kind for kind in (tuple, list) if isinstance(returned, kind)), None)
    try:
        return Results(map(result_of, returned if container else (returned,)), container)
    except NeuronError as error:
        error.location = error.location or resolve(return_location(function))
        raise


def _names(views: list[NkiTensor]) -> str:
    return ", ".join(f"{v.storage.name!r} {list(v.shape)}" for v in views) or "nothing"


def _mismatch(what: str, location: Any) -> NeuronError:
    return NeuronError("core-mismatch", what=what, location=resolve(location))
