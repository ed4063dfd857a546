"""Random kernels in all modes, more of them than the tests of their files run.

    python tests/nki/run_random_kernels.py --seeds 0:20000 --processes 2

In turn: nested loops of every kind, proven for several sizes; loops, registers and exchanges on one
core and on two, against NumPy; pipelines of tiles; such loops placed several times by `repeat`. No
kernel may be refused.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).resolve().parents[at]) for at in (2, 1)]

from mutation_runs import Failure, Subject, main  # noqa: E402

KINDS = ("loops", "in NumPy", "pipelines", "repeats")


def outcome_of(seed: int) -> str:
    """What became of a kernel: its kind. Raises Failure where modes differ."""
    import test_random_loops
    import test_random_loops_in_numpy
    import test_random_pipelines
    import test_random_repeats

    number, kind = divmod(seed, len(KINDS))
    try:
        if kind == 0:
            steps = test_random_loops.random_steps(Random(number))
            test_random_loops.assert_modes_agree(steps, number)
        elif kind == 1:
            test_random_loops_in_numpy.assert_loops_do_what_they_do_in_numpy(number)
        elif kind == 2:
            test_random_pipelines.assert_modes_agree(number)
        else:
            test_random_repeats.assert_repeats_do_what_they_do_in_numpy(number)
    except Exception as error:
        raise Failure(f"{KINDS[kind]} {number}: {type(error).__name__}: {error}") from error
    return KINDS[kind]


def shown(seed: int) -> str:
    """The kernel of a seed, as far as text tells it."""
    from test_random_loops import random_steps

    number, kind = divmod(seed, len(KINDS))
    return str(random_steps(Random(number))) if kind == 0 else f"{KINDS[kind]} {number}"


def warm_up() -> None:
    """Import what kernels need."""
    for seed in range(len(KINDS)):
        outcome_of(seed)


if __name__ == "__main__":
    subject = Subject(Path(__file__).resolve(), outcome_of, warm_up, shown, 20_000)
    sys.exit(main(subject, __doc__))
