"""The figures of a profile under the names that Neuron Explorer's summaries have.

Times are in seconds, sizes in bytes, percentages from 0 to 100. What the model does not know (a
model's own FLOPs, weights among the inputs) is left out. Source: SDK
tools/neuron-explorer/profile-schema-reference.rst.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isa.enums import Engine
from isa.sections import Facts
from isa.target import resolve
from simulator.profile.verdict import NAMES

if TYPE_CHECKING:
    from simulator.profile.report import Profile

_ENGINES = {shown: engine.name for engine, shown in NAMES.items()}

Number = float | int | bool


def summary(found: Profile) -> dict[str, Number]:
    """Official name and value."""
    target, seconds, dma = resolve(found.target), found.total_ns / 1e9, found.dma
    cores = max(found.cores, 1)
    # One row a cycle of the array, whatever the data type, and the bandwidth of one HBM stack.
    array = target.partitions.value * target.stationary_free_max.value
    rate = 2 * array * target.clock_ghz(Engine.tensor) * 1e9 * cores
    stacks = target.hbm_stacks_per_device.value
    hbm = target.hbm_bytes_per_ns_per_device.value * 1e9 / stacks
    traffic = dma.hbm_read_bytes + dma.hbm_write_bytes
    hardware = found.flops + found.transpose_flops

    def percent(part: float, whole: float) -> float:
        return 100 * part / whole if whole else 0.0

    figures: dict[str, Number] = {
        "is_simulation": True,
        "total_time": seconds,
        "hardware_flops": hardware,
        "transpose_flops": found.transpose_flops,
        "mm_arithmetic_intensity": found.flops / traffic if traffic else 0.0,
        "peak_flops_bandwidth_ratio": rate / hbm,
        "hfu_estimated_percent": percent(hardware, rate * seconds),
        "mfu_inst_estimated_percent": percent(found.flops, rate * seconds),
        "mbu_estimated_percent": percent(traffic, hbm * seconds),
        "hbm_read_bytes": dma.hbm_read_bytes,
        "hbm_write_bytes": dma.hbm_write_bytes,
        "spill_save_bytes": found.traffic.saved_bytes,
        "spill_reload_bytes": found.traffic.reloaded_bytes,
        "inputs_outputs_weights_size_bytes": found.traffic.argument_bytes
        + found.traffic.result_bytes,
        "dma_active_time": dma.active_ns / 1e9,
        "dma_active_time_percent": dma.active_percent,
        "dma_transfer_count": dma.descriptors,
        "dma_transfer_total_bytes": sum(dma.bytes.values()),
        "dma_transfer_average_bytes": dma.bytes_per_descriptor,
    }
    for engine in found.engines:
        name = f"{_ENGINES[engine.name]}_engine"
        figures[f"{name}_active_time"] = engine.active_ns / 1e9
        figures[f"{name}_active_time_percent"] = engine.active_percent
        figures[f"{name}_instruction_count"] = engine.instructions
    return figures


def section(found: Profile) -> Facts:
    """The summary as a part of a report, two figures a row."""
    items = tuple((name, _text(value)) for name, value in summary(found).items())
    return Facts("official metrics (seconds, bytes, percent)", items, side_by_side=2)


def _text(value: Number) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
