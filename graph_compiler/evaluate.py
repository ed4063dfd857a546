"""The reference evaluator: a module's entry computation in NumPy, instruction by instruction.

Values are freed after their last use. With several ranks every rank runs in a thread of its own.
Collectives meet in lock step, so control flow may differ between ranks as long as the collectives
do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.arguments import count_argument, module_argument, sequence_argument
from graph_compiler.hlo.effects import has_effect
from graph_compiler.hlo.operators import operator
from graph_compiler.hlo.operators.row import Array, HloOperator, Value, subject
from graph_compiler.inputs import checked_inputs
from graph_compiler.partitions import partitions_of, refuse_undivided
from isa.errors import NeuronError
from nki.errors import named_arguments
from simulator.ranks import World, run_world

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Computation, Instruction, Module

DEPTH_LIMIT = 64
"""Computations that may be under way inside each other."""

_CALLS_IN_ITERATION, _LEAST_CALLS = 4, 1 << 10
"""Calls for each iteration that the limit of loops allows, in one iteration and outside loops: more
are calls that double."""

CALLS = frozenset({"call", "fusion"})
"""Opcodes that run their computation once."""

MOST_RANKS = 1 << 12
"""Ranks are threads."""

MOST_ITERATIONS, MOST_SEED = (1 << 62) - 1, (1 << 64) - 1
"""Numbers of 64 bits, of which iterations are signed."""

LOOP_LIMIT = 1 << 22
"""Iterations of all loops of a run together after which it counts as endless, here and where it is
compiled. A loop that counts and adds two vectors of 64 gets there after 70 to 90 seconds here, and
after 0.1 where it is compiled."""


@dataclass(frozen=True, slots=True)
class EvaluatorStep:
    """One instruction of a plan: operands and result are slots; `freed` are used here last."""

    instruction: Instruction
    row: type[HloOperator]
    operands: tuple[int, ...]
    freed: tuple[int, ...]
    parameter: int | None


class EvaluatorPlan:
    """A computation in the order in which it is evaluated: what the root needs, and effects.

    `steps[i]` writes slot i. `elementwise`: whether arrays can go through in place of scalars.
    """

    def __init__(self, computation: Computation) -> None:
        needed = _needed(computation)
        order = [item for item in computation.instructions if item in needed]
        slots = {item: slot for slot, item in enumerate(order)}
        last = {
            slots[operand]: slot for slot, item in enumerate(order) for operand in item.operands
        }
        self.root = slots[computation.root]
        last[self.root] = len(order)
        freed: list[list[int]] = [[] for _ in order]
        for slot in range(len(order)):
            at = last.get(slot, slot)
            if at < len(order):
                freed[at].append(slot)
        self.steps = [
            EvaluatorStep(
                item,
                operator(item.opcode),
                tuple(slots[operand] for operand in item.operands),
                tuple(freed[slot]),
                item.parameter_number if item.opcode == "parameter" else None,
            )
            for slot, item in enumerate(order)
        ]
        self.elementwise = all(_is_elementwise(step) for step in self.steps)


def _needed(computation: Computation) -> set[Instruction]:
    """What the root depends on, and instructions that are wanted for what they do."""
    needed = {item for item in computation.instructions if has_effect(item)}
    needed.add(computation.root)
    for item in reversed(computation.instructions):
        if item in needed:
            needed.update(item.operands)
    return needed


def _is_elementwise(step: EvaluatorStep) -> bool:
    shapes = [step.instruction.shape, *(item.shape for item in step.instruction.operands)]
    scalars = all(leaf.is_scalar for shape in shapes for leaf in shape.leaves())
    return scalars and (step.row.elementwise or step.row.scalar_identity)


class Evaluator:
    """One rank's evaluation of a module; the context of the operators' `evaluate`."""

    def __init__(
        self,
        module: Module,
        rank: int = 0,
        ranks: int = 1,
        partitions: int = 1,
        world: World | None = None,
        seed: int = 0,
        custom_calls: dict[str, Callable[..., Value]] | None = None,
        loop_limit: int = LOOP_LIMIT,
        observe: Callable[[Instruction, Value], None] | None = None,
    ) -> None:
        seed = count_argument(seed, "seed", 0, MOST_SEED)
        self.module = module
        self.rank = rank
        self.ranks = ranks
        self.partitions = partitions
        self.random = np.random.Generator(np.random.Philox(key=[seed, rank]))
        self.custom_calls = custom_calls or {}
        self._world = world if world is not None else World(1)
        self.loop_limit = count_argument(loop_limit, "loop_limit", 0, MOST_ITERATIONS)
        self.iterations = 0
        self._refuse_doubling(module.entry, {})
        self._observe = observe
        self._plans: dict[Computation, EvaluatorPlan] = {}
        self._depth = 0
        self._calls = 0
        self._elementwise: dict[EvaluatorPlan, bool] = {}

    def _refuse_doubling(
        self, computation: Computation, counts: dict[Computation, int], depth: int = 0
    ) -> int:
        """How often a run of a computation runs others, and itself, by calls that are sure to run.
        Raises NeuronError loop-limit, or hlo-cycle beyond DEPTH_LIMIT."""
        _check_depth(computation, depth)
        total = 1
        for instruction in computation.instructions:
            for called in instruction.called if instruction.opcode in CALLS else ():
                known = counts.get(called)
                if known is None:
                    known = self._refuse_doubling(called, counts, depth + 1)
                total += known
        counts[computation] = total
        self._check_calls(total, computation)
        return total

    def _check_calls(self, calls: int, computation: Computation) -> None:
        if calls > _CALLS_IN_ITERATION * max(self.loop_limit, _LEAST_CALLS):
            raise NeuronError(
                "loop-limit",
                f"`{computation.name}` and others are called {calls - 1:,} times or more.",
                why="Calls that call twice what they call run for ever, as endless loops do.",
                hint="Call each computation once, or state the repetition as a `while`.",
            )

    def _plan(self, computation: Computation) -> EvaluatorPlan:
        """The plan of a computation that is to run now. Raises NeuronError loop-limit."""
        self._calls += 1
        self._check_calls(self._calls, computation)
        plan = self._plans.get(computation)
        if plan is None:
            plan = self._plans[computation] = EvaluatorPlan(computation)
        return plan

    def call(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The result of a computation. Raises NeuronError hlo-cycle beyond DEPTH_LIMIT."""
        _check_depth(computation, self._depth)
        self._depth += 1
        try:
            return self._run(self._plan(computation), list(arguments))
        finally:
            self._depth -= 1

    def _run(self, plan: EvaluatorPlan, arguments: list[Value]) -> Value:
        values: list[Value] = [None] * len(plan.steps)
        for slot, step in enumerate(plan.steps):
            if step.parameter is not None:
                values[slot] = arguments[step.parameter]
                arguments[step.parameter] = None
            else:
                operands = [values[operand] for operand in step.operands]
                for operand in step.freed:
                    if operand != slot:
                        values[operand] = None
                try:
                    value = step.row.evaluate(step.instruction, operands, self)
                except MemoryError as error:
                    raise NeuronError(
                        "hlo-too-large",
                        f"{subject(step.instruction)}: no memory for {step.instruction.shape}.",
                    ) from error
                if type(value) is not np.ndarray and not isinstance(value, tuple):
                    value = None if value is None else np.asarray(value)
                values[slot] = value
                if self._observe is not None:
                    self._observe(step.instruction, value)
        return values[plan.root]

    def elementwise(
        self, computation: Computation, arguments: Sequence[Array]
    ) -> tuple[Array, ...]:
        """The results of a computation of scalars, applied to arrays element by element."""
        plan = self._plan(computation)
        if not self._all_elementwise(plan):
            return self._elements(computation, arguments)
        result = self._run_elementwise(plan, list(arguments))
        shape = np.broadcast_shapes(*(argument.shape for argument in arguments))
        parts = result if isinstance(result, tuple) else (result,)
        return tuple(
            part if part.shape == shape else np.broadcast_to(part, shape) for part in parts
        )

    def _all_elementwise(self, plan: EvaluatorPlan) -> bool:
        """Whether arrays can go through a computation and all that it calls."""
        found = self._elementwise.get(plan)
        if found is None:
            found = self._elementwise[plan] = plan.elementwise and all(
                self._all_elementwise(self._plan(called))
                for step in plan.steps
                for called in step.instruction.called
            )
        return found

    def _run_elementwise(self, plan: EvaluatorPlan, arguments: list[Value]) -> Value:
        values: list[Value] = []
        for step in plan.steps:
            if step.parameter is not None:
                values.append(arguments[step.parameter])
                continue
            operands = [values[operand] for operand in step.operands]
            if step.instruction.called:
                values.append(
                    self._run_elementwise(self._plan(step.instruction.called[0]), operands)
                )
            elif step.row.scalar_identity:
                values.append(operands[0])
            else:
                value = step.row.evaluate(step.instruction, operands, self)
                values.append(value if isinstance(value, tuple) else np.asarray(value))
        return values[plan.root]

    def _elements(self, computation: Computation, arguments: Sequence[Array]) -> tuple[Array, ...]:
        """A computation that arrays cannot go through, applied element by element."""
        shape = np.broadcast_shapes(*(argument.shape for argument in arguments))
        wide = [np.broadcast_to(argument, shape) for argument in arguments]
        outputs = [np.empty(shape, leaf.numpy_dtype()) for leaf in computation.root.shape.leaves()]
        for index in np.ndindex(*shape):
            result = self.call(computation, [np.asarray(array[index]) for array in wide])
            parts = result if isinstance(result, tuple) else (result,)
            for output, part in zip(outputs, parts):
                output[index] = part
        return tuple(outputs)

    def iterate(self, instruction: Instruction, step: Callable[[], bool]) -> None:
        """Calls `step` until it is False. Raises NeuronError loop-limit."""
        calls = self._calls
        while step():
            self.iterations += 1
            if self.iterations > self.loop_limit:
                raise endless(self.loop_limit, f", {subject(instruction)} among them")
            self._calls = calls  # what an iteration calls counts as the iteration
        self._calls = calls

    def exchange(self, instruction: Instruction, group: tuple[int, ...], value: Value) -> list[Any]:
        """The values that all ranks of a group pass at this instruction, in the group's order."""
        brought = self._world.meet(self.rank, group, subject(instruction), value, key=instruction)
        return [brought[rank] for rank in group]


def endless(limit: int, among: str = "") -> NeuronError:
    """The error of loops that run too long."""
    return NeuronError(
        "loop-limit",
        f"The loops of the graph{among} ran more than {limit:,} iterations.",
        why="A run whose loops have more iterations together counts as endless.",
        hint="Let the condition become false, or pass a larger loop_limit.",
    )


def _check_depth(computation: Computation, depth: int) -> None:
    if depth >= DEPTH_LIMIT:
        raise NeuronError(
            "hlo-cycle",
            f"calls are nested {DEPTH_LIMIT} deep at `{computation.name}`.",
            why="A computation cannot call itself, directly or through others.",
        )


@named_arguments
def evaluate(
    module: Module,
    *inputs: Value,
    ranks: int = 1,
    partitions: int | None = None,
    seed: int = 0,
    custom_calls: dict[str, Callable[..., Value]] | None = None,
    loop_limit: int = LOOP_LIMIT,
    observe: Callable[[Instruction, Value], None] | None = None,
) -> list[Array]:
    """The outputs of the entry computation, a tuple's components one after another.

    `module`: one that `verify` accepts, as `load` gives it. `inputs`: arrays with the shapes and
    element types of the parameters (tuples for parameters that are tuples). With `ranks` above 1
    all ranks get the same inputs and the outputs are rank 0's; `partitions` as in
    `evaluate_ranks`. `seed`: of `rng` instructions. `custom_calls`: functions of (instruction,
    operands, context) by target. `loop_limit`: iterations of all loops together. `observe` sees
    every value, for comparisons.
    Raises NeuronError input-mismatch, argument-kind, value-not-allowed, hlo-unknown-opcode,
    loop-limit, hlo-too-large and what operators raise.

    Source of what operators compute: https://openxla.org/xla/operation_semantics

    >>> from graph_compiler import parse_text
    >>> text = "HloModule m\\nENTRY e {\\n x = s32[2] parameter(0)\\n ROOT r = s32[2] negate(x)\\n}"
    >>> evaluate(parse_text(text), np.array([1, 2], np.int32))
    [array([-1, -2], dtype=int32)]
    """
    module_argument(module, "evaluate")
    if count_argument(ranks, "ranks", 1, MOST_RANKS) > 1:
        results = evaluate_ranks(
            module,
            [inputs] * ranks,
            partitions=partitions,
            seed=seed,
            custom_calls=custom_calls,
            loop_limit=loop_limit,
        )
        return results[0]
    arguments = checked_inputs(module, inputs)
    evaluator = Evaluator(
        module,
        seed=seed,
        custom_calls=custom_calls,
        loop_limit=loop_limit,
        observe=observe,
    )
    with np.errstate(all="ignore"):
        return outputs_of(module, evaluator.call(module.entry, arguments))


@named_arguments
def evaluate_ranks(
    module: Module,
    inputs: Sequence[Sequence[Value]],
    *,
    partitions: int | None = None,
    seed: int = 0,
    custom_calls: dict[str, Callable[..., Value]] | None = None,
    loop_limit: int = LOOP_LIMIT,
) -> list[list[Array]]:
    """The outputs of every rank. `inputs[r]` are rank r's.

    `partitions`: how many ranks are partitions of one replica; by default what the module's text
    states (`num_partitions`), else all of them where the module has channels or asks for its
    partition, else 1. Raises NeuronError as `evaluate`, and
    deadlock where ranks wait for collectives that others do not reach.

    Source of what collectives compute: https://openxla.org/xla/operation_semantics

    >>> from graph_compiler import parse_text
    >>> text = "HloModule m\\nENTRY e { i = u32[] replica-id() ROOT r = s8[] convert(i) }"
    >>> [int(outputs[0]) for outputs in evaluate_ranks(parse_text(text), [[], [], []])]
    [0, 1, 2]
    """
    module_argument(module, "evaluate_ranks")
    ranks = len(sequence_argument(inputs, "evaluate_ranks"))
    if ranks > 1:
        refuse_undivided(module)
    count = partitions_of(module, ranks)
    if partitions is not None:
        count = count_argument(partitions, "partitions", 1, MOST_RANKS)
    if ranks % count:
        raise NeuronError(
            "input-mismatch",
            f"{ranks} ranks are no whole number of replicas with {count} partitions each.",
            hint="Evaluate with as many ranks as replicas times partitions.",
        )
    arguments = [checked_inputs(module, values) for values in inputs]
    world = World(ranks)

    def run(rank: int) -> list[Array]:
        evaluator = Evaluator(module, rank, ranks, count, world, seed, custom_calls, loop_limit)
        with np.errstate(all="ignore"):
            return outputs_of(module, evaluator.call(module.entry, arguments[rank]))

    return run_world(world, [partial(run, rank) for rank in range(ranks)])


def outputs_of(module: Module, value: Value) -> list[Array]:
    """The arrays of a value, components one after another, each with memory of its own.

    Raises NeuronError hlo-too-large.
    """
    if isinstance(value, tuple):
        return [array for part in value for array in outputs_of(module, part)]
    if value is None:
        return []
    output = memory(module, value.shape, value.dtype)
    output[...] = value
    return [output]


def memory(module: Module, dims: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array for a result. Raises NeuronError hlo-too-large."""
    try:
        return np.empty(dims, dtype)
    except (MemoryError, ValueError) as error:
        raise NeuronError(
            "hlo-too-large", f"Module `{module.name}`: no memory for {dtype}{list(dims)}."
        ) from error
