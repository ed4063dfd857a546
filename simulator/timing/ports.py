"""Ports that engines share: which of them instructions occupy, by `isa.memory.PORT_CONFLICTS`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from isa.access import AccessPattern
from isa.columns import Integers
from isa.columns.jit import jit_when_long
from isa.cost_formula import elements
from isa.enums import Engine, Memory
from isa.memory import PORT_CONFLICTS, PortConflict
from isa.spec import Instruction
from isa.target import Target
from simulator.timing import events as e
from simulator.timing.boxes import TemplateBoxes
from simulator.timing.templates import TimedTemplate

SHARED_PORT = 1 << 8
"""Bit of a port mask for the port of SBUF that engines share; the bits below are PSUM banks."""

PAIRS = tuple(dict.fromkeys(row.engines for row in PORT_CONFLICTS))
"""Engines that share ports."""


def occupied(
    templates: Sequence[TimedTemplate],
    boxes: TemplateBoxes,
    streams: Sequence[tuple[int, Engine]],
    first: Sequence[int],
    of: Integers,
    base: Integers,
    numbers: Integers,
    target: Target,
) -> Integers:
    """Of every instruction a mask of the ports that it occupies and another engine wants.

    `streams` are (core, engine), `first` where each begins and the last ends, `of` and `base` of
    each instruction its template and where its `numbers` begin.
    """
    masks = np.zeros(of.size, np.int64)
    number = {place: stream for stream, place in enumerate(streams)}
    shared = in_banks = None
    for core in {core for core, _ in streams}:
        engines = [engine for owner, engine in streams if owner == core]
        if not any(set(pair) <= set(engines) for pair in PAIRS):
            continue
        if shared is None or in_banks is None:
            shared, in_banks = _by_template(templates, boxes, target)
        used = {}
        for engine in engines:
            stream = number[core, engine]
            here = slice(first[stream], first[stream + 1])
            mask = shared[of[here]]
            banked = np.flatnonzero(in_banks[of[here]])
            found = np.zeros_like(banked)
            places = banked + first[stream]
            bank = int(target.psum_bank_bytes.value)
            _banks(
                numbers.size, of[places], base[places], numbers, boxes.at, *boxes.columns,
                _PSUM, bank, found,
            )  # fmt: skip
            mask[banked] |= found
            masks[here] = mask
            used[engine] = int(np.bitwise_or.reduce(mask, initial=0))
        for engine in engines:
            stream = number[core, engine]
            wanted = 0
            for pair in PAIRS:
                if engine in pair:
                    other = pair[1 - pair.index(engine)]
                    wanted |= used.get(other, 0)
            masks[first[stream] : first[stream + 1]] &= wanted
    return masks


_PSUM = list(Memory).index(Memory.psum)


def _by_template(
    templates: Sequence[TimedTemplate], boxes: TemplateBoxes, target: Target
) -> tuple[Integers, Integers]:
    """Of every template the ports that it occupies wherever its operands are, and whether it
    occupies the PSUM banks that they are in."""
    conflicts = [row for row in PORT_CONFLICTS if target.generation in row.generations]
    found = []
    for number, template in enumerate(templates):
        mask = banked = 0
        memories = boxes.memories(number) if template.kind == e.COMPUTE else set()
        for conflict in conflicts:
            if conflict.memory in memories and _takes_part(template.instruction, conflict, target):
                if conflict.same_bank:
                    banked = 1
                else:
                    mask |= _WHOLE[conflict.memory]
        found.append((mask, banked))
    shared, in_banks = np.array(found, np.int64).reshape(len(found), 2).T.copy()
    return shared, in_banks


_WHOLE = {Memory.sbuf: SHARED_PORT, Memory.psum: SHARED_PORT - 1}
"""The ports of a memory that engines share whatever banks they access."""


def _takes_part(instruction: Instruction, conflict: PortConflict, target: Target) -> bool:
    """Whether an instruction of a memory occupies a port that two engines share."""
    if instruction.engine not in conflict.engines:
        return False
    always = not conflict.fast_modes_only or instruction.engine is not conflict.engines[0]
    return always or _is_fast(instruction, target)


def _is_fast(instruction: Instruction, target: Target) -> bool:
    """Whether an instruction runs in one of the fast modes of its engine."""
    assert instruction.row.cost is not None
    patterns = [v for v in instruction.values if isinstance(v, AccessPattern)]
    most = max((elements(p) for p in patterns), default=0)
    return 2 * instruction.row.cost.cycles(instruction, target) <= most


@jit_when_long("found")
def _banks(
    of: Any, base: Any, numbers: Any, at: Any, memory: Any, first: Any, last: Any, start: Any,
    stop: Any, moved_by: Any, psum: int, bank: int, found: Any,
) -> None:  # fmt: skip
    """Enter a mask of the PSUM banks that each instruction touches."""
    for row in range(len(of)):
        mask = 0
        for box in range(at[3 * of[row]], at[3 * of[row] + 3]):
            if memory[box] != psum:
                continue
            move = 0
            if moved_by[box] >= 0:
                move = numbers[base[row] + moved_by[box]]
            for number in range((start[box] + move) // bank, -(-(stop[box] + move) // bank)):
                mask |= 1 << number
        found[row] = mask
