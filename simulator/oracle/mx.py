"""Instructions on microscaled (MX) tensors."""

from __future__ import annotations

import numpy as np

from isa.array_tiles import ArrayTile
from isa.machine import mx
from isa.machine.mx import GROUP_PARTITIONS
from simulator.device_state import CoreState, StationaryTile
from simulator.numerics import packed
from simulator.numerics.conversion import load_fp32
from simulator.oracle.control import sentinel_bits
from simulator.oracle.table import kernel
from simulator.oracle.tensor import finish_product, loaded_tile, multiplied
from simulator.views import Array, bits, dtype_name


@kernel(mx.QuantizeMx)
def quantize_mx(state: CoreState, dst: Array, src: Array, scale: Array) -> None:
    """A group of which nothing is initialised gives what uninitialised memory reads as."""
    packed.quantize(dst, scale, load_fp32(src).reshape(src.shape[0], -1))
    groups, state.unknown_groups = state.unknown_groups, None
    if groups is not None:
        elements = np.repeat(groups, GROUP_PARTITIONS, axis=0).reshape(dst.shape)
        bits(dst)[elements] = sentinel_bits(dtype_name(dst))
        rows = packed.scale_rows(dst.shape[0])
        codes = bits(scale)[rows]
        codes[groups.reshape(codes.shape)] = sentinel_bits(dtype_name(scale))
        bits(scale)[rows] = codes


@kernel(mx.LoadStationaryMx)
def load_stationary_mx(state: CoreState, src: Array, scale: Array, place: ArrayTile) -> None:
    state.stationary[place] = StationaryTile(packed.dequantized(src, scale))


@kernel(mx.MultiplyMovingMx)
def multiply_moving_mx(
    state: CoreState, dst: Array, moving: Array, scale: Array, accumulate: bool, place: ArrayTile
) -> None:
    streamed = packed.dequantized(moving, scale)
    # But for denormal numbers, bfloat16 holds every value times its scale.
    product = multiplied(loaded_tile(state, place), streamed, short=True)
    finish_product(dst, product, accumulate)
