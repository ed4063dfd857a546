"""Tuples, calls, control flow, ordering, and the start and done forms of asynchronous work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graph_compiler.hlo.operators.row import (
    CalledWork,
    Evaluation,
    HloOperator,
    Work,
    operand_array,
    require_shape,
    require_type,
    shape_error,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Computation, Instruction
    from graph_compiler.hlo.types import Shape


def check_call(instruction: Instruction, computation: Computation, shapes: list[Shape]) -> Shape:
    """A computation must take arguments of these shapes; its result's shape."""
    found = [parameter.shape for parameter in computation.parameters]
    require_shape(
        len(found) == len(shapes) and all(a.same_as(b) for a, b in zip(found, shapes)),
        instruction,
        f"`{computation.name}` takes ({', '.join(map(str, found))}), not"
        f" ({', '.join(map(str, shapes))}).",
        "A computation is called with arguments of its parameters' shapes.",
    )
    return computation.root.shape


class Tuple(HloOperator):
    """The operands as one value."""

    opcode = "tuple"
    builders = ("Tuple",)
    stablehlo = "tuple"
    elementwise = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        from graph_compiler.hlo.types import Shape

        return Shape.tuple_of(operand.shape for operand in instruction.operands)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        return tuple(operands)


class GetTupleElement(HloOperator):
    """One component of a tuple."""

    opcode = "get-tuple-element"
    builders = ("GetTupleElement",)
    stablehlo = "get_tuple_element"
    attributes = ("tuple_index",)
    arity = (1, 1)
    elementwise = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape, index = instruction.operands[0].shape, instruction.attribute("tuple_index")
        require_shape(
            shape.is_tuple and 0 <= index < len(shape.tuple_shapes),
            instruction,
            f"it takes component {index} of {shape}.",
            "The operand is a tuple with that component.",
        )
        return shape.tuple_shapes[index]

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        return operands[0][instruction.attribute("tuple_index")]


class Call(HloOperator):
    """The result of the called computation."""

    opcode = "call"
    builders: ClassVar[tuple[str, ...]] = ("Call", "CompositeCall")
    stablehlo = "composite"
    attributes = ("is_composite",)
    calls = (1, 1)
    elementwise = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shapes = [operand.shape for operand in instruction.operands]
        return check_call(instruction, instruction.called[0], shapes)

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        return called(instruction.called[0])

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        return context.call(instruction.called[0], operands)


class Fusion(Call):
    """The result of a computation that a compiler made of several instructions."""

    opcode = "fusion"
    builders = ()
    stablehlo = ""
    attributes = ("fusion_kind",)


class While(HloOperator):
    """Repeats the body while the condition holds. Called computations: body, condition."""

    opcode = "while"
    builders = ("While",)
    stablehlo = "while"
    arity = (1, 1)
    calls = (2, 2)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        body, condition = instruction.called
        shape = instruction.operands[0].shape
        result = check_call(instruction, body, [shape])
        choice = check_call(instruction, condition, [shape])
        require_shape(
            result.same_as(shape),
            instruction,
            f"body `{body.name}` maps {shape} to {result}.",
            "The body gives what it takes.",
        )
        _check_choice(instruction, choice, condition)
        return shape

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        """One iteration: the graph does not say how many there are."""
        body, condition = instruction.called
        return called(body) + called(condition)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        body, condition = instruction.called
        state = operands.pop()  # the caller's reference would keep every element alive

        def step() -> bool:
            nonlocal state
            if not context.call(condition, [state]):
                return False
            state = context.call(body, [state])
            return True

        context.iterate(instruction, step)
        return state


def _check_choice(instruction: Instruction, choice: Shape, computation: Computation) -> None:
    require_type(
        choice.element_type == "pred" and choice.is_scalar,
        instruction,
        f"condition `{computation.name}` gives {choice}.",
        "A condition gives one pred.",
    )


class Conditional(HloOperator):
    """The result of one of the called computations, with the operand that belongs to it.

    Operand 0 is a pred (computation 0 where true, 1 where false) or an s32 index, where an index
    out of range chooses the last. Operand i + 1 goes to computation i.
    """

    opcode = "conditional"
    builders = ("Conditional",)
    stablehlo = "case"
    arity = (2, None)
    calls = (1, None)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        choice = operand_array(instruction, 0)
        branches = instruction.called
        require_type(
            choice.is_scalar and choice.element_type in ("pred", "s32"),
            instruction,
            f"operand 0 is {choice}.",
            "A branch is chosen by a pred or an s32 index.",
        )
        require_shape(
            len(instruction.operands) == len(branches) + 1
            and (choice.element_type == "s32" or len(branches) == 2),
            instruction,
            f"it has {len(branches)} branches and {len(instruction.operands) - 1} arguments.",
            "Every branch has its argument; a pred chooses between two.",
        )
        results = [
            check_call(instruction, branch, [operand.shape])
            for branch, operand in zip(branches, instruction.operands[1:])
        ]
        for branch, result in zip(branches, results):
            require_shape(
                result.same_as(results[0]),
                instruction,
                f"branch `{branch.name}` gives {result}, `{branches[0].name}` {results[0]}.",
                "All branches give the same shape.",
            )
        return results[0]

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        """The costliest branch."""
        return max(called(branch) for branch in instruction.called)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        choice = operands[0]
        last = len(instruction.called) - 1
        if choice.dtype == np.bool_:
            index = 0 if choice else 1
        else:
            index = int(choice) if 0 <= int(choice) <= last else last
        return context.call(instruction.called[index], [operands[index + 1]])


class OptimizationBarrier(HloOperator):
    """The operand; computations do not move across it."""

    opcode = "opt-barrier"
    builders: ClassVar[tuple[str, ...]] = ("OptimizationBarrier",)
    stablehlo = "optimization_barrier"
    arity = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        return instruction.operands[0].shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        return operands[0]


class AddDependency(OptimizationBarrier):
    """Operand 0, after operand 1 (a token) has happened."""

    opcode = "add-dependency"
    builders = ()
    stablehlo = ""
    arity = (2, 2)


class Domain(OptimizationBarrier):
    """The operand; marks where one sharding ends and another begins."""

    opcode = "domain"
    builders = ()
    stablehlo = ""
    attributes = ("domain_entry_sharding", "domain_exit_sharding")


class AfterAll(HloOperator):
    """A token that follows all operands, which are tokens."""

    opcode = "after-all"
    builders = ("AfterAll", "CreateToken")
    stablehlo = "after_all"

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        from graph_compiler.hlo.types import Shape

        for position, operand in enumerate(instruction.operands):
            require_type(
                operand.shape.element_type == "token",
                instruction,
                f"operand {position} is {operand.shape}.",
                "It joins tokens.",
            )
        return Shape("token")

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> None:
        return None


class CopyStart(HloOperator):
    """Begins a copy: (copy, operand, context)."""

    opcode = "copy-start"
    attributes = ("cross_program_prefetch_index",)
    arity = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape, result = instruction.operands[0].shape, instruction.shape
        require_shape(
            len(result.tuple_shapes) == 3
            and all(part.same_as(shape) for part in result.tuple_shapes[:2]),
            instruction,
            f"it copies {shape} into {result}.",
            "It gives the copy, the operand and a context.",
        )
        return result

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        return operands[0], operands[0], placeholder(instruction.shape.tuple_shapes[2])


def placeholder(shape: Shape) -> Any:
    """The value of a context, which nothing looks into: zeros."""
    if shape.is_tuple:
        return tuple(placeholder(part) for part in shape.tuple_shapes)
    return np.zeros(shape.dimensions, shape.numpy_dtype()) if shape.is_array else None


class CopyDone(HloOperator):
    """The copy that a copy-start began."""

    opcode = "copy-done"
    arity = (1, 1)
    position = 0

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = instruction.operands[0].shape
        if not shape.is_tuple or len(shape.tuple_shapes) <= cls.position:
            raise shape_error(
                instruction,
                f"operand 0 is {shape}.",
                "It takes what the start of the same operation gives.",
            )
        return shape.tuple_shapes[cls.position]

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        return operands[0][cls.position]


class AsyncStart(HloOperator):
    """Begins a computation: ((operands), result, context...)."""

    opcode = "async-start"
    attributes = ("async_execution_thread",)
    stablehlo = "async_start"
    calls = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shapes = [operand.shape for operand in instruction.operands]
        result = check_call(instruction, instruction.called[0], shapes)
        parts = instruction.shape.tuple_shapes
        require_shape(
            len(parts) >= 2
            and len(parts[0].tuple_shapes) == len(shapes)
            and all(a.same_as(b) for a, b in zip(parts[0].tuple_shapes, shapes))
            and parts[1].same_as(result),
            instruction,
            f"its shape is {instruction.shape}; the computation gives {result}.",
            "It gives a tuple of the operands, the result, and contexts.",
        )
        return instruction.shape

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        return called(instruction.called[0])

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        result = context.call(instruction.called[0], operands)
        contexts = [placeholder(shape) for shape in instruction.shape.tuple_shapes[2:]]
        return (tuple(operands), result, *contexts)


class AsyncUpdate(OptimizationBarrier):
    """The state of a computation that goes on."""

    opcode = "async-update"
    builders = ()
    stablehlo = ""
    calls = (0, 1)


class AsyncDone(CopyDone):
    """The result of the computation that an async-start began."""

    opcode = "async-done"
    stablehlo = "async_done"
    calls = (0, 1)
    position = 1
