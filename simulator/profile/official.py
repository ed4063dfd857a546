"""The figures of a profile under the names that Neuron Explorer's summaries have.

`METRICS` has a row for each documented name: how it is computed, or why no model can know it.
Times are in seconds, sizes in bytes, percentages from 0 to 100. Source: SDK
tools/neuron-explorer/profile-schema-reference.rst (Summary).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from isa.enums import Engine
from isa.sections import Facts, Notes
from isa.target import Target, resolve
from simulator.profile.critical_lines import NAMES
from simulator.profile.dma import MADE_BY, percent
from simulator.timing.timeline import ModeTraffic

if TYPE_CHECKING:
    from simulator.profile.report import Profile

Number = float | int | bool


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """A profile, with what several of its figures need."""

    profile: Profile
    target: Target

    @property
    def seconds(self) -> float:
        return self.profile.total_ns / 1e9

    @property
    def rate(self) -> float:
        """Operations a second of the arrays: one row a cycle, whatever the data type."""
        array = self.target.partitions.value * self.target.stationary_free_max.value
        clock = self.target.clock_ghz(Engine.tensor) * 1e9
        return 2 * array * clock * max(self.profile.cores, 1)

    @property
    def hbm(self) -> float:
        """Bytes a second of one HBM stack."""
        device = self.target.hbm_bytes_per_ns_per_device.value * 1e9
        return device / self.target.hbm_stacks_per_device.value

    @property
    def clock(self) -> float:
        """The base clock of a core in Hz, which is ScalarE's: 1.4 GHz on trn1, 1.2 GHz on trn2."""
        return self.target.clock_ghz(Engine.scalar) * 1e9

    @property
    def traffic(self) -> int:
        """Bytes that HBM reads and writes."""
        return self.profile.dma.hbm_read_bytes + self.profile.dma.hbm_write_bytes

    @property
    def hardware_flops(self) -> float:
        """Of all that the arrays do, transposes among it."""
        return self.profile.flops + self.profile.transpose_flops

    def percent_of_time(self, ns: float) -> float:
        """A time in percent of the run."""
        return percent(ns, self.profile.total_ns)

    def intensity(self) -> float:
        """Useful FLOPs a byte of HBM traffic."""
        return self.profile.flops / self.traffic if self.traffic else 0.0


Value = Callable[[ProfiledRun], Number]


@dataclass(frozen=True, slots=True)
class Metric:
    """A documented figure: its unit, and either how it is computed or why it is not."""

    name: str
    unit: str
    value: Value | None
    reason: str = ""


_NO_GRAPH = "counts multiplications of a graph before it is compiled; a kernel has no graph"
_NO_NOTIFICATIONS = "counts what a device reports while it runs; nothing reports here"
_NO_QUEUE_KINDS = "our queues belong to engines, and none is for one kind of data"
_NO_CONTROLLERS = "the cores that run collectives are not modelled; an engine waits for an exchange"


def _metrics() -> Iterator[Metric]:
    yield Metric("total_time", "s", lambda r: r.seconds)
    yield Metric("neuroncore_cycle_count", "cycles", lambda r: r.seconds * r.clock)
    yield from _flops()
    for name in ("trace_count", "event_count", "total_row_count"):
        yield Metric(name, "", None, _NO_NOTIFICATIONS)
    yield from _transfers()
    for kind in MADE_BY:
        yield from _kind(kind)
    yield from _memory()
    for name in ("input_queue_bytes", "output_queue_bytes", "weight_queue_bytes"):
        yield Metric(name, "B", None, _NO_QUEUE_KINDS)
    for engine in NAMES:
        yield from _engine(engine)
    counts: dict[str, Value] = {
        "matmul_instruction_count": lambda r: r.profile.counts.products,
        "activate_instruction_count": lambda r: r.profile.counts.activations,
        "cc_op_count": lambda r: r.profile.counts.exchanges,
    }
    for name, value in counts.items():
        yield Metric(name, "", value)
    yield Metric("activate_instruction_time", "s", lambda r: r.profile.counts.activation_ns / 1e9)
    for name in ("cc_op_time", "cc_op_active_time"):
        yield Metric(name, "s", lambda r: r.profile.counts.exchange_ns / 1e9)
    yield Metric(
        "cc_op_active_time_percent",
        "%",
        lambda r: r.percent_of_time(r.profile.counts.exchange_ns),
    )
    for name, unit in (("time", "s"), ("active_time", "s"), ("active_time_percent", "%")):
        yield Metric(f"cc_cores_instruction_{name}", unit, None, _NO_CONTROLLERS)
    yield Metric("cc_cores_instruction_count", "", None, _NO_CONTROLLERS)
    yield Metric("total_exec_time", "s", lambda r: r.profile.worked_span_ns / 1e9)
    yield Metric("total_active_time", "s", lambda r: r.profile.worked_ns / 1e9)
    yield Metric(
        "total_active_time_percent",
        "%",
        lambda r: percent(r.profile.worked_ns, r.profile.worked_span_ns),
    )


def _flops() -> Iterator[Metric]:
    yield Metric("model_flops", "flop", None, _NO_GRAPH)
    counts: dict[str, Value] = {
        "hardware_flops": lambda r: r.hardware_flops,
        "transpose_flops": lambda r: r.profile.transpose_flops,
        "adjusted_hardware_flops": lambda r: r.profile.counts.adjusted_flops,
        "adjusted_transpose_flops": lambda r: r.profile.counts.adjusted_transpose_flops,
    }
    for name, value in counts.items():
        yield Metric(name, "flop", value)
    yield Metric("mm_arithmetic_intensity", "flop/B", lambda r: r.intensity())
    yield Metric("peak_flops_bandwidth_ratio", "flop/B", lambda r: r.rate / r.hbm)
    for name in ("mfu", "mfu_max_achievable", "mfu_hlo", "mfu_hlo_max_achievable"):
        yield Metric(f"{name}_estimated_percent", "%", None, _NO_GRAPH)
    parts: dict[str, Value] = {
        "mfu_inst": lambda r: percent(r.profile.flops, r.rate * r.seconds),
        "mfu_inst_max_achievable": lambda r: percent(r.intensity(), r.rate / r.hbm),
        "hfu": lambda r: percent(r.hardware_flops, r.rate * r.seconds),
        "mbu": lambda r: percent(r.traffic, r.hbm * r.seconds),
    }
    for name, value in parts.items():
        yield Metric(f"{name}_estimated_percent", "%", value)


def _transfers() -> Iterator[Metric]:
    times: dict[str, Value] = {
        "dma_active_time": lambda r: r.profile.dma.active_ns / 1e9,
        "dma_packet_time": lambda r: r.profile.dma.engines_ns / 1e9,
        "dma_transfer_time": lambda r: r.profile.dma.transfers_ns / 1e9,
    }
    for name, value in times.items():
        yield Metric(name, "s", value)
    yield Metric("dma_active_cycles", "cycles", lambda r: r.profile.dma.active_ns / 1e9 * r.clock)
    yield Metric("dma_active_time_percent", "%", lambda r: r.profile.dma.active_percent)
    yield Metric("dma_transfer_count", "", lambda r: r.profile.dma.transfers)
    yield Metric("dma_queue_count", "", lambda r: r.profile.dma.queues)
    yield Metric("dma_transfer_total_bytes", "B", lambda r: r.profile.dma.moved_bytes)
    yield Metric(
        "dma_transfer_average_bytes",
        "B",
        lambda r: r.profile.dma.moved_bytes / max(1, r.profile.dma.transfers),
    )


def _kind(kind: str) -> Iterator[Metric]:
    def of(run: ProfiledRun) -> ModeTraffic:
        return run.profile.dma.modes[kind]

    if kind != "dynamic":  # the documents have only the parts of the whole of it
        yield Metric(f"{kind}_dma_active_time", "s", lambda r: of(r).active / 1e9)
        yield Metric(f"{kind}_dma_packet_count", "", lambda r: of(r).descriptors)
        yield Metric(f"{kind}_dma_size", "B", lambda r: of(r).bytes)
    parts: dict[str, Value] = {
        "active_time": lambda r: r.percent_of_time(of(r).active),
        "packet": lambda r: percent(of(r).descriptors, r.profile.dma.descriptors),
        "size": lambda r: percent(of(r).bytes, r.profile.dma.moved_bytes),
    }
    for name, value in parts.items():
        yield Metric(f"{kind}_dma_{name}_percent", "%", value)


def _memory() -> Iterator[Metric]:
    sizes: dict[str, Value] = {
        "hbm_read_bytes": lambda r: r.profile.dma.hbm_read_bytes,
        "hbm_write_bytes": lambda r: r.profile.dma.hbm_write_bytes,
        "sbuf_read_bytes": lambda r: r.profile.counts.sbuf_read_bytes,
        "sbuf_write_bytes": lambda r: r.profile.counts.sbuf_write_bytes,
        "psum_read_bytes": lambda r: r.profile.counts.psum_read_bytes,
        "psum_write_bytes": lambda r: r.profile.counts.psum_write_bytes,
        "psum_read_sbuf_write_bytes": lambda r: r.profile.counts.evacuated_bytes,
        "spill_save_bytes": lambda r: r.profile.traffic.saved_bytes,
        "spill_reload_bytes": lambda r: r.profile.traffic.reloaded_bytes,
        "weight_size_bytes": lambda r: r.profile.traffic.constant_bytes,
        "inputs_and_weights_size_bytes": lambda r: r.profile.traffic.read_once_bytes,
        "inputs_outputs_weights_size_bytes": lambda r: (
            r.profile.traffic.read_once_bytes + r.profile.traffic.result_bytes
        ),
    }
    for name, value in sizes.items():
        yield Metric(name, "B", value)
    yield Metric("psum_read_sbuf_write_count", "", lambda r: r.profile.counts.evacuations)
    yield Metric(
        "mbu_min_read_util_percent",
        "%",
        lambda r: percent(r.profile.traffic.read_once_bytes, r.hbm * r.seconds),
    )


def _engine(engine: Engine) -> Iterator[Metric]:
    def of(figure: str) -> Value:
        def value(run: ProfiledRun) -> Number:
            found = (one for one in run.profile.engines if one.name == NAMES[engine])
            number: Number = next((getattr(one, figure) for one in found), 0)
            return number

        return value

    def seconds(figure: str) -> Value:
        value = of(figure)
        return lambda run: value(run) / 1e9

    name = f"{engine.name}_engine"
    yield Metric(f"{name}_instruction_time", "s", seconds("instructions_ns"))
    yield Metric(f"{name}_active_time", "s", seconds("at_work_ns"))
    yield Metric(
        f"{name}_active_time_percent", "%", lambda r: r.percent_of_time(of("at_work_ns")(r))
    )
    yield Metric(f"{name}_instruction_count", "", of("instructions"))


METRICS: dict[str, Metric] = {metric.name: metric for metric in _metrics()}


def summary(found: Profile) -> dict[str, Number]:
    """Official name and value, of those that are computed."""
    run = ProfiledRun(found, resolve(found.target))
    known = {one.name: one.value(run) for one in METRICS.values() if one.value is not None}
    return {"is_simulation": True, **known}


def sections(found: Profile) -> Iterator[Facts | Notes]:
    """The summary as parts of a report: figures two a row, and the names of those that are 0."""
    figures = summary(found)
    items = [(name, _text(value)) for name, value in figures.items() if value != 0]
    title = "official metrics (seconds, bytes, percent)"
    yield Facts(title, tuple(_side_by_side(items)), side_by_side=2)
    zero = ", ".join(name for name, value in figures.items() if value == 0)
    if zero:
        yield Notes("official metrics that are 0", (zero,))


def _side_by_side(items: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The same, so that two columns are as narrow as they can be: long names go to the first."""
    half = (len(items) + 1) // 2
    long = set(sorted(items, key=lambda item: -len(item[0]))[:half])
    parts = ([item for item in items if (item in long) is first] for first in (True, False))
    for pair in zip_longest(*parts):
        yield from filter(None, pair)


def _text(value: Number) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
