"""Rows that a graph takes by indices of its caller, as embeddings: those outside are reported.

HLO moves an index outside of its array to the nearest row, and the run goes on, as it does on
devices after the message of a failed lookup (SDK neuron-runtime/nrt-troubleshoot.rst). A graph that
replaces such indices itself, as jax's `take` does by default, has none outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graph_compiler.evaluate import CALLS, DEPTH_LIMIT
from graph_compiler.hlo.operators.row import subject
from isa.errors.warned import warn

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Computation, Instruction, Module


class Lookup(NamedTuple):
    """A gather whose indices are a parameter's numbers. `last`: the largest index of a row."""

    gather: Instruction
    parameter: int
    last: int


def lookups(module: Module) -> list[Lookup]:
    """The gathers of a graph that take rows by one index each, which a parameter gives.

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
        elif item.opcode == _GATHER and known[1] is not None:
            dimensions = item.attribute("gather_dimension_numbers").start_index_map
            if len(dimensions) == 1:
                size = item.operands[0].shape.dimensions[dimensions[0]]
                taken = item.attribute("gather_slice_sizes")[dimensions[0]]
                yield Lookup(item, known[1], size - taken)


_GATHER = "gather"
_SAME_NUMBERS = frozenset({"reshape", "broadcast", "copy", "bitcast", "transpose", "opt-barrier"})


def report(found: Sequence[Lookup], values: Sequence[Any]) -> None:
    """Warn of indices that are outside, index-outside."""
    for lookup in found:
        indices = np.asarray(values[lookup.parameter])
        if not indices.size or (indices.min() >= 0 and indices.max() <= lookup.last):
            continue
        outside = indices[(indices < 0) | (indices > lookup.last)]
        warn(
            "index-outside",
            f"{subject(lookup.gather)}: {outside.size} of {indices.size} indices are outside of 0 "
            f"to {lookup.last}, the first of them {outside[0]}",
        )
