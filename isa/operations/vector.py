"""Element-wise and reducing operations of the vector engine (some run on other engines too)."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import Engine, Memory
from isa.fields import Attribute, Kind, Read, Update, Write
from isa.machine import elementwise, vector
from isa.spec import Instruction, Operation

_API = "nki/api/nki.isa.rst#nki.isa."
_COMPUTE = (Engine.unknown, Engine.vector, Engine.scalar, Engine.gpsimd)
_VECTOR_GPSIMD = (Engine.unknown, Engine.vector, Engine.gpsimd)


class TensorTensor(Operation):
    """dst = data1 <op> data2, element by element.

    Arithmetic in fp32, except that all-int32 or all-uint32 tiles in SBUF go to the GpSimd engine,
    which computes on integers exactly. Bit-vector operators need integer dtypes.
    """

    name = "tensor_tensor"
    document = _API + "tensor_tensor"
    engines = (Engine.vector, Engine.gpsimd)
    dst = Write()
    data1 = Read()
    data2 = Read()
    op = Attribute(kind=Kind.alu)
    engine = Attribute(kind=Kind.engine, choices=_VECTOR_GPSIMD, default=Engine.unknown)
    rules = (
        rules.same_elements("dst", "data1", "data2"),
        rules.not_both_psum("data1", "data2"),
        rules.binary_operator("op"),
        rules.bitvec_dtypes("op", "dst", "data1", "data2"),
        rules.GPSIMD_NO_PSUM,
    )

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        dst, data1, data2, op, engine = values
        if engine is Engine.unknown:
            engine = Engine.vector
            in_psum = any(t.storage.memory is Memory.psum for t in (dst, data1, data2))
            integer = all(t.dtype in ("int32", "uint32") for t in (dst, data1, data2))
            if Engine.vector not in op.engines or (integer and op.arithmetic and not in_psum):
                engine = Engine.gpsimd
        return dst, data1, data2, op, engine

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, data1, data2, op, engine = values
        return (Instruction(elementwise.TensorTensor, engine, (dst, data1, data2, op)),)


class TensorScalar(Operation):
    """dst = (data <op0> operand0) <op1> operand1, the operands being numbers or [P, 1] columns."""

    name = "tensor_scalar"
    document = _API + "tensor_scalar"
    engines = (Engine.vector, Engine.scalar, Engine.gpsimd)
    dst = Write()
    data = Read()
    op0 = Attribute(kind=Kind.alu)
    operand0 = Read(immediate=True, column=True, optional=True)
    reverse0 = Attribute(kind=Kind.flag, default=False)
    op1 = Attribute(kind=Kind.alu, optional=True, default=None)
    operand1 = Read(immediate=True, column=True, optional=True, default=None)
    reverse1 = Attribute(kind=Kind.flag, default=False)
    engine = Attribute(kind=Kind.engine, choices=_COMPUTE, default=Engine.unknown)
    rules = (
        rules.same_elements("dst", "data"),
        rules.column_operand("data", "operand0"),
        rules.column_operand("data", "operand1"),
        rules.operators_of_one_type("op0", "op1"),
        rules.operand_given("op0", "operand0"),
        rules.operand_given("op1", "operand1"),
        rules.bitvec_dtypes("op0", "dst", "data"),
        rules.float32_columns("op0", "operand0", "operand1"),
        rules.TENSOR_SCALAR_ENGINE,
        rules.GPSIMD_NO_PSUM,
    )

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        if values[-1] is Engine.unknown:
            op0, op1 = values[2], values[5]
            wanted = [op for op in (op0, op1) if op is not None]
            on_vector = all(Engine.vector in op.tensor_scalar_engines for op in wanted)
            return (*values[:-1], Engine.vector if on_vector else Engine.gpsimd)
        return values

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(elementwise.TensorScalar, values[-1], values[:-1]),)


class ScalarTensorTensor(Operation):
    """dst = (data <op0> operand0) <op1> operand1 with operand0 a number or column, operand1 a
    tile; arithmetic operators only, in fp32."""

    name = "scalar_tensor_tensor"
    document = _API + "scalar_tensor_tensor"
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
        rules.same_elements("dst", "data", "operand1"),
        rules.column_operand("data", "operand0"),
        rules.not_both_psum("data", "operand1"),
        rules.arithmetic_operator("op0"),
        rules.arithmetic_operator("op1"),
        rules.binary_operator("op1"),
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
    """dst = src on chip: bit-accurate between equal dtypes, else through fp32."""

    name = "tensor_copy"
    document = _API + "tensor_copy"
    engines = (Engine.vector, Engine.scalar, Engine.gpsimd)
    dst = Write()
    src = Read()
    engine = Attribute(kind=Kind.engine, choices=_COMPUTE, default=Engine.unknown)
    rules = (
        rules.same_elements("dst", "src"),
        rules.SCALAR_COPY_GENERATION,
        rules.GPSIMD_NO_PSUM,
    )

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        dst, src, engine = values
        return dst, src, Engine.vector if engine is Engine.unknown else engine

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, src, engine = values
        return (Instruction(elementwise.TensorCopy, engine, (dst, src)),)


class TensorCopyPredicated(Operation):
    """dst = src where predicate is non-zero (zero with `reverse_pred`); elsewhere dst is kept."""

    name = "tensor_copy_predicated"
    document = _API + "tensor_copy_predicated"
    engines = (Engine.vector,)
    dst = Update()
    src = Read(immediate=True)
    predicate = Read(dtypes=frozenset({"uint8", "uint16", "uint32"}))
    reverse_pred = Attribute(kind=Kind.flag, default=False)
    rules = (
        rules.same_elements("dst", "src", "predicate"),
        rules.same_dtype("dst", "src"),
        rules.not_both_psum("src", "predicate"),
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(elementwise.CopyPredicated, Engine.vector, values),)


class TensorReduce(Operation):
    """dst = reduction of data over its last free dimensions by `op`, times -1 with `negate`."""

    name = "tensor_reduce"
    document = _API + "tensor_reduce"
    engines = (Engine.vector,)
    dst = Write()
    op = Attribute(kind=Kind.alu)
    data = Read()
    axis = Attribute(kind=Kind.integers)
    negate = Attribute(kind=Kind.flag, default=False)
    keepdims = Attribute(kind=Kind.flag, default=False)
    rules = (
        rules.REDUCE_AXES,
        rules.reduction_operator("op"),
        rules.bitvec_dtypes("op", "dst", "data"),
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, op, data, axis, negate, _ = values
        return (
            Instruction(vector.TensorReduce, Engine.vector, (dst, data, op, len(axis), negate)),
        )


class Reciprocal(Operation):
    """dst = 1 / data on the vector engine, in fp32."""

    name = "reciprocal"
    document = _API + "reciprocal"
    engines = (Engine.vector,)
    dst = Write()
    data = Read()
    rules = (rules.same_elements("dst", "data"),)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(vector.Reciprocal, Engine.vector, values),)


class Memset(Operation):
    """dst = value in every element."""

    name = "memset"
    document = _API + "memset"
    engines = (Engine.vector, Engine.gpsimd)
    dst = Write()
    value = Attribute(kind=Kind.number)
    engine = Attribute(kind=Kind.engine, choices=_VECTOR_GPSIMD, default=Engine.unknown)
    rules = (rules.MEMSET_VALUE, rules.GPSIMD_NO_PSUM)

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        dst, value, engine = values
        return dst, value, Engine.vector if engine is Engine.unknown else engine

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, value, engine = values
        return (Instruction(elementwise.Memset, engine, (dst, value)),)
