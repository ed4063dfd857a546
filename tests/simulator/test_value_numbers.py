"""What memories hold, by number: equal numbers only where every byte was made alike."""

from __future__ import annotations

import random

import numpy as np
import pytest

from simulator.races.value_numbers import Digests, Memories, MemoryBox, ValueNumbering

ROWS, COLUMNS = 6, 8


def _box(random_: random.Random, exact: bool = True) -> MemoryBox:
    row, column = random_.randrange(ROWS), random_.randrange(COLUMNS)
    rows, columns = random_.randint(row + 1, ROWS), random_.randint(column + 1, COLUMNS)
    if random_.random() < 0.2:
        row, rows, column, columns = 0, ROWS, 0, COLUMNS
    return MemoryBox(row, rows, column, columns, exact, column)


def _seen(held: np.ndarray, box: MemoryBox) -> list[tuple[int, int, int]]:
    """By byte of a box which write has made it, and where that began, seen from the box."""
    return [
        (write, row - box.row0, column - box.column0)
        for write, row, column in held[box.row0 : box.row1, box.column0 : box.column1].reshape(
            -1, 3
        )
    ]


@pytest.mark.parametrize("numbering", [ValueNumbering, Digests])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("writes", [4, 40])
def test_equal_numbers_are_equal_bytes(numbering, shared, writes):
    """Against an array that says of each byte who wrote it: two cores, which meet now and then.
    A few pieces and many are kept in different ways."""
    random_ = random.Random(writes)
    alike = 0
    for _ in range(40):
        memories = Memories(numbering())
        every = MemoryBox(0, ROWS, 0, COLUMNS, True, 0)
        for core in (0, 1):
            memories.write(core, "t", shared, every, 3)
        held = [np.tile((3, 0, 0), (ROWS, COLUMNS, 1)) for _ in range(2)]
        common, since = held[0].copy(), np.ones((2, ROWS, COLUMNS), bool)
        found: dict[int, tuple[tuple[int, int], list[tuple[int, int, int]]]] = {}
        for _ in range(writes):
            core, number, box = random_.randrange(2), random_.randrange(3), _box(random_)
            for one in {core, random_.choice((0, 1, core))}:
                memories.write(one, "t", shared, box, number)
                inside = slice(box.row0, box.row1), slice(box.column0, box.column1)
                held[one][inside] = number, box.row0, box.column0
                since[one][inside] = True
            if shared and random_.random() < 0.1:
                memories.meet((0, 1))
                for at in (0, 1):  # in this order
                    common[since[at]] = held[at][since[at]]
                held = [common.copy(), common.copy()]
                since = np.zeros((2, ROWS, COLUMNS), bool)
            at = _box(random_)
            for one in (0, 1):
                number, seen = memories.read(one, "t", shared, at), _seen(held[one], at)
                before = found.setdefault(number, (at.extent, seen))
                assert before == (at.extent, seen)
                alike += before[1] is not seen
    assert alike > 20


def test_writes_that_leave_gaps_keep_few_pieces():
    """Whatever their number, and a read still depends on the last of them."""
    memories = Memories(Digests())
    box, numbers = MemoryBox(0, ROWS, 0, COLUMNS, False, 0), set()
    for number in range(2000):
        memories.write(0, "t", False, box, number)
        numbers.add(memories.read(0, "t", False, box))
    (contents,) = memories._own[0].values()
    assert len(numbers) == 2000 and len(contents.every()) < 300
