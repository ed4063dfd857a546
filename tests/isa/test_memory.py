"""Memories: where tensors may start, which engines reach them, and who shares ports."""

from __future__ import annotations

import pytest

from isa.enums import Engine, Memory
from isa.memory import (
    MEMORIES,
    PORT_CONFLICTS,
    alignment,
    bytes_per_partition,
    psum_bank,
    start_partition_allowed,
    start_partitions,
)
from isa.target import DOCUMENTS, TARGETS


def test_start_partitions():
    for count in range(1, 129):
        if count > 64:
            allowed = {0}
        elif count > 32:
            allowed = {0, 64}
        else:
            allowed = {0, 32, 64, 96}
        assert {s for s in range(-1, 130) if start_partition_allowed(s, count)} == allowed
        assert all(start + count <= 128 for start in start_partitions(count))
    assert start_partitions(0) == start_partitions(129) == ()


def test_engines_reach_the_documented_memories():
    assert Engine.gpsimd not in MEMORIES[Memory.psum].readers | MEMORIES[Memory.psum].writers
    assert Engine.tensor in MEMORIES[Memory.psum].writers
    assert Engine.tensor not in MEMORIES[Memory.psum].readers
    assert Engine.tensor in MEMORIES[Memory.sbuf].readers
    assert Engine.tensor not in MEMORIES[Memory.sbuf].writers
    for memory in (Memory.private_hbm, Memory.shared_hbm):
        assert MEMORIES[memory].readers == MEMORIES[memory].writers == {Engine.dma}
    assert set(MEMORIES) == set(Memory)
    assert [m for m, row in MEMORIES.items() if row.partitioned] == [m for m in Memory if m.on_chip]


def conflict(memory, first, second, generation):
    """The rule that keeps two engines from accessing a memory at once, or None."""
    rows = (
        row for row in PORT_CONFLICTS if (row.memory, set(row.engines)) == (memory, {first, second})
    )
    return next((row for row in rows if generation in row.generations), None)


def test_gen2_serialises_what_later_generations_do_not():
    for row in PORT_CONFLICTS:
        assert row.source in DOCUMENTS
    first, second = Engine.vector, Engine.gpsimd
    old = conflict(Memory.sbuf, first, second, 2)
    assert old is not None and not old.fast_modes_only
    assert conflict(Memory.sbuf, second, first, 2) is old
    assert conflict(Memory.sbuf, first, second, 3).fast_modes_only
    assert not conflict(Memory.psum, Engine.scalar, Engine.vector, 2).same_bank
    assert conflict(Memory.psum, Engine.scalar, Engine.vector, 4).same_bank
    assert conflict(Memory.psum, Engine.tensor, Engine.vector, 2) is None


def test_geometry():
    target = TARGETS["trn2"]
    assert bytes_per_partition(Memory.sbuf, target) == 224 * 1024
    assert bytes_per_partition(Memory.psum, target) == 16 * 1024
    assert (alignment(Memory.sbuf, target), alignment(Memory.psum, target)) == (1, 4)
    assert [psum_bank(offset, target) for offset in (0, 2047, 2048, 16383)] == [0, 0, 1, 7]
    with pytest.raises(ValueError):
        bytes_per_partition(Memory.private_hbm, target)
