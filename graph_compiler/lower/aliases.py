"""Donated parameters: results of a graph that take the memory of a parameter.

A module says which results may do so (`input_output_alias`). Such a result is made in the
parameter's memory, if nothing reads the parameter any more when its first element is written. What
reads element by element as it writes does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from graph_compiler.schedule.simplify import forms
from graph_compiler.schedule.steps import KernelCall, Place
from graph_compiler.schedule.views import Buffer, View

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module
    from graph_compiler.hlo.types import Shape


def donated(module: Module) -> dict[int, int]:
    """The parameter that each result may take the memory of, by their numbers among the arrays of
    results and of parameters, one after another.

    >>> from graph_compiler import parse_text
    >>> text = '''HloModule m, input_output_alias={ {1}: (0, {}, may-alias) }
    ... ENTRY e {
    ...   p = f32[2] parameter(0)
    ...   q = f32[2] add(p, p)
    ...   one = f32[] constant(1)
    ...   ROOT r = (f32[], f32[2]) tuple(one, q)
    ... }'''
    >>> donated(parse_text(text))
    {1: 0}
    """
    record = module.attributes.get("input_output_alias")
    first = [0]
    for parameter in module.parameters:
        first.append(first[-1] + len(forms(parameter.shape)))
    found: dict[int, int] = {}
    for row in () if record is None else record.entries:
        result = _position(module.result_shape, row.output_shape_index)
        parameter = module.parameters[row.parameter_number]
        inside = _position(parameter.shape, row.parameter_shape_index)
        found[result] = first[row.parameter_number] + inside
    return found


def _position(shape: Shape, index: Sequence[int]) -> int:
    """The number of an array among those of a shape."""
    before = 0
    for number in index:
        before += sum(len(forms(part)) for part in shape.tuple_shapes[:number])
        shape = shape.tuple_shapes[number]
    return before


def take_over(steps: list[Any], result: View, parameter: View) -> bool:
    """Have the steps make a result in the memory of a parameter; whether they may."""
    made, taken = result.buffer, parameter.buffer
    if made.kind != "arena" or (result.type, result.dims) != (parameter.type, parameter.dims):
        return False
    users = [at for at, step in enumerate(steps) if made in _buffers([step])]
    if not users:
        return False
    first = users[0]
    step = steps[first]
    aligned = step.aligned if isinstance(step, KernelCall) else []
    if taken in _buffers([step]) and taken not in aligned:
        return False
    is_same = taken in aligned and step.moves and not _writes(steps[first + 1 :], made)
    if not is_same and any(taken in _buffers([step]) for step in steps[first + 1 :]):
        return False
    _replace(steps, made, taken)
    return True


def every(steps: Iterable[Any]) -> Iterator[Any]:
    """The steps with those inside of control flow."""
    for step in steps:
        yield step
        for inner in () if isinstance(step, KernelCall) else step.inner:
            yield from every(inner)


def _buffers(steps: Iterable[Any]) -> set[Buffer]:
    return {buffer for step in every(steps) for buffer in (*step.reads, *step.writes)}


def _writes(steps: Iterable[Any], buffer: Buffer) -> bool:
    return any(buffer in step.writes for step in every(steps))


def _replace(steps: list[Any], old: Buffer, new: Buffer) -> None:
    """One buffer instead of another; copies onto themselves go."""
    for step in every(steps):
        if not isinstance(step, KernelCall):
            for view in step.views:
                if view.buffer is old:
                    view.buffer = new
            continue
        step.words = [
            Place(new, word.offset) if isinstance(word, Place) and word.buffer is old else word
            for word in step.words
        ]
        for buffers in (step.reads, step.writes, step.aligned):
            buffers[:] = [new if buffer is old else buffer for buffer in buffers]
    _drop(steps)


def _drop(steps: list[Any]) -> None:
    for step in steps:
        for inner in () if isinstance(step, KernelCall) else step.inner:
            _drop(inner)
    steps[:] = [
        step
        for step in steps
        if not (isinstance(step, KernelCall) and step.moves and step.aligned[0] is step.writes[0])
    ]
