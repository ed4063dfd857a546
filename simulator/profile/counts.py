"""Bytes moved on chip and multiplications, counted from the operands of executed instructions."""

from __future__ import annotations

from dataclasses import dataclass

from isa.access import AccessPattern
from isa.cost_formula import elements
from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.machine.activation2 import Activate2
from isa.machine.ranks import RankExchange
from isa.machine.scalar import Activate
from isa.program import Program
from isa.spec import Instruction
from isa.target import Target
from simulator.profile.representatives import executed
from simulator.timing.flops import PRODUCTS, TRANSPOSES, flops
from simulator.timing.timeline import Timeline

ACTIVATES = frozenset({Activate, Activate2})
"""Rows that the vendor's profiler counts as ACTIVATE."""

BFLOAT16_PARTS: tuple[tuple[str, int, float], ...] = (
    ("float32", 2, 4.0),
    ("float8_e5m2_x4", 4, 0.25),
    ("float8_e4m3fn_x4", 4, 0.25),
    ("float4_e2m1fn_x4", 4, 0.25),
    ("float8", 3, 0.5),
    ("uint8", 2, 0.5),
)
"""How many times as long as in bfloat16 a multiplication takes by the profiler's definition of
adjusted FLOPs: where a data type's name begins, from which generation on, the factor; 1 for all
others. Source: SDK tools/neuron-explorer/profile-schema-reference.rst (adjusted_hardware_flops)."""


@dataclass(slots=True)
class Counts:
    """Of all cores: bytes of operands in SBUF and PSUM, those of instructions that read PSUM and
    write SBUF, and executed instructions of some kinds with their time. Transfers count with all
    of their rows. `adjusted_`: FLOPs in terms of bfloat16."""

    sbuf_read_bytes: int = 0
    sbuf_write_bytes: int = 0
    psum_read_bytes: int = 0
    psum_write_bytes: int = 0
    evacuations: int = 0
    evacuated_bytes: int = 0
    products: int = 0
    adjusted_flops: float = 0.0
    adjusted_transpose_flops: float = 0.0
    activations: int = 0
    activation_ns: float = 0.0
    exchanges: int = 0
    exchange_ns: float = 0.0


def counts_of(program: Program, timeline: Timeline, target: Target) -> Counts:
    """Of a bound program and its timing."""
    found = Counts()
    for _, _, instruction, times, ns, _ in executed(program, timeline):
        row = instruction.row
        if row.control:
            continue
        _count_bytes(found, instruction, times)
        if row in PRODUCTS or row in TRANSPOSES:
            found.products += times
            work = times * flops(instruction) * _in_bfloat16(instruction, target)
            found.adjusted_flops += work
            found.adjusted_transpose_flops += work if row in TRANSPOSES else 0.0
        elif row in ACTIVATES:
            found.activations += times
            found.activation_ns += ns
        elif row is RankExchange:
            found.exchanges += times
            found.exchange_ns += ns
    return found


def _count_bytes(found: Counts, instruction: Instruction, times: int) -> None:
    row = instruction.row
    moved = {(memory, way): 0 for memory in (Memory.sbuf, Memory.psum) for way in (False, True)}
    for index, written in row.accesses:
        pattern = instruction.values[index]
        if isinstance(pattern, AccessPattern) and pattern.memory.on_chip:
            size = elements(pattern) * pattern.partitions * DTYPES[pattern.dtype].size
            moved[pattern.memory, written] += size * times
    found.sbuf_read_bytes += moved[Memory.sbuf, False]
    found.sbuf_write_bytes += moved[Memory.sbuf, True]
    found.psum_read_bytes += moved[Memory.psum, False]
    found.psum_write_bytes += moved[Memory.psum, True]
    if moved[Memory.psum, False] and moved[Memory.sbuf, True]:
        found.evacuations += times
        found.evacuated_bytes += moved[Memory.psum, False]


def _in_bfloat16(instruction: Instruction, target: Target) -> float:
    """The factor of an instruction of the PE array: by what it streams, else by what it gives."""
    assert instruction.engine is Engine.tensor
    names = instruction.row.field_names
    at = names.index("moving") if "moving" in names else 0
    dtype = instruction.values[at].dtype
    return next(
        (
            factor
            for start, generation, factor in BFLOAT16_PARTS
            if dtype.startswith(start) and target.generation >= generation
        ),
        1.0,
    )
