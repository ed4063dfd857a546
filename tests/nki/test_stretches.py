"""Stretches of made-up bodies: operations that may change places, and what parts them."""

from isa.enums import Engine, Memory
from isa.machine.control import Halt, LoopBegin, LoopEnd
from nki.ir.builder.builder import Builder
from nki.passes import lower as lowering
from nki.passes.place.allocate import Allocate


def expanded(build):
    """A body of `build(builder, set)`, where `set()` sets a tile: the product of expansion."""
    b = Builder("trn2", name="made_up")
    tile = b.tensor((4, 8), "float32", Memory.sbuf, "tile")
    build(b, lambda: b.emit("memset", dst=tile, value=0.0, engine=Engine.vector))
    return lowering.Expand().run(Allocate().run(b.kernel()))


def two_straight(b, set_tile):
    set_tile()
    set_tile()


def around_a_loop(b, set_tile):
    set_tile()
    set_tile()
    with b.loop(0, 6, 1):
        set_tile()
        set_tile()
    set_tile()


def two_loops(b, set_tile):
    set_tile()
    for _ in range(2):
        with b.loop(0, 6, 1):
            set_tile()


def test_a_straight_body_is_one_stretch():
    (core,) = expanded(two_straight).cores
    assert core.body.stretches.tolist() == [0, 2]


def test_a_loop_parts_stretches():
    (core,) = expanded(around_a_loop).cores
    assert core.body.stretches.tolist() == [0, 2, 4, 5]


def test_loops_that_are_alike_are_not_one_stretch():
    (core,) = expanded(two_loops).cores
    assert len(core.body.steps) == 3
    assert core.body.stretches.tolist() == [0, 1, 2, 3]


def test_streams_have_loops_on_engines_that_take_part_and_end():
    form = expanded(around_a_loop)
    for stage in lowering.LOWERING[1:]:
        form = stage.run(form)
    (core,) = form.cores
    vector = [instruction.row for instruction in core.streams[Engine.vector]]
    inside = slice(vector.index(LoopBegin) + 1, vector.index(LoopEnd))
    assert vector[-1] is Halt
    assert (vector.count(LoopBegin), vector.count(LoopEnd)) == (1, 1)
    assert [row.__name__ for row in vector[inside]].count("Memset") == 2
    assert [instruction.row for instruction in core.streams[Engine.scalar]] == [Halt]
