"""Element-wise and reducing operations of the vector engine (some run on other engines too)."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.fields import Attribute, Kind, Read, Update, Write
from isa.machine import elementwise, vector
from isa.spec import Instruction, Operation

_COMPUTE = (Engine.unknown, Engine.vector, Engine.scalar, Engine.gpsimd)
_VECTOR_GPSIMD = (Engine.unknown, Engine.vector, Engine.gpsimd)


class TensorTensor(Operation):
    """`dst = data1 <op> data2`, element by element.

    Arithmetic in fp32, except that all-int32 or all-uint32 tiles in SBUF go to the GpSimd engine,
    which computes on integers exactly. Bit-vector operators need integer dtypes.

    Raises shape-mismatch, wrong-memory (both inputs in PSUM), operator-not-allowed,
    dtype-not-allowed, engine-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def last_bit_flipped(a, b):
        ...     total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.tensor_tensor(dst=total, data1=nl.load(a), data2=nl.load(b), op=nl.add)
        ...     one = nl.ones(a.shape, dtype=a.dtype)
        ...     nisa.tensor_tensor(dst=total, data1=total, data2=one, op=nl.bitwise_xor)
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=total)
        ...     return out
        >>> large = 2**24 + 2 * np.arange(3, dtype=np.int32).reshape(1, 3)
        >>> print(last_bit_flipped(large, np.ones_like(large)) - 2**24)  # not so in fp32
        [[0 2 4]]
    """

    name = "tensor_tensor"
    machine = elementwise.TensorTensor
    engines = (Engine.vector, Engine.gpsimd)
    dst = Write(columns=True)
    data1 = Read(columns=True)
    data2 = Read()
    op = Attribute(kind=Kind.alu)
    engine = Attribute(kind=Kind.engine, choices=_VECTOR_GPSIMD, default=Engine.unknown)
    rules = (
        rules.operands.same_elements("dst", "data1", "data2"),
        rules.operands.not_both_psum("data1", "data2"),
        rules.operators.elementwise_operator("op"),
        rules.operators.binary_operator("op"),
        rules.operands.bitvec_dtypes("op", "dst", "data1", "data2"),
        rules.operands.gpsimd_no_psum,
        rules.indirection.indirection(
            "data1",
            (Engine.vector, Engine.gpsimd),
        ),
    )

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        dst, data1, data2, op, engine = values
        if engine is Engine.unknown:
            engine = Engine.vector
            in_psum = any(t.storage.memory is Memory.psum for t in (dst, data1, data2))
            integer = all(t.dtype in ("int32", "uint32") for t in (dst, data1, data2))
            exact = integer and op.arithmetic and Engine.gpsimd in op.engines
            if Engine.vector not in op.engines or (exact and not in_psum):
                engine = Engine.gpsimd
        return dst, data1, data2, op, engine


class TensorScalar(Operation):
    """`dst = (data <op0> operand0) <op1> operand1`, the operands being numbers or [P, 1] columns.

    `reverse0` swaps the inputs of op0: `operand0 <op0> data`; `reverse1` those of op1. Raises
    shape-mismatch, missing-argument, operator-not-allowed (an arithmetic and a bit-vector one),
    dtype-not-allowed, engine-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def scaled_distance(a, centre):
        ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.tensor_scalar(
        ...         dst=tile, data=nl.load(a), op0=nl.subtract, operand0=nl.load(centre),
        ...         reverse0=True, op1=nl.multiply, operand1=10.0,
        ...     )
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> a = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
        >>> print(scaled_distance(a, np.array([[2], [4]], np.float32)))  # (centre - a) * 10
        [[ 10.   0. -10.]
         [  0. -10. -20.]]
    """

    name = "tensor_scalar"
    machine = elementwise.TensorScalar
    engines = (Engine.vector, Engine.scalar, Engine.gpsimd)
    dst = Write(columns=True)
    data = Read(columns=True)
    op0 = Attribute(kind=Kind.alu)
    operand0 = Read(immediate=True, column=True, optional=True)
    reverse0 = Attribute(kind=Kind.flag, default=False)
    op1 = Attribute(kind=Kind.alu, optional=True, default=None)
    operand1 = Read(immediate=True, column=True, optional=True, default=None)
    reverse1 = Attribute(kind=Kind.flag, default=False)
    engine = Attribute(kind=Kind.engine, choices=_COMPUTE, default=Engine.unknown)
    rules = (
        rules.operands.same_elements("dst", "data"),
        *rules.operands.column_operands("data", "operand0", "operand1"),
        rules.operators.elementwise_operator("op0", "op1"),
        rules.operators.operators_of_one_type,
        rules.operators.operand_given("op0", "operand0"),
        rules.operators.operand_given("op1", "operand1"),
        rules.operands.bitvec_dtypes("op0", "dst", "data"),
        rules.operands.float32_columns("op0", "operand0", "operand1"),
        rules.operands.tensor_scalar_engine,
        rules.operands.gpsimd_no_psum,
        rules.indirection.indirection(
            "data",
            (Engine.vector, Engine.scalar, Engine.gpsimd),
        ),
    )

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        if values[-1] is Engine.unknown:
            operators = (values[cls.places[name]] for name in ("op0", "op1"))
            wanted = [op for op in operators if op is not None]
            on_vector = all(Engine.vector in op.tensor_scalar_engines for op in wanted)
            return (*values[:-1], Engine.vector if on_vector else Engine.gpsimd)
        return values


class ScalarTensorTensor(Operation):
    """`dst = (data <op0> operand0) <op1> operand1` with operand0 a number or column, operand1 a
    tile; arithmetic operators only, in fp32.

    Raises shape-mismatch, wrong-memory (both tiles in PSUM), operator-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def axpy(x, y, alpha):
        ...     tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        ...     nisa.scalar_tensor_tensor(
        ...         dst=tile, data=nl.load(x), op0=nl.multiply, operand0=nl.load(alpha),
        ...         op1=nl.add, operand1=nl.load(y),
        ...     )
        ...     out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> x, y = np.ones((2, 3), np.float32), np.full((2, 3), 0.5, np.float32)
        >>> print(axpy(x, y, np.array([[2], [-2]], np.float32)))  # one alpha a partition
        [[ 2.5  2.5  2.5]
         [-1.5 -1.5 -1.5]]
    """

    name = "scalar_tensor_tensor"
    engines = (Engine.vector,)
    dst = Write()
    data = Read()
    op0 = Attribute(kind=Kind.alu)
    operand0 = Read(immediate=True, column=True)
    op1 = Attribute(kind=Kind.alu)
    operand1 = Read()
    reverse0 = Attribute(kind=Kind.flag, default=False)
    reverse1 = Attribute(kind=Kind.flag, default=False)
    rules = (
        rules.operands.same_elements("dst", "data", "operand1"),
        rules.operands.column_operand("data", "operand0"),
        rules.operands.not_both_psum("data", "operand1"),
        rules.operators.elementwise_operator("op0", "op1"),
        rules.operators.arithmetic_operator("op0"),
        rules.operators.operand_given("op0", "operand0"),
        rules.operators.arithmetic_operator("op1"),
        rules.operators.binary_operator("op1"),
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, data, op0, operand0, op1, operand1, reverse0, reverse1 = values
        return (
            Instruction(
                elementwise.ScalarTensorTensor,
                Engine.vector,
                (dst, data, op0, operand0, reverse0, op1, operand1, reverse1),
            ),
        )


class TensorCopy(Operation):
    """dst = src on chip: bit-accurate between equal dtypes, else through fp32.

    Raises shape-mismatch, generation (the scalar engine before gen3), engine-not-allowed
    (GpSimd and PSUM).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def even_columns(a):
        ...     tile = nl.ndarray((2, 3), dtype=nl.int32, buffer=nl.sbuf)
        ...     nisa.tensor_copy(dst=tile, src=nl.load(a)[:, 0:6:2])  # strided; converts
        ...     out = nl.ndarray((2, 3), dtype=nl.int32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(even_columns(np.arange(12, dtype=np.float32).reshape(2, 6)))
        [[ 0  2  4]
         [ 6  8 10]]
    """

    name = "tensor_copy"
    machine = elementwise.TensorCopy
    engines = (Engine.vector, Engine.scalar, Engine.gpsimd)
    dst = Write(columns=True)
    src = Read(columns=True)
    engine = Attribute(kind=Kind.engine, choices=_COMPUTE, default=Engine.unknown)
    rules = (
        rules.operands.same_elements("dst", "src"),
        rules.operands.scalar_copy_generation,
        rules.operands.gpsimd_no_psum,
        rules.indirection.indirection(
            "src",
            (Engine.vector, Engine.scalar),
        ),
    )


class TensorCopyPredicated(Operation):
    """dst = src where predicate is non-zero (zero with `reverse_pred`); elsewhere dst is kept.

    Raises shape-mismatch, dtype-not-allowed (dst and src of two dtypes, a predicate that is no
    unsigned integer), wrong-memory.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def zero_where(a, mask):
        ...     tile = nl.load(a)
        ...     nisa.tensor_copy_predicated(dst=tile, src=0.0, predicate=nl.load(mask))
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> a = np.array([[1, 2, 3, 4]], np.float32)
        >>> print(zero_where(a, np.array([[0, 1, 0, 255]], np.uint8)))
        [[1. 0. 3. 0.]]
    """

    name = "tensor_copy_predicated"
    machine = elementwise.CopyPredicated
    engines = (Engine.vector,)
    dst = Update(columns=True)
    src = Read(immediate=True)
    predicate = Read(dtypes=frozenset({"uint8", "uint16", "uint32"}), columns=True)
    reverse_pred = Attribute(kind=Kind.flag, default=False)
    rules = (
        rules.operands.same_elements("dst", "src", "predicate"),
        rules.operands.same_dtype("dst", "src"),
        rules.operands.copied_number,
        rules.operands.not_both_psum("src", "predicate"),
        rules.indirection.indirection("predicate", (Engine.vector,)),
    )

    @classmethod
    def signature_decides(cls, values: tuple[Any, ...]) -> bool:
        """A dtype of integers holds a number or not."""
        dst, src, *_ = values
        return rules.is_tensor(src) or DTYPES[dst.dtype].is_float


class TensorReduce(Operation):
    """dst = reduction of data over its last free dimensions by `op`, times -1 with `negate`.

    The partition dimension is never reduced. Raises value-not-allowed (axis), shape-mismatch,
    operator-not-allowed, dtype-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def minus_largest(a):
        ...     tile = nl.ndarray((2, 1), dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.tensor_reduce(tile, op=nl.maximum, data=nl.load(a), axis=(1, 2), negate=True)
        ...     out = nl.ndarray((2, 1), dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(minus_largest(np.arange(12, dtype=np.float32).reshape(2, 2, 3)))
        [[ -5.]
         [-11.]]
    """

    name = "tensor_reduce"
    engines = (Engine.vector,)
    dst = Write(columns=True)
    op = Attribute(kind=Kind.alu)
    data = Read(columns=True)
    axis = Attribute(kind=Kind.integers)
    negate = Attribute(kind=Kind.flag, default=False)
    keepdims = Attribute(kind=Kind.flag, default=False)
    rules = (
        rules.operands.reduce_axes,
        rules.operators.reduction_operator("op"),
        rules.operands.bitvec_dtypes("op", "dst", "data"),
        rules.indirection.indirection("data", (Engine.vector,)),
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, op, data, axis, negate, _ = values
        return (
            Instruction(vector.TensorReduce, Engine.vector, (dst, data, op, len(axis), negate)),
        )


class Reciprocal(Operation):
    """dst = 1 / data on the vector engine, in fp32.

    Raises shape-mismatch.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def inverse(a):
        ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.reciprocal(dst=tile, data=nl.load(a))
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(inverse(np.array([[1, 2, -4, 0]], np.float32)))
        [[ 1.    0.5  -0.25   inf]]
    """

    name = "reciprocal"
    machine = vector.Reciprocal
    engines = (Engine.vector,)
    rules = (rules.operands.same_elements("dst", "data"),)


class Memset(Operation):
    """dst = value in every element.

    `value` is rounded to a float dtype. Raises value-not-allowed for one that an integer dtype does
    not hold exactly, engine-not-allowed (GpSimd and PSUM).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def framed(a):
        ...     tile = nl.ndarray((2, 6), dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.memset(dst=tile, value=-1.0)
        ...     nisa.dma_copy(dst=tile[:, 1:5], src=a)
        ...     out = nl.ndarray((2, 6), dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(framed(np.ones((2, 4), np.float32)))
        [[-1.  1.  1.  1.  1. -1.]
         [-1.  1.  1.  1.  1. -1.]]
    """

    name = "memset"
    machine = elementwise.Memset
    engines = (Engine.vector, Engine.gpsimd)
    dst = Write()
    value = Attribute(kind=Kind.number)
    engine = Attribute(kind=Kind.engine, choices=_VECTOR_GPSIMD, default=Engine.unknown)
    rules = (rules.operands.memset_value, rules.operands.gpsimd_no_psum)
