"""Mutated containers with right checksums, each loaded, proven, written as text, and run.

    python tests/isa/run_container_mutations.py --seeds 0:1000000 --processes 2

What a mutant must not do: end the process, take more than a second of CPU time for a stage, raise
what is no error of the catalogue, and run otherwise than the program that its text form says: the
container's program runs as native code, the text's in NumPy.
`tests/mutation_runs.py` has what all mutants have in common.
"""

from __future__ import annotations

import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[at]) for at in (2, 1)]

from mutation_runs import Failure, Subject, main, within  # noqa: E402

INSTRUCTIONS = 20_000
"""Limit of loops in a run."""

SIZES = 64
"""What launch symbols are."""

PLACED = 4
"""Of so many programs one has its tensors placed anew for this host, as users' have."""

REPEATED = "as one before"
"""The outcome of a mutant that equals an earlier one of its process."""

MOST_BYTES = 1 << 26
"""Of the tensors of a program that is run. Larger ones are only proven."""


def outcome_of(seed: int) -> str:
    """What became of a mutant: "ran", "large", or the code with which it was refused, and where.
    Texts are short, so that many seeds draw one that was drawn before: that is looked at once.

    Raises Failure.
    """
    from container_mutations import drawn

    changed, placed = drawn(seed), seed % PLACED == 0
    if isinstance(changed, bytes):
        return _outcome(changed, placed)
    known = _outcome_of_text.cache_info().hits
    outcome = _outcome_of_text(changed, placed)
    return REPEATED if _outcome_of_text.cache_info().hits > known else outcome


@cache
def _outcome_of_text(text: str, placed: bool) -> str:
    return _outcome(text, placed)


def _outcome(changed: str | bytes, placed: bool) -> str:
    """What becomes of something changed, whether or not its tensors are `placed` anew."""
    from container_mutations import made

    from isa.errors import NeuronError
    from isa.files.container import read
    from isa.files.text import disassemble
    from nki.verification import verify_program
    from nki.verification.hbm_capacity import check_hbm
    from simulator.checks.impossible import refuse_impossible

    try:
        data, said = within("making", lambda: made(changed))
    except NeuronError as error:
        return f"refused as text: {error.code}"
    try:
        program = within("loading", lambda: read(data))
    except NeuronError as error:
        if said is not None:
            raise Failure(f"assembled and written, and cannot be read: {error}") from error
        return f"refused: {error.code}"
    try:
        within("measuring", lambda: check_hbm(program))
        within("looking", lambda: refuse_impossible(program))
        within("proving", lambda: verify_program(program))
    except NeuronError as error:
        return f"refused by the proof: {error.code}"
    try:
        text = within("printing", lambda: disassemble(program))
    except NeuronError as error:
        raise Failure(f"loaded, and has no text form: {error}") from error
    if isinstance(changed, str) and text != said:
        raise Failure("the container has not the program of the text")
    one, other = _run(program, placed=placed), _as_text_says(text)
    if isinstance(one, str) and isinstance(other, str):
        return one  # the two may come upon different faults first
    if one != other:
        raise Failure(f"runs otherwise than its text form says: {one!r:.100}, {other!r:.100}")
    return one if isinstance(one, str) else "ran"


@cache
def _as_text_says(text: str) -> Any:
    """What NumPy makes of the program that a text form says: containers that differ share it."""
    from isa.errors import NeuronError
    from isa.files.text import assemble, disassemble

    try:
        program = within("assembling", lambda: assemble(text))
    except NeuronError as error:
        raise Failure(f"loaded, and its text form is refused: {error}") from error
    if within("printing again", lambda: disassemble(program)) != text:
        raise Failure("another text behind the text form")
    return _run(program, native=False)


def _run(program: Any, native: bool = True, placed: bool = True) -> Any:
    """Digests of what a program gives, or how it was refused. `native`: by native code, else by
    NumPy."""
    from isa.binding import bind
    from isa.errors import NeuronError
    from simulator.watchdog import RunLimits, limited

    try:
        bound = within("binding", lambda: bind(program, {s.name: SIZES for s in program.symbols}))
        inputs = _inputs(bound)
        if inputs is None:
            return "large"
        with limited(RunLimits(INSTRUCTIONS, 60.0)):
            result = within("running", lambda: _loaded(bound, native, placed).run(inputs))
    except NeuronError as error:
        return f"refused to run: {error.code}"
    return [sha256(array.tobytes()).digest() for array in (*result.outputs, *result.inputs_after)]


def _loaded(program: Any, native: bool, placed: bool) -> Any:
    from simulator.execute import LoadedProgram
    from simulator.straight_line import prepare

    return LoadedProgram(program, native=native, prepared=prepare(program, placed))


def _inputs(program: Any) -> list[Any] | None:
    """Arrays for the parameters of a program; None where its tensors are large."""
    from math import prod

    import numpy as np

    from isa.dtypes import DTYPES

    sizes = [prod(tensor.shape) * DTYPES[tensor.dtype].size for tensor in program.tensors]
    if sum(sizes) > MOST_BYTES:
        return None
    inputs = []
    for index in program.parameters:
        tensor = program.tensors[index]
        values = np.arange(prod(tensor.shape)) % 5
        inputs.append(values.astype(DTYPES[tensor.dtype].numpy).reshape(tensor.shape))
    return inputs


def warm_up() -> None:
    """What is loaded once is no mutant's time."""
    from container_mutations import sealed, sources

    from isa.files.container import read
    from isa.files.text import assemble, disassemble
    from nki.verification import verify_program

    for files in sources():
        program = read(sealed(files))
        verify_program(program)
        _run(program)
        _run(assemble(disassemble(program)), native=False)


def show(seed: int) -> str:
    """A mutant as text, if it can be read."""
    from container_mutations import drawn, made

    from isa.errors import NeuronError
    from isa.files.container import read
    from isa.files.text import disassemble

    try:
        return disassemble(read(made(drawn(seed))[0]))
    except NeuronError as error:
        return str(error)


SUBJECT = Subject(Path(__file__).resolve(), outcome_of, warm_up, show, each=250_000)

if __name__ == "__main__":
    sys.exit(main(SUBJECT, __doc__))
