"""Mutated graphs, each read, checked, written, evaluated and executed: what went wrong.

    python tests/graph_compiler/run_mutations.py --seeds 0:1000000 --processes 2

What a mutant must not do: end the process, take more than a second of CPU time for a stage, raise
what is no error of the catalogue, be read and not be written again, and have other values by
`evaluate` than by `execute`. `tests/mutation_runs.py` has what all mutants have in common.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[at]) for at in (2, 1)]

from mutation_runs import Failure, Subject, main, within  # noqa: E402

MOST_BYTES, MOST_WORK = 1 << 25, 1 << 26
"""Of a graph that is run: bytes of all its values, and operations. Larger ones are only read."""

ITERATIONS = 200
"""Limit of loops."""


def outcome_of(seed: int) -> str:
    """What became of a mutant: "ran", "large", or the code with which it was refused, and where.

    Raises Failure.
    """
    from graph_mutations import mutant

    from graph_compiler import load
    from isa.errors import NeuronError

    try:
        data = within("making", lambda: mutant(seed))
        module = within("loading", lambda: load(data))
    except NeuronError as error:
        return f"refused: {error.code}"
    _written(module)
    if _is_large(module):
        return "large"
    return _run(module)


def _written(module: Any) -> None:
    """The same from a proto and from a text. Raises Failure."""
    from graph_compiler import from_proto, parse_text, print_text, to_proto
    from isa.errors import NeuronError

    try:
        data = within("writing", lambda: to_proto(module))
        if within("reading again", lambda: to_proto(from_proto(data))) != data:
            raise Failure("another proto behind a proto")
        text = within("printing", lambda: print_text(module))
        if within("parsing again", lambda: to_proto(parse_text(text))) != data:
            raise Failure("another proto behind a text")
    except NeuronError as error:
        raise Failure(f"read, and cannot be written: {error}") from error


def _is_large(module: Any) -> bool:
    from graph_compiler.hlo.cost import work_of

    size = sum(item.shape.bytes for item in module.instructions())
    if size > MOST_BYTES:
        return True
    work = within("counting", lambda: work_of(module))
    return work.flops + 10 * work.transcendentals > MOST_WORK


def _run(module: Any) -> str:
    from graph_compiler import evaluate, execute
    from graph_compiler.sample_inputs import sample_inputs
    from isa.errors import NeuronError

    inputs = list(sample_inputs(module).values())
    results = []
    for run in (evaluate, execute):
        try:
            found = within(
                run.__name__, lambda run=run: run(module, *inputs, loop_limit=ITERATIONS)
            )
        except NeuronError as error:
            found = error
        results.append(found)
    expected, found = results
    refused = [result.code for result in results if isinstance(result, NeuronError)]
    if len(refused) == 1 and refused[0] not in _BOUNDS:
        error = next(result for result in results if isinstance(result, NeuronError))
        raise Failure(f"only one of evaluate and execute refuses: {error}")
    if refused:
        return f"refused to run: {refused[0]}"
    if len(expected) != len(found):
        raise Failure(f"{len(expected)} results of evaluate, {len(found)} of execute")
    if _order_is_open(module):
        return "ran in an order of its own"
    for number, (one, other) in enumerate(zip(expected, found)):
        if (reason := differing(one, other)) and _lost(module, inputs, number, other):
            raise Failure(f"result {number}: {reason}")
    return "ran"


def _lost(module: Any, inputs: list[Any], number: int, found: Any) -> bool:
    """Whether a result is further from what no rounding gives than rounding explains.

    Sums of numbers that nearly cancel differ by much where an order of additions differs.
    """
    from error_bounds import bounded, outside

    try:
        return bool(outside(found, bounded(module, inputs)[number]))
    except (AssertionError, KeyError):  # an operation without a bound
        return True


def _order_is_open(module: Any) -> bool:
    """Whether a computation that XLA applies in any order is none whose order does not matter."""
    return any(
        not (_COMMUTES.get(item.opcode, frozenset()) >= {called.root.opcode} and _is_plain(called))
        for item in module.instructions()
        if item.opcode in _COMMUTES
        for called in item.called
    )


def _is_plain(computation: Any) -> bool:
    """Whether the root takes the parameters, each once."""
    return sorted(map(id, computation.root.operands)) == sorted(map(id, computation.parameters))


_FOLDS = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
_ORDERS = frozenset({"compare"})
_COMMUTES = {
    "reduce": _FOLDS,
    "reduce-window": _FOLDS,
    "scatter": _FOLDS,
    "select-and-scatter": _FOLDS | _ORDERS,
    "sort": _ORDERS,
}
"""By opcode, the roots of computations for which the order of elements does not matter."""

_BOUNDS = frozenset({"hlo-too-large", "hlo-too-many-instructions", "loop-limit"})
"""Codes that depend on how something is computed."""


def differing(expected: Any, found: Any) -> str:
    """Why two results are not the same within what sums in another order explain; or ""."""
    import numpy as np
    from conformance_cases import differing as differing_closely

    from graph_compiler import Shape

    if (expected.dtype, expected.shape) == (found.dtype, found.shape):
        if not (Shape.of(expected).primitive.is_float or expected.dtype.kind == "c"):
            return "" if np.array_equal(expected, found) else f"{found} instead of {expected}"
    return differing_closely("expect_close", found, expected)


def warm_up() -> None:
    """What is loaded once is no mutant's time."""
    from graph_mutations import sources

    from graph_compiler import evaluate, execute, from_proto

    evaluate(from_proto(sources()[0]))
    execute(from_proto(sources()[0]))


def show(seed: int) -> str:
    """A mutant as text."""
    from graph_mutations import mutant

    from graph_compiler import from_proto, print_text

    data = mutant(seed)
    return data.decode() if data.isascii() else print_text(from_proto(data))


SUBJECT = Subject(Path(__file__).resolve(), outcome_of, warm_up, show, each=20_000)

if __name__ == "__main__":
    sys.exit(main(SUBJECT, __doc__))
