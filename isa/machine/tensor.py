"""Machine instructions of the tensor engine (PE array)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isa.array_tiles import WHOLE_ARRAY, ArrayTile
from isa.enums import Engine
from isa.fields import PSUM, SBUF, Attribute, EngineState, Kind, Read, Update, Write
from isa.machine import costs
from isa.spec import MachineInstruction

STATIONARY = "stationary"
_DOUBLE_FP8 = "nki/guides/architecture/trainium2_arch.rst#double-fp8-matmul-performance"


class LoadStationary(MachineInstruction):
    """Load a [K, M] tile into the PE array, where it stays for the instructions that follow.

    `tile` is the part of the array that it occupies.
    """

    opcode = 0x10
    engines = (Engine.tensor,)
    cost = costs.LOAD_STATIONARY
    state = (EngineState(STATIONARY, reads=False),)
    document = "nki/guides/architecture/trainium_inferentia2_arch.rst#tensor-engine"
    src = Read(SBUF, doc="[K <= 128 partitions, M <= 128]")
    tile = Attribute(kind=Kind.array_tile, default=WHOLE_ARRAY)


class MultiplyMoving(MachineInstruction):
    """dst [M, N] = (or +=) loaded.T [M, K] @ moving [K, N], accumulated in fp32.

    With `accumulate` the products are added to what PSUM holds, else they overwrite it.
    """

    opcode = 0x11
    engines = (Engine.tensor,)
    cost = costs.MULTIPLY_MOVING
    state = (EngineState(STATIONARY, writes=False),)
    document = "nki/api/nki.isa.rst#nki.isa.nc_matmul"
    dst = Update(PSUM, one_bank=True, doc="[M, N]; read only when accumulating")
    moving = Read(SBUF, doc="[K, N]")
    accumulate = Attribute(kind=Kind.flag)
    tile = Attribute(kind=Kind.array_tile, default=WHOLE_ARRAY)


class MultiplyMovingOneZero(MultiplyMoving):
    """`MultiplyMoving` where the author says that one fp32 side holds only zeros and ones: it
    streams in half the passes, with the same results."""

    opcode = 0x13
    cost = costs.MULTIPLY_MOVING_ONE_ZERO


class LoadStationaryPairs(LoadStationary):
    """Load a [K, 2, M] fp8 tile; every element of the array holds the pair (k, 0, m), (k, 1, m)."""

    opcode = 0x14
    cost = costs.LOAD_STATIONARY_PAIRS
    document = _DOUBLE_FP8
    src = Read(SBUF, doc="[K <= 128 partitions, 2, M <= 128]")


class MultiplyMovingPairs(MultiplyMoving):
    """dst [M, N] = (or +=) the sum over partitions and pairs of loaded [K, 2, M] times moving
    [K, 2, N], accumulated in fp32: partition by partition, first the pairs' first elements."""

    opcode = 0x15
    cost = costs.MULTIPLY_MOVING_PAIRS
    document = _DOUBLE_FP8
    moving = Read(SBUF, doc="[K, 2, N]")


class TransposeMoving(MultiplyMoving):
    """dst [M, N]: column n is the row of the loaded tile that the one of moving's column n picks,
    bit for bit; a column of zeros gives zeros. With `accumulate` it is added to dst, in fp32."""

    opcode = 0x16
    cost = costs.TRANSPOSE_MOVING
    document = "nki/guides/architecture/trainium2_arch.rst#built-in-transpose-support"
    moving = Read(SBUF, doc="[K, N], an identity matrix or a permutation")


class TransposeStationary(MachineInstruction):
    """dst [M, K] = loaded.T: the array streams an identity matrix, which passes elements on bit for
    bit. Where there is no transpose mode (gen2) they are `multiplied` by it and added up: one that
    is not finite makes NaN of all others of its column, as times zero it is NaN, and floats of
    another dtype, `loaded`, become float32."""

    opcode = 0x12
    engines = (Engine.tensor,)
    cost = costs.TRANSPOSE_STATIONARY
    state = (EngineState(STATIONARY, writes=False),)
    document = "nki/api/nki.isa.rst#nki.isa.nc_transpose"
    dst = Write(PSUM, one_bank=True, doc="[M, K], dtype of the loaded tile, or float32")
    loaded = Attribute(
        kind=Kind.integer, default=0, doc="code of the loaded tile's dtype; 0: that of dst"
    )
    multiplied = Attribute(kind=Kind.flag, default=False)


def uses_tile(row: type[MachineInstruction]) -> bool:
    """Whether a row loads a tile into the array, or multiplies by one."""
    return any(state.name == STATIONARY for state in row.state)


def tile_of(row: type[MachineInstruction], values: Sequence[Any]) -> ArrayTile:
    """The part of the array that a use of such a row takes."""
    for position, _, field in row.attributes:
        if field.kind is Kind.array_tile:
            found: ArrayTile = values[position]
            return found
    return WHOLE_ARRAY
