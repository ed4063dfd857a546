"""About how long one core takes for a step of a graph, to compare ways of dividing the work."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from graph_compiler.host_kernels.bodies import FoldKernel, SortKernel
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.host_kernels.movement import DynamicCopy
from graph_compiler.lower.control.flow import Counted
from graph_compiler.lower.movement.sorting import sort_ns
from graph_compiler.lower.nests.columns import nest_ns
from graph_compiler.lower.nests.nest import PARTITIONS
from graph_compiler.lower.products.convolution import ConvolutionStep
from graph_compiler.lower.products.product import COLUMNS, DEPTH, ROWS, Contraction
from graph_compiler.schedule.steps import KernelCall, item_size
from isa.enums import Engine

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

FIXED = 3000.0
"""About how many ns pass from a load to a store."""


def nanoseconds(device: DeviceProgram, step: Any) -> float:
    """About how many ns a step takes, those inside of it included."""
    if isinstance(step, Contraction):
        return _of_product(device, step)
    if isinstance(step, ConvolutionStep):
        return FIXED + step.ns(device)
    if isinstance(step, KernelCall):
        if isinstance(step.kernel, LoopNest):
            return nest_ns(device, step.kernel) if step.kernel.counts else FIXED
        return FIXED + _of_elements(device, step.kernel)
    trips = step.count.trips if isinstance(step, Counted) else 1
    return FIXED + trips * sum(nanoseconds(device, one) for body in step.inner for one in body)


def _of_product(device: DeviceProgram, step: Contraction) -> float:
    """What the tensor engine takes for the columns that move through it, or the transfers."""
    product, target = step.product, device.target
    size = item_size(product.left.type)
    batch = math.prod(count for count, _ in product.batch[0])
    rows = math.prod(count for count, _ in product.rows)
    depth = math.prod(count for count, _ in product.depth_left)
    ((columns, _),) = product.columns
    tiles = batch * -(-rows // ROWS) * -(-depth // DEPTH)
    passes = target.fp32_matmul_passes.value if size == 4 else 1
    cycles = tiles * columns * passes
    blocks = -(-rows // (4 * ROWS)) if columns > COLUMNS else 1
    moved = rows * depth + blocks * depth * columns
    stored = rows * columns * item_size(step.target.type)
    transfers = batch * (moved * size + stored) / target.dma_bytes_per_ns
    return FIXED + max(cycles / target.clock_ghz(Engine.tensor), transfers)


def _of_elements(device: DeviceProgram, kernel: Any) -> float:
    """What the vector engine takes for operations on the elements of rows, one a partition."""
    clock = device.target.clock_ghz(Engine.vector)
    if isinstance(kernel, SortKernel):
        return sort_ns(device, kernel)
    if isinstance(kernel, FoldKernel):
        return math.prod(kernel.counts) / PARTITIONS * 2 * len(kernel.body.steps) / clock
    if isinstance(kernel, DynamicCopy):
        blocks, size = math.prod(kernel.batch), math.prod(kernel.counts) * kernel.size
        return blocks * (20 + size / device.target.dma_bytes_per_ns)
    return 100 * FIXED  # blocks that are combined one after another
