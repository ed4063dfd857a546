"""Operations of the tensor engine, and nc_transpose."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import Engine, MatmulPerfMode
from isa.fields import ON_CHIP, PSUM, SBUF, Attribute, Kind, Read, Update, Write
from isa.machine.tensor import LoadStationary, MultiplyMoving, TransposeStationary
from isa.machine.vector import Transpose32
from isa.spec import Instruction, Operation

_FLOAT_INPUTS = frozenset(
    {
        "float8_e4m3",
        "float8_e4m3fn",
        "float8_e5m2",
        "bfloat16",
        "float16",
        "tfloat32",
        "float32",
    }
)


class NcMatmul(Operation):
    """dst = stationary.T @ moving on the tensor engine, accumulated in fp32 in PSUM.

    The contraction runs along the partitions of both inputs. `accumulate=None` lets the tracer
    decide: the first matmul into a PSUM region since its allocation overwrites, later ones add.
    """

    name = "nc_matmul"
    document = "nki/api/nki.isa.rst#nki.isa.nc_matmul"
    engines = (Engine.tensor,)
    dst = Update(PSUM, doc="[M, N] tile in PSUM")
    stationary = Read(SBUF, dtypes=_FLOAT_INPUTS, doc="[K, M], K <= 128, M <= 128")
    moving = Read(SBUF, dtypes=_FLOAT_INPUTS, doc="[K, N], N <= 512 (gen2, gen3)")
    is_stationary_onezero = Attribute(kind=Kind.flag, default=False)
    is_moving_onezero = Attribute(kind=Kind.flag, default=False)
    is_transpose = Attribute(kind=Kind.flag, default=False)
    accumulate = Attribute(kind=Kind.accumulate, optional=True, default=None)
    tile_position = Attribute(kind=Kind.integers, default=())
    tile_size = Attribute(kind=Kind.integers, default=())
    perf_mode = Attribute(kind=Kind.perf_mode, default=MatmulPerfMode.none)
    rules = (
        rules.MATMUL_CONTRACTION,
        rules.MATMUL_OUTPUT_SHAPE,
        rules.MATMUL_TILE_LIMITS,
        rules.MATMUL_DTYPES,
        rules.MATMUL_MODES,
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, stationary, moving, _, _, _, accumulate, position, _, _ = values
        row, column = position or (0, 0)
        return (
            Instruction(LoadStationary, Engine.tensor, (stationary, row, column)),
            Instruction(MultiplyMoving, Engine.tensor, (dst, moving, accumulate, row, column)),
        )


class NcTranspose(Operation):
    """dst = data.T between the partition axis and the flattened free axes."""

    name = "nc_transpose"
    document = "nki/api/nki.isa.rst#nki.isa.nc_transpose"
    engines = (Engine.tensor, Engine.vector)
    dst = Write(ON_CHIP)
    data = Read(ON_CHIP)
    engine = Attribute(
        kind=Kind.engine,
        choices=(Engine.unknown, Engine.tensor, Engine.vector),
        default=Engine.unknown,
    )
    rules = (rules.TRANSPOSE_SHAPE, rules.TRANSPOSE_ENGINE, rules.same_dtype("dst", "data"))

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        dst, data, engine = values
        if engine is Engine.unknown:
            engine = rules.transpose_engine(dst, data)
        return dst, data, engine

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, data, engine = values
        if engine is Engine.vector:
            return (Instruction(Transpose32, engine, (dst, data)),)
        return (
            Instruction(LoadStationary, engine, (data, 0, 0)),
            Instruction(TransposeStationary, engine, (dst,)),
        )
