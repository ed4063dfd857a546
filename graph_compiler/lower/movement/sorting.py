"""Sorts along rows, by any computation that compares, in the fastest way.

A network of exchanges (`sort_network`) takes all rows that have room on chip; others, and long ones
of which few elements are wanted, see `long_rows`; of short ones `largest` finds few elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graph_compiler.host_kernels.bodies import SortKernel
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.movement.largest import emit_largest, search_ns
from graph_compiler.lower.movement.long_rows import by_rank, in_parts
from graph_compiler.lower.movement.sort_network import emit_network, network_of
from graph_compiler.lower.movement.sort_rows import sort_rows

LONGEST = 4096
"""Elements of a row, or of a part of one, that a search takes."""


def emit_sort(device: DeviceProgram, sort: SortKernel, words: Sequence[Any]) -> None:
    """`words` are places of the outputs and of the inputs."""
    _, size = _cheapest_parts(device, sort)
    if size is not None:
        in_parts(device, sort, words, size, emit_sort)
        return
    outputs, inputs = words[: len(sort.outputs)], words[len(sort.outputs) :][: len(sort.inputs)]
    network = network_of(device, sort)
    ns = math.inf if network is None else network.ns
    if _search_ns(device, sort) < ns:
        for rows in sort_rows(device, sort):
            emit_largest(rows, outputs, inputs)
    elif network is None:
        device.remark(sort, "each element is compared with all others of its row")
        by_rank(device, sort, words)
    else:
        emit_network(device, sort, network.spread, outputs, inputs)


def _cheapest_parts(device: DeviceProgram, sort: SortKernel) -> tuple[float, int | None]:
    """About how many ns the first elements of rows take, and the elements of parts whose first ones
    are found before: parts of few long rows fill the partitions. None where rows stay whole."""
    *rows, count = sort.counts
    best: tuple[float, int | None] = (sort_ns(device, sort), None)
    size = LONGEST
    while size >= max(2 * sort.taken, _SHORTEST):
        full, left = divmod(count, size)
        if full > 1 or (full and left):
            parts = [(*rows, full, size), *([(*rows, left)] if left else [])]
            ns = 2 * _ROUND_TRIP + sum(
                sort_ns(device, replace(sort, counts=one, taken=min(sort.taken, one[-1])))
                for one in parts
            )
            kept = full * sort.taken + min(sort.taken, left)
            if ns < best[0] and kept < count:
                ns += _cheapest_parts(device, replace(sort, counts=(*rows, kept)))[0]
                best = min(best, (ns, size), key=lambda item: item[0])
        size //= 2
    return best


_SHORTEST = 64
"""Elements of the shortest parts of rows."""

_ROUND_TRIP = 5000.0
"""About how many ns a part takes to HBM and back."""


def sort_ns(device: DeviceProgram, sort: SortKernel) -> float:
    """About how many ns a sort takes; infinite where it has no room on chip."""
    network = network_of(device, sort)
    return min(_search_ns(device, sort), math.inf if network is None else network.ns)


def _search_ns(device: DeviceProgram, sort: SortKernel) -> float:
    """What a search for few elements takes; infinite where that is not possible."""
    return search_ns(device, sort) if sort.counts[-1] <= LONGEST else math.inf
