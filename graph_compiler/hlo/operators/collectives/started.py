"""Collective operations in two halves: one begins an exchange, the other gives its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from graph_compiler.hlo.operators.collectives.exchanges import (
    AllGather,
    AllReduce,
    CollectivePermute,
    operand_arrays,
)
from graph_compiler.hlo.operators.control import CopyDone, OptimizationBarrier, placeholder
from graph_compiler.hlo.operators.row import (
    Evaluation,
    HloOperator,
    packed,
    require_shape,
    tuple_or_one,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape


class AllReduceStart(AllReduce):
    """Begins an all-reduce; gives its result."""

    opcode = "all-reduce-start"
    builders = ()
    stablehlo = ""


class AllReduceDone(OptimizationBarrier):
    """The result of the all-reduce that a start began."""

    opcode = "all-reduce-done"
    builders = ()
    stablehlo = ""


class Started(HloOperator):
    """Begins a collective; gives (operands, results, contexts ...)."""

    builders: ClassVar[tuple[str, ...]] = ()
    stablehlo = ""
    results: ClassVar[Any]

    @classmethod
    def declared(cls, instruction: Instruction) -> Shape:
        return instruction.shape.tuple_shapes[1]

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        contexts = [placeholder(shape) for shape in instruction.shape.tuple_shapes[2:]]
        return (packed(operands), packed(cls.results(instruction, operands, context)), *contexts)


def _started_shape(instruction: Instruction, results: list[Shape]) -> Shape:
    from graph_compiler.hlo.types import Shape

    operands = tuple_or_one(operand_arrays(instruction))
    contexts = instruction.shape.tuple_shapes[2:]
    return Shape.tuple_of([operands, tuple_or_one(results), *contexts])


class AllGatherStart(Started, AllGather):
    """Begins an all-gather: (operand, result)."""

    opcode = "all-gather-start"

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        parts = instruction.shape.tuple_shapes
        require_shape(
            len(parts) >= 2,
            instruction,
            f"its shape is {instruction.shape}.",
            "It gives the operand and the result.",
        )
        results = list(parts[1].tuple_shapes or (parts[1],))
        return _started_shape(instruction, cls.gathered(instruction, results))


class AllGatherDone(CopyDone):
    """The result of the all-gather that a start began."""

    opcode = "all-gather-done"
    position = 1


class CollectivePermuteStart(Started, CollectivePermute):
    """Begins a collective-permute: (operand, result, contexts ...)."""

    opcode = "collective-permute-start"

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        super().infer(instruction)
        return _started_shape(instruction, operand_arrays(instruction))


class CollectivePermuteDone(CopyDone):
    """The result of the collective-permute that a start began."""

    opcode = "collective-permute-done"
    position = 1
