"""Instructions of the tensor engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.errors import NeuronError
from isa.machine import tensor
from simulator.conversion import canonical_nan, convert, load_fp32, store
from simulator.machine import CoreState, StationaryTile
from simulator.matmul import ROWS, padded, product
from simulator.oracle.table import kernel
from simulator.views import bits, same_type

Array = np.ndarray[Any, Any]


@kernel(tensor.LoadStationary)
def load_stationary(state: CoreState, src: Array, row: int, column: int) -> None:
    tile = np.empty(src.shape, src.dtype)
    bits(tile)[...] = bits(src)
    state.stationary[row, column] = StationaryTile(tile.reshape(src.shape[0], -1))


def _loaded(state: CoreState, row: int, column: int) -> StationaryTile:
    tile = state.stationary.get((row, column))
    if tile is None:
        raise NeuronError(
            "ir-invalid", f"No stationary tile was loaded at row {row}, column {column}."
        )
    return tile


@kernel(tensor.MultiplyMoving)
def multiply_moving(
    state: CoreState, dst: Array, moving: Array, accumulate: bool, row: int, column: int
) -> None:
    loaded = _loaded(state, row, column)
    tile = loaded.tile
    if loaded.widened is None:
        loaded.widened = padded(load_fp32(tile), ROWS)
    streamed = load_fp32(moving).reshape(moving.shape[0], -1)
    result = product(loaded.widened, tile.shape[1], streamed).reshape(dst.shape)
    if accumulate:
        result = result + load_fp32(dst)
    store(dst, canonical_nan(result))


@kernel(tensor.TransposeStationary)
def transpose_stationary(state: CoreState, dst: Array) -> None:
    turned = _loaded(state, 0, 0).tile.T
    if same_type(dst, turned):
        bits(dst)[...] = bits(turned).reshape(dst.shape)
    else:
        convert(dst, np.ascontiguousarray(turned))
