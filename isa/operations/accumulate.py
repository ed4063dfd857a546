"""Operations of the vector engine that reduce into its accumulate registers."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.alu import ALU
from isa.dtypes import DTYPES
from isa.enums import Engine, ReduceCommand
from isa.fields import Attribute, Kind, Read, Write
from isa.machine import accumulate
from isa.spec import Instruction, Operation

_COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
_FLOATS = frozenset(name for name, dtype in DTYPES.items() if dtype.is_float)
_NUMBERS = frozenset(
    name for name, dtype in DTYPES.items() if not (dtype.is_packed or dtype.dma_only)
)
_EXPONENTIAL_DTYPES = frozenset(
    {
        "float8_e4m3",
        "float8_e5m2",
        "float16",
        "bfloat16",
        "float32",
        "int8",
        "int16",
        "int32",
        "uint8",
        "uint16",
    }
)
_STARTING = (ReduceCommand.reset_reduce, ReduceCommand.reduce, ReduceCommand.load_reduce)


def _reading(instruction: Instruction, result: Any, negate: Any = False) -> tuple[Instruction, ...]:
    """An instruction, followed by a read of the accumulate registers where the result is wanted."""
    if result is None:
        return (instruction,)
    lanes = rules.starts.lanes_behind(result, instruction.values[0])
    read = Instruction(accumulate.VectorReadAccumulator, Engine.vector, (result, negate, lanes))
    return instruction, read


class TensorScalarReduce(Operation):
    """`dst = data <op0> operand0` in fp32, and reduce_res [P, 1] its reduction along the partition.

    The results are reduced before they are converted to dst's dtype. The vector engine's
    accumulate registers hold the reduction: `reduce_cmd` starts them from the operator's identity
    (reset_reduce), goes on from an earlier call (reduce), or starts from `reduce_init`
    (load_reduce). Without `reduce_res` the reduction stays there for a later call;
    `reduce_res_negate` changes the sign of what is written, not of the registers. Raises
    shape-mismatch, operator-not-allowed, dtype-not-allowed, missing-argument, value-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def centred_with_sum(a, mean):
        ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     total = nl.ndarray((a.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.tensor_scalar_reduce(
        ...         dst=tile, data=nl.load(a), op0=nl.subtract, operand0=nl.load(mean),
        ...         reduce_op=nl.add, reduce_res=total,
        ...     )
        ...     out = nl.ndarray(total.shape, dtype=total.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=total)
        ...     return out
        >>> a = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
        >>> print(centred_with_sum(a, np.array([[1], [4]], np.float32)))
        [[3.]
         [3.]]
    """

    name = "tensor_scalar_reduce"
    engines = (Engine.vector,)
    dst = Write(columns=True)
    data = Read(columns=True)
    op0 = Attribute(kind=Kind.alu)
    operand0 = Read(immediate=True, column=True, optional=True)
    reduce_op = Attribute(kind=Kind.alu)
    reduce_res = Write(column=True, optional=True, default=None)
    reverse0 = Attribute(kind=Kind.flag, default=False)
    reduce_cmd = Attribute(
        kind=Kind.reduce_command, choices=_STARTING, default=ReduceCommand.reset_reduce
    )
    reduce_init = Read(immediate=True, column=True, optional=True, default=None)
    reduce_res_negate = Attribute(kind=Kind.flag, default=False)
    rules = (
        rules.operands.same_elements("dst", "data"),
        *rules.operands.column_operands("data", "operand0", "reduce_res", "reduce_init"),
        rules.operators.elementwise_operator("op0"),
        rules.operators.arithmetic_operator("op0"),
        rules.operators.operand_given("op0", "operand0"),
        rules.operands.float32_columns("op0", "operand0"),
        rules.operands.float32_columns(None, "reduce_init"),
        rules.accumulate.operator_among(
            "reduce_op",
            ("add", "multiply", "maximum", "minimum"),
        ),
        rules.accumulate.loaded_value("reduce_init"),
        rules.accumulate.reverse_not_supported,
        rules.indirection.indirection("data", (Engine.vector,)),
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, data, op0, operand0, reduce_op, result, _, command, initial, negate = values
        reduce = Instruction(
            accumulate.TensorScalarReduce,
            Engine.vector,
            (dst, data, op0, operand0, reduce_op, command, initial),
        )
        return _reading(reduce, result, negate)


class SelectReduce(Operation):
    """dst = on_true where predicate is non-zero (zero, with `reverse_pred`), else on_false.

    With a `reduce_cmd` other than idle, each partition's maximum of the fp32 result goes into the
    vector engine's accumulate registers, and from there to `reduce_res` [P, 1]; reduce goes on from
    an earlier call. idle leaves the registers undefined. Raises shape-mismatch, wrong-memory
    (on_true and predicate in PSUM), dtype-not-allowed, operator-not-allowed, value-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def largest_chosen(a, mask):
        ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     found = nl.ndarray((a.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.select_reduce(
        ...         dst=tile, predicate=nl.load(mask), on_true=nl.load(a), on_false=-1.0,
        ...         reduce_res=found, reduce_cmd=nisa.reduce_cmd.reset_reduce,
        ...     )
        ...     out = nl.ndarray(found.shape, dtype=found.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=found)
        ...     return out
        >>> mask = np.array([[1, 1, 0, 1], [0, 0, 0, 0]], np.uint8)
        >>> print(largest_chosen(np.array([[3, 5, 9, 4], [1, 2, 3, 4]], np.float32), mask))
        [[ 5.]
         [-1.]]
    """

    name = "select_reduce"
    engines = (Engine.vector,)
    dst = Write()
    predicate = Read(dtypes=frozenset({"int8", "uint8", "int16", "uint16"}))
    on_true = Read(dtypes=_NUMBERS - {"tfloat32", "int32", "uint32"})
    on_false = Read(immediate=True, column=True)
    reduce_res = Write(column=True, optional=True, default=None, dtypes=_FLOATS)
    reduce_cmd = Attribute(
        kind=Kind.reduce_command,
        choices=(ReduceCommand.idle, ReduceCommand.reset_reduce, ReduceCommand.reduce),
        default=ReduceCommand.idle,
    )
    reduce_op = Attribute(kind=Kind.alu, default=ALU["maximum"])
    reverse_pred = Attribute(kind=Kind.flag, default=False)
    rules = (
        rules.operands.same_elements("dst", "on_true", "predicate"),
        *rules.operands.column_operands("on_true", "on_false", "reduce_res"),
        rules.operands.not_both_psum("on_true", "predicate"),
        rules.accumulate.operator_among("reduce_op", ("maximum",)),
        rules.accumulate.result_of_reduction,
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, predicate, on_true, on_false, result, command, _, reverse = values
        select = Instruction(
            accumulate.SelectReduce,
            Engine.vector,
            (dst, predicate, on_true, on_false, reverse, command),
        )
        return _reading(select, result)


class RangeSelect(Operation):
    """dst = on_true_tile at positions in a range, else -3.4028235e+38, with each partition's
    maximum.

    Element i of a partition is in the range where `range_start + i <comp_op0> bound0` and
    `range_start + i <comp_op1> bound1` hold in fp32; bounds are [P, 1]. The maximum of the fp32
    result goes into the vector engine's accumulate registers as `reduce_cmd` says, and from there
    to `reduce_res` [P, 1]. In a 16-bit or smaller float dst the fill value becomes -inf: keep
    reduce_res in float32 then. gen3 on. Raises generation, shape-mismatch, dtype-not-allowed,
    operator-not-allowed, value-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def largest_between(a, first, last):
        ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     found = nl.ndarray((a.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.range_select(
        ...         dst=tile, on_true_tile=nl.load(a), comp_op0=nl.greater_equal,
        ...         comp_op1=nl.less, bound0=nl.load(first), bound1=nl.load(last),
        ...         reduce_res=found,
        ...     )
        ...     out = nl.ndarray(found.shape, dtype=found.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=found)
        ...     return out
        >>> a = np.array([[9, 1, 5, 3, 8]], np.float32)
        >>> print(largest_between(a, np.array([[1.0]], np.float32), np.array([[4.0]], np.float32)))
        [[5.]]
    """

    name = "range_select"
    engines = (Engine.vector,)
    generations = (3, 4)
    dst = Write()
    on_true_tile = Read(dtypes=_FLOATS)
    comp_op0 = Attribute(kind=Kind.alu)
    comp_op1 = Attribute(kind=Kind.alu)
    bound0 = Read(column=True, dtypes=frozenset({"float32"}))
    bound1 = Read(column=True, dtypes=frozenset({"float32"}))
    reduce_cmd = Attribute(
        kind=Kind.reduce_command,
        choices=(
            ReduceCommand.idle,
            ReduceCommand.reset,
            ReduceCommand.reduce,
            ReduceCommand.reset_reduce,
        ),
        default=ReduceCommand.reset_reduce,
    )
    reduce_res = Write(column=True, optional=True, default=None)
    reduce_op = Attribute(kind=Kind.alu, default=ALU["maximum"])
    range_start = Attribute(kind=Kind.integer, default=0)
    on_false_value = Attribute(kind=Kind.number, default=accumulate.FP32_LOWEST)
    rules = (
        rules.operands.same_elements("dst", "on_true_tile"),
        *rules.operands.column_operands("on_true_tile", "bound0", "bound1", "reduce_res"),
        rules.accumulate.operator_among("comp_op0", _COMPARISONS),
        rules.accumulate.operator_among("comp_op1", _COMPARISONS),
        rules.accumulate.operator_among("reduce_op", ("maximum",)),
        rules.accumulate.result_of_reduction,
        rules.accumulate.range_positions,
        rules.accumulate.range_fill,
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, data, op0, op1, bound0, bound1, command, result, _, start, _ = values
        select = Instruction(
            accumulate.RangeSelect,
            Engine.vector,
            (dst, data, op0, op1, bound0, bound1, start, command),
        )
        return _reading(select, result)


class Exponential(Operation):
    """dst = exp(src - max_value) in fp32 on the vector engine, and optionally each partition's sum.

    The sum of the fp32 results goes into the accumulate registers: reset_reduce starts them from 0,
    load_reduce from `reduce_init`, reduce goes on; `reduce_res` [P, 1] reads them. idle, the
    default, leaves them undefined. gen4. Raises generation, shape-mismatch, dtype-not-allowed,
    value-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit(platform_target="trn3")
        ... def sum_of_exponentials(a, largest):
        ...     tile = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        ...     total = nl.ndarray((a.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.exponential(
        ...         dst=tile, src=nl.load(a), max_value=nl.load(largest), reduce_res=total,
        ...         reduce_cmd=nisa.reduce_cmd.reset_reduce,
        ...     )
        ...     out = nl.ndarray(total.shape, dtype=total.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=total)
        ...     return out
        >>> a = np.full((2, 3), 5.0, np.float32)
        >>> print(sum_of_exponentials(a, np.array([[5.0], [5.0]], np.float32)))
        [[3.]
         [3.]]
    """

    name = "exponential"
    engines = (Engine.vector,)
    generations = (4,)
    dst = Write(dtypes=_EXPONENTIAL_DTYPES | {"tfloat32"}, columns=True)
    src = Read(dtypes=_EXPONENTIAL_DTYPES | {"uint32"}, columns=True)
    max_value = Read(immediate=True, column=True, default=0.0)
    reduce_res = Write(
        column=True,
        optional=True,
        default=None,
        dtypes=_FLOATS - {"float8_e4m3fn", "float8_e8m0fnu"},
    )
    reduce_cmd = Attribute(
        kind=Kind.reduce_command,
        choices=(ReduceCommand.idle, *_STARTING),
        default=ReduceCommand.idle,
    )
    reduce_init = Read(immediate=True, column=True, default=0.0)
    rules = (
        rules.operands.same_elements("dst", "src"),
        *rules.operands.column_operands("src", "max_value", "reduce_res", "reduce_init"),
        rules.operands.float32_columns(None, "max_value", "reduce_init"),
        rules.sizes.dimensions_at_most("dst", 4),
        rules.sizes.dimensions_at_most("src", 4),
        rules.accumulate.loaded_value("reduce_init", unset=0.0),
        rules.accumulate.result_of_reduction,
        rules.indirection.indirection("src", (Engine.vector,)),
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, src, maximum, result, command, initial = values
        exponential = Instruction(
            accumulate.Exponential, Engine.vector, (dst, src, maximum, command, initial)
        )
        return _reading(exponential, result)
