"""Rotations that begin anew in rounds."""

from random import Random

from test_sweep import life

from nki.passes.place.rounds import repeat
from nki.passes.place.sweep import OffsetSweep

BODY = [48, 112] * 20 + [176]
"""Bytes of the tensors of a loop."""


def swept(sizes, capacity):
    """A sweep over live ranges of some bytes, four of them at a time, and the offsets that a plain
    rotation gives them."""
    lives = [life(at, at + 3, size) for at, size in enumerate(sizes)]
    plain = OffsetSweep(lives, [], capacity, 0, rotate=True)
    assert plain.run() is None
    return OffsetSweep(lives, [], capacity, 0, rotate=True), plain.offsets


def period(offsets):
    """After how many times round the loop the places repeat behind the first few and but for the
    last time, None if they do not."""
    offsets = offsets[4 * len(BODY) : -len(BODY)]
    for times in range(1, len(offsets) // len(BODY) // 2):
        rows = times * len(BODY)
        if offsets[rows:] == offsets[:-rows]:
            return times
    return None


def test_places_repeat_with_the_loop():
    """The loop takes a fifth of the memory: three times round it leave more than half behind."""
    sweep, plain = swept(BODY * 60, 16384)
    assert period(plain) is None
    assert repeat([sweep], [plain])
    assert period(sweep.offsets) == 3
    assert [at for at, offset in enumerate(sweep.offsets) if not offset][:4] == [0, 124, 247, 370]


def test_places_that_repeat_by_themselves_stay():
    sweep, plain = swept(BODY * 60, sum(BODY))
    assert not repeat([sweep], [plain])


def test_a_round_is_a_quarter_of_all_at_most():
    sweep, plain = swept(BODY * 60, 16384 * 16)
    assert not repeat([sweep], [plain])


def test_live_ranges_that_do_not_repeat_have_no_rounds():
    sweep, plain = swept([16 * Random(at).randint(1, 60) for at in range(1000)], 16384)
    assert not repeat([sweep], [plain])
