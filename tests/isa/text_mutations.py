"""Programs with something changed in their assembler text: what every field of a container may say
and still be read.

Most mutants of containers are refused on reading, as a changed byte seldom makes sense. An edit of
the text stays within the grammar: amounts and numbers of semaphores, addresses, shapes, immediates,
operators, and whole instructions that are left out, repeated, exchanged or moved to another engine.
"""

from __future__ import annotations

import random
import re

EDITS = (
    re.compile(r"\$S\[(\d+)\]"),  # which semaphore
    re.compile(r"[-+]=(\d+)"),  # an amount
    re.compile(r"offset=0x([0-9a-f]+)"),
    re.compile(r"\+0x([0-9a-f]+)"),  # where in a partition
    re.compile(r"\[p(\d+)\+"),  # the first partition
    re.compile(r"\+(\d+)\]"),  # how many partitions
    re.compile(r"\](?:\+0x[0-9a-f]+)?\[([0-9,]+)\]"),  # strides
    re.compile(r"\]\[([0-9,]+)\]"),  # counts
    re.compile(r"(?<![a-z])[tR](\d+)"),  # tensors and registers
    re.compile(r"=(-?\d+(?:\.\d+)?)\b"),  # values
    re.compile(r"=@(\d+)"),  # targets
    re.compile(r"#(\d+)"),  # locations
    re.compile(r"=([a-z_]+)\b"),  # operators, engines, modes
)
NUMBER = re.compile(r"\d+")
STEPS = (-1, 1, 1, 2, -2, 4, -4, 16, -32, 32, 128)
NUMBERS = (0, 0, 1, 2, 3, 7, 31, 64, 127, 128, 512, 4096, 2**31 - 1, 2**40)


def edited(text: str, random_: random.Random) -> str:
    """A program's text with one to three edits."""
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        lines = text.splitlines()
        first = next((at for at, line in enumerate(lines) if line == ".core"), 0)
        at = random_.randrange(0 if random_.random() < 0.1 else first, len(lines))
        if random_.random() < 0.2:
            _line(lines, at, random_)
        else:
            lines[at] = _field(lines[at], lines, random_)
        text = "\n".join(lines)
    return text


def _line(lines: list[str], at: int, random_: random.Random) -> None:
    """Leaves a line out, repeats it, or exchanges it with its neighbour or another one."""
    kind = random_.randrange(4)
    other = at + 1 if kind == 2 else random_.randrange(len(lines))
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif other < len(lines):
        lines[at], lines[other] = lines[other], lines[at]


def _field(line: str, lines: list[str], random_: random.Random) -> str:
    """Another value for one field of a line."""
    found = [match for edit in EDITS for match in edit.finditer(line)]
    if not found:
        return line
    match = random_.choice(found)
    start, end = match.span(1)
    old = match[1]
    if old.replace("_", "").isalpha():
        words = re.findall(r"=([a-z_]+)\b", "\n".join(lines))
        return line[:start] + random_.choice(words) + line[end:]
    number = random_.choice(list(NUMBER.finditer(old)))
    base = 16 if line[:start].endswith("0x") else 10
    value = int(number[0], base) if base == 10 else int(old, base)
    if random_.random() < 0.7:
        value = max(0, value + random_.choice(STEPS))
    else:
        value = random_.choice(NUMBERS)
    if base == 16:
        return f"{line[:start]}{value:x}{line[end:]}"
    return line[: start + number.start()] + str(value) + line[start + number.end() :]
