"""Rules of DMA and of barriers between cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isa.affine import Affine
from isa.dtypes import DTYPES
from isa.enums import DgeMode, Engine
from isa.rules.form import ISA, Call, Rule, Violation, elements, shape_text
from isa.rules.generic import generation_violation

if TYPE_CHECKING:
    from isa.target import Target

_COPY = ISA + "dma_copy"
_DGE = "nki/deep-dives/nki-dge.rst"


def _dma_elements(call: Call) -> Violation | None:
    dst, src = call.dst, call.src
    if dst.vector_offset is not None and src.vector_offset is not None:
        return Violation(
            "indirect",
            "dst and src both carry row indices",
            why="One transfer gathers or scatters; descriptors hold one list of rows.",
            hint="Gather into SBUF, then scatter from there.",
            operand="src",
        )
    if dst.dtype != src.dtype and (DTYPES[dst.dtype].is_packed or DTYPES[src.dtype].is_packed):
        return Violation(
            "dtype-not-allowed",
            f"dst is {dst.dtype}, src is {src.dtype}",
            why="Packed types are moved, not converted.",
            operand="src",
        )
    if elements(dst) == elements(src):
        return None
    return Violation(
        "shape-mismatch",
        f"dst {shape_text(dst)} has {elements(dst)} elements, src {shape_text(src)} has "
        f"{elements(src)}",
        why="A transfer writes every element that it reads, in row-major order.",
        operand="src",
    )


DMA_ELEMENTS = Rule(
    "dma_elements",
    _COPY,
    _dma_elements,
    "dst and src have the same number of elements; at most one carries row indices; packed types "
    "are not converted.",
)


def _dma_priority(call: Call) -> Violation | None:
    if call.priority is not None and call.target.generation < 4:
        return generation_violation(
            f"priority={call.priority}", (4,), call.target, "Leave priority out."
        )
    return None


DMA_PRIORITY = Rule("dma_priority", _COPY, _dma_priority, "priority needs gen4.")


def _dma_hwdge(call: Call) -> Violation | None:
    mode, dst, src = call.dge_mode, call.dst, call.src
    indirect = dst.vector_offset is not None or src.vector_offset is not None
    if indirect and mode in (DgeMode.none, DgeMode.hwdge):
        return Violation(
            "indirect",
            f"row indices with dge_mode={mode.name}",
            why="Only the GpSimd engine writes descriptors for gathers and scatters.",
            hint="Leave dge_mode out, or use dge_mode.swdge.",
            operand="dge_mode",
        )
    if mode is not DgeMode.hwdge:
        return None
    if call.target.generation < 3:
        return generation_violation(
            "dge_mode=hwdge", (3, 4), call.target, "Leave dge_mode out, or use dge_mode.swdge."
        )
    if dst.dtype != src.dtype:
        return Violation(
            "dtype-not-allowed",
            f"dst is {dst.dtype}, src is {src.dtype} with dge_mode=hwdge",
            why="The hardware descriptor generator does not convert data types.",
            hint="Leave dge_mode out, or convert with nisa.tensor_copy in SBUF.",
            operand="src",
        )
    return None


DMA_HWDGE = Rule(
    "dma_hwdge",
    _DGE,
    _dma_hwdge,
    "dge_mode=hwdge needs gen3 or later and one dtype; row indices need swdge.",
)


def _dma_engine(call: Call) -> Violation | None:
    """Also holds of resolved calls, where the host's descriptors go with the sync engine or, like
    those of the GpSimd engine, with that one."""
    engine, mode = call.engine, call.dge_mode
    if engine is Engine.unknown or mode is DgeMode.hwdge:
        return None
    resolved = {DgeMode.none: (Engine.sync, Engine.gpsimd), DgeMode.swdge: (Engine.gpsimd,)}
    if engine in resolved.get(mode, ()):
        return None
    return Violation(
        "engine-not-allowed",
        f"engine={engine.name} with dge_mode={mode.name}",
        why="The engine that starts a transfer can be chosen with dge_mode.hwdge only.",
        hint="Pass dge_mode=nisa.dge_mode.hwdge as well, or leave engine out.",
        operand="engine",
    )


DMA_ENGINE = Rule("dma_engine", _COPY, _dma_engine, "engine is chosen with dge_mode=hwdge only.")


def dge_mode(dst: Any, src: Any, target: Target) -> DgeMode:
    """Who writes the descriptors of a transfer that leaves it open: the GpSimd engine for row
    indices, the host for addresses known when the program is loaded, and for other addresses the
    hardware generator where there is one that can do it."""
    if dst.vector_offset is not None or src.vector_offset is not None:
        return DgeMode.swdge
    if not isinstance(dst.offset, Affine) and not isinstance(src.offset, Affine):
        return DgeMode.none
    hardware = target.generation >= 3 and dst.dtype == src.dtype
    return DgeMode.hwdge if hardware else DgeMode.swdge


def _barrier_cores(call: Call) -> Violation | None:
    cores = tuple(call.cores)
    if cores == (0, 1):
        return None
    return Violation(
        "value-not-allowed",
        f"cores is {cores}, expected (0, 1)",
        why="A barrier joins the two physical cores of a logical NeuronCore.",
        operand="cores",
    )


BARRIER_CORES = Rule("barrier_cores", ISA + "core_barrier", _barrier_cores, "cores is (0, 1).")
