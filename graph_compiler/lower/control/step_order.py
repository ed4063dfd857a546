"""The order of steps: products, and what reads their results, near one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.lower.groups.members import is_member
from graph_compiler.lower.products.product import Contraction
from graph_compiler.schedule.steps import KernelCall
from graph_compiler.schedule.views import Buffer

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

_AHEAD = 24
"""Steps behind a product among which a nest that reads it is looked for."""


def by_first_use(device: DeviceProgram, steps: Sequence[Any]) -> list[Any]:
    """Steps with neighbouring products of values that are there in the order in which their results
    are used: what uses the first ones need not wait for all of them. An operand that a product
    computes of others uses those."""
    reads = [set(device.sources(step.reads)) for step in steps]
    first: dict[Buffer, int] = {}
    for at, buffers in reversed([*enumerate(reads)]):
        first.update(dict.fromkeys(buffers, at))
    found: list[Any] = []
    run: list[Any] = []

    def close() -> None:
        found.extend(sorted(run, key=lambda step: first.get(step.target.buffer, len(steps))))
        run.clear()

    for step, own in zip(steps, reads, strict=True):
        if not isinstance(step, Contraction) or any(w in own for r in run for w in r.writes):
            close()
        (run if isinstance(step, Contraction) else found).append(step)
    close()
    return found


def nests_at_products(device: DeviceProgram, steps: Sequence[Any]) -> list[Any]:
    """Steps in an order in which a nest that alone reads a product's result comes right behind it,
    where no step between them would read or write anything else then. It finds the result in PSUM.
    It passes kernels and products only: no barrier, and nothing that holds other steps.
    """
    found = list(steps)
    first = 0
    while first < len(found):
        product, first = found[first], first + 1
        if not isinstance(product, Contraction) or device.uses[product.target.buffer] != 1:
            continue
        for number, nest in enumerate(found[first : first + _AHEAD], first):
            if product.target.buffer in nest.reads:
                between = found[first:number]
                if between and _is_map(nest) and _may_come_before(device, nest, between):
                    found.insert(first, found.pop(number))
                break
    return found


def others_ahead(device: DeviceProgram, steps: Sequence[Any]) -> list[Any]:
    """Steps in an order in which kernels that are no nests, as gathers, come before the nests and
    products in front of them whose results they do not need: between these no group would find
    both."""
    found: list[Any] = []
    for step in steps:
        place = len(found)
        if isinstance(step, KernelCall) and not isinstance(step.kernel, LoopNest):
            while (
                place > max(0, len(found) - _AHEAD)
                and is_member(found[place - 1])
                and _may_come_before(device, step, found[place - 1 : place])
            ):
                place -= 1
        found.insert(place, step)
    return found


def _is_map(step: Any) -> bool:
    """Whether a step computes each element of others."""
    kernel = step.kernel if isinstance(step, KernelCall) else None
    return isinstance(kernel, LoopNest) and kernel.fold is None


def _may_come_before(device: DeviceProgram, step: Any, others: Sequence[Any]) -> bool:
    """Whether a step may come before others that it stands behind."""
    if not all(isinstance(one, (KernelCall, Contraction)) for one in others):
        return False
    written = {device.root(buffer) for one in others for buffer in one.writes}
    read = {device.root(buffer) for one in others for buffer in device.sources(one.reads)}
    own_reads = {device.root(buffer) for buffer in device.sources(step.reads)}
    own_writes = {device.root(buffer) for buffer in step.writes}
    return not (written & (own_reads | own_writes) or read & own_writes)
