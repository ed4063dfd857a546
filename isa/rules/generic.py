"""Checks that follow from the field declarations of a row, for every operation alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isa.affine import Affine, Polynomial, Predicate, bounds
from isa.alu import AluOperator, ScalarEngineFunction
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.fields import ENUM_KINDS, ON_CHIP, REQUIRED, Attribute, Kind, Operand
from isa.memory import QUADRANT, bytes_per_partition, start_partition_allowed, start_partitions
from isa.rules.form import (
    OperationCall,
    Violation,
    at_most,
    fits_word,
    free_elements,
    is_number,
    is_tensor,
    largest,
    partitions,
    shape_text,
    shown,
    stored_elements,
)
from isa.rules.indirection import check_columns
from isa.rules.starts import possible_starts
from isa.spec import Operation
from isa.target import Target

_MAXIMUM_DIMENSIONS = 5  # the partition dimension and four [stride, count] pairs (nki-aps.rst)
_NAMES = {2: "trn1", 3: "trn2", 4: "trn3"}
_EARLIER = {
    "float8_e4m3fn": "Use float8_e4m3. Numbers up to 240 have the same bits in both: "
    "tensor.view(nl.float8_e4m3)."
}
"""What to use for a data type that the target lacks."""


def check_call(row: type[Operation], values: tuple[Any, ...], target: Target) -> Violation | None:
    """The first violation of one use of an operation, or None.

    `values` align with `row.field_names`: accesses (`nki.ir.nodes.Access`-like), numbers, None,
    attribute values. Field declarations are checked first, then the row's rules in order. Sizes
    that depend on launch symbols may put comparisons to `isa.affine.DECIDE`, so a verdict on them
    is good for one trace only.
    """
    if target.generation not in row.generations:
        return generation_violation(row.name, row.generations, target)
    for index, name, operand in row.operands:
        violation = _check_operand(name, operand, values[index], target)
        if violation is not None:
            return violation
    for index, name, attribute in row.attributes:
        violation = _check_attribute(name, attribute, values[index], target)
        if violation is not None:
            return violation
    call = OperationCall(row.field_names, values, target)
    for rule in row.rules:
        violation = rule.check(call)
        if violation is not None:
            return violation
    return None


def generation_violation(
    what: str, generations: tuple[int, ...], target: Target, hint: str = ""
) -> Violation:
    """The violation for a feature that the target's generation lacks."""
    names = ", ".join(f"gen{g} ({_NAMES[g]})" for g in generations)
    return Violation(
        "generation",
        f"{what} exists on {names}, not on {target.name} (gen{target.generation})",
        hint=hint,
    )


def _check_operand(name: str, operand: Operand, value: Any, target: Target) -> Violation | None:
    if value is None:
        return None if operand.optional else Violation("missing-argument", f"{name} is missing")
    if not is_tensor(value):
        if operand.immediate and is_number(value):
            return None if fits_word(value) else _too_wide(name, value)
        expected = "a tensor or a number" if operand.immediate else "a tensor"
        return Violation(
            "not-a-tensor", f"{name} is {shown(value)}, expected {expected}", operand=name
        )
    memory = value.storage.memory
    if memory not in operand.memories:
        allowed = " or ".join(m.value for m in Memory if m in operand.memories)
        return Violation(
            "wrong-memory",
            f"{name} ({value.storage.name}) is in {memory.value}, it must be in {allowed}",
            operand=name,
        )
    return (
        _check_dtype(name, operand, value, target)
        or _check_indirection(name, operand, value, target)
        or (_check_tile(name, operand, value, target) if memory.on_chip else None)
    )


def _too_wide(name: str, value: int) -> Violation:
    return Violation(
        "value-not-allowed",
        f"{name} is an integer of {value.bit_length()} bits, an instruction holds 64",
        hint="Pass a float.",
        operand=name,
    )


def _check_dtype(name: str, operand: Operand, value: Any, target: Target) -> Violation | None:
    dtype = DTYPES[value.dtype]
    if operand.dtypes is not None and value.dtype not in operand.dtypes:
        allowed = ", ".join(d for d in DTYPES if d in operand.dtypes)
        return Violation(
            "dtype-not-allowed",
            f"{name} is {value.dtype}, it must be one of {allowed}",
            operand=name,
        )
    if dtype.dma_only and operand.memories <= ON_CHIP:
        return Violation(
            "dtype-not-allowed",
            f"{name} is {value.dtype}, which only DMA can move",
            hint="Pass integers of 32 bits, or let the transfer convert them: "
            "nl.load(tensor, dtype=nl.int32), by way of fp32 and so exactly up to 2**24.",
            operand=name,
        )
    if target.generation not in dtype.generations:
        what = f"data type {value.dtype} ({name})"
        return generation_violation(what, dtype.generations, target, _EARLIER.get(value.dtype, ""))
    return None


def _check_indirection(name: str, operand: Operand, value: Any, target: Target) -> Violation | None:
    index = value.vector_offset
    if index is None:
        return None
    if value.storage.memory.on_chip and operand.columns:
        if target.generation < 4:
            return generation_violation(f"indirect() ({name})", (4,), target)
        return check_columns(name, value)
    if not operand.vector_offset:
        return Violation("indirect", f"{name} cannot carry indices", operand=name)
    if value.storage.memory.on_chip:
        return Violation(
            "indirect",
            f"{name} ({value.storage.name}) is in {value.storage.memory.value}, "
            "row indices select from tensors in HBM",
            operand=name,
        )
    if index.storage.memory is not Memory.sbuf or index.dtype not in ("int32", "uint32"):
        return Violation(
            "indirect",
            f"the row indices of {name} are {index.dtype} in {index.storage.memory.value}, "
            "they must be int32 or uint32 in sbuf",
            operand=name,
        )
    if operand.index_columns:  # of which the operation's own rule says what they may be
        return None
    if free_elements(index) != 1 or partitions(index) != value.shape[0]:
        return Violation(
            "indirect",
            f"the row indices of {name} have shape {shape_text(index)}, expected "
            f"[{value.shape[0]}, 1]: one a partition",
            operand=name,
        )
    return None


def _check_tile(name: str, operand: Operand, value: Any, target: Target) -> Violation | None:
    """An on-chip access: dimensions, partitions, where it starts, bytes of a partition."""
    if len(value.shape) > _MAXIMUM_DIMENSIONS:
        return _too_many_dimensions(name, value)
    count = partitions(value)
    limit = target.partitions.value
    if not at_most(count, limit):
        return Violation(
            "partition-limit",
            f"{name} has {largest(count)} partitions, the limit is {limit}",
            operand=name,
        )
    memory = value.storage.memory
    size = stored_elements(value) * DTYPES[value.dtype].size
    capacity = bytes_per_partition(memory, target)
    if not at_most(size, capacity):
        return Violation(
            "tile-limit",
            f"{name} {shape_text(value)} {value.dtype} covers {largest(size)} bytes of a "
            f"partition, {memory.value} has {capacity}",
            operand=name,
        )
    # DMA reaches any partition; an engine's port starts at some only.
    if operand.starts is not None:
        return _check_quadrant_start(name, operand.starts, value, limit)
    if operand.memories <= ON_CHIP:
        most = bounds(count)[1] or limit
        for start in possible_starts(value, limit):
            if not start_partition_allowed(start, most):
                allowed = ", ".join(str(s) for s in start_partitions(most))
                return Violation(
                    "view-not-allowed",
                    f"{name} covers {largest(count)} partitions from partition {start}; "
                    f"{most} partitions may start at {allowed}",
                    why="Engines access partitions in groups: up to 32 from 0, 32, 64 or 96, up "
                    "to 64 from 0 or 64, more from 0.",
                    hint="Start at one of these partitions, or copy the rows there by DMA.",
                    operand=name,
                )
    return None


def _too_many_dimensions(name: str, value: Any) -> Violation:
    """What the access is, and which of its dimensions one [stride, count] pair can stand for."""
    pairs = [list(pair) for pair in zip(value.strides, value.shape)]
    runs: list[list[int]] = []
    for i in range(1, len(pairs)):
        if runs and pairs[i - 1][0] == pairs[i][0] * pairs[i][1]:
            runs[-1].append(i)
        else:
            runs.append([i])
    calls = [f".flatten_dims({run[0]}, {run[-1]})" for run in reversed(runs) if len(run) > 1]
    enough = 1 + len(runs) <= _MAXIMUM_DIMENSIONS
    return Violation(
        "view-not-allowed",
        f"{name} has {len(pairs)} dimensions, as [stride, count] {pairs}; an access has at most "
        f"{_MAXIMUM_DIMENSIONS}",
        hint=f"Merge dimensions that follow each other in memory: {name}{''.join(calls)}."
        if enough
        else "Take one index of a dimension at a time, in a loop, or copy in two steps that each "
        "reorder fewer dimensions.",
        operand=name,
    )


def _check_quadrant_start(
    name: str, starts: tuple[int, ...], value: Any, limit: int
) -> Violation | None:
    for start in possible_starts(value, limit):
        if start % QUADRANT not in starts:
            return Violation(
                "view-not-allowed",
                f"{name} starts at partition {start}, {start % QUADRANT} in its quadrant; it may "
                f"start at {', '.join(str(s) for s in starts)} of each quadrant",
                operand=name,
            )
    return None


def _is_form(value: Any) -> bool:
    return isinstance(value, (int, Polynomial)) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    low, high = bounds(value) if _is_form(value) else (None, None)
    return low is not None and high is not None and low >= -(1 << 31) and high < 1 << 32


def _is_pattern(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(
        isinstance(pair, (tuple, list))
        and len(pair) == 2
        and isinstance(pair[0], int)
        and _is_form(pair[1])
        for pair in value
    )


_KINDS: dict[Kind, tuple[str, Callable[[Any], bool]]] = {
    Kind.flag: ("True or False", lambda v: isinstance(v, bool)),
    Kind.integer: ("an integer of 32 bits", _is_integer),
    Kind.float32: ("a number", is_number),
    Kind.alu: ("an operator of nki.language", lambda v: isinstance(v, AluOperator)),
    Kind.activation: (
        "an activation function of nki.language",
        lambda v: isinstance(v, ScalarEngineFunction),
    ),
    Kind.pattern: ("a list of [step, count] pairs", _is_pattern),
    Kind.integers: (
        "a tuple of integers",
        lambda v: isinstance(v, (tuple, list)) and all(_is_form(x) for x in v),
    ),
    Kind.numbers: (
        "a list of numbers",
        lambda v: isinstance(v, (tuple, list)) and all(is_number(x) for x in v),
    ),
    Kind.register: ("a register", lambda v: hasattr(v, "number")),
    Kind.value: (
        "an integer or a register",
        lambda v: _is_form(v) or isinstance(v, Affine) or hasattr(v, "number"),
    ),
    Kind.accumulate: ("None, True or False", lambda v: isinstance(v, (bool, Predicate))),
    Kind.number: ("a number of 64 bits", lambda v: is_number(v) and fits_word(v)),
    Kind.priority: ("None or an integer from 0 to 3", lambda v: _is_form(v) and 0 <= v <= 3),
}


def _check_attribute(
    name: str, attribute: Attribute, value: Any, target: Target
) -> Violation | None:
    if value is None and (attribute.optional or attribute.default is None):
        return None
    if value is None and attribute.default is REQUIRED:
        return Violation("missing-argument", f"{name} is missing", operand=name)
    enumeration = ENUM_KINDS.get(attribute.kind)
    if enumeration is not None:
        accepted = isinstance(value, enumeration)
        expected = "one of " + ", ".join(member.name for member in enumeration)
    elif attribute.kind in _KINDS:
        expected, test = _KINDS[attribute.kind]
        accepted = test(value)
    else:
        return None
    if accepted and attribute.choices is not None and value not in attribute.choices:
        accepted = False
        expected = "one of " + ", ".join(shown(choice) for choice in attribute.choices)
        code = "engine-not-allowed" if attribute.kind is Kind.engine else "value-not-allowed"
        return Violation(code, f"{name} is {shown(value)}, expected {expected}", operand=name)
    if not accepted:
        named = enumeration is not None and isinstance(value, str)
        return Violation(
            "value-not-allowed",
            f"{name} is {shown(value)}, expected {expected}",
            hint="Pass the member of the enumeration, not its name." if named else "",
            operand=name,
        )
    limits = attribute.limits
    if limits is not None and isinstance(value, int) and not limits[0] <= value <= limits[1]:
        return Violation(
            "value-not-allowed",
            f"{name} is {value}, expected an integer from {limits[0]} to {limits[1]}",
            operand=name,
        )
    if isinstance(value, AluOperator) and target.generation not in value.generations:
        return generation_violation(f"operator {value.name} ({name})", value.generations, target)
    return None
