"""Programs as users write them with jax, of random sizes and types, compiled for devices and run.

    python tests/graph_compiler/run_user_programs.py --seeds 0:1000 --processes 2
    python tests/graph_compiler/run_user_programs.py --programs adam,beam_search --targets trn2 \\
        --cores 2 --levels 1

A seed takes one program of `user_programs`, one target, number of cores and level of optimisation,
and draws the sizes. Results of the simulated device and of the host executor are compared with
those of jax on the CPU, within BOUNDS. A program fails where it crashes, is refused by a code that
it does not state, gives other results, or takes longer than SECONDS of CPU time to compile.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[at]) for at in (2, 1)]

from mutation_runs import Failure, Subject, main  # noqa: E402

BOUNDS = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 5e-2}
"""How far an element may be off, in parts of the result's largest magnitude, by the coarsest of its
type and those of the arguments; other types are exact."""

FLOOR = 1e-2
"""A result counts as at least this part of the largest of all results, which one that cancels out
to nearly nothing comes from."""

SECONDS = 60.0
"""CPU time that compiling may take."""

MEMORY = 8 << 30
"""Address space of a process: jax takes some GiB for itself."""


class Form(NamedTuple):
    """What a program is compiled for."""

    target: str
    cores: int
    level: int

    def __str__(self) -> str:
        return f"{self.target}, cores {self.cores}, -O{self.level}"


FORMS = tuple(
    Form(target, cores, level)
    for level in (1, 2)
    for cores in (1, 2)
    for target in ("trn1", "trn2", "trn3")
    if (target, cores) != ("trn1", 2)
)


class Case(NamedTuple):
    """What a seed gives."""

    name: str
    program: Any
    form: Form


def case_of(chosen: Any, seed: int) -> Case:
    """The program of a seed among those that a command chooses."""
    from user_programs import PROGRAMS, Draw

    names = chosen.programs or tuple(PROGRAMS)
    forms = [
        form
        for form in FORMS
        if form.target in chosen.targets
        and form.cores in chosen.cores
        and form.level in chosen.levels
    ]
    name = names[seed % len(names)]
    form = forms[int(np.random.default_rng((seed, len(forms))).integers(len(forms)))]
    return Case(name, PROGRAMS[name](Draw(seed)), form)


def outcome_of(chosen: Any, seed: int) -> str:
    """What became of a seed's program: "agrees", or how it was refused. Raises Failure, with the
    options that give the program again."""
    name, program, form = case_of(chosen, seed)
    try:
        return compared(program, form)
    except Failure as failure:
        again = (
            f"--programs {name} --targets {form.target} --cores {form.cores} --levels {form.level}"
        )
        raise Failure(f"{again}: {failure}") from failure


def compared(program: Any, form: Form) -> str:
    """The same of a program. Raises Failure."""
    import jax

    from graph_compiler import GraphOptions, compile, execute
    from graph_compiler.frontends.jax import trace
    from isa.errors import NeuronError

    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(program.arguments)]
    stage = "jax"
    try:
        expected = jax.jit(program.function)(*program.arguments)
        wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(expected)]
        stage = "reading"
        module = trace(program.function, *program.arguments)
        bound = program.slack * max(BOUNDS.get(one.dtype.name, BOUNDS["float32"]) for one in leaves)
        if not module.kernels:  # the host executor has no kernels
            stage = "host executor"
            _compare(stage, execute(module, *leaves), wanted, bound)
        stage, begun = "compiling", time.process_time()
        compiled = compile(
            module, form.target, GraphOptions(logical_cores=form.cores, optimisation=form.level)
        )
        spent = time.process_time() - begun
        stage = "device"
        _compare(stage, compiled(*leaves), wanted, bound)
    except Failure:
        raise
    except NeuronError as error:
        if error.code not in program.refusals:
            raise Failure(f"{stage}: {error}") from error
        return f"refused: {error.code}"
    except Exception as error:
        raise Failure(f"{stage}: {type(error).__name__}: {error}") from error
    if spent > SECONDS:
        raise Failure(f"compiling: {spent:.0f} s of CPU time")
    return "agrees"


def _compare(stage: str, found: Any, wanted: Sequence[Any], bound: float) -> None:
    """Raises Failure where a result is off by more than its own bound and this one."""
    if len(found) != len(wanted):
        raise Failure(f"{stage}: {len(found)} results instead of {len(wanted)}")
    magnitudes = [_magnitude(one) for one in wanted]
    floor = FLOOR * max(magnitudes, default=0.0)
    for number, (one, other, magnitude) in enumerate(zip(found, wanted, magnitudes)):
        largest = max(bound, BOUNDS.get(other.dtype.name, 0.0)) * max(magnitude, floor)
        if reason := difference(np.asarray(one), other, largest):
            raise Failure(f"{stage}, result {number}: {reason}")


def _magnitude(array: Any) -> float:
    if not _inexact(array):
        return 0.0
    wide = np.abs(array.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=0.0))


def _inexact(array: Any) -> bool:
    return array.dtype.kind not in "iub" and array.dtype.name in BOUNDS


def difference(found: Any, wanted: Any, limit: float) -> str:
    """Why a result is not the other one; "" where it is."""
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{found.dtype}{list(found.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if _inexact(wanted):
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(invalid="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (abs(a - b) <= limit)
    elif wanted.dtype.kind in "iub":
        same = found == wanted
    else:  # small types of ml_dtypes, which NumPy does not compare with NaN in mind
        same = found.view(np.uint8) == wanted.view(np.uint8)
    if same.all():
        return ""
    first = tuple(int(at) for at in np.argwhere(~same)[0]) if same.ndim else ()
    return (
        f"{wanted.dtype}{list(wanted.shape)}: {(~same).sum()} of {same.size} differ, first at "
        f"{list(first)}: {found[first]} instead of {wanted[first]}"
    )


def warm_up() -> None:
    """jax and the programs, before the first one's time."""
    import jax
    import user_programs  # noqa: F401

    jax.jit(lambda x: x + 1)(np.ones(3, np.float32))


def show(chosen: Any, seed: int) -> str:
    """A seed's program as HLO text."""
    from graph_compiler import print_text
    from graph_compiler.frontends.jax import trace

    name, program, form = case_of(chosen, seed)
    module = trace(program.function, *program.arguments)
    return f"{name}: {form}\n{print_text(module)}"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def choices() -> argparse.ArgumentParser:
    """What a command chooses beside seeds."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--programs", type=_words, default=(), help="names, by commas; else all")
    parser.add_argument("--targets", type=_words, default=("trn1", "trn2", "trn3"))
    parser.add_argument("--cores", type=_numbers, default=(1, 2))
    parser.add_argument("--levels", type=_numbers, default=(1, 2))
    return parser


def subject_of(arguments: Sequence[str]) -> Subject:
    """The programs that the options of a command choose."""
    chosen, _ = choices().parse_known_args(arguments)
    again = [
        f"--{name}={','.join(map(str, values))}" for name, values in vars(chosen).items() if values
    ]
    return Subject(
        Path(__file__).resolve(),
        partial(outcome_of, chosen),
        warm_up,
        partial(show, chosen),
        count=1000,
        each=100,
        memory=MEMORY,
        arguments=tuple(again),
    )


if __name__ == "__main__":
    sys.exit(main(subject_of(sys.argv[1:]), __doc__, choices()))
