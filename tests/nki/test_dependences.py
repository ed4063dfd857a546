"""Dependences of straight bodies: those of a search through the bytes that steps touch."""

from hypothesis import given, settings
from hypothesis import strategies as st

from isa.enums import Memory
from nki.ir.builder.builder import Builder
from nki.ir.views.indexing import ds
from nki.passes import lower as lowering
from nki.passes.place.allocate import Allocate
from nki.passes.place.roots import ResolveRoots
from nki.pipeline import optimise

COLUMNS = 12


@st.composite
def slices(draw):
    """(first column, columns) of a tile."""
    first = draw(st.integers(0, COLUMNS - 1))
    return first, draw(st.integers(1, COLUMNS - first))


OPERATIONS = st.one_of(
    st.tuples(st.integers(0, 1), slices(), st.none()),  # sets part of a tile
    st.tuples(st.integers(0, 1), slices(), st.integers(0, 1)),  # copies it from the other
)


def followed(operations):
    """By step the steps that it must follow, as the pass says."""
    b = Builder("trn2", name="made_up")
    tiles = [b.tensor((4, COLUMNS), "float32", Memory.sbuf, name) for name in ("x", "y")]
    for tile in tiles:
        b.emit("memset", dst=tile, value=0.0)
    for tile, (first, count), source in operations:
        part = slice(None), ds(first, count)
        if source is None:
            b.emit("memset", dst=tiles[tile][part], value=1.0)
        else:
            b.emit("tensor_copy", dst=tiles[tile][part], src=tiles[1 - tile][part])
    expanded = lowering.Expand().run(optimise(b.kernel()))
    (core,) = lowering.Schedule().run(expanded).cores
    starts, events = core.dependences.steps
    count = len(core.body.steps)
    return [
        {int(event) % count for event in events[starts[step] : starts[step + 1]]}
        for step in range(count)
    ]


def touched(operations):
    """By step (writes, reads): sets of (tile, column)."""
    found = [({(tile, column) for column in range(COLUMNS)}, set()) for tile in (0, 1)]
    for tile, (first, count), source in operations:
        columns = range(first, first + count)
        reads = set() if source is None else {(1 - tile, column) for column in columns}
        found.append(({(tile, column) for column in columns}, reads))
    return found


def all_before(direct):
    """By step all those before it, through others too."""
    known = []
    for steps in direct:
        known.append(steps.union(*[known[step] for step in steps]))
    return known


@settings(deadline=None, max_examples=60)
@given(st.lists(OPERATIONS, min_size=1, max_size=10))
def test_steps_follow_those_that_touch_the_same_bytes(operations):
    steps = touched(operations)
    conflicts = [
        {
            early
            for early in range(late)
            if steps[early][0] & (writes | reads) or steps[early][1] & writes
        }
        for late, (writes, reads) in enumerate(steps)
    ]
    assert all_before(followed(operations)) == all_before(conflicts)


def loop_needs(loops, copies):
    """By loop how many events its touches must follow, of loops that each write and read a tensor
    in HBM, in more columns than the one before."""
    b = Builder("trn2", name="made_up")
    out = b.tensor((512, 64), "float32", Memory.shared_hbm, "out")
    tile = b.tensor((128, 64), "float32", Memory.sbuf, "x")
    b.emit("memset", dst=tile, value=0.0)
    for number in range(loops):
        with b.loop(0, 512, 128 * copies) as row:
            for copy in range(copies):
                part = ds(row + 128 * copy, 128), ds(0, number + 1)
                b.emit("dma_copy", dst=out[part], src=tile[:, ds(0, number + 1)])
                b.emit("dma_copy", dst=tile[:, ds(0, number + 1)], src=out[part])
    kernel = Allocate().run(ResolveRoots().run(b.kernel()))
    (core,) = lowering.Schedule().run(lowering.Expand().run(kernel)).cores
    return [len(needs) for _, needs in sorted(core.dependences.loops.items())]


def test_a_loop_follows_the_last_of_the_loops_before_it():
    """However many there are, and however many copies of its body it has."""
    few, many = loop_needs(6, 1), loop_needs(12, 1)
    assert many[:6] == few
    assert set(many[2:]) == set(few[2:])
    assert loop_needs(6, 2) == few
