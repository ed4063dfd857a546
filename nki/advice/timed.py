"""Changed kernels, compiled and timed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import NamedTuple

from isa.binding import bind
from isa.errors import NeuronError
from isa.program import SourceLocation
from nki.advice.changed import Changed, Changes
from nki.ir.nodes import TracedKernel
from nki.pipeline import compile_kernel
from simulator.timing import simulate


class Retimed(NamedTuple):
    """A changed kernel, how long its program takes, and the kind of change that made it of a line
    of the source."""

    changed: Changed
    place: SourceLocation
    total_ns: float
    changes: Changes


def time_of(kernel: TracedKernel, values: Mapping[str, int]) -> float | None:
    """The time of a kernel, compiled; None where it does not compile, or where only a run tells."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are about a kernel that nobody has written
            program = bind(compile_kernel(kernel), dict(values))
        return simulate(program, keep_spans=False).total_ns
    except NeuronError:
        return None
