"""Rules of operations that reduce into an engine's accumulate registers."""

from __future__ import annotations

from isa.affine import bounds
from isa.alu import ALU
from isa.enums import ReduceCommand
from isa.machine.accumulate import FP32_LOWEST
from isa.rules.form import (
    OWN_PAGE,
    OperationCall,
    Rule,
    Violation,
    free_elements,
    is_number,
    listed,
    rule,
)
from isa.spec import ISA


def operator_among(name: str, names: tuple[str, ...]) -> Rule:
    """The operator, if it is given, is one of those named."""
    accepted = frozenset(ALU[n] for n in names)

    def check(call: OperationCall) -> Violation | None:
        op = call.field(name)
        if op is None or op in accepted:
            return None
        return Violation(
            "operator-not-allowed",
            f"{name} is {op.name}, expected {listed(names, 'or')}",
            operand=name,
        )

    text = f"{name} is {listed(names, 'or')}."
    return Rule("operator_among", OWN_PAGE, check, text, {name: accepted})


def loaded_value(name: str, ignored: bool = False, unset: float | None = None) -> Rule:
    """With load_reduce, and only then, there is a value to load.

    `ignored`: other commands may come with one all the same. `unset`: the number that counts as no
    value with other commands, and as one with load_reduce.
    """

    def check(call: OperationCall) -> Violation | None:
        value = call.field(name)
        if call.reduce_cmd is ReduceCommand.load_reduce:
            if value is not None:
                return None
            return Violation(
                "missing-argument",
                f"reduce_cmd=load_reduce needs {name}",
                why="load_reduce starts the accumulate registers from a value.",
                operand=name,
            )
        absent = value is None or (unset is not None and is_number(value) and value == unset)
        if absent or ignored:
            return None
        return Violation(
            "value-not-allowed",
            f"{name} is given with reduce_cmd={call.reduce_cmd.name}",
            why="Only load_reduce puts a value into the accumulate registers.",
            hint=f"Leave {name} out, or pass reduce_cmd=nisa.reduce_cmd.load_reduce.",
            operand=name,
        )

    text = f"{name} is given with reduce_cmd=load_reduce" + ("." if ignored else " only.")
    return Rule("loaded_value", OWN_PAGE, check, text)


@rule(ISA + "tensor_scalar_reduce", "reverse0 is False.")
def reverse_not_supported(call: OperationCall) -> Violation | None:
    if not call.reverse0:
        return None
    return Violation(
        "value-not-allowed",
        "reverse0 is True",
        why="The instruction takes data as the left side of op0.",
        hint="For operand0 - data, multiply by -1 and add: two instructions, or negate operand0.",
        operand="reverse0",
    )


@rule(OWN_PAGE, "reduce_res is not given with reduce_cmd=idle.")
def result_of_reduction(call: OperationCall) -> Violation | None:
    """A result is asked for only where the instruction accumulates."""
    if call.reduce_res is None or call.reduce_cmd is not ReduceCommand.idle:
        return None
    return Violation(
        "value-not-allowed",
        "reduce_res is given with reduce_cmd=idle",
        why="An idle instruction accumulates nothing, and may change the registers.",
        hint="Pass reduce_cmd=nisa.reduce_cmd.reset_reduce, or leave reduce_res out.",
        operand="reduce_res",
    )


@rule(ISA + "range_select", "range_start and the last position are within 2**24.")
def range_positions(call: OperationCall) -> Violation | None:
    last = bounds(call.range_start + free_elements(call.on_true_tile))[1]
    first = bounds(call.range_start)[0]
    if first is not None and last is not None and first >= -_EXACT and last <= _EXACT:
        return None
    return Violation(
        "value-not-allowed",
        f"range_start is {call.range_start} with {free_elements(call.on_true_tile)} elements a "
        "partition",
        why="Positions are compared in fp32, which holds integers up to 2**24.",
        operand="range_start",
    )


_EXACT = 1 << 24


@rule(ISA + "range_select", "on_false_value is the lowest fp32 number, -3.4028235e+38.")
def range_fill(call: OperationCall) -> Violation | None:
    value = float(call.on_false_value)
    if abs(value - FP32_LOWEST) <= 1e31:  # rounds to it in fp32
        return None
    return Violation(
        "value-not-allowed",
        f"on_false_value is {call.on_false_value}, expected the lowest fp32 number",
        why="The instruction writes -3.4028235e+38 outside the range and nothing else.",
        hint="Leave on_false_value out.",
        operand="on_false_value",
    )
