"""How initialisation marks pass through rows that state their meaning (`isa.meaning`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from isa.enums import ReduceCommand
from isa.meaning import Apply, Choose, Element, Pattern, Previous, Term, Unchanged, contains
from isa.spec import MachineInstruction
from simulator.checks.propagation import (
    PROPAGATION,
    InstructionUse,
    Mask,
    both,
    element_wise,
    refuse_unwritten,
    spread,
)
from simulator.checks.vector_rows import (
    accumulated,
    carried,
    cumulated,
    keeps_registers,
    of_elements,
    rows_of,
)
from simulator.oracle.meaning import Values, chosen
from simulator.views import Array


def propagate(use: InstructionUse) -> None:
    """Read the marks of the operands of an instruction and write those of its results."""
    for operand in use.operands:
        if operand is not None and operand.index is not None:
            refuse_unwritten(use, operand.index.mask(), f"picks rows or columns of {operand.name}")
    PROPAGATION.get(use.row.name, _of_meaning(use.row))(use)  # type: ignore[arg-type]


@cache
def _of_meaning(row: type[MachineInstruction]) -> Callable[[InstructionUse], None]:
    """How marks pass through a row that has no function of its own: element by element, unless its
    meaning folds, chooses or carries on."""
    meaning = row.meaning
    special = meaning is not None and (
        meaning.fold is not None or contains(meaning.result, Choose, Previous)
    )
    return _by_meaning if special else element_wise


def _by_meaning(use: InstructionUse) -> None:
    meaning, dst = use.row.meaning, use.operand("dst")
    assert meaning is not None
    mask = _marks(use, meaning.result, Values(use.row, tuple(use.values)), None)
    fold = meaning.fold
    if contains(meaning.result, Previous):
        mask = carried(rows_of(mask), None)
    if fold is None:
        dst.write(of_elements(mask, dst.view.shape))
        return
    command = use.value(fold.command)
    if fold.running:
        mask = cumulated(use, mask, command, fold.initial)
    elif command is not ReduceCommand.idle or not keeps_registers(use.row):
        accumulated(use, mask, command, fold.initial)
    dst.write(of_elements(mask, dst.view.shape))


def _marks(use: InstructionUse, term: Term, values: Values, needed: Array | None) -> Mask:
    """Marks of a term; those of elements that are not `needed` are not looked at."""
    if isinstance(term, (Element, Pattern)):
        return _read(use, term.field, values, needed)
    if isinstance(term, Previous):
        return _read(use, term.initial, values, None)
    if isinstance(term, Unchanged):
        # The elements that stay are as good as they were; they are not read.
        held = spread(use.operand("dst").mask(), values.shape)
        return held if held is None or needed is None else held | ~needed
    if isinstance(term, Choose):
        mask = _marks(use, term.condition, values, needed)
        first = np.broadcast_to(chosen(term, values), values.shape)
        for part, where in ((term.chosen, first), (term.other, ~first)):
            wanted = where if needed is None else where & needed
            mask = both(mask, _marks(use, part, values, wanted))
        return mask
    found: Mask = None
    if isinstance(term, Apply):
        for part in values.taken(term)[1]:
            found = both(found, _marks(use, part, values, needed))
    return found


def _read(use: InstructionUse, field: str, values: Values, needed: Array | None) -> Mask:
    """Marks of an operand's elements, recording a finding where one that counts is missing."""
    operand = use.given(field)
    mask = None if operand is None else operand.mask()
    if operand is None or mask is None:
        return None
    found = spread(mask, values.shape)
    assert found is not None
    if needed is not None:
        found = found | ~needed
        if found.all():
            return None
    whole = needed is not None and mask.size == found.size
    use.shadow.found(use, operand, found.reshape(mask.shape) if whole else mask)
    return found
