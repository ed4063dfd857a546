"""Ports that engines share (ARCH2, ARCH3).

On gen2 VectorE and GpSimd exclude each other from SBUF, VectorE and ScalarE from PSUM. Later
generations exclude only from one PSUM bank, and VectorE's fast modes occupy the bus that it shares
with GpSimd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from isa.access import AccessPattern
from isa.columns import Integers
from isa.columns.jit import jit_when_long
from isa.cost_formula import elements
from isa.enums import Engine, Memory
from isa.spec import Instruction
from isa.target import Target
from simulator.timing import events as e
from simulator.timing.boxes import TemplateBoxes
from simulator.timing.templates import TimedTemplate

SHARED_PORT = 1 << 8
"""Bit of a port mask for the bus that VectorE and GpSimd share; the bits below are PSUM banks."""


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
        if Engine.vector not in engines or not _SHARING & set(engines):
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
        others = used.get(Engine.scalar, 0) | used.get(Engine.gpsimd, 0)
        for engine in engines:
            stream = number[core, engine]
            wanted = others if engine is Engine.vector else used[Engine.vector]
            masks[first[stream] : first[stream + 1]] &= wanted
    return masks


_SHARING = {Engine.scalar, Engine.gpsimd}
"""Engines that share ports with VectorE."""

_PSUM = list(Memory).index(Memory.psum)


def _by_template(
    templates: Sequence[TimedTemplate], boxes: TemplateBoxes, target: Target
) -> tuple[Integers, Integers]:
    """Of every template the ports that it occupies wherever its operands are, and whether it
    occupies the PSUM banks that they are in."""
    found = []
    for number, template in enumerate(templates):
        engine = template.instruction.engine
        if template.kind != e.COMPUTE:
            found.append((0, 0))
            continue
        memories = boxes.memories(number)
        mask, banked = 0, int(Memory.psum in memories and engine is not Engine.gpsimd)
        if banked and target.generation == 2:
            mask, banked = SHARED_PORT - 1, 0
        if Memory.sbuf in memories and engine in (Engine.vector, Engine.gpsimd):
            slow = engine is Engine.vector and target.generation > 2
            if not (slow and not _fast(template.instruction, target)):
                mask |= SHARED_PORT
        found.append((mask, banked))
    shared, in_banks = np.array(found, np.int64).reshape(len(found), 2).T.copy()
    return shared, in_banks


def _fast(instruction: Instruction, target: Target) -> bool:
    """Whether an instruction of VectorE runs in one of its fast modes."""
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
