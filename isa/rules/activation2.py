"""Rules of activate2."""

from __future__ import annotations

from isa.alu import ALU
from isa.enums import ReduceCommand
from isa.rules.form import OperationCall, Violation, is_number, is_tensor, rule
from isa.spec import ISA

_ACTIVATE = ISA + "activate2"
_BYPASS = ALU["bypass"]
PAIRS = (
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
)
"""What may come before the activation function."""


@rule(
    _ACTIVATE,
    "(op0, op1) is one of " + ", ".join(f"({', '.join(pair)})" for pair in PAIRS) + "; reverse0 "
    "and reverse1 go with operators other than bypass.",
    {f"op{i}": frozenset(ALU[pair[i]] for pair in PAIRS) for i in (0, 1)},
)
def activate2_operators(call: OperationCall) -> Violation | None:
    names = call.op0.name, call.op1.name
    if names not in PAIRS:
        return Violation(
            "operator-not-allowed",
            f"(op0, op1) is ({', '.join(names)})",
            why="The engine computes one of "
            + ", ".join(f"({', '.join(pair)})" for pair in PAIRS)
            + ".",
            operand="op0",
        )
    for number, op in enumerate((call.op0, call.op1)):
        value = call.field(f"imm{number}")
        if op is _BYPASS and call.field(f"reverse{number}"):
            return Violation(
                "value-not-allowed",
                f"reverse{number} is True, op{number} is bypass",
                why="Only an operation with two operands has an order of them.",
                hint=f"Leave reverse{number} out.",
                operand=f"reverse{number}",
            )
        if op is not _BYPASS and value is None:
            return Violation(
                "missing-argument", f"op{number}={op.name} needs imm{number}", operand=f"op{number}"
            )
    return None


@rule(
    _ACTIVATE, "imm0 and imm1 have one dtype when both are tensors; relu_param goes with nl.prelu."
)
def activate2_immediates(call: OperationCall) -> Violation | None:
    left, right = call.imm0, call.imm1
    if is_tensor(left) and is_tensor(right) and left.dtype != right.dtype:
        return Violation(
            "dtype-not-allowed",
            f"imm0 is {left.dtype}, imm1 is {right.dtype}",
            why="Two columns have one data type.",
            operand="imm1",
        )
    parameter = call.relu_param
    if call.op.parameter is None and not (is_number(parameter) and parameter == 0):
        return Violation(
            "value-not-allowed",
            f"relu_param is given with {call.op.name}",
            why="Only functions with a parameter, such as nl.prelu, take one.",
            hint="Leave relu_param out.",
            operand="relu_param",
        )
    return None


@rule(_ACTIVATE, "reduce_op is given with every reduce_cmd but idle.")
def activate2_reduction(call: OperationCall) -> Violation | None:
    if call.reduce_cmd is ReduceCommand.idle or call.reduce_op is not None:
        return None
    return Violation(
        "missing-argument",
        f"reduce_cmd={call.reduce_cmd.name} needs reduce_op",
        why="It says from what the accumulate registers start and how they go on.",
        operand="reduce_cmd",
    )
