"""How long a compiled graph takes, without inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isa.errors import NeuronError

if TYPE_CHECKING:
    from isa.program import Program
    from simulator.timing import Timeline

_UNTIMED = "missing-argument"
"""The code of programs that cannot be timed without data."""


def static_timeline(program: Program, keep_path: bool = False) -> Timeline | None:
    """The timeline of a program by the timing model; None where data decide its control flow."""
    from simulator.timing import simulate

    try:
        return simulate(program, keep_spans=False, keep_path=keep_path)
    except NeuronError as error:
        if error.code != _UNTIMED:
            raise
        return None
