"""Random graphs, each compiled for a device and run: what came out otherwise than it should.

    python tests/graph_compiler/run_random_graphs.py --seeds 0:5000 --processes 2

A graph's results are compared with those of `evaluate` where they are exact, else with a float64
evaluation within the bounds of `error_bounds`. It may be refused by the codes of `REFUSALS` only.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[at]) for at in (2, 1)]

from mutation_runs import Failure, Subject, main  # noqa: E402

FORMS = (
    *(("trn2", 1), ("trn1", 1), ("trn2", 2), ("trn3", 1)),
    *(("trn2", 1), ("trn1", 1), ("trn2", 2), ("trn3", 2)),
)
"""Targets and cores in turn."""

REFUSALS = frozenset({"hlo-not-compiled"})
"""Codes of what has no form on the device."""


def outcome_of(seed: int) -> str:
    """What became of a graph: "agrees", or the code with which it was refused. Raises Failure."""
    from random_graphs import seeded
    from random_steps import random_graph

    from graph_compiler import GraphOptions

    target, cores = FORMS[seed % len(FORMS)]
    return compared(random_graph(seeded(seed)), target, GraphOptions(logical_cores=cores))


def compared(graph: Any, target: str, options: Any = None) -> str:
    """The same of a graph on a target."""
    from error_bounds import bounded, outside

    from graph_compiler import compile, parse_text, verify
    from isa.errors import NeuronError

    module = parse_text(graph.text)
    verify(module)
    try:
        found = compile(module, target, options)(*graph.inputs)
    except NeuronError as error:
        if error.code not in REFUSALS:
            raise Failure(f"{target}: {error}") from error
        return f"refused: {error.code}"
    except Exception as error:
        raise Failure(f"{target}: {type(error).__name__}: {error}") from error
    for number, (one, wanted) in enumerate(zip(found, bounded(module, graph.inputs), strict=True)):
        if reason := outside(one, wanted):
            raise Failure(f"{target}, result {number}: {reason}")
    return "agrees"


def warm_up() -> None:
    """Graphs have no limit of time of their own."""


def show(seed: int) -> str:
    """A graph as text."""
    from random_graphs import seeded
    from random_steps import random_graph

    return random_graph(seeded(seed)).text


SUBJECT = Subject(Path(__file__).resolve(), outcome_of, warm_up, show, 5000)

if __name__ == "__main__":
    sys.exit(main(SUBJECT, __doc__))
