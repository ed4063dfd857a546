"""How marks of uninitialised elements pass through rows that move by index."""

from __future__ import annotations

from partly_loaded import F, Kernel, P

from isa.machine import elementwise, gather


def test_shuffled_partitions_take_their_marks_along() -> None:
    k = Kernel(5, F)
    result = k.tile(F)
    mask = (*range(P)[::-1], *range(P, 32))
    k.add(gather.StreamShuffle, result, k.source, mask)
    k.store(result)
    assert k.tainted() == 3 * F


def test_partitions_that_are_kept_keep_their_marks() -> None:
    k = Kernel(5, F)
    result = k.tile(F)
    k.add(elementwise.Memset, result, 1.0)
    k.add(gather.StreamShuffle, result, k.source, (gather.KEEP,) * 5 + (7,) * 2 + (0,) * 25)
    k.store(result)
    assert k.tainted() == 2 * F


def test_only_elements_that_are_picked_count() -> None:
    k = Kernel(P, 4)
    index, result = k.tile(3, dtype="uint32"), k.tile(3)
    k.add(elementwise.Memset, index, 3)
    k.add(gather.GatherElements, result, k.source, index)
    k.store(result, (P, 3))
    k.run()
    k = Kernel(P, 4)
    index, result = k.tile(3, dtype="uint32"), k.tile(3)
    k.add(elementwise.Memset, index, 4)
    k.add(gather.GatherElements, result, k.source, index)
    k.store(result, (P, 3))
    assert k.tainted() == 3 * P
