"""Operations on microscaled (MX) tensors."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.array_tiles import array_tile
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.fields import PSUM, SBUF, Attribute, Kind, Read, Update, Write
from isa.machine import mx
from isa.spec import Instruction, Operation

_PACKED = frozenset(name for name, row in DTYPES.items() if row.is_packed)
_SCALES = frozenset({"float8_e8m0fnu", "uint8"})


class QuantizeMx(Operation):
    """dst, dst_scale = src in MXFP8: groups of 32 elements that share a power of two as scale.

    A group is 8 partitions by 4 consecutive elements. Its scale is 2**(e - (Emax - 1)), where e is
    the exponent of its largest magnitude and Emax that of the element type (8 for float8_e4m3fn,
    15 for float8_e5m2); a group of zeros has 2**-127. dst packs four elements into one.
    dst_scale takes four rows in each quadrant of 32 partitions, from the partition where it
    starts (0, 4, 8 or 12 of the quadrant): its other partitions keep what they hold. gen4.

    Raises generation, shape-mismatch, tile-limit, dtype-not-allowed, view-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit(platform_target="trn3")
        ... def scale_codes(a):
        ...     data = nl.ndarray((32, 1), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        ...     scale = nl.ndarray((4, 1), dtype=nl.uint8, buffer=nl.sbuf)
        ...     nisa.quantize_mx(dst=data, src=nl.load(a), dst_scale=scale)
        ...     out = nl.ndarray((4, 1), dtype=nl.uint8, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=scale)
        ...     return out
        >>> rows = np.repeat([1.0, 2.0, 300.0, 0.0], 8)  # 2**-7, 2**-6, 2**1, 2**-127
        >>> print(scale_codes(np.repeat(rows[:, None], 4, axis=1).astype(np.float16)).ravel())
        [120 121 128   0]
    """

    name = "quantize_mx"
    machine = mx.QuantizeMx
    engines = (Engine.vector,)
    generations = (4,)
    dst = Write(
        SBUF, dtypes=frozenset({"float8_e5m2_x4", "float8_e4m3fn_x4"}), doc="[P, F / 4], packed"
    )
    src = Read(SBUF, dtypes=frozenset({"float16", "bfloat16"}), doc="[P, F]")
    dst_scale = Update(
        SBUF, dtypes=_SCALES, starts=mx.SCALE_STARTS, doc="four rows a quadrant are written"
    )
    rules = (rules.mx.quantize_shape, rules.mx.scales_of("dst", "dst_scale"))

    @classmethod
    def signature_decides(cls, values: tuple[Any, ...]) -> bool:
        """Scales lie in a quadrant of elements or not by both their addresses."""
        return not rules.starts.has_address(*values)


class NcMatmulMx(Operation):
    """dst = stationary.T @ moving of MX tensors, multiplied by their scales, accumulated in fp32.

    The contraction runs along the partitions and the four values of a packed element; fp8 and fp4
    may meet. Scales lie as `quantize_mx` writes them. `accumulate` is as in `nc_matmul`;
    `tile_position` and `tile_size` choose rows of the array. gen4.

    Raises generation, contraction-mismatch, shape-mismatch, tile-limit, wrong-memory,
    dtype-not-allowed, value-not-allowed, view-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit(platform_target="trn3")
        ... def gram(a):  # [P, 4 M]: a contraction of 4 P in groups of four columns
        ...     partitions, columns = a.shape[0], a.shape[1] // 4
        ...     data = nl.ndarray((partitions, columns), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        ...     scale = nl.ndarray((partitions, columns), dtype=nl.uint8, buffer=nl.sbuf)
        ...     nisa.quantize_mx(dst=data, src=nl.load(a), dst_scale=scale)
        ...     product = nl.ndarray((columns, columns), dtype=nl.float32, buffer=nl.psum)
        ...     nisa.nc_matmul_mx(product, data, data, scale, scale)
        ...     tile = nl.ndarray((columns, columns), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.tensor_copy(dst=tile, src=product)
        ...     out = nl.ndarray((columns, columns), dtype=nl.float32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> a = np.concatenate([np.full((64, 4), 1), np.full((64, 4), 3)], 1).astype(np.float16)
        >>> print(gram(a))
        [[ 256.  768.]
         [ 768. 2304.]]
    """

    name = "nc_matmul_mx"
    engines = (Engine.tensor,)
    generations = (4,)
    dst = Update(
        PSUM,
        dtypes=frozenset({"float32", "bfloat16"}),
        columns=True,
        doc="[M, N] tile in PSUM",
    )
    stationary = Read(
        SBUF, dtypes=_PACKED, columns=True, doc="[P, M], packed; P a multiple of 32, M even"
    )
    moving = Read(SBUF, dtypes=_PACKED, columns=True, doc="[P, N], packed")
    stationary_scale = Read(SBUF, dtypes=_SCALES, starts=mx.SCALE_STARTS, columns=True)
    moving_scale = Read(SBUF, dtypes=_SCALES, starts=mx.SCALE_STARTS, columns=True)
    tile_position = Attribute(kind=Kind.integers, optional=True, default=None)
    tile_size = Attribute(kind=Kind.integers, optional=True, default=None)
    accumulate = Attribute(kind=Kind.accumulate, optional=True, default=None)
    rules = (
        rules.matmul.matmul_contraction,
        rules.matmul.matmul_output_shape,
        rules.array.matmul_mx_tiling,
        rules.array.matmul_mx_sizes,
        rules.array.tile_partitions,
        rules.mx.scales_of("stationary", "stationary_scale"),
        rules.mx.scales_of("moving", "moving_scale"),
        rules.indirection.indirection("stationary", (Engine.tensor,)),
        rules.indirection.mx_indices,
    )

    @classmethod
    def signature_decides(cls, values: tuple[Any, ...]) -> bool:
        """A tile of the array fits or not by where the operands' tensors may start, and so do
        scales."""
        operands = (values[place] for place, _, _ in cls.operands)
        return not values[cls.places["tile_position"]] and not rules.starts.has_address(*operands)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, stationary, moving, left, right, position, size, accumulate = values
        tile = array_tile(position, size)
        engine = Engine.tensor
        return (
            Instruction(mx.LoadStationaryMx, engine, (stationary, left, tile)),
            Instruction(mx.MultiplyMovingMx, engine, (dst, moving, right, accumulate, tile)),
        )
