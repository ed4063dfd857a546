"""Rules of tensor indirection: on-chip operands whose columns are picked by indices."""

from __future__ import annotations

from typing import Any

from isa.affine import bounds, identical
from isa.enums import Engine, Memory
from isa.memory import QUADRANT
from isa.rules.form import (
    OWN_PAGE,
    OperationCall,
    Rule,
    Violation,
    in_psum,
    is_tensor,
    listed,
    rule,
    shape_text,
)
from isa.rules.starts import starts_in_memory

_GROUP = 16

INDEX_DTYPES = frozenset({"int16", "uint16", "int32", "uint32"})


def group_of(engine: Engine) -> int:
    """Partitions that share their indices on an engine."""
    return QUADRANT if engine is Engine.tensor else _GROUP


def has_columns(value: Any) -> bool:
    """Whether an operand is an on-chip access with indices."""
    return is_tensor(value) and value.vector_offset is not None and value.storage.memory.on_chip


def check_columns(name: str, value: Any) -> Violation | None:
    """The index of an operand with columns: where it is, its dtype, its partitions."""
    index = value.vector_offset
    if index.storage.memory is not Memory.sbuf or index.dtype not in INDEX_DTYPES:
        return Violation(
            "indirect",
            f"the indices of {name} are {index.dtype} in {index.storage.memory.value}, they must "
            f"be {listed(sorted(INDEX_DTYPES), 'or')} in sbuf",
            operand=name,
        )
    if index.shape[0] != value.shape[0]:
        return Violation(
            "indirect",
            f"the indices of {name} have shape {shape_text(index)}, {name} {shape_text(value)}",
            why="Index and operand have the same partitions.",
            operand=name,
        )
    return None


def indirection(source: str, engines: tuple[Engine, ...], document: str = OWN_PAGE) -> Rule:
    """Operands with columns run on these engines, have their indices in whole groups of
    partitions, and, with addresses, start where their indices do."""

    def check(call: OperationCall) -> Violation | None:
        names = [name for name, value in call.tensors() if has_columns(value)]
        if not names:
            return None
        engine = call.field("engine", engines[0])
        if engine is Engine.unknown:
            return None
        if engine not in engines:
            allowed = listed([e.name for e in engines], "or")
            return Violation(
                "engine-not-allowed",
                f"{names[0]} has indices and the engine is {engine.name}, it must be {allowed}",
                operand=names[0],
            )
        for name in names:
            found = _check_group(name, call.field(name), group_of(engine))
            if found is not None:
                return found
        dst = call.field("dst")
        if engine is Engine.scalar and has_columns(dst) and in_psum(dst):
            return Violation(
                "indirect",
                f"dst ({dst.storage.name}) is scattered in psum on the scalar engine",
                hint="Scatter into SBUF, or use the vector engine.",
                operand="dst",
            )
        return _check_partitions(call, source)

    text = (
        f"With indices: {listed([e.name for e in engines], 'or')}; partitions in whole groups of "
        "16 (32 for the tensor engine), each with enough indices; no scatter into PSUM on scalar; "
        "indices start at a multiple of 32, the source where its indices do, the "
        "destination's indices where the source does."
    )
    return Rule("indirection", document, check, text)


def _check_group(name: str, value: Any, group: int) -> Violation | None:
    partitions, count = value.shape
    index = value.vector_offset
    columns: Any = 1
    for size in index.shape[1:]:
        columns = columns * size
    room = bounds(columns * group)[0]
    most = bounds(count)[1]
    if partitions % group:
        return Violation(
            "indirect",
            f"{name} {shape_text(value)} has {partitions} partitions, expected a multiple of "
            f"{group}",
            why=f"Each group of {group} partitions reads its own indices.",
            operand=name,
        )
    if room is not None and most is not None and most <= room:
        return None
    return Violation(
        "indirect",
        f"{name} takes {count} indices, a group of {group} partitions of {shape_text(index)} "
        f"holds {room}",
        hint="Pass num_elem to indirect().",
        operand=name,
    )


def _check_partitions(call: OperationCall, source: str) -> Violation | None:
    src, dst = call.field(source), call.field("dst")
    for name, value in call.tensors():
        if not has_columns(value):
            continue
        starts = starts_in_memory(value.vector_offset)
        if starts and all(start % QUADRANT for start in starts):
            return _misplaced(
                f"the indices of {name} start at partition {starts[0]}", "a multiple of 32", name
            )
    pairs = [
        (name, value, "its indices", value.vector_offset)
        for name, value in call.tensors()
        if has_columns(value) and name != "dst"
    ]
    if has_columns(dst):
        words = "the indices of dst"
        if not in_psum(src):
            pairs.append((words, dst.vector_offset, source, src))
        elif has_columns(src):
            pairs.append((words, dst.vector_offset, f"the indices of {source}", src.vector_offset))
    for name, value, other_name, other in pairs:
        starts = starts_in_memory(value)
        expected = starts_in_memory(other) if is_tensor(other) else ()
        if starts and expected and not set(starts) & set(expected):
            return _misplaced(
                f"{name} starts at partition {starts[0]}, {other_name} at {expected[0]}",
                "the same",
                source,
            )
    return None


def _misplaced(what: str, expected: str, operand: str) -> Violation:
    return Violation(
        "view-not-allowed",
        f"{what}, expected {expected}",
        why="Indices and data of an operand travel through the same partitions.",
        hint="Slice both alike, and change address= of the tensors, or leave it out.",
        operand=operand,
    )


_MATMUL = "nki/api/nki.isa.rst#nki.isa.nc_matmul"
_MATMUL_DTYPES = frozenset({"float16", "bfloat16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn"})


def _tiled(call: OperationCall, names: list[str]) -> Violation | None:
    if not names or tuple(call.tile_position or (0, 0)) == (0, 0):
        return None
    return Violation(
        "value-not-allowed",
        f"tile_position is {tuple(call.tile_position)} and {names[0]} has indices",
        why="Indices go with the whole array.",
        hint="Leave tile_position out.",
        operand="tile_position",
    )


@rule(
    _MATMUL,
    "Operands with indices are of 16 or 8 bits, go without tile_position, and moving without "
    "is_transpose.",
)
def matmul_indices(call: OperationCall) -> Violation | None:
    names = [name for name, value in call.tensors() if has_columns(value)]
    for name in names:
        dtype = call.field(name).dtype
        if name != "dst" and dtype not in _MATMUL_DTYPES:
            return Violation(
                "dtype-not-allowed",
                f"{name} has indices and is {dtype}, expected one of "
                f"{', '.join(sorted(_MATMUL_DTYPES))}",
                operand=name,
            )
    tiled = _tiled(call, names)
    if tiled is not None:
        return tiled
    if call.is_transpose and "moving" in names:
        return Violation(
            "indirect", "moving has indices and is_transpose is True", operand="moving"
        )
    return None


@rule(
    "nki/api/nki.isa.rst#nki.isa.nc_matmul_mx",
    "A tile and its scales have the same indices, or none; indices go without tile_position.",
)
def mx_indices(call: OperationCall) -> Violation | None:
    names = [name for name, value in call.tensors() if has_columns(value)]
    for name in ("stationary", "moving"):
        data, scale = (call.field(n).vector_offset for n in (name, f"{name}_scale"))
        same = data is scale or (
            data is not None
            and scale is not None
            and data.storage is scale.storage
            and identical(data.offset, scale.offset)
            and data.shape == scale.shape
        )
        if not same:
            return Violation(
                "indirect",
                f"{name} and {name}_scale do not have the same indices",
                why="Elements and scales form one tensor.",
                hint="Call indirect() of both with one index, or of neither.",
                operand=f"{name}_scale",
            )
    return _tiled(call, names)
