"""Machine instructions of the tensor engine (PE array)."""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import PSUM, SBUF, Attribute, EngineState, Kind, Read, Update, Write
from isa.machine import costs
from isa.spec import MachineInstruction

STATIONARY = "stationary"


class LoadStationary(MachineInstruction):
    """Load a [K, M] tile into the PE array, where it stays for the instructions that follow.

    `row` and `column` are the corner of the array that the tile occupies.
    """

    opcode = 0x10
    engines = (Engine.tensor,)
    cost = costs.LOAD_STATIONARY
    state = (EngineState(STATIONARY, reads=False),)
    document = "nki/guides/architecture/trainium_inferentia2_arch.rst#tensor-engine"
    src = Read(SBUF, doc="[K <= 128 partitions, M <= 128]")
    row = Attribute(kind=Kind.integer, default=0)
    column = Attribute(kind=Kind.integer, default=0)


class MultiplyMoving(MachineInstruction):
    """dst [M, N] = (or +=) loaded.T [M, K] @ moving [K, N], accumulated in fp32.

    With `accumulate` the products are added to what PSUM holds, else they overwrite it.
    """

    opcode = 0x11
    engines = (Engine.tensor,)
    cost = costs.MULTIPLY_MOVING
    state = (EngineState(STATIONARY, writes=False),)
    document = "nki/api/nki.isa.rst#nki.isa.nc_matmul"
    dst = Update(PSUM, doc="[M, N]; read only when accumulating")
    moving = Read(SBUF, doc="[K, N]")
    accumulate = Attribute(kind=Kind.flag)
    row = Attribute(kind=Kind.integer, default=0)
    column = Attribute(kind=Kind.integer, default=0)


class TransposeStationary(MachineInstruction):
    """dst [M, K] = loaded.T, bit for bit: the array streams an identity matrix."""

    opcode = 0x12
    engines = (Engine.tensor,)
    cost = costs.TRANSPOSE_STATIONARY
    state = (EngineState(STATIONARY, writes=False),)
    document = "nki/api/nki.isa.rst#nki.isa.nc_transpose"
    dst = Write(PSUM, doc="[M, K], dtype of the loaded tile")
