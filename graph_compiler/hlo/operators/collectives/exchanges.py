"""Collective operations over simulated ranks, which meet in groups (`groups`).

Reductions fold the ranks in the order of the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graph_compiler.hlo.operators.collectives.groups import GROUP_FIELDS, group_of, group_size
from graph_compiler.hlo.operators.elementwise.unary import INTEGER
from graph_compiler.hlo.operators.folding import Folder
from graph_compiler.hlo.operators.row import (
    Array,
    CalledWork,
    Evaluation,
    HloOperator,
    Work,
    check_scalar_computation,
    operand_array,
    packed,
    require_kind,
    require_shape,
    require_type,
    subject,
    tuple_or_one,
)
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape


def operand_arrays(instruction: Instruction) -> list[Shape]:
    return [operand_array(instruction, i) for i in range(len(instruction.operands))]


class Collective(HloOperator):
    """An operation in which the ranks of a group exchange values."""

    attributes: ClassVar[tuple[str, ...]] = (*GROUP_FIELDS,)
    arity: ClassVar[tuple[int, int | None]] = (1, None)
    across_partitions = False

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        return packed(cls.results(instruction, operands, context))

    @classmethod
    def results(
        cls, instruction: Instruction, operands: list[Any], context: Evaluation
    ) -> list[Array]:
        group = group_of(instruction, context, cls.across_partitions)
        gathered = context.exchange(instruction, group, operands)
        try:
            found = cls.joined(instruction, gathered, group.index(context.rank), context)
        except ValueError:  # operands that so many ranks do not divide
            found = []
        declared = cls.declared(instruction)
        shapes = declared.tuple_shapes or (declared,)
        if [array.shape for array in found] != [shape.dimensions for shape in shapes]:
            raise NeuronError(
                "hlo-invalid",
                f"{subject(instruction)} does not give {declared} among {len(group)} ranks.",
                why="Where no groups are stated, the shapes say how many ranks take part.",
                hint="Evaluate with the number of ranks that the graph was made for.",
            )
        return found

    @classmethod
    def declared(cls, instruction: Instruction) -> Shape:
        """The shape of the results, as the instruction states it."""
        return instruction.shape

    @classmethod
    def joined(
        cls, instruction: Instruction, gathered: list[list[Array]], place: int, context: Evaluation
    ) -> list[Array]:
        """Results of the rank at `place` from every rank's operands."""
        raise TypeError(f"the row of {cls.opcode} has no meaning")


def _folded(instruction: Instruction, arrays: list[Array], context: Evaluation) -> Array:
    folder = Folder(instruction.called[0], context)
    total = folder.widen(arrays[:1])
    for array in arrays[1:]:
        total = folder.combine(total, folder.widen([array]))
    return folder.narrow(total)[0]


class AllReduce(Collective):
    """The fold of the operand over the ranks of a group, on every rank."""

    opcode = "all-reduce"
    builders: ClassVar[tuple[str, ...]] = ("Allreduce", "AllReduce", "CrossReplicaSum")
    stablehlo = "all_reduce"
    calls = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shapes = operand_arrays(instruction)
        group_size(instruction)
        for shape in shapes:
            types = [shape.element_type] * 2
            check_scalar_computation(instruction, instruction.called[0], types, 1, folds=True)
        return tuple_or_one(shapes)

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        """Of one rank: the other ranks of its group are folded into its results."""
        shapes = instruction.shape.tuple_shapes or (instruction.shape,)
        count = sum(shape.size for shape in shapes) * ((group_size(instruction) or 2) - 1)
        return called(instruction.called[0]).times(count)

    @classmethod
    def joined(
        cls, instruction: Instruction, gathered: list[list[Array]], place: int, context: Evaluation
    ) -> list[Array]:
        return [_folded(instruction, list(arrays), context) for arrays in zip(*gathered)]


class AllGather(Collective):
    """The operands of the ranks of a group, one after another along `dimensions[0]`."""

    opcode = "all-gather"
    builders: ClassVar[tuple[str, ...]] = ("Allgather", "AllGather")
    stablehlo = "all_gather"
    attributes = (*Collective.attributes, "dimensions")

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        results = instruction.shape.tuple_shapes or (instruction.shape,)
        return tuple_or_one(cls.gathered(instruction, list(results)))

    @classmethod
    def gathered(cls, instruction: Instruction, results: list[Shape]) -> list[Shape]:
        shapes, axes = operand_arrays(instruction), instruction.attribute("dimensions")
        found = []
        for position, shape in enumerate(shapes):
            require_shape(
                len(axes) == 1 and 0 <= axes[0] < shape.rank and position < len(results),
                instruction,
                f"it gathers {shape} along {tuple(axes)}.",
                "Arrays are gathered along one of their dimensions.",
            )
            axis, result = axes[0], results[position]
            # Without stated groups only the run knows the number of ranks.
            number = group_size(instruction)
            sizes = list(shape.dimensions)
            if number is not None:
                sizes[axis] *= number
            elif len(result.dimensions) == shape.rank:
                sizes[axis] = result.dimensions[axis]
            found.append(shape.with_dimensions(sizes))
        return found

    @classmethod
    def joined(
        cls, instruction: Instruction, gathered: list[list[Array]], place: int, context: Evaluation
    ) -> list[Array]:
        axis = instruction.attribute("dimensions")[0]
        return [np.concatenate(arrays, axis=axis) for arrays in zip(*gathered)]


class ReduceScatter(AllReduce):
    """The part of the fold that belongs to this rank: parts along `dimensions[0]`, in order."""

    opcode = "reduce-scatter"
    builders = ("ReduceScatter",)
    stablehlo = "reduce_scatter"
    attributes = (*Collective.attributes, "dimensions")

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        super().infer(instruction)
        shapes, axes = operand_arrays(instruction), instruction.attribute("dimensions")
        results = instruction.shape.tuple_shapes or (instruction.shape,)
        number = group_size(instruction)
        found = []
        for shape, result in zip(shapes, results):
            require_shape(
                len(axes) == 1 and 0 <= axes[0] < shape.rank,
                instruction,
                f"it scatters {shape} along {tuple(axes)}.",
                "Arrays are scattered along one of their dimensions.",
            )
            sizes, axis = list(shape.dimensions), axes[0]
            parts = number if number is not None else sizes[axis] // max(1, result.dimensions[axis])
            require_shape(
                parts > 0 and sizes[axis] % parts == 0,
                instruction,
                f"dimension {axis} of {shape} is split among {parts} ranks.",
                "The ranks of a group divide the dimension.",
            )
            sizes[axis] //= parts
            found.append(shape.with_dimensions(sizes))
        return tuple_or_one(found)

    @classmethod
    def joined(
        cls, instruction: Instruction, gathered: list[list[Array]], place: int, context: Evaluation
    ) -> list[Array]:
        axis = instruction.attribute("dimensions")[0]
        parts = [
            [np.split(array, len(gathered), axis=axis)[place] for array in operands]
            for operands in gathered
        ]
        return super().joined(instruction, parts, place, context)


class AllToAll(Collective):
    """Part i of every rank goes to rank i of the group.

    With a dimension the one operand is split and joined along it; without, operand i goes to rank
    i and the result is a tuple.
    """

    opcode = "all-to-all"
    builders = ("AllToAll",)
    stablehlo = "all_to_all"
    attributes = (*Collective.attributes, "dimensions")
    across_partitions = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shapes, axes = operand_arrays(instruction), instruction.attribute("dimensions")
        number = group_size(instruction)
        if axes:
            require_shape(
                len(shapes) == 1
                and len(axes) == 1
                and 0 <= axes[0] < shapes[0].rank
                and (number is None or shapes[0].dimensions[axes[0]] % number == 0),
                instruction,
                f"it splits {shapes[0]} along {tuple(axes)} among {number or 'all'} ranks.",
                "The ranks of a group divide the dimension that is split.",
            )
            return shapes[0]
        require_shape(
            number in (None, len(shapes)) and all(a.same_as(shapes[0]) for a in shapes),
            instruction,
            f"it has {len(shapes)} operands for groups of {number}.",
            "There is an operand for every rank of a group, all of one shape.",
        )
        from graph_compiler.hlo.types import Shape

        return Shape.tuple_of(shapes)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        results = cls.results(instruction, operands, context)
        return results[0] if instruction.attribute("dimensions") else tuple(results)

    @classmethod
    def joined(
        cls, instruction: Instruction, gathered: list[list[Array]], place: int, context: Evaluation
    ) -> list[Array]:
        axes = instruction.attribute("dimensions")
        if not axes:
            return [operands[place] for operands in gathered]
        parts = [np.split(ops[0], len(gathered), axis=axes[0])[place] for ops in gathered]
        return [np.concatenate(parts, axis=axes[0])]


class RaggedAllToAll(Collective):
    """Runs of rows of any length go to the ranks of the group, into rows of their outputs.

    Operands are the input, the output and four vectors with one number (or k numbers) for each rank
    of the group. The first three say where a run starts in the input, how long it is, and where it
    starts in the output of the rank that it goes to. The last says how long the runs are that come
    from each rank. Rows that nothing goes to stay as they are in operand 1.
    """

    opcode = "ragged-all-to-all"
    builders = ("RaggedAllToAll",)
    arity = (6, 6)
    across_partitions = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        rows, output, *vectors = operand_arrays(instruction)
        require_type(
            rows.element_type == output.element_type,
            instruction,
            f"rows of {rows} go into {output}.",
            "Input and output have the same element type.",
        )
        for vector in vectors:
            require_kind(instruction, vector.primitive, INTEGER, "an offset or size")
        number = group_size(instruction) or 1
        require_shape(
            rows.rank > 0
            and rows.dimensions[1:] == output.dimensions[1:]
            and rows.rank == output.rank
            and all(
                vector.rank == 1
                and vector.dimensions == vectors[0].dimensions
                and vector.dimensions[0] % number == 0
                for vector in vectors
            ),
            instruction,
            f"rows of {rows} go into {output} by ({', '.join(map(str, vectors))}), {number} ranks.",
            "Rows are alike, and the vectors hold equally many numbers for every rank.",
        )
        return output

    @classmethod
    def joined(
        cls, instruction: Instruction, gathered: list[list[Array]], place: int, context: Evaluation
    ) -> list[Array]:
        result = np.array(gathered[place][1])
        for rows, _, starts, lengths, targets, _ in gathered:
            runs = len(starts) // len(gathered)
            for run in range(place * runs, (place + 1) * runs):
                start, length, target = int(starts[run]), int(lengths[run]), int(targets[run])
                if not (0 <= start <= start + length <= len(rows)) or not (
                    0 <= target <= target + length <= len(result)
                ):
                    raise NeuronError(
                        "hlo-invalid",
                        f"{subject(instruction)}: rows {start} to {start + length} of {len(rows)} "
                        f"go to {target} of {len(result)}.",
                        why="Runs lie within the input and the output.",
                    )
                result[target : target + length] = rows[start : start + length]
        return [result]


class CollectiveBroadcast(Collective):
    """The operand of the first rank of the group, on every rank."""

    opcode = "collective-broadcast"
    builders = ("CollectiveBroadcast",)
    stablehlo = "collective_broadcast"
    across_partitions = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        group_size(instruction)
        return tuple_or_one(operand_arrays(instruction))

    @classmethod
    def joined(
        cls, instruction: Instruction, gathered: list[list[Array]], place: int, context: Evaluation
    ) -> list[Array]:
        return list(gathered[0])


class CollectivePermute(HloOperator):
    """The operand of the rank that sends to this one; zeros where none does."""

    opcode = "collective-permute"
    builders: ClassVar[tuple[str, ...]] = ("CollectivePermute",)
    stablehlo = "collective_permute"
    attributes = ("source_target_pairs", "channel_id")
    arity = (1, None)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        pairs = instruction.attribute("source_target_pairs")
        targets = [pair.target for pair in pairs]
        require_shape(
            len(set(targets)) == len(targets),
            instruction,
            f"it sends to {targets}.",
            "A rank receives from at most one rank.",
        )
        return tuple_or_one(operand_arrays(instruction))

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        return packed(cls.results(instruction, operands, context))

    @classmethod
    def results(
        cls, instruction: Instruction, operands: list[Any], context: Evaluation
    ) -> list[Array]:
        everyone = tuple(range(context.ranks))
        gathered = context.exchange(instruction, everyone, operands)
        replica, partition = divmod(context.rank, context.partitions)
        channel = (instruction.attribute("channel_id") or 0) > 0
        own = partition if channel else replica
        for pair in instruction.attribute("source_target_pairs"):
            if pair.target == own:
                if channel:
                    return list(gathered[replica * context.partitions + pair.source])
                return list(gathered[pair.source * context.partitions + partition])
        return [np.zeros_like(operand) for operand in operands]


class PartitionId(HloOperator):
    """Number of this rank among the partitions, as u32."""

    opcode = "partition-id"
    builders = ("PartitionId",)
    stablehlo = "partition_id"
    arity = (0, 0)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        from graph_compiler.hlo.types import Shape

        return Shape("u32")

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        return np.array(context.rank % context.partitions, np.uint32)


class ReplicaId(PartitionId):
    """Number of this rank among the replicas, as u32."""

    opcode = "replica-id"
    builders = ("ReplicaId",)
    stablehlo = "replica_id"

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        return np.array(context.rank // context.partitions, np.uint32)
