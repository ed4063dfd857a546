"""Rules of the tensor engine, and of transposes on either engine."""

from __future__ import annotations

from typing import Any

from isa.array_tiles import ARRAY_SIDE
from isa.dtypes import DTYPES, DTypeKind
from isa.enums import Engine, Memory
from isa.rules.array import columns, moving_limit, tile_limits
from isa.rules.form import (
    OperationCall,
    Violation,
    at_most,
    free_elements,
    largest,
    partitions,
    rule,
    shape_text,
)
from isa.rules.generic import generation_violation
from isa.spec import ISA

_MATMUL = ISA + "nc_matmul"
_TRANSPOSE = ISA + "nc_transpose"
_VECTOR_BLOCK = 32
_SINGLE_PRECISION = ("float32", "tfloat32")


@rule(_MATMUL, "stationary and moving have the same partitions, K.")
def matmul_contraction(call: OperationCall) -> Violation | None:
    k1, k2 = partitions(call.stationary), partitions(call.moving)
    if k1 == k2:
        return None
    return Violation(
        "contraction-mismatch",
        f"stationary {shape_text(call.stationary)} has K = {k1}, moving "
        f"{shape_text(call.moving)} has K = {k2}",
        operand="moving",
    )


@rule(_MATMUL, "stationary [K, M] and moving [K, N] give dst [M, N].")
def matmul_output_shape(call: OperationCall) -> Violation | None:
    m, n = columns(call, call.stationary), columns(call, call.moving)
    if partitions(call.dst) == m and free_elements(call.dst) == n:
        return None
    return Violation(
        "shape-mismatch",
        f"dst has shape {shape_text(call.dst)}, stationary {shape_text(call.stationary)} and "
        f"moving {shape_text(call.moving)} give [{m}, {n}]",
        why="stationary [K, M] and moving [K, N] give dst [M, N].",
        operand="dst",
    )


@rule(_MATMUL, "K and M are at most 128 (or tile_size), N at most the target's moving_free_max.")
def matmul_tile_limits(call: OperationCall) -> Violation | None:
    rows, width = tile_limits(call)
    figure = moving_limit(call)
    m_limit = min(width, call.target.stationary_free_max.value)
    for name, meaning, size, limit in (
        ("stationary", "partitions (K)", partitions(call.stationary), rows),
        ("stationary", "free elements (M)", columns(call, call.stationary), m_limit),
        ("moving", "free elements (N)", columns(call, call.moving), figure.value),
    ):
        if not at_most(size, limit):
            return Violation(
                "tile-limit",
                f"{name} has {largest(size)} {meaning}, the limit on {call.target.name} is {limit}",
                why="The array holds a stationary tile of 128 x 128 (or of tile_size), and the "
                f"result of one instruction fits PSUM: {figure.value} moving columns.",
                operand=name,
            )
    return None


@rule(
    _MATMUL,
    "float32 and tfloat32 pair only with each other, float8_e4m3 not with float8_e4m3fn (gen4); "
    "dst is float32, or bfloat16 from gen4 on.",
)
def matmul_dtypes(call: OperationCall) -> Violation | None:
    left, right, target = call.stationary.dtype, call.moving.dtype, call.target
    if (left in _SINGLE_PRECISION) != (right in _SINGLE_PRECISION):
        return Violation(
            "dtype-not-allowed",
            f"stationary is {left}, moving is {right}",
            why="float32 and tfloat32 pair only with each other.",
            operand="moving",
        )
    if {left, right} == {"float8_e4m3", "float8_e4m3fn"}:
        return Violation(
            "dtype-not-allowed",
            f"stationary is {left}, moving is {right}",
            why="The two 4-bit-exponent float8 formats cannot meet in one multiplication.",
            operand="moving",
        )
    for name, dtype in (("stationary", left), ("moving", right)):
        if dtype == "float8_e4m3fn" and target.generation < 4:
            return generation_violation(f"{name} of type {dtype}", (4,), target)
    allowed = ("float32", "bfloat16") if target.generation >= 4 else ("float32",)
    if call.dst.dtype in allowed or (call.is_transpose and target.generation >= 3):
        return None
    return Violation(
        "dtype-not-allowed",
        f"dst is {call.dst.dtype}, on {target.name} it must be {' or '.join(allowed)}",
        why="PSUM accumulates in float32; from gen4 on the result may be written as bfloat16.",
        hint="Allocate dst as nl.float32 and cast when copying it out of PSUM.",
        operand="dst",
    )


@rule(_TRANSPOSE, "data [P, F] gives dst [F, P].")
def transpose_shape(call: OperationCall) -> Violation | None:
    rows, columns = free_elements(call.data), partitions(call.data)
    if partitions(call.dst) == rows and free_elements(call.dst) == columns:
        return None
    return Violation(
        "shape-mismatch",
        f"dst has shape {shape_text(call.dst)}, the transpose of data {shape_text(call.data)} is "
        f"[{rows}, {columns}]",
        why="Partitions of data become free elements of dst, and the other way round.",
        operand="dst",
    )


def engine_for_transpose(dst: Any, data: Any) -> Engine:
    """The engine for a transpose that names none: the tensor engine from SBUF to PSUM, which it is
    wired for; else the vector engine."""
    from_sbuf = data.storage.memory is Memory.sbuf
    return Engine.tensor if from_sbuf and dst.storage.memory is Memory.psum else Engine.vector


@rule(
    _TRANSPOSE,
    "The tensor engine transposes up to 128 x 128 from SBUF to PSUM, the vector engine up to "
    "32 x 32.",
)
def transpose_engine(call: OperationCall) -> Violation | None:
    dst, data = call.dst, call.data
    engine = call.engine
    if engine is Engine.unknown:
        engine = engine_for_transpose(dst, data)
    if engine is Engine.tensor:
        for name, tensor, memory in (("data", data, Memory.sbuf), ("dst", dst, Memory.psum)):
            if tensor.storage.memory is not memory:
                return Violation(
                    "wrong-memory",
                    f"{name} ({tensor.storage.name}) is in {tensor.storage.memory.value}, on the "
                    f"tensor engine it must be in {memory.value}",
                    why="The tensor engine reads SBUF and writes PSUM.",
                    operand=name,
                )
    limit = ARRAY_SIDE if engine is Engine.tensor else _VECTOR_BLOCK
    for meaning, size in (("partitions", partitions(data)), ("free elements", free_elements(data))):
        if not at_most(size, limit):
            return Violation(
                "tile-limit",
                f"data has {largest(size)} {meaning}, the {engine.name} engine transposes at most "
                f"{limit} x {limit}",
                why="The tensor engine transposes tiles of up to 128 x 128 from SBUF to PSUM, the "
                "vector engine of up to 32 x 32.",
                hint="Transpose from SBUF into PSUM, or in smaller tiles.",
                operand="data",
            )
    if engine is Engine.tensor and DTYPES[data.dtype].size > 4:
        return Violation("dtype-not-allowed", f"data is {data.dtype}", operand="data")
    return None


@rule(
    _TRANSPOSE,
    "dst has the dtype of data; on gen2, whose tensor engine has no transpose mode and multiplies "
    "by an identity matrix, it may be float32 (nki/guides/architecture/trainium2_arch.rst"
    "#built-in-transpose-support).",
)
def transpose_dtype(call: OperationCall) -> Violation | None:
    dst, data = call.dst, call.data
    if dst.dtype == data.dtype:
        return None
    engine = engine_for_transpose(dst, data) if call.engine is Engine.unknown else call.engine
    multiplies = call.target.generation == 2 and engine is Engine.tensor
    if multiplies and dst.dtype == "float32" and DTYPES[data.dtype].kind is DTypeKind.float:
        return None
    return Violation(
        "dtype-not-allowed",
        f"dst is {dst.dtype}, data is {data.dtype}",
        why="A transpose leaves elements as they are"
        + ("; on trn1, floats may become float32 in PSUM." if multiplies else "."),
        hint=f"Allocate dst with dtype nl.{data.dtype}; nisa.tensor_copy from it converts.",
        operand="dst",
    )
