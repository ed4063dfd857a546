"""The devices that programs are for: capacities, limits, clocks and timing parameters.

Every number is a `Figure`, a value with its unit and source; one that no public document or
measurement supports is marked `assumed`, and reports say so. `DOCUMENTS` spells out the sources'
abbreviations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from isa.enums import Engine
from isa.errors import NeuronError

Number = TypeVar("Number", int, float)

DOCUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "ARCH2": "AWS Neuron SDK 2.32, nki/guides/architecture/trainium_inferentia2_arch.rst",
        "ARCH3": "AWS Neuron SDK 2.32, nki/guides/architecture/trainium2_arch.rst",
        "ARCH4": "AWS Neuron SDK 2.32, nki/guides/architecture/trainium3_arch.rst",
        "BANDWIDTH": "AWS Neuron SDK 2.32, nki/deep-dives/nki-dma-bandwidth-guide.rst",
        "COLLECTIVES": "AWS Neuron SDK 2.32, neuron-runtime/explore/intranode-collective-comm.rst",
        "DGE": "AWS Neuron SDK 2.32, nki/deep-dives/nki-dge.rst",
        "COSTS": "AWS Neuron SDK 2.26, general/nki/api/nki/isa/__init__.py, costs by instruction",
        "THROTTLING": "AWS Neuron SDK 2.32, tools/neuron-explorer/overview-summary-page.rst",
        "DRIVER": "AWS Neuron kernel driver, address_map.h and udma.h",
        "KO": "AWS Neuron SDK 2.32, nki/guides/tutorials/kernel-optimization.rst, versions 2 and 3",
        "DM": "AWS Neuron SDK 2.32, nki/get-started/about/nki-dma-overview.rst",
        "AG": "AWS, neuron-agentic-development, skills/neuron-nki-profile-querying",
        "MEASURED": "third-party measurements on trn2 hardware, Joejoedesu/voyager-compiler",
    }
)
"""What the sources of figures abbreviate."""

DEFAULT_TARGET = "trn3"
"""What a kernel is for when nothing says otherwise (documented default of nki.simulate)."""


@dataclass(frozen=True, slots=True)
class Figure(Generic[Number]):
    """A number with its unit and where it comes from; `assumed` when no source states it."""

    value: Number
    unit: str
    source: str
    assumed: bool = False

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        mark = ", assumed" if self.assumed else ""
        return f"{self.value:,} {self.unit} ({self.source}{mark})"


PerEngine = Mapping[Engine, Figure[float]]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Target:
    """One generation of NeuronCore, with the device around it. Compared by identity.

    Free sizes (`*_free_max`) are elements. A logical core joins `logical_core_sizes` physical ones.
    """

    name: str
    names: tuple[str, ...]
    generation: int
    logical_core_sizes: tuple[int, ...]
    default_logical_core_size: int

    # Device
    cores_per_device: Figure[int]
    hbm_bytes_per_device: Figure[int]
    hbm_stacks_per_device: Figure[int]
    hbm_bytes_per_ns_per_device: Figure[float]

    # Memories of a core
    partitions: Figure[int]
    sbuf_bytes_per_partition: Figure[int]
    psum_bytes_per_partition: Figure[int]
    psum_banks: Figure[int]
    psum_bank_bytes: Figure[int]
    sbuf_alignment: Figure[int]
    psum_alignment: Figure[int]

    # Sequencers
    registers_per_engine: Figure[int]
    semaphores: Figure[int]

    # Tile limits
    stationary_free_max: Figure[int]
    moving_free_max: Figure[int]
    moving_free_max_bfloat16: Figure[int]
    batch_norm_free_max: Figure[int]

    # Rates
    clock_hz: PerEngine
    elements_per_cycle: PerEngine
    elements_per_cycle_16_bit: PerEngine
    peak_tflops: Mapping[str, Figure[float]]

    # Compute instructions
    minimum_interval_cycles: Figure[int]
    dynamic_interval_cycles: Figure[int]
    gpsimd_startup_cycles: Figure[int]
    wide_stride_bytes: Figure[int]
    wide_stride_factor: Figure[float]
    fp32_matmul_passes: Figure[int]
    matmul_switch_cycles: Figure[int]
    reciprocal_cycles: Figure[float]
    load_stationary_columns_per_cycle: Figure[int]
    tile_loads_hidden: Figure[int]
    completion_ns: PerEngine
    activation_function_ns: Figure[float]
    activation_operand_ns: Figure[float]
    accumulator_read_ns: Figure[float]
    accumulator_read_issue_ns: Figure[float]
    activation_table_load_ns: Figure[float]
    throttle_window_ns: Figure[float]
    throttle_fraction: Figure[float]
    throttle_threshold: Figure[float]

    # Synchronisation
    semaphore_ns: Figure[float]
    sequencer_move_ns: Figure[float]
    core_barrier_ns: Figure[float]
    collective_ns: Figure[float]

    # DMA
    dma_engines: Figure[int]
    dma_bytes_per_ns_per_engine: Figure[float]
    dma_descriptor_ns: Figure[float]
    dma_descriptor_max_bytes: Figure[int]
    dma_short_run_bytes: Figure[int]
    dma_short_run_fraction: Figure[float]
    dma_compute_fraction: Figure[float]
    dma_chip_transpose_fraction: Figure[float]
    dma_transpose_fraction: Figure[float]
    dma_load_dispatch_ns: Figure[float]
    dma_load_tail_ns: Figure[float]
    dma_load_notify_ns: Figure[float]
    dma_load_lag: Figure[float]
    dma_store_dispatch_ns: Figure[float]
    dma_store_tail_ns: Figure[float]
    dma_store_notify_ns: Figure[float]
    dma_trigger_static_ns: Figure[float]
    dma_trigger_hwdge_ns: Figure[float]
    dma_trigger_swdge_ns: Figure[float]
    dma_trigger_latency_ns: Figure[float]
    hwdge_blocks: Figure[int]

    kernel_overhead_ns: Figure[float]

    def __repr__(self) -> str:
        return f"<target {self.name}>"

    def clock_ghz(self, engine: Engine) -> float:
        """Clock of an engine in GHz, which is cycles per ns."""
        return self.clock_hz[engine].value * 1e-9

    @property
    def dma_bytes_per_ns(self) -> float:
        """Bandwidth of all DMA engines of a core together, in bytes per ns."""
        return self.dma_engines.value * self.dma_bytes_per_ns_per_engine.value

    @property
    def dma_trigger_dynamic_ns(self) -> float:
        """How long an engine is held to start a transfer at an address that registers have."""
        hardware = self.hwdge_blocks.value > 0
        return (self.dma_trigger_hwdge_ns if hardware else self.dma_trigger_swdge_ns).value

    def dma_run_bytes_per_ns(self, run: float, loads: bool = True) -> float:
        """What a DMA engine moves of contiguous runs of `run` bytes, besides their descriptors; of
        stores, and on chip, all runs are alike."""
        rate = self.dma_bytes_per_ns_per_engine.value
        short = loads and run < self.dma_short_run_bytes.value
        return rate * self.dma_short_run_fraction.value if short else rate

    def figures(self) -> dict[str, Figure[Any]]:
        """Every number by its name; those per engine or dtype as `name.key`."""
        found: dict[str, Figure[Any]] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Figure):
                found[field.name] = value
            elif isinstance(value, Mapping):
                for key, figure in value.items():
                    found[f"{field.name}.{getattr(key, 'name', key)}"] = figure
        return found


_ARCH2 = "ARCH2"
_ARCH3 = "ARCH3"
_ARCH4 = "ARCH4"
_COSTS = "COSTS"
_DRIVER = "DRIVER"
_FROM_TRN2 = "the trn2 value"
_GIB = 1 << 30
_KIB = 1 << 10


def _count(value: int, source: str, unit: str = "", assumed: bool = False) -> Figure[int]:
    return Figure(value, unit, source, assumed)


def _per_engine(
    unit: str,
    source: str,
    assumed: frozenset[Engine] = frozenset(),
    **values: float,
) -> PerEngine:
    """One figure an engine, by its name."""
    table = {
        Engine[name]: Figure(float(value), unit, source, Engine[name] in assumed)
        for name, value in values.items()
    }
    return MappingProxyType(table)


def _clocks(source: str, tensor: float, vector: float, scalar: float, gpsimd: float) -> PerEngine:
    """Clocks in Hz from GHz. No document states the sync engine's: assumed as the scalar one's."""
    return _per_engine(
        "Hz",
        source,
        frozenset({Engine.sync}),
        tensor=tensor * 1e9,
        vector=vector * 1e9,
        scalar=scalar * 1e9,
        gpsimd=gpsimd * 1e9,
        sync=scalar * 1e9,
    )


def _peaks(source: str, **values: float) -> Mapping[str, Figure[float]]:
    return MappingProxyType(
        {name: Figure(float(value), "TFLOP/s", source) for name, value in values.items()}
    )


# Equal in all generations.

_SHARED: dict[str, Any] = {
    "partitions": _count(128, _ARCH2),
    "psum_bytes_per_partition": _count(16 * _KIB, _ARCH2, "B"),
    "psum_banks": _count(8, _ARCH2),
    "psum_bank_bytes": _count(2 * _KIB, _ARCH2, "B"),
    "sbuf_alignment": _count(1, "nki.language.tile_size sbuf_min_align", "B"),
    "psum_alignment": _count(4, "nki.language.tile_size psum_min_align", "B"),
    "registers_per_engine": _count(64, "nki.isa.register_alloc"),
    "semaphores": _count(256, _DRIVER),
    "stationary_free_max": _count(128, "nki.isa.nc_matmul", "elements"),
    "batch_norm_free_max": _count(512, "nki.language.tile_size bn_stats_fmax", "elements"),
    "minimum_interval_cycles": _count(64, _COSTS + " (MIN_II), ARCH2", "cycles"),
    "dynamic_interval_cycles": _count(600, _COSTS + " (MIN_II_DYNAMIC)", "cycles"),
    "gpsimd_startup_cycles": _count(150, _COSTS + " (iota, affine_select)", "cycles"),
    "wide_stride_bytes": _count(16, _ARCH2, "B"),
    "wide_stride_factor": Figure(2.0, "", _ARCH2),
    "fp32_matmul_passes": _count(4, _COSTS + " (nc_matmul)"),
    "load_stationary_columns_per_cycle": _count(4, "ARCH2 (fast weight load)"),
    "dma_engines": _count(16, "BANDWIDTH"),
    "dma_descriptor_max_bytes": _count(64 * _KIB, "DRIVER (16-bit length field)", "B"),
    "dma_short_run_bytes": _count(2 * _KIB, "BANDWIDTH (least payload that is recommended)", "B"),
    "dma_compute_fraction": Figure(0.5, "", _ARCH4),
}


# Measured on trn2. The other generations take over what nothing is published for.

_MEASURED = "MEASURED"

_TIMING: dict[str, tuple[float, str, bool]] = {
    "activation_function_ns": (293.5, _MEASURED + " (exp, sigmoid; bias included)", False),
    "activation_operand_ns": (91.0, _MEASURED + " (a column of scale or bias)", False),
    "accumulator_read_ns": (279.0, _MEASURED, False),
    "accumulator_read_issue_ns": (185.0, _MEASURED, False),
    "activation_table_load_ns": (1283.0, _MEASURED, False),
    "semaphore_ns": (50.0, "no source", True),
    "sequencer_move_ns": (68.0, _MEASURED, False),
    "core_barrier_ns": (2000.0, "third-party: LNC2 barrier and sendrecv, about 2 us", True),
    "collective_ns": (4000.0, "COLLECTIVES: both steps of a mesh, up to 2 us each", True),
    "dma_descriptor_ns": (7.6, "fit to DM012 and DM013: 7.1 and 8.1 ns", False),
    "dma_load_dispatch_ns": (751.0, _MEASURED, False),
    "dma_load_tail_ns": (293.1, _MEASURED, False),
    "dma_load_notify_ns": (314.5, _MEASURED, False),
    "dma_store_dispatch_ns": (565.5, _MEASURED, False),
    "dma_store_tail_ns": (162.3, _MEASURED, False),
    "dma_store_notify_ns": (355.0, _MEASURED, False),
    "dma_trigger_static_ns": (400.0, "fit to NA004, NA007, NA009: 320 loads each", False),
    "dma_trigger_hwdge_ns": (600.0, "DGE (about 600 ns an instruction)", False),
    "dma_trigger_swdge_ns": (865.0, "fit to DM005-DM010: constant below 2 KiB a partition", False),
    "dma_trigger_latency_ns": (600.0, _MEASURED + " (599 load, 609 store); DGE", False),
    "kernel_overhead_ns": (9403.0, _MEASURED + " (first table load included)", False),
}

_COMPLETION = {"tensor": 203.0, "vector": 155.0, "scalar": 190.0, "gpsimd": 50.0, "sync": 0.0}
"""From the last element streamed to the completion of the instruction, trn2, in ns.

VectorE and ScalarE copies, bf16 matmul: MEASURED. GpSimd: affine_select's 177 ns less its 150
documented start-up cycles. Sync runs control instructions only."""

_ENGINES = frozenset(Engine[name] for name in _COMPLETION)


def _timing(measured: bool, **published: Figure[float]) -> dict[str, Any]:
    """The trn2 timing parameters, marked assumed for another generation, and its own figures."""
    table: dict[str, Any] = {
        name: Figure(value, "ns", source if measured else _FROM_TRN2, assumed or not measured)
        for name, (value, source, assumed) in _TIMING.items()
    }
    source = _MEASURED if measured else _FROM_TRN2
    assumed = frozenset({Engine.sync}) if measured else _ENGINES
    table["completion_ns"] = _per_engine("ns", source, assumed, **_COMPLETION)
    return table | published


_THROTTLE = "THROTTLING"

_THROTTLED: dict[str, Any] = {
    "throttle_window_ns": Figure(3000.0, "ns", _THROTTLE),
    "throttle_fraction": Figure(0.5, "", _THROTTLE),
    "throttle_threshold": Figure(0.5, "", _THROTTLE),
}
"""The tensor engine runs at `throttle_fraction` of its rate until it has been busier than
`throttle_threshold` for a window, and falls back when a window is not."""


def _targets(*rows: Target) -> dict[str, Target]:
    return {row.name: row for row in rows}


TARGETS: dict[str, Target] = _targets(
    Target(
        name="trn1",
        names=("trn1", "trn1n", "inf2", "gen2"),
        generation=2,
        logical_core_sizes=(1,),
        default_logical_core_size=1,
        cores_per_device=_count(2, _ARCH2),
        hbm_bytes_per_device=_count(32 * _GIB, _ARCH2, "B"),
        hbm_stacks_per_device=_count(2, _ARCH2),
        hbm_bytes_per_ns_per_device=Figure(820.0, "B/ns", _ARCH2),
        sbuf_bytes_per_partition=_count(192 * _KIB, _ARCH2, "B"),
        moving_free_max=_count(512, "nki.isa.nc_matmul", "elements"),
        moving_free_max_bfloat16=_count(512, "nki.isa.nc_matmul (fp32 output only)", "elements"),
        clock_hz=_clocks(_ARCH2, tensor=2.8, vector=1.12, scalar=1.4, gpsimd=1.4),
        elements_per_cycle=_per_engine(
            "elements/cycle", _ARCH2, tensor=128, vector=128, scalar=128, gpsimd=128
        ),
        elements_per_cycle_16_bit=_per_engine(
            "elements/cycle", _ARCH2, tensor=128, vector=128, scalar=128, gpsimd=128
        ),
        peak_tflops=_peaks(_ARCH2, bfloat16=92, float32=23),
        dma_bytes_per_ns_per_engine=Figure(17.0, "B/ns", "BANDWIDTH"),
        hwdge_blocks=_count(0, "DGE (NeuronCore-v3 and later)"),
        throttle_window_ns=Figure(0.0, "ns", "no rule is published for gen2"),
        throttle_fraction=Figure(1.0, "", "no rule is published for gen2"),
        throttle_threshold=Figure(0.0, "", "no rule is published for gen2"),
        dma_load_lag=Figure(0.0, "of the time of the bytes", "none is published for gen2"),
        dma_short_run_fraction=Figure(1.0, "", "no short runs slow gen2 down (AC001)"),
        dma_chip_transpose_fraction=Figure(0.5, "", _FROM_TRN2, assumed=True),
        dma_transpose_fraction=Figure(0.9, "", _FROM_TRN2, assumed=True),
        matmul_switch_cycles=_count(0, "none is published for gen2", "cycles"),
        tile_loads_hidden=_count(0, "fit to NB004 and NB007"),
        reciprocal_cycles=Figure(
            2.7, "cycles/element", "fit to NB038: 4.8, 2 of them a multiplication (COSTS: 8)"
        ),
        **_SHARED,
        **_timing(
            measured=False,
            dma_trigger_static_ns=Figure(68.0, "ns", "as long as a sequencer move", True),
            dma_trigger_latency_ns=Figure(68.0, "ns", "as long as it is held", True),
            kernel_overhead_ns=Figure(
                21900.0, "ns", "fused Mamba tutorial: 16.9 us before, 5 us after the work"
            ),
        ),
    ),
    Target(
        name="trn2",
        names=("trn2", "gen3"),
        generation=3,
        logical_core_sizes=(1, 2),
        default_logical_core_size=2,
        cores_per_device=_count(8, _ARCH3),
        hbm_bytes_per_device=_count(96 * _GIB, _ARCH3, "B"),
        hbm_stacks_per_device=_count(4, _ARCH3),
        hbm_bytes_per_ns_per_device=Figure(3000.0, "B/ns", "ARCH3 (hardware pages: 2900)"),
        sbuf_bytes_per_partition=_count(224 * _KIB, _ARCH3, "B"),
        moving_free_max=_count(512, "nki.isa.nc_matmul", "elements"),
        moving_free_max_bfloat16=_count(512, "nki.isa.nc_matmul (fp32 output only)", "elements"),
        clock_hz=_clocks(_ARCH3, tensor=2.4, vector=0.96, scalar=1.2, gpsimd=1.2),
        elements_per_cycle=_per_engine(
            "elements/cycle",
            _ARCH3,
            frozenset({Engine.gpsimd}),
            tensor=128,
            vector=256,
            scalar=128,
            gpsimd=128,
        ),
        elements_per_cycle_16_bit=_per_engine(
            "elements/cycle",
            _ARCH3,
            frozenset({Engine.gpsimd}),
            tensor=128,
            vector=512,
            scalar=128,
            gpsimd=128,
        ),
        peak_tflops=_peaks(_ARCH3, float8=158, bfloat16=79, float32=20),
        dma_bytes_per_ns_per_engine=Figure(23.0, "B/ns", "BANDWIDTH"),
        hwdge_blocks=_count(2, "DGE"),
        tile_loads_hidden=_count(1, "ARCH2 (background loads); AG018, KO008"),
        matmul_switch_cycles=_count(9, "AG (AG018: 98.2 % of the peak); VG020, KO008", "cycles"),
        reciprocal_cycles=Figure(6.0, "cycles/element", "MEASURED"),
        dma_load_lag=Figure(
            0.3046, "of the time of the bytes", "MEASURED (a load takes 1.3046 times that)"
        ),
        dma_short_run_fraction=Figure(0.5, "", "fit to AG002, AG006: 153 and 152 B/ns in all"),
        dma_chip_transpose_fraction=Figure(0.5, "", _ARCH3 + " (SBUF to SBUF, at most)"),
        dma_transpose_fraction=Figure(0.9, "", _ARCH3 + " (HBM to SBUF, at most)"),
        **_SHARED,
        **_THROTTLED,
        **_timing(measured=True),
    ),
    Target(
        name="trn3",
        names=("trn3", "trn3pre", "gen4"),
        generation=4,
        logical_core_sizes=(1, 2),
        default_logical_core_size=2,
        cores_per_device=_count(8, _ARCH4),
        hbm_bytes_per_device=_count(144 * _GIB, _ARCH4, "B"),
        hbm_stacks_per_device=_count(4, _ARCH4),
        hbm_bytes_per_ns_per_device=Figure(4700.0, "B/ns", "ARCH4 (hardware pages: 4900)"),
        sbuf_bytes_per_partition=_count(256 * _KIB, _ARCH4, "B"),
        moving_free_max=_count(4096, "nki.isa.nc_matmul (fp32 output)", "elements"),
        moving_free_max_bfloat16=_count(8192, "nki.isa.nc_matmul (bf16 output)", "elements"),
        clock_hz=_clocks(_ARCH4, tensor=2.4, vector=1.2, scalar=1.2, gpsimd=1.2),
        elements_per_cycle=_per_engine(
            "elements/cycle", _ARCH4, tensor=128, vector=256, scalar=128, gpsimd=128
        ),
        elements_per_cycle_16_bit=_per_engine(
            "elements/cycle", _ARCH4, tensor=128, vector=512, scalar=256, gpsimd=128
        ),
        peak_tflops=_peaks(_ARCH4, mxfp8=315, bfloat16=79, float32=20),
        dma_bytes_per_ns_per_engine=Figure(33.0, "B/ns", "BANDWIDTH"),
        hwdge_blocks=_count(2, _FROM_TRN2, assumed=True),
        matmul_switch_cycles=_count(9, _FROM_TRN2, "cycles", assumed=True),
        tile_loads_hidden=_count(1, _FROM_TRN2, assumed=True),
        reciprocal_cycles=Figure(6.0, "cycles/element", _FROM_TRN2, assumed=True),
        dma_load_lag=Figure(0.3046, "of the time of the bytes", _FROM_TRN2, assumed=True),
        dma_short_run_fraction=Figure(0.5, "", _FROM_TRN2, assumed=True),
        dma_chip_transpose_fraction=Figure(0.5, "", _FROM_TRN2, assumed=True),
        dma_transpose_fraction=Figure(0.9, "", _FROM_TRN2, assumed=True),
        **_SHARED,
        **_THROTTLED,
        **_timing(measured=False),
    ),
)
"""Every target by its name: trn1 (also inf2; gen2), trn2 (gen3), trn3 (gen4)."""

_BY_NAME: dict[str, Target] = {name: row for row in TARGETS.values() for name in row.names}


def resolve(name: str | Target | None = None) -> Target:
    """The target of a name, in any case; None is `DEFAULT_TARGET`.

    Raises NeuronError unknown-target, which lists the accepted names.

    >>> resolve("gen3")
    <target trn2>
    """
    if isinstance(name, Target):
        return name
    found = _BY_NAME.get((DEFAULT_TARGET if name is None else str(name)).lower())
    if found is None:
        raise NeuronError(
            "unknown-target",
            f"{name!r} is not a target.",
            hint="Use one of " + ", ".join(_BY_NAME) + ".",
        )
    return found
