"""How long a compiled graph takes, without inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isa.errors import NeuronError

if TYPE_CHECKING:
    from isa.program import Program
    from simulator.timing import Timeline

_UNTIMED = "missing-argument"
"""The code of programs that cannot be timed without data."""


def static_timeline(
    program: Program, keep_path: bool = False, once: bool = False, never: bool = False
) -> Timeline | None:
    """The timeline of a program by the timing model; None where data decide its control flow. With
    `once` conditions hold, and loops that data end have one trip; with `never` none holds."""
    from simulator.timing import simulate
    from simulator.timing.assumptions import Assumptions

    try:
        assume = Assumptions(once=once, never=never)
        return simulate(program, keep_spans=False, keep_path=keep_path, assume=assume)
    except NeuronError as error:
        if error.code != _UNTIMED:
            raise
        return None
