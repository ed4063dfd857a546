"""What an instruction costs: cycle formulas of machine rows, chosen by generation and operands.

A row's `cost` is a `Cost`, which has two ordered lists of `Case`s. The first case whose condition
holds is taken. One list gives the time that the instruction occupies its engine, the other the time
from its start until its result is visible. Formulas are text in terms of `QUANTITIES`;
`Case.expression` is the same formula as a sympy expression, for algebra and documentation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from isa.access import AccessPattern
from isa.dtypes import DTYPES
from isa.enums import Engine, Memory

if TYPE_CHECKING:
    import sympy

    from isa.spec import Instruction, MachineInstruction
    from isa.target import Target

ALIASES = {"MIN_II": "minimum_interval_cycles", "MIN_II_DYNAMIC": "dynamic_interval_cycles"}
"""Names that the documents give to figures of the target."""

_OPERAND_QUANTITIES = {
    "N": "elements that stream through a partition, the most of any operand",
    "H": "elements of an operand in HBM, the most of any",
    "P": "partitions, the most of any operand",
    "S": "slow-down of a wide inner stride, 1 to 2",
    "in_bytes": "element size of the widest streamed source",
    "out_bytes": "element size of the widest streamed destination",
    "bits16": "whether every streamed operand is bfloat16 or float16",
    "contiguous": "whether every streamed operand has an inner stride of one element",
    "psum": "whether some operand is in PSUM",
    "psum_source": "whether some source is in PSUM",
    "columns": "operands that are one element a partition, read from memory",
}

QUANTITIES = {
    **_OPERAND_QUANTITIES,
    "x_dtype": "dtype of operand x, None when it is no tensor",
    "x_on_chip": "whether operand x is in SBUF or PSUM",
    "generation": "2, 3 or 4",
    "vector, scalar, gpsimd, tensor, sync": "whether that engine runs it",
    "MIN_II": "the target's minimum_interval_cycles",
    "MIN_II_DYNAMIC": "the target's dynamic_interval_cycles",
    "figures": "every scalar figure of `isa.target.Target`, by its name",
    "attributes": "by their names; an operator, function or enum member is its name as text",
}
"""What formulas are in terms of. A streamed operand is any operand except columns; units are cycles
of the engine, or ns."""

_UNSTREAMED = {"MIN_II": 0, "MIN_II_DYNAMIC": 0, "matmul_switch_cycles": 0}
_OPERAND_SUFFIXES = ("_dtype", "_on_chip")
_FUNCTIONS: dict[str, Any] = {"Max": max, "Min": min, "ceiling": math.ceil, "floor": math.floor}
_HALF_FLOATS = frozenset({"bfloat16", "float16"})

# On trn2, reading every 16th element runs at full rate and every 24th at half, with a ramp between
# (third-party measurement); the documents state a cliff at `wide_stride_bytes` for gen2.
_RAMP_FROM = 16
_RAMP_TO = 24


@dataclass(frozen=True, slots=True)
class Case:
    """`formula` holds for instructions for which the condition `when` does ("" is always).

    `source` abbreviates as `isa.target.DOCUMENTS` does; `unit` is cycles of the engine, or ns.
    """

    formula: str
    when: str = ""
    source: str = ""
    assumed: bool = False
    unit: str = "cycles"

    @property
    def expression(self) -> sympy.Expr:
        """The formula in sympy, over symbols of the quantities' names."""
        return _expression(self.formula)


@cache
def _expression(formula: str) -> sympy.Expr:
    import sympy

    names = compile(formula, "cost", "eval").co_names
    symbols = {n: sympy.Symbol(n, nonnegative=True) for n in names if n not in _FUNCTIONS}
    return sympy.sympify(formula, locals=symbols)


class _Evaluator:
    """A formula or condition, compiled. They come from the tables of this package, never from a
    user's program."""

    __slots__ = ("code", "names")

    def __init__(self, text: str) -> None:
        self.code = compile(text, "cost", "eval")
        self.names = self.code.co_names

    def __call__(self, names: dict[str, Any]) -> Any:
        return eval(self.code, {"__builtins__": {}}, names)


@cache
def _evaluator(text: str) -> _Evaluator:
    return _Evaluator(text)


class Measured(NamedTuple):
    """What one instruction costs. `interval_ns`: it occupies its engine. `completion_ns`: from its
    start until its result is visible. `drain_ns`: from an element's entry until its result is."""

    interval_ns: float
    completion_ns: float
    drain_ns: float
    cycles: float
    case: Case


class Cost:
    """Occupancy and completion of a machine row. See the module's description.

    `cases`: time that the engine is occupied. `completion`: ns from the last element streamed
    until the result is visible to other engines; empty means the engine's `completion_ns`.
    `assumes`: whether some case is assumed.
    """

    __slots__ = ("_keys", "_memory", "assumes", "cases", "completion")

    def __init__(self, *cases: Case, completion: tuple[Case, ...] = ()) -> None:
        self.cases = cases
        self.assumes = any(case.assumed for case in cases)
        self.completion = completion
        self._keys: dict[Any, tuple[bool, tuple[int, ...]]] = {}
        self._memory: dict[Any, Measured] = {}

    def measure(self, instruction: Instruction, target: Target) -> Measured:
        """What `instruction`, of a bound program, costs on `target`."""
        key = (target, instruction.row, instruction.engine, *self._signature(instruction))
        known = self._memory.get(key)
        if known is None:
            known = self._memory[key] = self._evaluate(instruction, target)
        return known

    def cycles(self, instruction: Instruction, target: Target) -> float:
        """Cycles of its engine that `instruction` occupies it for, after its operands are there."""
        return self.measure(instruction, target).cycles

    def interval_ns(self, instruction: Instruction, target: Target) -> float:
        """The same in ns: the next independent instruction can start that much later."""
        return self.measure(instruction, target).interval_ns

    def completion_ns(self, instruction: Instruction, target: Target) -> float:
        """Time from the start of `instruction` until its result is visible to other engines."""
        return self.measure(instruction, target).completion_ns

    def case(self, instruction: Instruction, target: Target) -> Case:
        """The case that applies, with its formula and source."""
        return self.measure(instruction, target).case

    def attributes(self, row: type[MachineInstruction]) -> tuple[int, ...]:
        """Positions of the attributes of `row` that decide the cost besides its operands."""
        key = self._keys.get(row)
        if key is None:
            key = self._keys[row] = self._dependence(row)
        return key[1]

    def _signature(self, instruction: Instruction) -> list[Any]:
        """What of an instruction this cost depends on; equal signatures cost the same."""
        row, values = instruction.row, instruction.values
        attributes = self.attributes(row)
        operands, _ = self._keys[row]
        found: list[Any] = [_atom(values[index]) for index in attributes]
        if operands:
            for value in values:
                if type(value) is AccessPattern:
                    found += (value.memory, value.dtype, value.partitions, value.dims)
                else:
                    found.append(None)
        return found

    def _dependence(self, row: type[MachineInstruction]) -> tuple[bool, tuple[int, ...]]:
        """Whether the formulas use operands, and which attributes (indices of values) they use."""
        texts = [t for c in (*self.cases, *self.completion) for t in (c.formula, c.when) if t]
        used = {name for text in texts for name in _evaluator(text).names}
        attributes = tuple(index for index, name, _ in row.attributes if name in used)
        operands = not used.isdisjoint(_OPERAND_QUANTITIES) or any(
            name.endswith(_OPERAND_SUFFIXES) for name in used
        )
        return operands, attributes

    def _evaluate(self, instruction: Instruction, target: Target) -> Measured:
        names = quantities(instruction, target)
        case = _first(self.cases, names)
        formula = _evaluator(case.formula)
        occupied = float(formula(names))
        # What these add passes while nothing streams: completion does not wait for it.
        streamed = float(formula(names | _UNSTREAMED))
        clock = target.clock_ghz(instruction.engine)
        if case.unit == "cycles":
            cycles, occupied, streamed = occupied, occupied / clock, streamed / clock
        else:
            cycles = occupied * clock
        if self.completion:
            drain = float(_evaluator(_first(self.completion, names).formula)(names))
        else:
            drain = target.completion_ns[instruction.engine].value
        return Measured(occupied, streamed + drain, drain, cycles, case)


def _first(cases: tuple[Case, ...], names: dict[str, Any]) -> Case:
    for case in cases:
        if not case.when or _evaluator(case.when)(names):
            return case
    raise ValueError(f"no cost case applies to {names}")


def _atom(value: Any) -> Any:
    """An attribute as formulas see it: text for rows and enum members, else the value."""
    return getattr(value, "name", value)


def quantities(instruction: Instruction, target: Target) -> dict[str, Any]:
    """Every name that formulas and conditions may use, for one instruction."""
    row, values = instruction.row, instruction.values
    names: dict[str, Any] = dict(_FUNCTIONS)
    names |= _figures(target)
    names |= {engine.name: engine is instruction.engine for engine in Engine}
    names["completion"] = target.completion_ns[instruction.engine].value
    for index, name, _ in row.attributes:
        names[name] = _atom(values[index])
    sources, results, columns = [], [], 0
    for index, name, field in row.operands:
        pattern = values[index]
        is_pattern = isinstance(pattern, AccessPattern)
        names[f"{name}_dtype"] = pattern.dtype if is_pattern else None
        names[f"{name}_on_chip"] = is_pattern and pattern.memory.on_chip
        if not is_pattern:
            continue
        if field.column and field.role.reads:
            columns += 1
            continue
        if field.role.reads:
            sources.append(pattern)
        if field.role.writes:
            results.append(pattern)
    streamed = sources + results
    on_chip = [p for p in streamed if p.memory.on_chip]
    names |= {
        "N": max((elements(p) for p in on_chip), default=1),
        "H": max((elements(p) for p in streamed if not p.memory.on_chip), default=1),
        "P": max((p.partitions for p in on_chip), default=1),
        "S": max((stride_factor(p, target) for p in on_chip), default=1.0),
        "in_bytes": max((DTYPES[p.dtype].size for p in sources), default=0),
        "out_bytes": max((DTYPES[p.dtype].size for p in results), default=0),
        "bits16": bool(streamed) and all(p.dtype in _HALF_FLOATS for p in streamed),
        "contiguous": all(inner_stride(p) == 1 for p in on_chip),
        "psum": any(p.memory is Memory.psum for p in streamed),
        "psum_source": any(p.memory is Memory.psum for p in sources),
        "columns": columns,
    }
    return names


@cache
def _figures(target: Target) -> dict[str, Any]:
    found = {name: f.value for name, f in target.figures().items() if "." not in name}
    found |= {alias: found[name] for alias, name in ALIASES.items()}
    found["generation"] = target.generation
    return found


def elements(pattern: AccessPattern) -> int:
    """Elements of one partition (of the whole operand, in HBM)."""
    return math.prod(count for _, count in pattern.dims)


def inner_stride(pattern: AccessPattern) -> int:
    """Stride in elements of the innermost dimension that has more than one element."""
    for stride, count in reversed(pattern.dims):
        if count > 1:
            return abs(stride)
    return 1


def stride_factor(pattern: AccessPattern, target: Target) -> float:
    """How many times longer an access takes because of its inner stride."""
    stride = inner_stride(pattern)
    factor = target.wide_stride_factor.value
    if target.generation == 2:
        wide = stride * DTYPES[pattern.dtype].size > target.wide_stride_bytes.value
        return factor if wide else 1.0
    ramp = (stride - _RAMP_FROM) / (_RAMP_TO - _RAMP_FROM)
    return 1.0 + (factor - 1.0) * min(1.0, max(0.0, ramp))
