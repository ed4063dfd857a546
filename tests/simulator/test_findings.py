"""What is said of races and of waits that are superfluous."""

from __future__ import annotations

from hand_built import GPSIMD, SCALAR, SYNC, VECTOR, Builder, hbm, sbuf
from superfluous_waits import superfluous_waits

from simulator.races.happens_before import Race, check


def test_a_race_explains_itself():
    b = Builder()
    b.fill(VECTOR, sbuf(0, 64, 32, 32))
    b.copy(SCALAR, sbuf(128, 32), sbuf(32, 32))
    (race,) = check(b.program())
    assert isinstance(race, Race) and race.code == "race"
    assert race.partitions == (32, 64) and race.bytes == (32, 64)
    text = race.explain()
    for part in ("race", "vector[0] Memset", "scalar[0] TensorCopy", "partitions 32..63"):
        assert part in text
    assert "kernel.py:0" in text and "line 1" in text and "SBUF of core 0" in text
    assert race.error().code == "race" and race.error().location.line == 1


def test_a_race_in_hbm_tells_bytes_of_the_tensor():
    b = Builder()
    b.dma(SYNC, hbm(1, 1024, (128, 4), (1, 64)), sbuf(0, 64, 0, 4), queue=0)
    b.dma(GPSIMD, hbm(1, 1040, (128, 2), (1, 64)), sbuf(64, 64, 0, 2), queue=1)
    (race,) = check(b.program())
    assert race.memory == "HBM tensor 't1'" and race.partitions is None
    assert race.bytes == (1040, 1024 + 128 + 64)


def test_the_limit_bounds_the_findings():
    b = Builder()
    for i in range(50):
        b.fill(VECTOR, sbuf(64 * i))
        b.fill(SCALAR, sbuf(64 * i))
    assert len(check(b.program())) == 50
    assert len(check(b.program(), limit=7)) == 7


def test_superfluous_waits_are_found():
    b = Builder()
    b.fill(VECTOR, sbuf(0), updates=[0, 1])
    b.copy(SCALAR, sbuf(64), sbuf(0), waits=[0])
    b.copy(GPSIMD, sbuf(128), sbuf(64), updates=[3])
    b.streams[0][SCALAR][-1].updates = ((2, 1),)
    b.streams[0][GPSIMD][-1].waits = ((1, 1), (2, 1))
    assert check(b.program()) == []
    assert superfluous_waits(b.program()) == [(0, GPSIMD, 0, (1, 1))]


def test_a_wait_in_the_middle_of_a_channel_goes_with_its_unit():
    b = Builder()
    for i in range(3):
        b.fill(VECTOR, sbuf(64 * i), updates=[0])
    b.copy(SCALAR, sbuf(512), sbuf(0), waits=[0])
    b.copy(SCALAR, sbuf(576), sbuf(0), waits=[0])
    b.copy(SCALAR, sbuf(640), sbuf(128), waits=[0])
    assert check(b.program()) == []
    assert superfluous_waits(b.program()) == [(0, SCALAR, 1, (0, 1))]


def test_waits_that_never_run_are_not_called_superfluous():
    b = Builder()
    b.loop(VECTOR, 0, 4, 4, lambda: b.nop(VECTOR, updates=[0]))
    b.loop(SCALAR, 0, 4, 4, lambda: b.nop(SCALAR, waits=[0]))
    assert superfluous_waits(b.program()) == []
