"""What a row of the operator table is: one class per HLO opcode, its body the facts.

`infer` is the shape and type rule, `evaluate` the reference meaning in NumPy. A row that is
`elementwise` works element by element; one with `scalar_identity` does nothing to a scalar. So a
computation of scalars that is made of such rows can be applied to whole arrays at once (reducers,
comparators, combiners).

Sources: https://openxla.org/xla/operation_semantics (`builders`), the StableHLO specification
(`stablehlo`), and `neuronx-cc list-operators` for the spelling of `builders`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Computation, Instruction, Module
    from graph_compiler.hlo.types import PrimitiveType, Shape

Array: TypeAlias = "np.ndarray[Any, Any]"
Value: TypeAlias = Any
"""An array, a tuple of values, or None for a token."""


class Work(NamedTuple):
    """Arithmetic: exact operations (a multiply-add is two), and functions that are not exact.

    >>> Work(2) + Work(0, 1).times(3)
    Work(flops=2, transcendentals=3)
    """

    flops: int = 0
    transcendentals: int = 0

    def __add__(self, other: Work) -> Work:  # type: ignore[override]
        return Work(self.flops + other.flops, self.transcendentals + other.transcendentals)

    def times(self, count: int) -> Work:
        return Work(self.flops * count, self.transcendentals * count)


NO_WORK, ARITHMETIC, TRANSCENDENTAL = Work(), Work(1), Work(0, 1)

CalledWork: TypeAlias = "Callable[[Computation], Work]"
"""The work of one execution of a computation."""

OPERATORS: dict[str, type[HloOperator]] = {}
"""Every row by its opcode, as HLO text writes it."""

_SPECIFICATION = "https://openxla.org/stablehlo/spec#"
_SEMANTICS = "https://openxla.org/xla/operation_semantics"


class RankContext(Protocol):
    """Which rank of a distributed graph is meant."""

    module: Module
    rank: int
    ranks: int
    partitions: int
    """Of the ranks, how many are partitions of one replica; rank = replica * partitions + one."""


class Evaluation(RankContext, Protocol):
    """What `evaluate` may ask of the evaluator that runs it."""

    random: np.random.Generator
    custom_calls: dict[str, Callable[..., Value]]

    def call(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The result of a computation."""

    def elementwise(
        self, computation: Computation, arguments: Sequence[Array]
    ) -> tuple[Array, ...]:
        """The results of a computation of scalars, applied to arrays element by element."""

    def iterate(self, instruction: Instruction, step: Callable[[], bool]) -> None:
        """Call `step` until it is False. Raises NeuronError loop-limit."""

    def exchange(self, instruction: Instruction, group: tuple[int, ...], value: Value) -> list[Any]:
        """The values that all ranks of a group pass at this instruction, in the group's order."""


class HloOperator:
    """One HLO opcode.

    `opcode`: as HLO text writes it. `builders`: names of the XLA builder functions that make it.
    `stablehlo`: name of the StableHLO operation, "" where there is none. `attributes`: the fields
    of the proto that it reads. `arity`: least and most operands, None for any number. `calls`:
    least and most computations called. `elementwise`, `scalar_identity`: see the module.
    `per_element`: the work for one element of the result. The docstring is the reference.
    """

    opcode: ClassVar[str]
    builders: ClassVar[tuple[str, ...]] = ()
    stablehlo: ClassVar[str] = ""
    attributes: ClassVar[tuple[str, ...]] = ()
    arity: ClassVar[tuple[int, int | None]] = (0, None)
    calls: ClassVar[tuple[int, int | None]] = (0, 0)
    elementwise: ClassVar[bool] = False
    scalar_identity: ClassVar[bool] = False
    per_element: ClassVar[Work] = NO_WORK

    def __init_subclass__(cls) -> None:
        if "opcode" in vars(cls):
            OPERATORS[cls.opcode] = cls

    @classmethod
    def link(cls) -> str:
        """Address of the operation's documentation."""
        if cls.stablehlo and "." not in cls.stablehlo:
            return _SPECIFICATION + cls.stablehlo
        name = cls.builders[0] if cls.builders else cls.opcode.replace("-", "")
        return f"{_SEMANTICS}#{name.lower()}"

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        """The shape that the instruction must have.

        What operands and attributes leave open is taken from the instruction's own shape. Raises
        NeuronError hlo-shape-mismatch or hlo-type-mismatch.
        """
        raise TypeError(f"the row of {cls.opcode} has no shape rule")

    @classmethod
    def evaluate(
        cls, instruction: Instruction, operands: list[Value], context: Evaluation
    ) -> Value:
        """The instruction's value. `operands` are not written to; views of them may return."""
        raise TypeError(f"the row of {cls.opcode} has no meaning")

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        """What one execution computes; `called` gives the work of called computations."""
        return cls.per_element.times(instruction.shape.size)


def subject(instruction: Instruction) -> str:
    """How messages name an instruction."""
    source = instruction.source
    where = f" ({source})" if source else ""
    return f"{instruction.opcode} `{instruction.name}`{where}"


def shape_error(instruction: Instruction, fact: str, rule: str) -> NeuronError:
    return NeuronError("hlo-shape-mismatch", f"{subject(instruction)}: {fact}", why=rule)


def type_error(instruction: Instruction, fact: str, rule: str) -> NeuronError:
    return NeuronError("hlo-type-mismatch", f"{subject(instruction)}: {fact}", why=rule)


def packed(values: list[Array]) -> Any:
    """Results as `evaluate` returns them: one by itself, several as a tuple."""
    return values[0] if len(values) == 1 else tuple(values)


def require_shape(condition: bool, instruction: Instruction, fact: str, rule: str) -> None:
    if not condition:
        raise shape_error(instruction, fact, rule)


def require_type(condition: bool, instruction: Instruction, fact: str, rule: str) -> None:
    if not condition:
        raise type_error(instruction, fact, rule)


def check_counts(instruction: Instruction, row: type[HloOperator]) -> None:
    """Numbers of operands and of called computations. Raises NeuronError hlo-invalid."""
    for what, number, (least, most) in (
        ("operands", len(instruction.operands), row.arity),
        ("called computations", len(instruction.called), row.calls),
    ):
        if number < least or (most is not None and number > most):
            if most is None:
                wanted = f"at least {least}"
            else:
                wanted = f"{least}" if least == most else f"{least} to {most}"
            raise NeuronError(
                "hlo-invalid",
                f"{subject(instruction)} has {number} {what}.",
                why=f"{instruction.opcode} takes {wanted}.",
            )


def operand_array(instruction: Instruction, position: int) -> Shape:
    """Shape of an operand that must be an array."""
    shape = instruction.operands[position].shape
    require_type(
        shape.is_array,
        instruction,
        f"operand {position} is {shape}.",
        f"{instruction.opcode} takes arrays.",
    )
    return shape


def result_array(instruction: Instruction) -> Shape:
    """The instruction's own shape, which must be an array."""
    require_type(
        instruction.shape.is_array,
        instruction,
        f"its result is {instruction.shape}.",
        f"{instruction.opcode} gives an array.",
    )
    return instruction.shape


def require_kind(
    instruction: Instruction, primitive: PrimitiveType, kinds: frozenset[str], what: str
) -> None:
    require_type(
        primitive.kind in kinds,
        instruction,
        f"{what} has the element type {primitive.name}.",
        f"{instruction.opcode} takes element types that are " + ", ".join(sorted(kinds)) + ".",
    )


def check_axes(
    instruction: Instruction, axes: Sequence[int], rank: int, what: str, sort: bool = False
) -> None:
    """Dimension numbers must be in range and distinct, ascending where `sort`."""
    good = len(set(axes)) == len(axes) and all(0 <= axis < rank for axis in axes)
    if sort:
        good = good and list(axes) == sorted(axes)
    require_shape(
        good,
        instruction,
        f"{what} is {tuple(axes)} for {rank} dimensions.",
        "Dimension numbers are distinct, in range" + (", and ascending." if sort else "."),
    )


def tuple_or_one(shapes: Sequence[Shape]) -> Shape:
    """The shape of N results: one alone stands by itself."""
    from graph_compiler.hlo.types import Shape

    return shapes[0] if len(shapes) == 1 else Shape.tuple_of(shapes)


def check_scalar_computation(
    instruction: Instruction,
    computation: Computation,
    parameters: Sequence[str],
    results: int,
    decides: bool = False,
    folds: bool = False,
) -> None:
    """A called computation must take scalars of these element types and give `results` scalars, one
    pred where it `decides`. One that `folds` may take and give wider ones than the elements, which
    become such first."""
    found = [parameter.shape for parameter in computation.parameters]
    root = computation.root.shape
    roots = root.tuple_shapes if root.is_tuple else (root,)
    require_shape(
        len(found) == len(parameters)
        and all(shape.is_scalar for shape in found)
        and len(roots) == results
        and all(shape.is_scalar for shape in roots),
        instruction,
        f"computation `{computation.name}` maps ({', '.join(map(str, found))}) to {root}.",
        f"It must take {len(parameters)} scalars and give {results}.",
    )
    wanted = list(parameters) + list(parameters[:results] if folds else ())
    given = [shape.element_type for shape in (*found, *(roots if folds else ()))]
    require_type(
        given == wanted or (folds and list(map(_kind, given)) == list(map(_kind, wanted))),
        instruction,
        f"computation `{computation.name}` maps ({', '.join(map(str, found))}) to {root}.",
        f"It must take elements of ({', '.join(parameters)})"
        + (" and give such, or wider ones." if folds else "."),
    )
    require_type(
        not decides or roots[0].element_type == "pred",
        instruction,
        f"computation `{computation.name}` gives {root}.",
        "A computation that decides gives a pred.",
    )


def _kind(name: str) -> str:
    """What numbers of a type are, whatever their width."""
    from graph_compiler.hlo.types import PRIMITIVE_TYPES

    return PRIMITIVE_TYPES[name].kind
