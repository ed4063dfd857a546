"""The proof, at the end of compiling, that a program orders every two conflicting accesses.

Within one core the lowering puts the semaphores, so a finding there is a defect of it. Between
cores the author orders accesses to shared HBM with `nisa.core_barrier`; one that is missing is
found here, whatever the data would have been.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from isa.affine import Polynomial, evaluate
from isa.binding import bind
from isa.errors import NeuronError
from isa.machine.control import LoopBegin
from isa.program import Program
from nki.ir.builder.guards import largest_size
from simulator.malformed import refuses_malformed
from simulator.races.happens_before import Race, check

TRIPS = (0, 1, 2, 3)
"""Trip counts that loops over launch symbols are tried with: none, the first one alone, and
enough for every pair of neighbouring iterations."""

SIZES = 32
"""Most sets of sizes that a program is proved for."""


@refuses_malformed
def verify_program(program: Program) -> bool:
    """Raise NeuronError race unless the happens-before check proves the program, for all sizes of
    `representative_sizes`. The message names both lines. Whether there was nothing to warn of.

    >>> from isa.files.text import assemble
    >>> verify_program(assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Halt
    ... '''))
    True
    """
    in_step: list[Race] = []
    for sizes in representative_sizes(program):
        races = check(bind(program, sizes), limit=1, in_step=in_step)
        if races:
            raise race_error(races[0], sizes)
    if in_step:
        _warn(in_step[0])
    return not in_step


def refuse_unordered(pairs: Iterable[tuple[Race, bool]]) -> None:
    """Raise NeuronError race for the first of what eager mode found of accesses of several cores,
    or warn if all are in the order of cores that run in step.

    >>> refuse_unordered([])  # nothing was found
    """
    in_step = None
    for race, made_by_both in pairs:
        if not made_by_both:
            raise race_error(race, {})
        in_step = in_step or race
    if in_step is not None:
        _warn(in_step)


class CoreOrderWarning(RuntimeWarning):
    """Nothing but the cores' running in step orders two accesses to shared HBM.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", CoreOrderWarning)  # no such kernel compiles here
    """


def _warn(race: Race) -> None:
    """Warn at the line of the second access."""
    place = race.second.location or race.first.location
    warnings.warn_explicit(
        f"{race.what()} but that the cores run in step (both make one of the two). Put "
        "nisa.core_barrier between them.",
        CoreOrderWarning,
        place.file if place else "<kernel>",
        place.line if place else 0,
    )


def race_error(race: Race, sizes: Mapping[str, int]) -> NeuronError:
    """A finding as the error of the kernel's line, with the other line and the sizes in notes."""
    error = race.error()
    other = race.first.location
    if other is not None and other.line:
        error.notes += (f"the other line: {other.file}:{other.line}", f"  {other.text.strip()}")
    if sizes:
        error.notes += ("for " + ", ".join(f"{name} = {size}" for name, size in sizes.items()),)
    if race.kind == "absent":
        error.why = "Cores that wait for each other must all come, and pair in the order of calls."
        error.hint = (
            "Call nisa.core_barrier and nisa.sendrecv equally often on every core, in the same "
            "order, with the same cores or pipe_id."
        )
    elif race.kind != "partner" and race.first.core == race.second.core:
        error.hint = (
            "Within one core the compiler orders accesses: this is a defect of it, not of the "
            "kernel. NKI_CHECKS=0 compiles without this check."
        )
    return error


def representative_sizes(program: Program) -> list[dict[str, int]]:
    """Sets of sizes, by symbol name, under which loops over symbols run 0, 1, 2 and 3 times.

    For each loop and number of trips the smallest and the largest admitted size, with the other
    symbols as small as possible; and all symbols grown together. Sets with the same trip counts are
    taken once. Those that guards refuse are left out. If all are refused, the largest is taken.
    Programs without symbols have one empty set.

    >>> import nki, nki.language as nl
    >>> def kernel(a):
    ...     for row in nl.affine_range(0, a.shape[0], 128):
    ...         nl.store(a[nl.ds(row, 128), :], nl.load(a[nl.ds(row, 128), :]))
    >>> M = nki.symbol("M", multiple_of=128, max=512)
    >>> compiled = nki.compile(nki.jit(kernel), nki.TensorSpec((M, 8), nl.float32))
    >>> sorted(sizes["M"] for sizes in representative_sizes(compiled.program))
    [128, 256, 384, 512]
    """
    if not program.symbols:
        return [{}]
    loops = _symbolic_loops(program)
    found: dict[tuple[int, ...], dict[str, int]] = {}
    for sizes in _candidates(program, loops):
        if len(found) == SIZES:
            break
        if all(evaluate(form, sizes) >= 0 for form, _ in program.guards):
            found.setdefault(tuple(_trips(loop, sizes) for loop in loops), sizes)
    # Guards were decided as they go at the largest sizes, so those pass them all.
    largest = {symbol.name: largest_size(symbol) for symbol in program.symbols}
    return list(found.values()) or [largest]


Bounds = tuple[Any, Any, int]
"""Lower and upper bound, and step, of a counted loop."""


def _symbolic_loops(program: Program) -> list[Bounds]:
    """The different bounds of loops that depend on symbols, but on no register."""
    loops: dict[Bounds, None] = {}
    for core in program.cores:
        for stream in core.streams.values():
            for instruction in stream:
                if instruction.row is LoopBegin:
                    _, lower, upper, step, _ = instruction.values
                    forms = [type(bound) is Polynomial for bound in (lower, upper)]
                    plain = [type(bound) is int for bound in (lower, upper)]
                    if any(forms) and all(f or p for f, p in zip(forms, plain)):
                        loops[lower, upper, step] = None
    return list(loops)


def _trips(loop: Bounds, sizes: Mapping[str, int]) -> int:
    """How often a loop runs; beyond those of `TRIPS` counts do not differ."""
    lower, upper, step = loop
    distance = evaluate(upper, sizes) - evaluate(lower, sizes)
    return min(max(0, -(-distance // step)), TRIPS[-1] + 1)


def _candidates(program: Program, loops: list[Bounds]) -> Iterator[dict[str, int]]:
    smallest = {symbol.name: symbol.minimum for symbol in program.symbols}
    yield smallest
    for trips in TRIPS:
        together = dict(smallest)
        for symbol in program.symbols:
            for loop in loops:
                first = _first_size(symbol, loop, trips, smallest)
                following = _first_size(symbol, loop, trips + 1, smallest)
                last = max(first, following - symbol.multiple_of)
                yield smallest | {symbol.name: first}
                yield smallest | {symbol.name: last}
                together[symbol.name] = max(together[symbol.name], first)
        yield together
    # Remainders run for some sizes and not for larger ones: each for one of these.
    for symbol in program.symbols:
        size, unit = 1, symbol.multiple_of
        while size < largest_size(symbol):
            if size >= symbol.minimum:
                yield smallest | {symbol.name: min(-(-size // unit) * unit, largest_size(symbol))}
            size *= 2


def _first_size(symbol: Any, loop: Bounds, trips: int, others: Mapping[str, int]) -> int:
    """The smallest size of a symbol for which a loop runs at least `trips` times; else the
    largest. Trip counts are taken to grow with the size."""
    low, high = symbol.minimum // symbol.multiple_of, largest_size(symbol) // symbol.multiple_of
    while low < high:
        middle = (low + high) // 2
        if _trips(loop, {**others, symbol.name: middle * symbol.multiple_of}) >= trips:
            high = middle
        else:
            low = middle + 1
    return int(low * symbol.multiple_of)
