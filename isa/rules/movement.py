"""Rules of DMA and of barriers between cores."""

from __future__ import annotations

from typing import Any

from isa.affine import Affine
from isa.dtypes import DTYPES
from isa.enums import DgeMode, DmaEngine, Engine, OobMode
from isa.rules.form import (
    OperationCall,
    Suspicion,
    Violation,
    at_most,
    elements,
    free_elements,
    partitions,
    plural,
    rule,
    shape_text,
)
from isa.rules.generic import generation_violation
from isa.spec import ISA
from isa.target import Target

_COPY = ISA + "dma_copy"
_DGE = "nki/deep-dives/nki-dge.rst"


@rule(
    _COPY,
    "dst and src have the same number of elements; at most one carries row indices; packed types "
    "are not converted.",
)
def dma_elements(call: OperationCall) -> Violation | None:
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
            hint=f"View the bytes of src as the type of dst: src.view(nl.{dst.dtype}).",
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


def _transposed(call: OperationCall) -> str | None:
    """Two shapes of which one is the other in another order; sizes of 1 do not count."""
    dst, src = call.dst, call.src
    if dst.vector_offset is not None or src.vector_offset is not None:
        return None
    shapes = [[n for n in tensor.shape if type(n) is not int or n != 1] for tensor in (dst, src)]
    to, of = shapes
    if len(to) != len(of) or not all(type(n) is int for n in (*to, *of)):
        return None
    if to == of or sorted(to) != sorted(of):
        return None
    return f"src is {shape_text(src)}, dst is {shape_text(dst)}"


TRANSPOSED_TRANSFER = Suspicion("transposed-transfer", _transposed)


@rule(_COPY, "priority needs gen4.")
def dma_priority(call: OperationCall) -> Violation | None:
    if call.priority is not None and call.target.generation < 4:
        return generation_violation(
            f"priority={call.priority}", (4,), call.target, "Leave priority out."
        )
    return None


@rule(
    _DGE,
    "dge_mode=hwdge needs gen3 or later and one dtype; row indices need swdge; dge_mode=none needs "
    "addresses without registers.",
)
def dma_hwdge(call: OperationCall) -> Violation | None:
    mode, dst, src = call.dge_mode, call.dst, call.src
    moved = next((n for n in ("dst", "src") if isinstance(call.field(n).offset, Affine)), None)
    if mode is DgeMode.none and moved is not None:
        return Violation(
            "indirect",
            f"{moved} is at an address that a register decides, with dge_mode=none",
            why="Without a generator the descriptors are written before the kernel runs.",
            hint="Leave dge_mode out, or use dge_mode.swdge or dge_mode.hwdge.",
            operand="dge_mode",
        )
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


@rule(_COPY, "engine is chosen with dge_mode=hwdge only.")
def dma_engine(call: OperationCall) -> Violation | None:
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


def dge_mode(dst: Any, src: Any, target: Target) -> DgeMode:
    """Who writes the descriptors of a transfer that leaves it open. Row indices are for the GpSimd
    engine, addresses known when the program is loaded for the host. Other addresses are for the
    hardware generator, where there is one that can do it. Stores to other addresses are the GpSimd
    engine's too: only the sync and the scalar engine command the generator (SDK
    nki/deep-dives/nki-dge.rst, "hwdge"), and there they would hold up loads, or computing."""
    if dst.vector_offset is not None or src.vector_offset is not None:
        return DgeMode.swdge
    if not isinstance(dst.offset, Affine) and not isinstance(src.offset, Affine):
        return DgeMode.none
    store = not dst.storage.memory.on_chip and src.storage.memory.on_chip
    hardware = target.generation >= 3 and dst.dtype == src.dtype and not store
    return DgeMode.hwdge if hardware else DgeMode.swdge


@rule(ISA + "core_barrier", "cores is (0, 1).")
def barrier_cores(call: OperationCall) -> Violation | None:
    cores = tuple(call.cores)
    if cores == (0, 1):
        return None
    return Violation(
        "value-not-allowed",
        f"cores is {cores}, expected (0, 1)",
        why="A barrier joins the two physical cores of a logical NeuronCore.",
        operand="cores",
    )


_EXCHANGE = ISA + "sendrecv"
_RANKS = (0, 1)
_EXCHANGED_BYTES = {4: 1024, 2: 512, 1: 256}
"""Most bytes of a partition that GpSimd's own DMA engine moves, by the size of an element."""


@rule(_EXCHANGE, "Ranks are 0 or 1.")
def exchange_ranks(call: OperationCall) -> Violation | None:
    for name in ("send_to_rank", "recv_from_rank"):
        rank = call.field(name)
        if rank not in _RANKS:
            return Violation(
                "value-not-allowed",
                f"{name} is {rank}, expected 0 or 1",
                why="The two physical cores of a logical NeuronCore exchange tiles.",
                operand=name,
            )
    return None


@rule(
    _EXCHANGE,
    "With dma_engine.gpsimd_dma a partition has at most 1024 bytes of 4-byte elements, 512 of "
    "2-byte and 256 of 1-byte elements.",
)
def exchange_bytes(call: OperationCall) -> Violation | None:
    if call.dma_engine is not DmaEngine.gpsimd_dma:
        return None
    size = DTYPES[call.src.dtype].size
    most = _EXCHANGED_BYTES.get(size, 0)
    if at_most(free_elements(call.src) * size, most):
        return None
    return Violation(
        "tile-limit",
        f"src {shape_text(call.src)} {call.src.dtype} has {free_elements(call.src) * size} bytes "
        f"in a partition, dma_engine.gpsimd_dma moves at most {most}",
        hint="Leave dma_engine out.",
        operand="src",
    )


_TRANSPOSE = ISA + "dma_transpose"

PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
"""How a DMA transpose permutes the dimensions of its source, by their number."""

_HARDWARE_ROWS = (1, 2, 4, 8, 16)
_HARDWARE_GROUP = 16
_HARDWARE_COLUMNS = 128


@rule(
    _TRANSPOSE,
    "axes is (1, 0), (2, 1, 0) or (3, 1, 2, 0), or left out; dst has src's dimensions in that "
    "order.",
)
def transpose_axes(call: OperationCall) -> Violation | None:
    rank = len(call.src.shape)
    order = PERMUTATIONS.get(rank)
    if order is None:
        return Violation(
            "shape-mismatch",
            f"src {shape_text(call.src)} has {plural(rank, 'dimension')}, expected 2 to 4",
            operand="src",
        )
    if call.axes is not None and tuple(call.axes) != order:
        return Violation(
            "value-not-allowed",
            f"axes is {tuple(call.axes)} for {rank} dimensions, expected {order}",
            operand="axes",
        )
    if tuple(call.dst.shape) == tuple(call.src.shape[axis] for axis in order):
        return None
    return Violation(
        "shape-mismatch",
        f"dst is {shape_text(call.dst)}, src {shape_text(call.src)} in the order {order} is "
        f"[{', '.join(str(call.src.shape[axis]) for axis in order)}]",
        operand="dst",
    )


def _is_dynamic(call: OperationCall) -> bool:
    """Whether src is known when the kernel runs only."""
    return call.src.vector_offset is not None or isinstance(call.src.offset, Affine)


def _hardware_transpose(src: Any) -> str:
    """Why the hardware generator cannot transpose this source, or nothing."""
    rows, rank = src.shape[0], len(src.shape)
    if rank == 2 and rows != _HARDWARE_GROUP:
        return f"src has {rows} rows, not {_HARDWARE_GROUP}"
    if rank > 2 and (rows not in _HARDWARE_ROWS or rows * src.shape[-2] % _HARDWARE_GROUP):
        return f"src {shape_text(src)} does not come in groups of {_HARDWARE_GROUP} rows"
    if not at_most(src.shape[-1], _HARDWARE_COLUMNS):
        return f"src has {src.shape[-1]} columns, more than {_HARDWARE_COLUMNS}"
    return "" if DTYPES[src.dtype].size == 2 else f"src is {src.dtype}, not of 2 bytes"


@rule(
    _TRANSPOSE,
    "dge_mode=hwdge needs gen3 or later, a 2-byte dtype, at most 128 columns, and 16 rows (with 3 "
    "or 4 dimensions: 1, 2, 4, 8 or 16 first, times the last but one a multiple of 16); "
    "dge_mode=swdge needs run-time indices (" + _DGE + "#how-ap-affects-dge-mode).",
)
def transpose_hwdge(call: OperationCall) -> Violation | None:
    if call.dge_mode is DgeMode.swdge and not _is_dynamic(call):
        return Violation(
            "value-not-allowed",
            "dge_mode is swdge for a transpose without run-time indices",
            why="The GpSimd engine writes descriptors of transposes for rows that indices pick, or "
            "that start where a register says.",
            hint="Leave dge_mode out.",
            operand="dge_mode",
        )
    if call.dge_mode is not DgeMode.hwdge:
        return None
    if call.target.generation < 3:
        return generation_violation(
            "dge_mode=hwdge", (3, 4), call.target, "Leave dge_mode out, or use dge_mode.swdge."
        )
    reason = _hardware_transpose(call.src)
    if not reason:
        return None
    return Violation(
        "value-not-allowed",
        f"dge_mode is hwdge, but {reason}",
        why="The hardware descriptor generator transposes 2-byte elements in groups of 16 rows of "
        "at most 128 columns.",
        hint="Leave dge_mode out.",
        operand="dge_mode",
    )


@rule(_TRANSPOSE, "oob_mode is error without run-time indices.")
def transpose_bounds(call: OperationCall) -> Violation | None:
    if call.oob_mode is OobMode.error or _is_dynamic(call):
        return None
    return Violation(
        "value-not-allowed",
        "oob_mode is skip for a source without run-time indices",
        why="Only what indices select can be skipped.",
        hint="Leave oob_mode out.",
        operand="oob_mode",
    )


@rule(
    _TRANSPOSE,
    "With row indices (gen3 on, swdge): 2-byte elements, rows in multiples of 16, of 4 dimensions "
    "the second or third 1; uint32 indices in 16 to 128 partitions, 128 for several columns.",
)
def transpose_indices(call: OperationCall) -> Violation | None:
    src = call.src
    index = src.vector_offset
    if index is None:
        return None
    if call.target.generation < 3:
        return generation_violation("a transpose of indexed rows", (3, 4), call.target)
    if call.dge_mode not in (DgeMode.unknown, DgeMode.swdge):
        return Violation(
            "indirect",
            f"row indices with dge_mode={call.dge_mode.name}",
            why="Only the GpSimd engine writes descriptors for gathers.",
            hint="Leave dge_mode out, or use dge_mode.swdge.",
            operand="dge_mode",
        )
    reason = _indexed_transpose(src, index)
    if not reason:
        return None
    return Violation(
        "indirect",
        f"{reason}, in a transpose of indexed rows",
        why="GpSimd gathers 2-byte elements in groups of 16 rows, by uint32 indices in 16 to 128 "
        "partitions, 128 when they have several columns.",
        hint="Gather with nisa.dma_copy and transpose the tile with nisa.nc_transpose.",
        operand="src",
    )


def _indexed_transpose(src: Any, index: Any) -> str:
    """Why GpSimd cannot gather and transpose these rows, or nothing."""
    rows, holding = src.shape[0], partitions(index)
    if DTYPES[src.dtype].size != 2:
        return f"src is {src.dtype}, not of 2 bytes"
    if len(src.shape) == 4 and 1 not in src.shape[1:3]:
        return f"src is {shape_text(src)}; dimension 1 or 2 must be 1"
    if rows % _HARDWARE_GROUP:
        return f"src has {rows} rows, no multiple of {_HARDWARE_GROUP}"
    if len(index.shape) != 2:
        return f"the indices have {plural(len(index.shape), 'dimension')}, not 2"
    if index.dtype != "uint32":
        return f"the indices are {index.dtype}, not uint32"
    if holding % _HARDWARE_GROUP:
        return f"the indices have {holding} partitions, no multiple of {_HARDWARE_GROUP}"
    if free_elements(index) > 1 and holding != _HARDWARE_COLUMNS:
        return f"indices of several columns have {holding} partitions, not {_HARDWARE_COLUMNS}"
    return ""


def transpose_mode(dst: Any, src: Any, target: Target) -> DgeMode:
    """Who writes the descriptors of a transpose that leaves it open."""
    mode = dge_mode(dst, src, target)
    return DgeMode.swdge if mode is DgeMode.hwdge and _hardware_transpose(src) else mode
