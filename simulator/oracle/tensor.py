"""Instructions of the tensor engine."""

from __future__ import annotations

import numpy as np

from isa.array_tiles import WHOLE_ARRAY, ArrayTile
from isa.errors import NeuronError
from isa.machine import tensor
from simulator.device_state import CoreState, StationaryTile
from simulator.numerics.conversion import convert, load_fp32, store
from simulator.numerics.matmul import ROWS, fits_short, padded, product
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.table import kernel
from simulator.views import Array, bits, dtype_name, same_type


@kernel(tensor.LoadStationary)
def load_stationary(state: CoreState, src: Array, place: ArrayTile) -> None:
    tile = np.empty(src.shape, src.dtype)
    bits(tile)[...] = bits(src)
    state.stationary[place] = StationaryTile(tile.reshape(src.shape[0], -1))


def loaded_tile(state: CoreState, place: ArrayTile) -> StationaryTile:
    """The tile at a place of the array. Raises NeuronError ir-invalid where none was loaded."""
    tile = state.stationary.get(place)
    if tile is None:
        raise NeuronError(
            "ir-invalid", f"No stationary tile was loaded into the array at {place.name}."
        )
    return tile


@kernel(tensor.MultiplyMovingOneZero)
@kernel(tensor.MultiplyMoving)
def multiply_moving(
    state: CoreState, dst: Array, moving: Array, accumulate: bool, place: ArrayTile
) -> None:
    streamed = load_fp32(moving).reshape(moving.shape[0], -1)
    loaded = loaded_tile(state, place)
    finish_product(dst, multiplied(loaded, streamed, _short(loaded, moving)), accumulate)


def _short(loaded: StationaryTile, moving: Array) -> bool:
    """Whether products of these operands are sums of short chains."""
    return fits_short(dtype_name(loaded.tile)) and fits_short(dtype_name(moving))


def multiplied(loaded: StationaryTile, streamed: Array, short: bool) -> Array:
    """The product of a loaded tile [K, M] and what streams through it, fp32 [K, N], in short chains
    or one."""
    tile = loaded.tile
    if tile.shape[0] != streamed.shape[0]:
        raise NeuronError(
            "ir-invalid",
            f"{streamed.shape[0]} rows stream through a stationary tile of {tile.shape[0]}.",
        )
    if loaded.widened is None:
        loaded.widened = padded(load_fp32(tile), ROWS)
    return product(loaded.widened, tile.shape[1], streamed, short)


def finish_product(dst: Array, result: Array, accumulate: bool) -> None:
    """Write fp32 results into PSUM, added to what is there with `accumulate`. Raises NeuronError
    ir-invalid where these are not as many."""
    if result.size != dst.size:
        raise NeuronError(
            "ir-invalid",
            f"{result.size:,} results of a product go to {dst.size:,} elements.",
        )
    result = result.reshape(dst.shape)
    if accumulate:
        result = result + load_fp32(dst)
    store(dst, canonical_nan(result))


@kernel(tensor.LoadStationaryPairs)
def load_stationary_pairs(state: CoreState, src: Array, place: ArrayTile) -> None:
    """Held as [2 K, M]: the elements of a partition follow each other in the contraction."""
    tile = np.empty(src.shape, src.dtype)
    bits(tile)[...] = bits(src)
    state.stationary[place] = StationaryTile(tile.reshape(2 * src.shape[0], -1))


@kernel(tensor.MultiplyMovingPairs)
def multiply_moving_pairs(
    state: CoreState, dst: Array, moving: Array, accumulate: bool, place: ArrayTile
) -> None:
    streamed = load_fp32(moving).reshape(2 * moving.shape[0], -1)
    loaded = loaded_tile(state, place)
    finish_product(dst, multiplied(loaded, streamed, _short(loaded, moving)), accumulate)


@kernel(tensor.TransposeMoving)
def transpose_moving(
    state: CoreState, dst: Array, moving: Array, accumulate: bool, place: ArrayTile
) -> None:
    tile = loaded_tile(state, place).tile
    picks, empty = picked_rows(moving)
    transposed = tile.T[:, picks]
    bits(transposed)[:, empty] = 0
    if accumulate:
        finish_product(dst, load_fp32(transposed), True)
    elif same_type(dst, transposed):
        bits(dst)[...] = bits(transposed).reshape(dst.shape)
    else:
        convert(dst, np.ascontiguousarray(transposed))


def picked_rows(moving: Array) -> tuple[Array, Array]:
    """Which row every column of a one-hot [K, N] picks, and which columns pick none.

    Raises NeuronError value-not-allowed where a column is not zeros with at most one 1.
    """
    weights = load_fp32(moving).reshape(moving.shape[0], -1)
    chosen = weights != 0
    wrong = (chosen.sum(0) > 1) | ((weights != 1) & chosen).any(0)
    if wrong.any():
        raise NeuronError(
            "value-not-allowed",
            f"Column {int(np.argmax(wrong))} of moving is not zeros with at most one 1.",
            why="In transpose mode the array passes elements on; it does not add them up.",
            hint="Give an identity matrix as moving, or leave is_transpose out.",
        )
    return np.argmax(chosen, axis=0), ~chosen.any(0)


@kernel(tensor.TransposeStationary)
def transpose_stationary(state: CoreState, dst: Array, loaded: int, multiplied: bool) -> None:
    transposed = loaded_tile(state, WHOLE_ARRAY).tile.T
    if multiplied:
        values = load_fp32(transposed)
        special = ~np.isfinite(values)
        if special.any():
            others = special.sum(1, keepdims=True) - special
            store(dst, canonical_nan(np.where(others > 0, np.float32(np.nan), values)))
            return
    if same_type(dst, transposed):
        bits(dst)[...] = bits(transposed).reshape(dst.shape)
    else:
        convert(dst, np.ascontiguousarray(transposed))
