"""Rules of the processing-element array: its tiles, its modes, and where results may lie."""

from __future__ import annotations

import math
from typing import Any

from isa.array_tiles import ARRAY_SIDE, TILE_GENERATIONS
from isa.enums import MatmulPerfMode
from isa.rules.form import (
    OperationCall,
    Violation,
    at_most,
    largest,
    partitions,
    rule,
    shape_text,
)
from isa.rules.generic import generation_violation
from isa.rules.starts import starts_in_memory
from isa.spec import ISA

_MATMUL = ISA + "nc_matmul"
_MATMUL_MX = ISA + "nc_matmul_mx"
_FP8 = ("float8_e4m3", "float8_e5m2", "float8_e4m3fn")
PAIR = 2


def in_pairs(call: OperationCall) -> bool:
    """Whether a matmul takes two fp8 elements at a time."""
    return call.field("perf_mode") is MatmulPerfMode.double_row


def columns(call: OperationCall, access: Any) -> Any:
    """Columns that a matmul input has in each partition: elements, pairs of them counted once."""
    return math.prod(access.shape[2 if in_pairs(call) else 1 :])


@rule(
    _MATMUL,
    "perf_mode=double_row needs gen3 or later, fp8 inputs whose first free dimension is 2, whole "
    "columns of the array, and no is_transpose.",
)
def matmul_pairs(call: OperationCall) -> Violation | None:
    if not in_pairs(call):
        return None
    if call.target.generation < 3:
        return generation_violation("perf_mode=double_row", (3, 4), call.target)
    if call.is_transpose:
        return Violation(
            "value-not-allowed",
            "perf_mode=double_row together with is_transpose=True",
            why="The array either multiplies pairs or passes elements on.",
            hint="Leave one of them out.",
            operand="is_transpose",
        )
    for name in ("stationary", "moving"):
        access = call.field(name)
        if access.dtype not in _FP8:
            return Violation(
                "dtype-not-allowed",
                f"{name} is {access.dtype} with perf_mode=double_row",
                why="Pairs are of fp8 elements: " + ", ".join(_FP8) + " (the last on gen4).",
                operand=name,
            )
        if len(access.shape) < 3 or access.shape[1] != PAIR:
            return Violation(
                "shape-mismatch",
                f"{name} has shape {shape_text(access)}, expected [K, 2, columns]",
                why="With double_row the contraction is split between the partitions and the first "
                "free dimension, which must be 2.",
                hint="Reshape or allocate the tile with the two halves of the contraction as its "
                "first free dimension; pad an odd one with zeros.",
                operand=name,
            )
    return None


@rule(
    "nki/guides/architecture/trainium2_arch.rst#built-in-transpose-support",
    "With is_transpose, from gen3 on, dst has the dtype of stationary or is float32.",
)
def matmul_transpose(call: OperationCall) -> Violation | None:
    if not call.is_transpose or call.target.generation < 3:
        return None
    if call.dst.dtype in (call.stationary.dtype, "float32"):
        return None
    return Violation(
        "dtype-not-allowed",
        f"dst is {call.dst.dtype} with is_transpose=True, stationary is {call.stationary.dtype}",
        why="In transpose mode elements pass the array unchanged.",
        hint="Allocate dst with the data type of stationary.",
        operand="dst",
    )


def _tile(call: OperationCall) -> tuple[tuple[int, ...], tuple[int, ...]] | Violation | None:
    """The corner and size of the array's tile, None for all of the array."""
    position = tuple(call.tile_position or ())
    size = tuple(call.tile_size or ())
    if not position and not size:
        return None
    if len(position) == 2 and len(size) == 2:
        return position, size
    return Violation(
        "value-not-allowed",
        f"tile_position is {position}, tile_size is {size}",
        why="Tiling needs both: tile_position (row, column) and tile_size (rows, columns).",
        operand="tile_position" if len(position) != 2 else "tile_size",
    )


def tile_limits(call: OperationCall) -> tuple[int, int]:
    """Most partitions and most columns of a stationary tile."""
    size: tuple[int, ...] = tuple(call.tile_size or ())
    return (size[0], size[1]) if len(size) == 2 else (ARRAY_SIDE, ARRAY_SIDE)


@rule(
    _MATMUL,
    "tile_position and tile_size come together: tiles of 32 (gen3 and later), 64 or 128 rows and "
    "columns at multiples of their size.",
)
def matmul_tiling(call: OperationCall) -> Violation | None:
    tile = _tile(call)
    if tile is None or isinstance(tile, Violation):
        return tile
    position, size = tile
    for axis, start, extent in zip(("row", "column"), position, size):
        generations = TILE_GENERATIONS.get(extent)
        if generations is None or not 0 <= start <= ARRAY_SIDE - extent or start % extent:
            return Violation(
                "value-not-allowed",
                f"{axis} tile of {extent} at {start}",
                why="A tile of the array has 32, 64 or 128 rows and columns and starts at a "
                "multiple of its size, inside 128 x 128.",
                operand="tile_position",
            )
        if call.target.generation not in generations:
            return generation_violation(f"a {axis} tile of {extent}", generations, call.target)
    if in_pairs(call) and size[1] != ARRAY_SIDE:
        return Violation(
            "value-not-allowed",
            f"a column tile of {size[1]} with perf_mode=double_row",
            why="Pairs need whole columns of the array.",
            hint="Use tile_size=(rows, 128), or leave perf_mode out.",
            operand="tile_size",
        )
    return None


@rule(
    "nki/guides/architecture/trainium_inferentia2_arch.rst#tensor-engine",
    "stationary and moving start at the partition of tile_position's row, dst at that of its "
    "column.",
)
def tile_partitions(call: OperationCall) -> Violation | None:
    tile = _tile(call)
    if tile is None or isinstance(tile, Violation):
        return tile
    (row, column), _ = tile
    for name, start, meaning in (
        ("stationary", row, "row"),
        ("moving", row, "row"),
        ("dst", column, "column"),
    ):
        starts = starts_in_memory(call.field(name))
        if start in starts or not starts:
            continue
        return Violation(
            "value-not-allowed",
            f"{name} starts at partition {starts[0]}, the tile at {meaning} {start}",
            why="Partition p of SBUF feeds row p of the array, and column p writes partition p of "
            "PSUM.",
            hint=f"Put {name} at partition {start}, or choose another tile_position.",
            operand=name,
        )
    return None


def moving_limit(call: OperationCall) -> Any:
    """Most columns of moving: what PSUM holds of dst's dtype."""
    bfloat16 = call.dst.dtype == "bfloat16"
    return call.target.moving_free_max_bfloat16 if bfloat16 else call.target.moving_free_max


@rule(
    _MATMUL_MX,
    "stationary has a multiple of 32 partitions (at most 128 or tile_size) and an even number of "
    "columns up to 128; moving at most the target's moving_free_max.",
)
def matmul_mx_sizes(call: OperationCall) -> Violation | None:
    rows, limit = tile_limits(call)
    for name, most in (("stationary", limit), ("moving", moving_limit(call).value)):
        access = call.field(name)
        count = math.prod(access.shape[1:])
        if not at_most(count, most):
            return Violation(
                "tile-limit",
                f"{name} has {largest(count)} free elements, the limit on {call.target.name} is "
                f"{most}",
                operand=name,
            )
    depth = partitions(call.stationary)
    if depth % 32 != 0 or not at_most(depth, rows):
        return Violation(
            "tile-limit",
            f"stationary has {depth} partitions, expected a multiple of 32 up to {rows}",
            why="Scales are kept by quadrants of 32 partitions.",
            hint="Pad the contraction with zeros.",
            operand="stationary",
        )
    width = math.prod(call.stationary.shape[1:])
    if width % 2 != 0:
        return Violation(
            "tile-limit",
            f"stationary has {width} free elements, expected an even number",
            hint="Pad stationary by a column.",
            operand="stationary",
        )
    return None


@rule(_MATMUL_MX, "tile_position is (row, 0) and tile_size (rows, 128), rows 32, 64 or 128.")
def matmul_mx_tiling(call: OperationCall) -> Violation | None:
    found = matmul_tiling.check(call)
    if found is not None:
        return found
    position: tuple[int, ...] = tuple(call.tile_position or (0, 0))
    size: tuple[int, ...] = tuple(call.tile_size or (ARRAY_SIDE, ARRAY_SIDE))
    if position[1] == 0 and size[1] == ARRAY_SIDE:
        return None
    return Violation(
        "value-not-allowed",
        f"tile_position is {position}, tile_size is {size}",
        why="MX matmuls tile the rows of the array only: column 0, 128 columns.",
        operand="tile_position" if position[1] else "tile_size",
    )
