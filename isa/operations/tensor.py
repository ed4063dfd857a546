"""Operations of the tensor engine, and nc_transpose."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.array_tiles import WHOLE_ARRAY, array_tile
from isa.dtypes import DTYPES
from isa.enums import Engine, MatmulPerfMode
from isa.fields import ON_CHIP, PSUM, SBUF, Attribute, Kind, Read, Update, Write
from isa.machine.tensor import (
    LoadStationary,
    LoadStationaryPairs,
    MultiplyMoving,
    MultiplyMovingOneZero,
    MultiplyMovingPairs,
    TransposeMoving,
    TransposeStationary,
)
from isa.machine.vector import Transpose32
from isa.spec import Instruction, MachineInstruction, Operation

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
    With `perf_mode=double_row` (fp8) stationary is [K, 2, M] and moving [K, 2, N], and the pairs
    belong to the contraction. `is_transpose`, from gen3 on, passes stationary's elements on bit for
    bit, picked by the ones of moving. `tile_position` and `tile_size` choose a part of the array.

    Raises contraction-mismatch, shape-mismatch, tile-limit, wrong-memory, dtype-not-allowed,
    value-not-allowed, generation.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def product(lhsT, rhs):  # [K, M], [K, N]; K = 256 in two steps
        ...     accumulator = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.psum)
        ...     for k in range(2):
        ...         rows = nl.ds(k * 128, 128)
        ...         nisa.nc_matmul(accumulator, nl.load(lhsT[rows, :]), nl.load(rhs[rows, :]))
        ...     tile = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.tensor_copy(dst=tile, src=accumulator)
        ...     out = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> ones = np.ones((256, 2), np.float32)
        >>> print(product(ones, ones * np.array([1, 0.5], np.float32)))
        [[256. 128.]
         [256. 128.]]
    """

    name = "nc_matmul"
    engines = (Engine.tensor,)
    variants = ("is_stationary_onezero", "is_moving_onezero", "is_transpose", "perf_mode")
    dst = Update(PSUM, doc="[M, N] tile in PSUM", columns=True, one_bank=True)
    stationary = Read(SBUF, dtypes=_FLOAT_INPUTS, doc="[K, M], K <= 128, M <= 128", columns=True)
    moving = Read(SBUF, dtypes=_FLOAT_INPUTS, doc="[K, N], N <= 512 (gen2, gen3)", columns=True)
    is_stationary_onezero = Attribute(
        kind=Kind.flag, default=False, doc="fp32 stationary holds zeros and ones: half the time"
    )
    is_moving_onezero = Attribute(
        kind=Kind.flag, default=False, doc="fp32 moving holds zeros and ones: half the time"
    )
    is_transpose = Attribute(kind=Kind.flag, default=False)
    accumulate = Attribute(kind=Kind.accumulate, optional=True, default=None)
    tile_position = Attribute(kind=Kind.integers, default=())
    tile_size = Attribute(kind=Kind.integers, default=())
    perf_mode = Attribute(kind=Kind.perf_mode, default=MatmulPerfMode.none)
    rules = (
        rules.matmul.matmul_contraction,
        rules.array.matmul_pairs,
        rules.matmul.matmul_tile_limits,
        rules.matmul.matmul_output_shape,
        rules.banks.one_bank,
        rules.matmul.matmul_dtypes,
        rules.array.matmul_transpose,
        rules.array.matmul_tiling,
        rules.array.tile_partitions,
        rules.indirection.indirection("stationary", (Engine.tensor,)),
        rules.indirection.matmul_indices,
    )

    @classmethod
    def signature_decides(cls, values: tuple[Any, ...]) -> bool:
        """A tile of the array fits or not by where the operands' tensors may start."""
        return not values[cls.places["tile_position"]]

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, stationary, moving, left, right, turn, accumulate, position, size, mode = values
        tile = array_tile(position, size)
        engine = Engine.tensor
        if mode is MatmulPerfMode.double_row:
            return (
                Instruction(LoadStationaryPairs, engine, (stationary, tile)),
                Instruction(MultiplyMovingPairs, engine, (dst, moving, accumulate, tile)),
            )
        multiply: type[MachineInstruction] = MultiplyMoving
        if turn and target.generation >= 3:
            multiply = TransposeMoving
        elif left or right:
            multiply = MultiplyMovingOneZero
        return (
            Instruction(LoadStationary, engine, (stationary, tile)),
            Instruction(multiply, engine, (dst, moving, accumulate, tile)),
        )


class NcTranspose(Operation):
    """dst = data.T between the partition axis and the flattened free axes.

    The tensor engine of gen2 (trn1) multiplies by an identity matrix: an element that is NaN or
    infinite makes NaN of all others of its column of data, which is a row of dst.

    Raises shape-mismatch, tile-limit, wrong-memory (the tensor engine reads SBUF and writes PSUM),
    dtype-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def transposed(a):
        ...     flipped = nl.ndarray((3, 2), dtype=a.dtype, buffer=nl.psum)
        ...     nisa.nc_transpose(dst=flipped, data=nl.load(a), engine=nisa.engine.tensor)
        ...     tile = nl.ndarray((3, 2), dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.tensor_copy(dst=tile, src=flipped)
        ...     out = nl.ndarray((3, 2), dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(transposed(np.arange(6, dtype=np.float32).reshape(2, 3)))
        [[0. 3.]
         [1. 4.]
         [2. 5.]]
    """

    name = "nc_transpose"
    engines = (Engine.tensor, Engine.vector)
    dst = Write(ON_CHIP, one_bank=True)
    data = Read(ON_CHIP, permuted=True)
    engine = Attribute(
        kind=Kind.engine,
        choices=(Engine.unknown, Engine.tensor, Engine.vector),
        default=Engine.unknown,
    )
    rules = (
        rules.matmul.transpose_shape,
        rules.matmul.transpose_engine,
        rules.matmul.transpose_dtype,
        rules.banks.one_bank,
    )

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        dst, data, engine = values
        if engine is Engine.unknown:
            engine = rules.matmul.engine_for_transpose(dst, data)
        return dst, data, engine

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, data, engine = values
        if engine is Engine.vector:
            return (Instruction(Transpose32, engine, (dst, data)),)
        return (
            Instruction(LoadStationary, engine, (data, WHOLE_ARRAY)),
            Instruction(
                TransposeStationary,
                engine,
                (
                    dst,
                    0 if dst.dtype == data.dtype else DTYPES[data.dtype].code,
                    target.generation < 3,
                ),
            ),
        )
