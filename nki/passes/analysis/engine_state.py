"""State of engines that instructions leave for later ones, and that operations take over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from isa.enums import ReduceCommand
from isa.fields import Kind
from isa.machine.scalar import TABLE
from isa.spec import Instruction
from nki.passes.analysis.steps import Step

_RESETS = frozenset({ReduceCommand.reset, ReduceCommand.reset_reduce, ReduceCommand.load_reduce})

_NOTHING: set[tuple[int, str]] = set()


def engine_states(instruction: Instruction) -> Iterator[tuple[str, bool]]:
    """(state, whether the instruction needs what earlier ones left there)."""
    row: Any = instruction.row  # to type checkers a class of it has no hash
    if not row.state:
        return
    commands = _commands(row)
    for state in row.state:
        if state.name == TABLE:
            continue  # which table is loaded changes times, not results
        command = instruction.values[commands[0]] if commands else None
        if command is ReduceCommand.idle and not state.idle:
            continue
        yield state.name, state.reads and command not in _RESETS


@cache
def _commands(row: Any) -> list[int]:
    return [i for i, _, attribute in row.attributes if attribute.kind is Kind.reduce_command]


def carries(unit: Sequence[Step]) -> set[tuple[int, str]]:
    """The engine state that an operation takes from an earlier one."""
    for step in unit:
        if step.instruction.row.state:
            break
    else:
        return _NOTHING
    own: set[tuple[int, str]] = set()
    found: set[tuple[int, str]] = set()
    for step in unit:
        for name, needed in engine_states(step.instruction):
            key = step.engine, name
            if needed and key not in own:
                found.add(key)
            own.add(key)
    return found
