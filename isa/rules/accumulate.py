"""Rules of operations that reduce into an engine's accumulate registers."""

from __future__ import annotations

from isa.alu import ALU
from isa.enums import ReduceCommand
from isa.rules.form import ISA, Call, Rule, Violation, is_number, listed


def operator_among(name: str, names: tuple[str, ...], document: str) -> Rule:
    """The operator, if it is given, is one of those named."""
    accepted = frozenset(ALU[n] for n in names)

    def check(call: Call) -> Violation | None:
        op = call.field(name)
        if op is None or op in accepted:
            return None
        return Violation(
            "operator-not-allowed",
            f"{name} is {op.name}, expected {listed(names, 'or')}",
            operand=name,
        )

    return Rule("operator_among", document, check, f"{name} is {listed(names, 'or')}.")


def loaded_value(name: str, page: str, ignored: bool = False, unset: float | None = None) -> Rule:
    """With load_reduce, and only then, there is a value to load.

    `ignored`: other commands may come with one all the same. `unset`: the number that counts as no
    value with other commands, and as one with load_reduce.
    """

    def check(call: Call) -> Violation | None:
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
    return Rule("loaded_value", ISA + page, check, text)


def _reverse_not_supported(call: Call) -> Violation | None:
    if not call.reverse0:
        return None
    return Violation(
        "value-not-allowed",
        "reverse0 is True",
        why="The instruction takes data as the left side of op0.",
        hint="For operand0 - data, multiply by -1 and add: two instructions, or negate operand0.",
        operand="reverse0",
    )


REVERSE_NOT_SUPPORTED = Rule(
    "reverse_not_supported",
    ISA + "tensor_scalar_reduce",
    _reverse_not_supported,
    "reverse0 is False.",
)
