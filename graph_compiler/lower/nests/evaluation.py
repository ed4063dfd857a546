"""Steps of a nest as operations on tiles: what is computed of what, and in which precision.

A result is rounded once, by the operation that computes it. A step that one operation can do with
the next one is put off (`combined.Scaled`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import nki.language as nl
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.host_kernels.elements import ElementStep
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.nests import arithmetic, combined
from graph_compiler.lower.nests.arithmetic import Value
from graph_compiler.lower.nests.nest import PARTITIONS
from graph_compiler.lower.sizes import DTYPES, widens
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import into


def columns_of(loop: LoopNest) -> set[int]:
    """Values that are the same along the innermost dimension of a nest that has several elements:
    one for each partition, or little more."""
    inner = [axis for axis, count in enumerate(loop.counts) if count > 1][-1:]
    found = {
        number
        for number, (_, strides) in enumerate(loop.leaves)
        if inner and not any(strides[axis] for axis in inner)
    }
    for number, step in enumerate(loop.steps, len(loop.leaves)):
        if found.issuperset(step.arguments):
            found.add(number)
    return found


def evaluate(
    steps: Sequence[ElementStep],
    values: Sequence[Value],
    room: NkiTensor | None = None,
    rows: int = PARTITIONS,
    total: NkiTensor | None = None,
    on_scalar: bool = False,
    known: dict[int, Value | None] | None = None,
) -> list[Value]:
    """The values, and behind them those of the steps, the last one in `room` where that has its
    form. `rows`: partitions of tiles of which all is known. `total`: what becomes the sums along
    rows of the last one, a function of the scalar engine, or the largest number of a choice.
    `on_scalar`: that engine makes the last one, where it is a sum with a column. `known`: values
    that other tiles have too, None where they are not computed yet."""
    found: list[Any] = list(values)
    known = known or {}
    number_of_all = len(values) + len(steps)
    if total is None:
        steps = _rounded_at_once(steps, len(values))
    uses = Counter(argument for step in steps for argument in step.arguments)
    for number, step in enumerate(steps):
        if number and len(found) - 1 in known:
            known[len(found) - 1] = found[-1]
        if known.get(len(found)) is not None:
            found.append(known[len(found)])
            continue
        if _is_wide(steps, found, len(values)):
            found.append(found[step.arguments[0]])
            continue
        if step.op == "literal":
            found.append(_literal(step))
            continue
        last = number == len(steps) - 1
        arguments = [found[argument] for argument in step.arguments]
        same = None if last else _unchanged(step, arguments)
        if same is not None:
            found.append(same)
            continue
        if not last and uses[len(found)] == 1 and _is_taken(steps, found, len(values)):
            put_off = combined.scaled(step, arguments)
            if put_off is not None:
                found.append(put_off)
                continue
        if not last and uses[len(found)] == 1 and _is_first(steps, found, len(values)):
            first = combined.half(step, arguments)
            if first is not None:
                found.append(first)
                continue
        with into(room if last else None):
            if last and total is not None and step.op in CHOICES:
                values_of_all = _spread(step, arguments, rows)
                found.append(arithmetic.chosen_with_most(values_of_all, step, total))
                continue
            if last and total is not None:
                (argument,) = arguments
                put_off = argument if isinstance(argument, combined.Scaled) else None
                found.append(combined.activated(step, put_off or combined.Scaled(argument), total))
                continue
            shift = combined.scaled(step, arguments) if last and on_scalar else None
            if shift is not None and step.op in SHIFTS:
                found.append(combined.shifted(step, shift))
            else:
                found.append(computed(step, arguments, rows))
    found += found[-1:] * (number_of_all - len(found))  # what was rounded at once
    return found


_NEUTRAL = {"maximum": -math.inf, "minimum": math.inf}
"""Numbers that change nothing, by opcode."""


def _unchanged(step: ElementStep, arguments: Sequence[Value]) -> NkiTensor | None:
    """The argument of a step that leaves it as it is; None of other steps."""
    neutral = _NEUTRAL.get(step.op)
    if neutral is None or kind(step.type) != "real":
        return None
    tiles = [value for value in arguments if isinstance(value, NkiTensor)]
    others = [value for value in arguments if not isinstance(value, NkiTensor)]
    return tiles[0] if len(tiles) == 1 and others == [neutral] else None


_IN_FP32 = frozenset(
    {"add", "subtract", "multiply", "divide", "maximum", "minimum", "negate", "abs", "rsqrt"}
    | combined.ACTIVATIONS.keys()
)
"""Opcodes that are computed in fp32 of floats of any width, and rounded to the result's type."""

_HALF = frozenset({"bf16", "f16"})


def computes_in_fp32(loop: LoopNest, leaf: int) -> bool:
    """Whether all that takes a leaf computes in fp32."""
    users = {step.op for step in loop.steps if leaf in step.arguments}
    return users <= _IN_FP32 | {"convert"}


CHOICES = frozenset({"select"})
"""Opcodes whose results the vector engine compares while it chooses them."""


def is_choice(loop: LoopNest, step: ElementStep) -> bool:
    """Whether a step chooses from elements and one number, in fp32."""
    if step.op not in CHOICES or step.type != "f32":
        return False
    first = len(loop.leaves)
    others = step.arguments[1:]
    numbers = [n >= first and loop.steps[n - first].op == "literal" for n in others]
    return sorted(numbers) == [False, True]


SHIFTS = frozenset({"add", "subtract"})
"""Opcodes that the scalar engine does with a column as exactly as the vector engine."""


def is_shift(loop: LoopNest) -> bool:
    """Whether the last step of a nest without a fold is a sum of floats with a column."""
    if loop.fold is not None or not loop.steps or loop.output[0] != "f32":
        return False
    last, columns = loop.steps[-1], columns_of(loop)
    if last.op not in SHIFTS or last.type != "f32" or last.source != "f32":
        return False
    return [argument in columns for argument in last.arguments] == [False, True]


def wide_steps(loop: LoopNest) -> int:
    """Steps that go through all elements: not those of columns, nor widened operands."""
    leaves, columns = len(loop.leaves), columns_of(loop)
    numbers = [leaves + number for number in range(len(loop.steps))]
    return sum(
        number not in columns and not is_widened(loop.steps, number, leaves) for number in numbers
    )


def leaves_of(loop: LoopNest, values: Sequence[int]) -> set[int]:
    """The leaves from which values of a nest's steps are computed."""
    found = set()
    for value in values:
        if value < len(loop.leaves):
            found.add(value)
        else:
            found |= leaves_of(loop, loop.steps[value - len(loop.leaves)].arguments)
    return found


def sums_function(loop: LoopNest) -> bool:
    """Whether a nest sums up results of a function of the scalar engine, in fp32, each of an
    element of its own: that engine adds them up while it computes them."""
    if loop.fold != "add" or not loop.steps or loop.output[0] != "f32":
        return False
    last = loop.steps[-1]
    if last.op not in combined.ACTIVATIONS or last.type != "f32" or kind(last.source) != "real":
        return False
    gone = [axis for axis, flag in enumerate(loop.reduced) if flag and loop.counts[axis] > 1]
    leaves = (loop.leaves[leaf][1] for leaf in leaves_of(loop, last.arguments))
    return any(all(strides[axis] for axis in gone) for strides in leaves)


def folding_passes(loop: LoopNest) -> int:
    """How often engines go through all elements only to fold them."""
    return int(loop.fold is not None and not sums_function(loop))


def passes_of_engines(loop: LoopNest) -> tuple[int, int]:
    """About how often vector and scalar engine go through all elements: the scalar engine computes
    functions, and what it scales and shifts for them."""
    columns, leaves = columns_of(loop), len(loop.leaves)
    functions = [step for step in loop.steps if step.op in combined.ACTIVATIONS]
    before = {n for function in functions for n in function.arguments if n >= leaves}
    taken = [
        step
        for step in (loop.steps[number - leaves] for number in before)
        if step.op in _PUT_OFF and any(n in columns or _is_literal(loop, n) for n in step.arguments)
    ]
    vector = wide_steps(loop) - len(functions) - len(taken) + folding_passes(loop)
    return max(vector, not functions), len(functions)


def _is_literal(loop: LoopNest, value: int) -> bool:
    return value >= len(loop.leaves) and loop.steps[value - len(loop.leaves)].op == "literal"


_PUT_OFF = frozenset({"add", "subtract", "multiply"})
"""Opcodes with a number or a column that the scalar engine does before a function."""


def _rounded_at_once(steps: Sequence[ElementStep], values: int) -> Sequence[ElementStep]:
    """The steps without a conversion at the end, where the one before it may round its result to
    that type: it computes in fp32."""
    *others, last = steps or (None,)
    if last is None or last.op != "convert" or last.source != "f32" or last.type not in _HALF:
        return steps
    number = values + len(others) - 1
    uses = sum(step.arguments.count(number) for step in steps)
    if not others or last.arguments != (number,) or uses > 1 or others[-1].op not in _IN_FP32:
        return steps
    return [*others[:-1], others[-1]._replace(type=last.type)]


def is_widened(steps: Sequence[ElementStep], value: int, values: int) -> bool:
    """Whether a value is a half-precision one in fp32, and all that take it compute in fp32."""
    step = steps[value - values]
    if step.op != "convert" or not widens(step.source, step.type):
        return False
    users = [other.op for other in steps if value in other.arguments]
    return bool(users) and _IN_FP32.issuperset(users)


def _is_wide(steps: Sequence[ElementStep], known: Sequence[Any], values: int) -> bool:
    """Whether the step behind what is known widens a tile that need not be widened, or is wide: a
    product's results are fp32 whatever their type."""
    step = steps[len(known) - values]
    tile = known[step.arguments[0]] if step.arguments else None
    if not isinstance(tile, NkiTensor):
        return False
    wide = step.op == "convert" and tile.dtype == DTYPES["f32"] == DTYPES[step.type]
    inside = step is not steps[-1] and widens(step.source, step.type)
    return is_widened(steps, len(known), values) or (wide and inside)


def _is_taken(steps: Sequence[ElementStep], known: Sequence[Any], values: int) -> bool:
    """Whether the step that takes the value behind those that are known scales and shifts its
    argument by itself, or does so behind a sum with a column."""
    (user,) = (step for step in steps if len(known) in step.arguments)
    if user.op in combined.ACTIVATIONS:
        return True
    total = values + steps.index(user)
    users = [step for step in steps if total in step.arguments]
    if user.op not in SHIFTS or len(users) != 1 or users[0].op not in combined.ACTIVATIONS:
        return False
    first, second = user.arguments
    scales = user.source == "f32" and steps[len(known) - values].op == "multiply"
    return scales and first == len(known) != second and _is_paired(steps, second, known, values)


def _is_first(steps: Sequence[ElementStep], known: Sequence[Any], values: int) -> bool:
    """Whether the value behind those that are known is taken in fp32 by a step that has a number, a
    column or a whole tile as its second operand. `values`: those before the steps."""
    (user,) = (step for step in steps if len(known) in step.arguments)
    if user.op not in combined.PAIRED or user.source != "f32":
        return False
    first, second = user.arguments
    if first != len(known) or second == first:
        return False
    tile: Value = known[steps[first - values].arguments[0]]
    if not isinstance(tile, NkiTensor):
        return False
    wide = second < first or not is_widened(steps, second, values)
    widened = second if wide else steps[second - values].arguments[0]
    other = known[widened] if widened < first else None
    if isinstance(other, NkiTensor) and other.shape == tile.shape:
        return True
    return _is_paired(steps, second, known, values)


def _is_paired(steps: Sequence[ElementStep], value: int, known: Sequence[Any], values: int) -> bool:
    """Whether a value is, or will be, a number or a column in fp32."""
    if value < len(known):
        return combined.is_paired(known[value])
    step = steps[value - values]
    if value == len(known) or step.type != "f32" or step.op == "literal":
        return step.op == "literal"
    return all(_is_paired(steps, argument, known, values) for argument in step.arguments)


def _literal(step: ElementStep) -> Value:
    number: float | int = step.attribute
    row = PRIMITIVE_TYPES[step.type]
    return number % (1 << row.bits) if row.kind == "unsigned" else number


def _of_rank(value: NkiTensor, rank: int) -> NkiTensor:
    """What was computed of numbers alone is a column of two dimensions; others may have more."""
    if len(value.shape) == rank:
        return value
    return value.reshape((*value.shape, *[1] * (rank - len(value.shape))))


def computed(step: ElementStep, arguments: Sequence[Value], rows: int = PARTITIONS) -> NkiTensor:
    """A step's tile; its arguments agree in each dimension, or have one element there."""
    if isinstance(arguments[0], combined.Scaled):
        return combined.activated(step, arguments[0])
    if isinstance(arguments[0], combined.Half):
        return combined.both(step, arguments[0], arguments[1])
    return arithmetic.emit(step, _spread(step, arguments, rows))


def _spread(step: ElementStep, arguments: Sequence[Value], rows: int) -> list[Value]:
    """A step's arguments, of one form as far as it needs that."""
    tiles = [value for value in arguments if isinstance(value, NkiTensor)]
    if not tiles:
        sizes: tuple[int, ...] = (rows, 1)
        first = as_tile(arguments[0], sizes, step.source)
        arguments = [first, *arguments[1:]]
    else:
        rank = max(len(tile.shape) for tile in tiles)
        arguments = [
            _of_rank(value, rank) if isinstance(value, NkiTensor) else value for value in arguments
        ]
        tiles = [value for value in arguments if isinstance(value, NkiTensor)]
        sizes = tuple(max(column) for column in zip(*(tile.shape for tile in tiles)))
    if step.op in _MASKED:
        arguments = [as_tile(arguments[0], sizes, "pred"), *arguments[1:]]
    columns = arithmetic.takes_column(step) and any(tile.shape == sizes for tile in tiles)
    return [
        to_sizes(value, sizes)
        if isinstance(value, NkiTensor) and not (columns and _is_column(value) and number)
        else value
        for number, value in enumerate(arguments)
    ]


def _is_column(value: NkiTensor) -> bool:
    return math.prod(value.shape[1:]) == 1


_MASKED = frozenset({"select"})
"""Opcodes whose first operand is a tile in every case."""


def as_tile(value: Value, sizes: Sequence[int], type: str) -> NkiTensor:
    """A number as a tile of one element a partition."""
    if isinstance(value, NkiTensor):
        return value
    shape = (sizes[0], *[1] * max(1, len(sizes) - 1))
    return nl.full(shape, value, dtype=DTYPES[type], buffer=nl.sbuf)


def to_sizes(value: NkiTensor, sizes: Sequence[int]) -> NkiTensor:
    """A tile whose single elements repeat along dimensions of these sizes."""
    value = _of_rank(value, len(sizes))
    for dimension, size in enumerate(sizes):
        if dimension and value.shape[dimension] != size:
            value = value.broadcast(dimension, size)
    return value


# Folds
