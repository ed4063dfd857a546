"""Rules on the operators of the vector engine that an operation takes."""

from __future__ import annotations

from typing import Any

from isa.alu import ALU
from isa.enums import Engine
from isa.rules.form import OperationCall, Rule, Violation, is_number, listed, rule
from isa.spec import ISA

_ALU_TABLE = "nki/api/nki.api.shared.rst#supported-math-operators-for-nki-isa"


def _operator(
    name: str, property_name: str, wanted: bool | int, expected: str, document: str
) -> Rule:
    listed_operators = [o for o in ALU.values() if getattr(o, property_name) == wanted]

    def check(call: OperationCall) -> Violation | None:
        op = call.field(name)
        if op is None or getattr(op, property_name) == wanted:
            return None
        accepted = ", ".join(o.name for o in listed_operators)
        return Violation(
            "operator-not-allowed",
            f"{name} is {op.name}, expected {expected}",
            why=f"{name} must be {expected}: {accepted}.",
            operand=name,
        )

    text = f"{name} is {expected}."
    accepts = {name: frozenset(listed_operators)}
    return Rule(f"{property_name}_operator", document, check, text, accepts)


def arithmetic_operator(name: str) -> Rule:
    """The operator computes in fp32; no bit-vector operator."""
    expected = "an arithmetic operator"
    return _operator(name, "arithmetic", True, expected, ISA + "scalar_tensor_tensor")


def comparison_operator(name: str) -> Rule:
    """The operator is a comparison."""
    return _operator(name, "comparison", True, "a comparison", ISA + "affine_select")


def reduction_operator(name: str) -> Rule:
    """The operator can reduce; `negate` needs an arithmetic one."""
    base = _operator(name, "reduces", True, "an operator that reduces", _ALU_TABLE)

    def check(call: OperationCall) -> Violation | None:
        violation = base.check(call)
        if violation is None and call.field("negate") and not call.field(name).arithmetic:
            return Violation(
                "operator-not-allowed",
                f"negate=True with {name}={call.field(name).name}",
                why="Only results of arithmetic operators can be negated.",
                operand="negate",
            )
        return violation

    text = f"{name} is an operator that reduces; negate needs an arithmetic one."
    return Rule("reduction_operator", ISA + "tensor_reduce", check, text, base.operators)


def binary_operator(name: str) -> Rule:
    """The operator takes two inputs, and the engine that was asked for runs it."""
    base = _operator(name, "arity", 2, "an operator of two inputs", _ALU_TABLE)

    def check(call: OperationCall) -> Violation | None:
        violation = base.check(call)
        if violation is not None:
            return violation
        op, engine = call.field(name), call.field("engine", Engine.unknown)
        if engine is Engine.unknown or engine in op.engines:
            return None
        return engine_violation(op, engine, op.engines)

    text = f"{name} takes two inputs and runs on the engine that is asked for."
    return Rule("binary_operator", ISA + "tensor_tensor", check, text, base.operators)


def elementwise_operator(*names: str) -> Rule:
    """The operators mean something of two elements; that of a mean divides at the end."""

    def check(call: OperationCall) -> Violation | None:
        for name in names:
            op = call.field(name)
            if op is not None and op.finish is not None:
                return Violation(
                    "operator-not-allowed",
                    f"{name} is {op.name}, which is a reduction only",
                    why=f"{op.name} divides once, after the last element.",
                    hint="nisa.tensor_partition_reduce takes it; else add, and multiply by the "
                    "inverse of the count.",
                    operand=name,
                )
        return None

    text = f"{listed(names)} are operators of elements, not a mean."
    elementwise = frozenset(op for op in ALU.values() if op.finish is None)
    return Rule("elementwise_operator", _ALU_TABLE, check, text, dict.fromkeys(names, elementwise))


@rule(ISA + "tensor_scalar", "op0 and op1 are both arithmetic or both bit-vector operators.")
def operators_of_one_type(call: OperationCall) -> Violation | None:
    one, two = call.op0, call.op1
    if one is None or two is None or one.arithmetic == two.arithmetic:
        return None
    kinds = {True: "arithmetic", False: "bit-vector"}
    return Violation(
        "operator-not-allowed",
        f"op0={one.name} is {kinds[one.arithmetic]}, op1={two.name} is {kinds[two.arithmetic]}",
        why="The two operators of one instruction are both arithmetic or both bit-vector.",
        hint="Use two instructions.",
        operand="op1",
    )


def operand_given(op: str, operand: str) -> Rule:
    """A binary operator has its operand, a unary or absent one has none (or the number 0)."""

    def check(call: OperationCall) -> Violation | None:
        operator, value = call.field(op), call.field(operand)
        if operator is not None and operator.arity == 2:
            if value is None:
                return Violation(
                    "missing-argument",
                    f"{op}={operator.name} needs {operand}",
                    why="An operator of two inputs takes its second one from the operand.",
                    operand=operand,
                )
            return None
        if value is None or (operator is not None and is_number(value) and value == 0):
            return None
        reason = f"{op} is None" if operator is None else f"{op}={operator.name} is unary"
        return Violation(
            "value-not-allowed",
            f"{operand} is given, but {reason}",
            why=f"{operand} is the second input of {op}.",
            hint=f"Leave {operand} out, or choose a binary operator for {op}.",
            operand=operand,
        )

    text = f"{operand} is given if {op} takes two inputs, and left out (or 0) otherwise."
    return Rule("operand_given", ISA + "tensor_scalar", check, text)


def engine_violation(op: Any, engine: Engine, engines: Any) -> Violation:
    allowed = " or ".join(e.name for e in Engine if e in engines)
    return Violation(
        "engine-not-allowed",
        f"operator {op.name} does not run on the {engine.name} engine, only on {allowed}",
        operand="engine",
    )


@rule(ISA + "activation", "reduce_op is add.", {"reduce_op": frozenset({ALU["add"]})})
def activation_reduce_operator(call: OperationCall) -> Violation | None:
    op = call.reduce_op
    if op is None or op is ALU["add"]:
        return None
    return Violation(
        "operator-not-allowed",
        f"reduce_op is {op.name}, expected add",
        why="The scalar engine's accumulate registers add.",
        hint="Write the activation's result and reduce it with nisa.tensor_reduce.",
        operand="reduce_op",
    )
