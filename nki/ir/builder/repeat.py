"""Repeats: a kernel placed many times, on other tensors each time, is compiled once.

Times whose views are evenly spaced, in one tensor or in equal tensors within one, are iterations of
a loop, so that twelve layers are compiled like one (`python benchmarks/repeats.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from isa.affine import identical
from isa.enums import Memory
from isa.errors import NeuronError
from nki.ir.builder.builder import Builder
from nki.ir.builder.inline import builders_of, inline, inline_on
from nki.ir.context import Location
from nki.ir.nodes import TracedKernel, bytes_of
from nki.ir.views.layout import dense_strides
from nki.ir.views.tensor import NkiTensor, strided

Bindings = Mapping[str, NkiTensor]


def repeat(
    kernel: TracedKernel, times: Sequence[Bindings], into: Builder, location: Location = None
) -> list[list[NkiTensor]]:
    """Put a kernel where `into` builds, once for each of `times`, in that order; gives the results
    of each time. `times` are bindings as `nki.ir.builder.inline` takes them.

    Times in a row that are equally far apart are iterations of one loop on the device: each name is
    bound to views of one tensor, or of equal tensors within one (`Builder.parameter`). Their
    distance from one time to the next is always the same: nought for a tensor that all have in
    common. So twelve layers are compiled like one. What else there is stands there once a time.
    Results of a loop that are not bound are tensors within one for all its times.

    Raises what `inline` raises, and value-not-allowed where times do not bind the same names.

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def scaled(a, w):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.multiply(nl.load(a), nl.load(w)))
    ...     return out
    >>> one = nki.TensorSpec((4, 8), nl.float32)
    >>> traced = scaled.trace(one, one, target="trn2")
    >>> b = Builder("trn2", name="layers")
    >>> x = b.parameter((4, 8), "float32", "x")
    >>> weights = b.parameter((6, 4, 8), "float32", "weights")
    >>> results = repeat(traced, [{"a": x, "w": weights[i], "out": x} for i in range(6)], b)
    >>> b.result(x)
    >>> [(node.lower, node.upper) for node in b.kernel().bodies[0]]
    [(0, 6)]
    """
    with into.at(location):
        builders = builders_of(kernel, into)
        results: list[list[NkiTensor]] = []
        for run in [*_runs(kernel, times)]:
            if len(run) == 1:
                results.append(inline(kernel, run[0], into))
            else:
                results += _looped(kernel, run, builders)
        return results


def _runs(kernel: TracedKernel, times: Sequence[Bindings]) -> Iterator[Sequence[Bindings]]:
    """Times in a row that are equally far apart."""
    first = 0
    while first < len(times):
        end = first + 1
        steps = _steps(kernel, times[first], times[end]) if end < len(times) else None
        while steps is not None:
            end += 1
            following = _steps(kernel, times[end - 1], times[end]) if end < len(times) else None
            if following is None or not all(identical(following[n], steps[n]) for n in steps):
                break
        yield times[first:end]
        first = end


def _steps(kernel: TracedKernel, one: Bindings, other: Bindings) -> dict[str, Any] | None:
    """How far each name's view moves from one time to the next; None where a loop cannot do so."""
    if one.keys() != other.keys():
        raise NeuronError(
            "value-not-allowed",
            what=f"{kernel.name} is repeated with {', '.join(one)}, and with {', '.join(other)}",
            why="All times bind the same parameters and results.",
        )
    steps = {name: _step(one[name], other[name]) for name in one}
    return None if any(step is None for step in steps.values()) else steps


def _step(one: NkiTensor, other: NkiTensor) -> Any:
    """The distance between two views that lie alike: in elements of one tensor, or in bytes of the
    one that two equal tensors lie in. None where there is none."""
    left, right = one.storage, other.storage
    alike = one.dtype == other.dtype and _same(one.shape, other.shape)
    if not (alike and _same(one.strides, other.strides)):
        return None
    if left is right:
        return other.offset - one.offset
    if left.within is None or right.within is None or left.dtype != right.dtype:
        return None
    (root, start), (same, end) = left.in_root(), right.in_root()
    if root is not same or not _same((*left.shape, one.offset), (*right.shape, other.offset)):
        return None
    return end - start


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(identical, one, other))


def _looped(
    kernel: TracedKernel, times: Sequence[Bindings], builders: Sequence[Builder]
) -> list[list[NkiTensor]]:
    """A loop whose iterations are the times."""
    times = _with_results(kernel, times, builders[0])
    with ExitStack() as loops:
        bindings = []
        for builder in builders:
            time = loops.enter_context(builder.loop(0, len(times)))
            bindings.append(
                {n: _moved(view, times[1][n], time, builder) for n, view in times[0].items()}
            )
        inline_on(builders, kernel, bindings)
    names = {tensor: name for name, tensor in zip(kernel.parameter_names, kernel.parameters)}
    returned = [names.get(tensor, tensor.name) for tensor in kernel.results]
    return [[bound[name] for name in returned] for bound in times]


def _with_results(kernel: TracedKernel, times: Sequence[Bindings], into: Builder) -> list[Bindings]:
    """Times with all results bound: those that were not to tensors that lie one behind the other
    in one for all times."""
    bound = [dict(one) for one in times]
    for result in kernel.results:
        if result in kernel.parameters or result.name in bound[0]:
            continue
        shape = (len(times), *result.shape)
        whole = into.tensor(shape, result.dtype, Memory.shared_hbm, result.label).storage
        for number, one in enumerate(bound):
            own = into.part(result, whole, number * bytes_of(result))
            one[result.name] = strided(own, own.dtype, own.shape, dense_strides(own.shape))
    return list(bound)


def _moved(view: NkiTensor, following: NkiTensor, time: Any, builder: Builder) -> NkiTensor:
    """What a view is at a time, which the next time is at `following`."""
    step, storage, offset = _step(view, following), view.storage, view.offset
    if identical(step, 0):
        return view
    if storage is following.storage:
        offset = offset + time * step
    else:
        root, start = storage.in_root()
        storage = builder.part(storage, root, start + time * step)
    return strided(storage, view.dtype, view.shape, view.strides, offset)
