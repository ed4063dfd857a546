"""Re-rolling: a stream whose columns of integers are folded.

Which template comes when, with which semaphores and offsets (`isa.files.stream`), are sequences of
integers that repeat as the loops of the source did (`isa.columns.rolled`). Nothing is lost:
expanding gives the very stream again. So the size of a stream's file follows the source, while
engines run, and checks see, a plain sequence.

Loop instructions instead would make addresses dynamic: bounds and marks would be checked each time,
and the race check would see ranges in place of addresses. Each of the progressions that rotating
buffers and the scheduler interleave would need a register. A repeat of integers has none of these
limits, and is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from isa.columns.rolled import Item, Repeat, RolledRows, expand_columns, roll_rows
from isa.files.encoding import encode
from isa.files.stream import Pairs, Stream, StreamColumns, in_columns, moving
from isa.files.text import print_instruction
from isa.spec import Instruction


@dataclass(frozen=True, slots=True)
class RolledStream:
    """A stream re-rolled: `isa.files.stream.StreamColumns` with order and numbers rolled in `uses`.

    The key of a row of `uses` is a template; its integers are the number of its semaphores, and the
    offsets of its operands.
    """

    templates: list[Instruction]
    semaphores: list[tuple[Pairs, Pairs]]
    uses: RolledRows


def reroll(instructions: Sequence[Instruction]) -> RolledStream:
    """A stream re-rolled. Raises NeuronError not-encodable, or OverflowError for an offset that
    has more than 64 bits.

    >>> from isa.enums import Engine
    >>> from isa.machine.control import Nop
    >>> stream = [Instruction(Nop, Engine.sync, (), waits=((4, 1),))] * 5
    >>> reroll(stream).uses.as_json()
    [[[5, 0, 0]], [[[[5, 0, 0]]]]]
    >>> expand(reroll(stream)) == stream
    True
    """
    templates, semaphores, order, numbers = in_columns(instructions)
    for like, (waits, updates) in zip(templates[:1] * len(semaphores), semaphores):
        encode(Instruction(like.row, like.engine, like.values, waits, updates))
    return RolledStream(templates, semaphores, roll_rows(order, numbers))


def expand(rolled: RolledStream) -> Stream:
    """The stream. Raises ValueError or IndexError where the parts of `rolled` do not fit."""
    for template in rolled.templates:
        if any(template.values[position].offset for position in moving(template)):
            raise ValueError("a template with an operand that is not at offset 0")
        if template.waits or template.updates:
            raise ValueError("a template with semaphores")
    order, numbers = expand_columns(rolled.uses)
    for template, rows in zip(rolled.templates, numbers, strict=True):
        if rows.shape[1] != 1 + len(moving(template)):
            raise ValueError("a template with more or fewer offsets than operands")
        if not 0 <= rows[:, 0].min() <= rows[:, 0].max() < len(rolled.semaphores):
            raise IndexError(f"there are {len(rolled.semaphores)} different semaphores")
    return Stream(StreamColumns(rolled.templates, rolled.semaphores, order, numbers))


def outline(rolled: RolledStream) -> Iterator[str]:
    r"""The loops of a stream to read: what is repeated how often, operands at offset 0 and without
    semaphores.

    >>> from isa.enums import Engine
    >>> from isa.machine.control import DrainQueue, Nop
    >>> nop, drain = Instruction(Nop, Engine.sync, ()), Instruction(DrainQueue, Engine.sync, (0,))
    >>> print("\n".join(outline(reroll([nop, nop, nop, drain] * 5))))
    5 times:
      3 times:
        Nop #0
      DrainQueue queue=0 #0
    """
    texts = [print_instruction(template) for template in rolled.templates]
    return _outline(rolled.uses.order, texts, "")


def _outline(items: Sequence[Item], texts: list[str], indent: str) -> Iterator[str]:
    for item in items:
        if isinstance(item, Repeat):
            yield f"{indent}{item.times} times:"
            yield from _outline(item.items, texts, indent + "  ")
        else:
            yield indent + texts[item]
