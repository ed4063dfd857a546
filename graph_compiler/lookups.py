"""Rows that a graph takes or updates by indices of its caller, as embeddings: those outside are
reported.

HLO moves an index outside of its array to the nearest row, and leaves an update outside of it out.
The run goes on, as it does on devices after the message of a failed lookup or update (SDK
neuron-runtime/nrt-troubleshoot.rst). A graph that replaces such indices itself, as jax's `take`
does by default, has none outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.evaluate import CALLS, DEPTH_LIMIT
from graph_compiler.hlo.operators.row import subject
from graph_compiler.schedule.simplify import forms
from isa.errors.warned import warn
from simulator.runtime.index_ranges import IndexRange, complaints

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Computation, Instruction, Module


class Lookup(NamedTuple):
    """A gather or scatter whose indices are a parameter's numbers. `last`: the largest of a row."""

    instruction: Instruction
    parameter: int
    last: int


def lookups(module: Module) -> list[Lookup]:
    """The gathers and scatters of a graph that find rows by one index each, which a parameter
    gives.

    >>> from graph_compiler import parse_text
    >>> text = '''HloModule m
    ... ENTRY e {
    ...   table = f32[10,4] parameter(0)
    ...   tokens = s32[3] parameter(1)
    ...   ROOT r = f32[3,4] gather(table, tokens), offset_dims={1}, collapsed_slice_dims={0},
    ...     start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
    ... }'''
    >>> [(one.parameter, one.last) for one in lookups(parse_text(text))]
    [(1, 9)]
    """
    given = {item: item.parameter_number for item in module.parameters}
    return list(_within(module.entry, given, 0))


def _within(
    computation: Computation, given: Mapping[Instruction, int], depth: int
) -> Iterator[Lookup]:
    """Those of a computation. `given`: which parameter of the graph a parameter of it is."""
    sources = dict(given)
    for item in computation.instructions:
        known = [sources.get(operand) for operand in item.operands]
        if item.opcode in _SAME_NUMBERS and known[0] is not None:
            sources[item] = known[0]
        elif item.opcode in CALLS and depth < DEPTH_LIMIT:
            called = item.called[0]
            inner = {p: s for p, s in zip(called.parameters, known) if s is not None}
            if inner:
                yield from _within(called, inner, depth + 1)
        elif item.opcode in _LAST and len(known) > 1 and known[1] is not None:
            last = _LAST[item.opcode](item)
            if last is not None:
                yield Lookup(item, known[1], last)


def _last_gathered(item: Instruction) -> int | None:
    """The largest index of a gather; None where several make a place."""
    dimensions = item.attribute("gather_dimension_numbers").start_index_map
    if len(dimensions) != 1:
        return None
    taken: int = item.attribute("gather_slice_sizes")[dimensions[0]]
    return int(item.operands[0].shape.dimensions[dimensions[0]]) - taken


def _last_scattered(item: Instruction) -> int | None:
    """The largest index of a scatter of whole rows; None of any other."""
    numbers = item.attribute("scatter_dimension_numbers")
    dimensions = numbers.scatter_dims_to_operand_dims
    if len(dimensions) != 1 or dimensions[0] not in numbers.inserted_window_dims:
        return None
    return int(item.operands[0].shape.dimensions[dimensions[0]]) - 1


_LAST: dict[str, Callable[[Instruction], int | None]] = {
    "gather": _last_gathered,
    "scatter": _last_scattered,
}
_SAME_NUMBERS = frozenset({"reshape", "broadcast", "copy", "bitcast", "transpose", "opt-barrier"})


def index_ranges(module: Module) -> list[IndexRange]:
    """The lookups as ranges of the program's inputs: components of tuples one after another, those
    without elements left out."""
    places: dict[int, int] = {}
    count = 0
    for item in module.parameters:
        places[item.parameter_number] = count
        count += sum(0 not in dimensions for _, dimensions in forms(item.shape))
    return [
        IndexRange(
            places[one.parameter],
            one.last,
            module.parameters[one.parameter].shape.numpy_dtype().str,
            subject(one.instruction),
        )
        for one in lookups(module)
        if module.parameters[one.parameter].shape.size
    ]


def report(ranges: Iterable[IndexRange], values: Sequence[Any]) -> None:
    """Warn of indices that are outside, index-outside."""
    for complaint in complaints(ranges, values):
        warn("index-outside", complaint)
