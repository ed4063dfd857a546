"""Rules of operations that draw random numbers or move the state of their generators."""

from __future__ import annotations

from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine.random import GENERATORS, Algorithm
from isa.rules.form import (
    OWN_PAGE,
    OperationCall,
    Rule,
    Violation,
    free_elements,
    in_psum,
    is_number,
    is_tensor,
    rule,
    shape_text,
)
from isa.rules.generic import generation_violation
from isa.spec import ISA


def random_engine(*, states: bool = False) -> Rule:
    """The engine has a generator on the target (`states`: one whose state can be moved), and
    reaches every operand."""
    row_text = "state words" if states else "random numbers"

    def check(call: OperationCall) -> Violation | None:
        engine = call.engine
        having = tuple(
            g
            for (e, g), found in GENERATORS.items()
            if e is engine and (found.algorithm is Algorithm.xorwow or not states)
        )
        if call.target.generation not in having:
            return generation_violation(
                f"{row_text} on the {engine.name} engine", having, call.target
            )
        for name, tensor in call.tensors():
            if in_psum(tensor) and engine is Engine.gpsimd:
                return Violation(
                    "engine-not-allowed",
                    f"{name} ({tensor.storage.name}) is in psum, which the gpsimd engine cannot "
                    "access",
                    hint="Use a tile in SBUF, or the vector engine.",
                    operand=name,
                )
        return None

    return Rule(
        "random_engine",
        OWN_PAGE,
        check,
        "gpsimd from gen3 on, and only in SBUF; vector "
        + ("from gen4 on." if states else "on all generations."),
    )


def state_words(name: str) -> Rule:
    """The operand has the words of the engine's generator in each partition."""

    def check(call: OperationCall) -> Violation | None:
        tensor = call.field(name)
        words = GENERATORS[call.engine, call.target.generation].state_words
        if len(tensor.shape) == 2 and free_elements(tensor) == words:
            return None
        return Violation(
            "shape-mismatch",
            f"{name} has shape {shape_text(tensor)}, expected [lanes, {words}] on the "
            f"{call.engine.name} engine of {call.target.name}",
            why="A lane's state is 6 words on GpSimd, and four times 6 on the vector engine.",
            operand=name,
        )

    return Rule(
        "state_words", OWN_PAGE, check, f"{name} is [lanes, 6] for gpsimd, [lanes, 24] for vector."
    )


@rule(ISA + "rand2", "Numbers have min < max.")
def rand_limits(call: OperationCall) -> Violation | None:
    low, high = call.min, call.max
    if not (is_number(low) and is_number(high)) or low < high:
        return None
    return Violation(
        "value-not-allowed",
        f"min is {low}, max is {high}",
        why="A range of random numbers has min < max.",
        operand="min",
    )


@rule(
    ISA + "dropout",
    "prob is from 0 to 1; a tensor is float32 for integer data, of any float type otherwise.",
)
def dropout_probability(call: OperationCall) -> Violation | None:
    prob, data = call.prob, call.data
    if not is_tensor(prob):
        if 0 <= prob <= 1:
            return None
        return Violation("value-not-allowed", f"prob is {prob}, expected 0 to 1", operand="prob")
    if DTYPES[data.dtype].is_float and DTYPES[prob.dtype].is_float:
        return None
    if prob.dtype == "float32":
        return None
    expected = "a float type" if DTYPES[data.dtype].is_float else "float32"
    return Violation(
        "dtype-not-allowed",
        f"prob is {prob.dtype}, expected {expected} for {data.dtype} data",
        operand="prob",
    )


@rule(ISA + "set_rng_seed", "src_seeds has 32 bits.")
def seed_bits(call: OperationCall) -> Violation | None:
    dtype = call.src_seeds.dtype
    if DTYPES[dtype].size == 4:
        return None
    return Violation(
        "dtype-not-allowed",
        f"src_seeds is {dtype}, expected a type of 32 bits",
        operand="src_seeds",
    )
