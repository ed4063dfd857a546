"""Instructions of a file that no compiler of ours would have written, because no engine runs them.

What authors write is checked by the rules of operations (`isa.rules`); a container or a text may
hold any values. These checks follow from the rows of the machine instructions, for all of them
alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from isa.access import AccessPattern
from isa.alu import AluOperator
from isa.dtypes import DTYPES
from isa.errors import NeuronError
from isa.files.stream import in_columns
from isa.machine.control import LoopBegin, RegisterLoad, RegisterStore
from isa.program import Program, SourceLocation
from isa.spec import Instruction
from isa.target import TARGETS


def refuse_impossible(program: Program) -> None:
    """Raise NeuronError program-malformed for what no hardware executes: an operator whose operand
    is absent, a bit-vector operator on tensors that are no integers, a dimension of fewer than no
    elements. The same goes for an instruction of an engine with more elements a partition than a
    partition of SBUF has bytes: a tile of distinct elements cannot have more. Nor can a transfer
    have more bytes than HBM. So no single instruction runs for ever."""
    target = TARGETS[program.target]
    limits = int(target.sbuf_bytes_per_partition.value), int(target.hbm_bytes_per_device.value)
    for core in program.cores:
        for stream in core.streams.values():
            for template in in_columns(stream, encoded=False).templates:
                for problem in _problems(template, *limits):
                    raise NeuronError(
                        "program-malformed",
                        f"{template.row.name}: {problem}",
                        location=_location(program, template),
                    )


def _problems(instruction: Instruction, most: int, most_bytes: int) -> Iterator[str]:
    row = instruction.row
    values = dict(zip(row.field_names, instruction.values))
    tensors = {name: one for name, one in values.items() if isinstance(one, AccessPattern)}
    for name, operator in values.items():
        if not isinstance(operator, AluOperator):
            continue
        operand = "operand" + name.removeprefix("op")
        if operator.arity > 1 and operand in values and values[operand] is None:
            yield f"{name}={operator.name} needs {operand}, which is absent"
        for tensor, pattern in tensors.items() if not operator.arithmetic else ():
            if not DTYPES[pattern.dtype].is_integer:
                yield (
                    f"{name}={operator.name} works on bit patterns of integers, {tensor} is "
                    f"{pattern.dtype}"
                )
    if row is LoopBegin and values["step"] == 0:
        yield "step is 0, so that the loop does not end"
    for tensor, pattern in tensors.items():
        for _, size in pattern.dims:
            if type(size) is int and size < 0:
                yield f"{tensor} has a dimension of {size:,} elements"
        count = _elements(pattern)
        if row in (RegisterLoad, RegisterStore) and any(n == 0 for _, n in pattern.dims):
            yield f"{tensor} has no element, and a register holds one"
        if row.asynchronous:
            partitions = pattern.partitions if type(pattern.partitions) is int else 0
            size = count * partitions * DTYPES[pattern.dtype].size
            if size > most_bytes:
                yield f"{tensor} has {size:,} bytes, and HBM {most_bytes:,}"
        elif pattern.memory.on_chip and count > most:
            yield f"{tensor} has {count:,} elements a partition, and a partition {most:,} bytes"


def _elements(pattern: AccessPattern) -> int:
    """Elements of each partition, in HBM of all; 0 where launch symbols decide."""
    counts: list[Any] = [count for _, count in pattern.dims]
    return prod(counts) if all(type(count) is int for count in counts) else 0


def _location(program: Program, instruction: Instruction) -> SourceLocation | None:
    at = instruction.location
    known = isinstance(at, int) and 0 <= at < len(program.locations)
    return program.locations[at] if known else None
