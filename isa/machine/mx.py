"""Machine instructions on microscaled (MX) tensors: fp8 or fp4 elements that share scales.

A group is 8 partitions by the 4 elements of a packed value, 32 elements with one scale. The scales
of a quadrant of 32 partitions are four rows of one byte a packed value. They lie in the same
quadrant, from the partition at which the operand `scale` starts. The other partitions are not
touched.
"""

from __future__ import annotations

from isa.array_tiles import WHOLE_ARRAY
from isa.enums import Engine
from isa.fields import PSUM, SBUF, Attribute, EngineState, Kind, Read, Update, Write
from isa.machine import costs
from isa.machine.tensor import STATIONARY
from isa.spec import MachineInstruction

_QUAD = "nki/guides/architecture/trainium3_arch.rst#quad-mxfp8-mxfp4-matmul-performance"

GROUP_PARTITIONS = 8
SCALE_ROWS = 4
"""Rows of scales that a quadrant of 32 partitions has."""
SCALE_STARTS = (0, 4, 8, 12)
"""Where in a quadrant its scales may start (SDK nki/deep-dives/mxfp-matmul.rst, "Packing Scale
Values")."""
NAN_SCALE = 255
"""The scale code that is no number; any other code c stands for 2**(c - 127)."""


class QuantizeMx(MachineInstruction):
    """dst, scale = src in groups: the scale is 2**(e - (Emax - 1)), with e the exponent of the
    group's largest magnitude and Emax that of dst's element type. Elements are divided by the scale
    and rounded to the nearest.

    The exponent of a scale is at least -127. A group with an infinity or NaN has the scale NaN,
    which no document states.
    """

    opcode = 0x90
    engines = (Engine.vector,)
    one_quadrant = True
    cost = costs.QUANTIZE_MX
    document = "nki/api/nki.isa.rst#nki.isa.quantize_mx"
    dst = Write(SBUF, doc="[P, F / 4], packed")
    src = Read(SBUF, doc="[P, F]")
    scale = Update(SBUF, starts=SCALE_STARTS, doc="four rows a quadrant are written")


class LoadStationaryMx(MachineInstruction):
    """Load a packed [P, M] tile and its scales: every element of the array holds four values, which
    are multiplied by their scales in fp32."""

    opcode = 0x17
    engines = (Engine.tensor,)
    cost = costs.LOAD_STATIONARY_MX
    state = (EngineState(STATIONARY, reads=False),)
    document = _QUAD
    src = Read(SBUF, doc="[P <= 128 partitions, M <= 128], packed")
    scale = Read(SBUF, starts=SCALE_STARTS, doc="four rows a quadrant")
    tile = Attribute(kind=Kind.array_tile, default=WHOLE_ARRAY)


class MultiplyMovingMx(MachineInstruction):
    """dst [M, N] = (or +=) the sum over partitions and packed values of loaded times moving, both
    multiplied by their scales, accumulated in fp32: partition by partition, four values each."""

    opcode = 0x18
    engines = (Engine.tensor,)
    cost = costs.MULTIPLY_MOVING_MX
    state = (EngineState(STATIONARY, writes=False),)
    document = "nki/api/nki.isa.rst#nki.isa.nc_matmul_mx"
    dst = Update(PSUM, doc="[M, N]; read only when accumulating")
    moving = Read(SBUF, doc="[P, N], packed")
    scale = Read(SBUF, starts=SCALE_STARTS, doc="four rows a quadrant")
    accumulate = Attribute(kind=Kind.flag)
    tile = Attribute(kind=Kind.array_tile, default=WHOLE_ARRAY)
