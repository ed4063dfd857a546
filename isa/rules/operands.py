"""Rules on the shapes, memories, dtypes and operators of element-wise and reducing operations."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from isa.alu import ALU
from isa.dtypes import DTYPES, DType, DTypeKind
from isa.enums import Engine, ReduceCommand
from isa.fields import INT32, REGISTER
from isa.rules.form import (
    OWN_PAGE,
    OperationCall,
    Rule,
    Violation,
    elements,
    free_elements,
    in_psum,
    is_tensor,
    listed,
    partitions,
    plural,
    rule,
    shape_text,
)
from isa.rules.generic import generation_violation
from isa.rules.operators import engine_violation
from isa.spec import ISA

_LEAST, _MOST = REGISTER
_REGISTER_BITS = 32
_ENGINES = "nki/guides/architecture/trainium_inferentia2_arch.rst#neuroncore-v2-compute-engines"


def _tensors(call: OperationCall, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    given = [(name, call.field(name)) for name in names]
    return [(name, value) for name, value in given if is_tensor(value)]


def same_elements(*names: str) -> Rule:
    """The operands have the same partitions and the same number of elements in each; numbers and
    operands that were not given are left out."""

    def check(call: OperationCall) -> Violation | None:
        tensors = _tensors(call, names)
        first, reference = tensors[0]
        for name, tensor in tensors[1:]:
            a, b = partitions(reference), partitions(tensor)
            if a != b:
                return Violation(
                    "shape-mismatch",
                    f"{first} has {plural(a, 'partition')}, {name} has {b} "
                    f"({shape_text(reference)} and {shape_text(tensor)})",
                    operand=name,
                )
            a, b = free_elements(reference), free_elements(tensor)
            if a != b:
                return Violation(
                    "shape-mismatch",
                    f"{first} has {plural(a, 'element')} per partition, {name} has {b} "
                    f"({shape_text(reference)} and {shape_text(tensor)})",
                    hint=f"Sizes are not broadcast: take {name}.broadcast(1, {a}), or "
                    "nisa.tensor_scalar, whose operands are one element a partition."
                    if b == 1 and tensor.shape == (partitions(tensor), 1)
                    else "",
                    operand=name,
                )
        return None

    text = f"{listed(names)} have the same partitions and the same elements in each."
    return Rule("same_elements", ISA + "tensor_tensor", check, text)


def same_shape(left: str, right: str) -> Rule:
    """Two operands have the same dimensions."""

    def check(call: OperationCall) -> Violation | None:
        one, other = call.field(left), call.field(right)
        if len(one.shape) == len(other.shape) and all(
            a == b for a, b in zip(one.shape, other.shape)
        ):
            return None
        return Violation(
            "shape-mismatch",
            f"{left} is {shape_text(one)}, {right} is {shape_text(other)}",
            why=f"{left} and {right} have the same shape here.",
            hint=f"Take {right}.reshape({tuple(one.shape)})."
            if math.prod(one.shape) == math.prod(other.shape)
            else "",
            operand=right,
        )

    return Rule("same_shape", OWN_PAGE, check, f"{left} and {right} have the same shape.")


def column_operand(data: str, operand: str) -> Rule:
    """A tensor operand has one element in each of data's partitions."""

    def check(call: OperationCall) -> Violation | None:
        tensor = call.field(operand)
        if not is_tensor(tensor):
            return None
        rows = partitions(getattr(call, data))
        if partitions(tensor) == rows and free_elements(tensor) == 1:
            return None
        return Violation(
            "shape-mismatch",
            f"{operand} has shape {shape_text(tensor)}, expected [{rows}, 1]",
            why=f"{operand} is one element a partition of {data}, broadcast along the rest.",
            hint=f"Slice one column, for example {operand}[:, 0:1], or use nisa.tensor_tensor "
            "for a whole tile.",
            operand=operand,
        )

    text = f"A tensor {operand} has shape [P, 1] for the P partitions of {data}."
    return Rule("column_operand", ISA + "tensor_scalar", check, text)


def column_operands(data: str, *operands: str) -> tuple[Rule, ...]:
    """The same of several operands."""
    return tuple(column_operand(data, operand) for operand in operands)


def same_dtype(*names: str) -> Rule:
    """The tensors among the operands have one dtype."""

    def check(call: OperationCall) -> Violation | None:
        tensors = _tensors(call, names)
        first, reference = tensors[0]
        for name, tensor in tensors[1:]:
            if tensor.dtype != reference.dtype:
                return Violation(
                    "dtype-not-allowed",
                    f"{first} is {reference.dtype}, {name} is {tensor.dtype}",
                    why=f"{first} and {name} must have the same data type here.",
                    operand=name,
                )
        return None

    return Rule("same_dtype", ISA + "nc_transpose", check, f"{listed(names)} have one dtype.")


def register_element(name: str) -> Rule:
    """The operand is one element that a register holds."""
    single = one_element(name)

    def check(call: OperationCall) -> Violation | None:
        dtype = DTYPES[call.field(name).dtype]
        if dtype.bits <= _REGISTER_BITS:
            return single.check(call)
        return Violation(
            "dtype-not-allowed",
            f"{name} is {dtype.name}, a register has {_REGISTER_BITS} bits",
            hint=f"View it as two integers: {name}.view(nl.int32)[..., 0:1] is the lower half.",
            operand=name,
        )

    text = f"{name} has exactly one element, of at most {_REGISTER_BITS} bits."
    return Rule("register_element", single.document, check, text)


def one_element(name: str) -> Rule:
    """The operand has exactly one element."""

    def check(call: OperationCall) -> Violation | None:
        tensor = getattr(call, name)
        if elements(tensor) == 1:
            return None
        return Violation(
            "shape-mismatch",
            f"{name} has shape {shape_text(tensor)}, expected one element",
            why="A register holds one 32-bit value.",
            hint=f"Slice one element, for example {name}[0:1, 0:1].",
            operand=name,
        )

    return Rule("one_element", ISA + "register_load", check, f"{name} has exactly one element.")


def not_both_psum(left: str, right: str) -> Rule:
    """At most one of two inputs is in PSUM."""

    def check(call: OperationCall) -> Violation | None:
        if in_psum(call.field(left)) and in_psum(call.field(right)):
            return Violation(
                "wrong-memory",
                f"{left} and {right} are both in psum",
                why="The vector engine reads at most one of its two input tiles from PSUM.",
                hint="Copy one of them to SBUF with nisa.tensor_copy.",
                operand=right,
            )
        return None

    text = f"At most one of {left} and {right} is in PSUM."
    return Rule("not_both_psum", ISA + "tensor_tensor", check, text)


def bitvec_dtypes(op: str, *names: str) -> Rule:
    """With a bit-vector operator, the tensors are integers."""

    def check(call: OperationCall) -> Violation | None:
        operator = call.field(op)
        if operator is None or operator.arithmetic:
            return None
        for name in names:
            tensor = call.field(name)
            if is_tensor(tensor) and not DTYPES[tensor.dtype].is_integer:
                return Violation(
                    "dtype-not-allowed",
                    f"{name} is {tensor.dtype}, {op}={operator.name} needs an integer type",
                    why="Bit-vector operators work on bit patterns of integers, without casts.",
                    hint="View the tensor as an integer type of the same size.",
                    operand=name,
                )
        return None

    text = f"With a bit-vector {op}, {listed(names)} are integers."
    return Rule("bitvec_dtypes", ISA + "tensor_tensor", check, text)


def float32_columns(op: str | None, *names: str) -> Rule:
    """Column operands are float32 with arithmetic, integers with bit-vector operators."""

    def check(call: OperationCall) -> Violation | None:
        operator = call.field(op)
        arithmetic = operator is None or operator.arithmetic
        for name in names:
            value = call.field(name)
            if not arithmetic and isinstance(value, int) and not _LEAST <= value <= _MOST:
                return Violation(
                    "value-not-allowed",
                    f"{name} is {value}, expected an integer of 32 bits",
                    why="Bit-vector operators work on patterns of at most 32 bits.",
                    operand=name,
                )
            if is_tensor(value):
                dtype = value.dtype
                accepted = dtype == "float32" if arithmetic else DTYPES[dtype].is_integer
                shown = dtype
            else:
                accepted = arithmetic or value is None or isinstance(value, Integral)
                shown = repr(value)
            if not accepted:
                expected = "float32" if arithmetic else "an integer"
                return Violation(
                    "dtype-not-allowed",
                    f"{name} is {shown}, expected {expected}",
                    why="Engines take column operands in fp32 for arithmetic, as integers for "
                    "bit-vector operators; bias of nisa.activation alone may have other dtypes.",
                    operand=name,
                )
        return None

    text = f"A tensor in place of {listed(names, 'or')} is float32"
    text += "." if op is None else f"; with a bit-vector {op}, tensors and numbers are integers."
    return Rule("float32_columns", ISA + "tensor_scalar", check, text)


@rule(
    ISA + "iota",
    "pattern has 1 to 4 [step, count] pairs; the counts multiply to the elements of a partition of "
    "dst.",
)
def pattern_covers(call: OperationCall) -> Violation | None:
    pairs, dst = call.pattern, call.dst
    if not 1 <= len(pairs) <= 4:
        return Violation(
            "value-not-allowed",
            f"pattern has {len(pairs)} [step, count] pairs, expected 1 to 4",
            operand="pattern",
        )
    for step, _ in pairs:
        if not INT32[0] <= step <= INT32[1]:
            return Violation(
                "value-not-allowed",
                f"pattern has the step {step}, expected an integer of 32 bits",
                operand="pattern",
            )
    count = math.prod(pair[1] for pair in pairs)
    if count == free_elements(dst):
        return None
    return Violation(
        "shape-mismatch",
        f"pattern covers {plural(count, 'element')} per partition, dst {shape_text(dst)} has "
        f"{free_elements(dst)}",
        why="The counts of a pattern multiply to the elements of a partition.",
        operand="pattern",
    )


@rule(_ENGINES, "On the gpsimd engine, asked for or needed by the operator, no tensor is in PSUM.")
def gpsimd_no_psum(call: OperationCall) -> Violation | None:
    engine = call.field("engine")
    operators = [op for name in ("op", "op0", "op1") if (op := call.field(name)) is not None]
    forced = engine is Engine.unknown and any(
        Engine.vector not in (op.tensor_scalar_engines if "op0" in call.names else op.engines)
        for op in operators
    )
    if engine is not Engine.gpsimd and not forced:
        return None
    for name, tensor in call.tensors():
        if in_psum(tensor):
            names = ", ".join(op.name for op in operators)
            reason = f" (which {names} needs)" if forced else ""
            return Violation(
                "engine-not-allowed",
                f"{name} ({tensor.storage.name}) is in psum, which the gpsimd engine{reason} "
                "cannot access",
                hint="Copy the tile to SBUF first, or let another engine run the operation.",
                operand=name,
            )
    return None


@rule(
    ISA + "tensor_scalar",
    "The engine that is asked for runs the operators; the scalar engine runs multiply, add, and "
    "multiply followed by add, the gpsimd engine what the vector engine lacks, as rsqrt.",
)
def tensor_scalar_engine(call: OperationCall) -> Violation | None:
    engine, pair = call.engine, (call.op0, call.op1)
    if engine is Engine.unknown:
        return None
    for op in pair:
        if op is not None and engine not in op.tensor_scalar_engines:
            return engine_violation(op, engine, op.tensor_scalar_engines)
    if engine is Engine.gpsimd and all(
        op is None or Engine.vector in op.tensor_scalar_engines for op in pair
    ):
        return Violation(
            "engine-not-allowed",
            f"the gpsimd engine does not run tensor_scalar with {call.op0.name}",
            why="The gpsimd engine runs tensor_scalar only for what the vector engine lacks, as "
            "rsqrt (SDK nki/api/nki.isa.rst#nki.isa.tensor_scalar, engine).",
            hint="Leave engine out, or ask for the vector engine.",
            operand="engine",
        )
    multiply, add = ALU["multiply"], ALU["add"]
    if engine is Engine.scalar and pair not in ((multiply, add), (multiply, None), (add, None)):
        names = ", ".join("None" if op is None else op.name for op in pair)
        return Violation(
            "engine-not-allowed",
            f"the scalar engine does not run tensor_scalar with the operators {names}",
            why="On the scalar engine: multiply, add, or multiply followed by add.",
            operand="engine",
        )
    return None


@rule(ISA + "tensor_copy", "engine=scalar needs gen3 or later.")
def scalar_copy_generation(call: OperationCall) -> Violation | None:
    if call.engine is Engine.scalar and call.target.generation < 3:
        return generation_violation(
            "tensor_copy on the scalar engine",
            (3, 4),
            call.target,
            "Use nisa.activation with op=nl.copy, or the vector engine.",
        )
    return None


@rule(
    ISA + "tensor_reduce",
    "axis names the last free dimensions of data; dst has one element for each that is left.",
)
def reduce_axes(call: OperationCall) -> Violation | None:
    rank = len(call.data.shape)
    axes = sorted(a + rank if a < 0 else a for a in call.axis)
    if not axes or axes[0] < 1 or axes != list(range(rank - len(axes), rank)):
        return Violation(
            "value-not-allowed",
            f"axis is {tuple(call.axis)} for data {shape_text(call.data)}",
            why="The reduced axes are the last free dimensions, without gaps, and never the "
            "partition dimension.",
            hint="Across partitions: nisa.tensor_partition_reduce, nisa.nc_matmul with a column of "
            "ones, or nisa.nc_transpose before. Otherwise reorder the view's dimensions."
            if 0 in axes
            else "Reorder the view's dimensions, or transpose the tile with nisa.nc_transpose.",
            operand="axis",
        )
    rows, kept = partitions(call.data), math.prod(call.data.shape[1 : axes[0]])
    if partitions(call.dst) == rows and free_elements(call.dst) == kept:
        return None
    return Violation(
        "shape-mismatch",
        f"dst has shape {shape_text(call.dst)}, reducing data {shape_text(call.data)} over axis "
        f"{tuple(call.axis)} gives [{rows}, {kept}]",
        why="dst has one element for each that the reduction leaves.",
        hint=_reduced_dst(call, rows, kept),
        operand="dst",
    )


def _reduced_dst(call: OperationCall, rows: int, kept: int) -> str:
    """How to write a dst that fits: a slice of the one that is there, or a tile of its own."""
    dst = call.dst
    column = [f"0:{rows}", *[":"] * (len(dst.shape) - 2), f"0:{kept}"]
    inside = math.prod(dst.shape[1:-1]) == 1 and dst.shape[0] >= rows and dst.shape[-1] >= kept
    tile = f"nl.ndarray(({rows}, {kept}), dtype=nl.{dst.dtype}, buffer=nl.sbuf)"
    return f"Make it {tile}" + (f", or write to dst[{', '.join(column)}]." if inside else ".")


@rule(
    ISA + "activation",
    "bias goes with the functions that take one on the target; it is not tfloat32, and a number "
    "only from gen3 on.",
)
def activation_bias(call: OperationCall) -> Violation | None:
    bias, target = call.bias, call.target
    if bias is None:
        return None
    if target.generation not in call.op.bias_generations:
        return generation_violation(
            f"bias with activation {call.op.name}", call.op.bias_generations, target
        )
    if is_tensor(bias):
        if bias.dtype == "tfloat32":
            return Violation(
                "dtype-not-allowed",
                "bias is tfloat32",
                why="A bias column has any data type but tfloat32.",
                operand="bias",
            )
        return None
    if target.generation < 3:
        return generation_violation(
            f"the number bias={bias}",
            (3, 4),
            target,
            "Fill a [partitions, 1] tensor with nisa.memset and pass it as bias.",
        )
    return None


@rule(ISA + "activation", "reduce_res has shape [P, 1]; reduce_cmd is not load_reduce.")
def reduce_result(call: OperationCall) -> Violation | None:
    command = call.field("reduce_cmd")
    if command is ReduceCommand.load_reduce:
        return Violation(
            "value-not-allowed",
            "reduce_cmd is load_reduce",
            why="The scalar engine's accumulate registers start from zero or go on from what "
            "they hold.",
            hint="Use reset_reduce, reduce, reset or idle.",
            operand="reduce_cmd",
        )
    return column_operand("data", "reduce_res").check(call)


def _holds_integer(dtype: DType, value: Any) -> bool:
    """Whether an integer type holds a number exactly."""
    whole = value == value and abs(value) < 1 << 64 and int(value) == value
    return bool(whole and dtype.lowest <= value <= dtype.largest)


@rule(
    ISA + "tensor_copy_predicated",
    "A number in place of src is one that dst's integer dtype holds.",
)
def copied_number(call: OperationCall) -> Violation | None:
    value, dtype = call.src, DTYPES[call.dst.dtype]
    if is_tensor(value) or not dtype.is_integer or _holds_integer(dtype, value):
        return None
    return Violation(
        "value-not-allowed",
        f"src is {value!r}, dst is {dtype.name}",
        why="src and dst have one data type; this one does not hold the number.",
        hint=f"Pass an integer from {int(dtype.lowest)} to {int(dtype.largest)}.",
        operand="src",
    )


@rule(ISA + "memset", "dst's dtype represents value exactly.")
def memset_value(call: OperationCall) -> Violation | None:
    value, dtype = call.value, DTYPES[call.dst.dtype]
    if dtype.is_float:
        return None
    if dtype.is_packed:
        accepted, expected = value == 0, "0"
    elif dtype.kind is DTypeKind.boolean:
        accepted, expected = value in (0, 1), "True or False"
    else:
        accepted = _holds_integer(dtype, value)
        expected = f"an integer from {int(dtype.lowest)} to {int(dtype.largest)}"
    if accepted:
        return None
    return Violation(
        "value-not-allowed",
        f"value is {value!r}, expected {expected} for {dtype.name}",
        why="memset writes a constant that the destination's data type represents.",
        operand="value",
    )
