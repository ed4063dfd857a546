"""First loads of a loop, which come before their trip; NumPy says what the loop gives."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tile_ir.parser import parse_kernel

import nki.language as nl
from isa.enums import Memory
from nki.ir.builder.builder import Builder
from nki.ir.nodes import Loop, Op, operations
from nki.ir.text import print_kernel
from nki.kernel import compile_traced
from nki.passes.lower import lower
from nki.passes.place import ahead
from nki.passes.place.ahead import LoadAhead
from nki.passes.place.allocate import Allocate
from simulator.timing import simulate

TRIPS, WIDTH, STEPS, REPEATS = 6, 4096, 16, 5


def chained(trips=TRIPS, steps=STEPS):
    """Each trip adds its own weights, one after another, to what the trip before left; the last
    ones several times, while the queues have nothing to load."""
    b = Builder("trn2", name="chained")
    weights = b.parameter((trips, steps, 128, WIDTH), "float32", "weights")
    total = b.tensor((128, WIDTH), "float32")
    b.emit("memset", dst=total, value=0.0)
    with b.loop(0, trips) as trip:
        last = []
        for step in range(steps):
            tile = b.tensor((128, WIDTH), "float32", name=f"tile{step}")
            b.emit("dma_copy", dst=tile, src=weights[trip, step])
            last.append(tile)
            b.emit("tensor_tensor", dst=total, data1=total, data2=tile, op=nl.add)
        for tile in last[-4:] * REPEATS:
            b.emit("tensor_tensor", dst=total, data1=total, data2=tile, op=nl.add)
    result = b.tensor((128, WIDTH), "float32", Memory.shared_hbm, "result")
    b.emit("dma_copy", dst=result, src=total)
    b.result(result)
    return b.kernel()


def inside(kernel):
    (loop,) = (node for node in kernel.bodies[0] if isinstance(node, Loop))
    return loop


def begun_in(kernel):
    return {op.values[0].storage.label for op in operations(inside(kernel).body) if is_begin(op)}


def is_begin(op):
    return isinstance(op, Op) and op.row.__name__ == "StorageBegin"


def modelled(kernel):
    return simulate(lower(Allocate().run(kernel)), keep_spans=False).total_ns


def test_the_first_loads_get_places_of_their_own_where_that_is_faster():
    kernel = chained()
    found = LoadAhead().run(kernel)
    assert begun_in(found) < begun_in(kernel)
    assert modelled(found) < modelled(kernel)
    assert print_kernel(parse_kernel(print_kernel(found))) == print_kernel(found)


def test_results_are_the_same():
    weights = np.random.default_rng(2).standard_normal((3, 16, 128, WIDTH)).astype(np.float32)
    found = compile_traced(chained(3))(weights)
    expected = weights.sum((0, 1)) + REPEATS * weights[:, -4:].sum((0, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("trips", "steps"), [(1, 16), (6, 4)])
def test_loops_that_do_not_gain_stay(trips, steps):
    """One trip, and tensors that all fit beside each other."""
    kernel = chained(trips, steps)
    assert LoadAhead().run(kernel) is kernel


def through_hbm(trips, rolled, stored=False):
    """Each trip adds its own weights to the state that the trip before left in HBM."""
    b = Builder("trn2", name="through_hbm")
    weights = b.parameter((trips, 128, WIDTH), "float32", "weights")
    state = b.parameter((128, WIDTH), "float32", "state")

    def trip(number):
        mine, tile = (b.tensor((128, WIDTH), "float32", name=name) for name in ("mine", "tile"))
        b.emit("dma_copy", dst=mine, src=state)
        if stored:
            b.emit("dma_copy", dst=weights[number], src=mine)
        b.emit("dma_copy", dst=tile, src=weights[number])
        for _ in range(3):
            b.emit("activation", dst=tile, op=nl.square, data=tile)
        b.emit("tensor_tensor", dst=mine, data1=mine, data2=tile, op=nl.add)
        b.emit("dma_copy", dst=state, src=mine)

    if rolled:
        with b.loop(0, trips) as number:
            trip(number)
    else:
        for number in range(trips):
            trip(number)
    b.result(state)
    return b.kernel()


def loaded_first(kernel):
    """The tensor in HBM that the first load of the loop reads."""
    return next(op for op in inside(kernel).body if not is_begin(op)).values[1].storage.label


def test_loads_that_need_not_wait_for_the_trip_before_come_first():
    kernel = through_hbm(12, True)
    assert loaded_first(kernel) == "state"
    assert loaded_first(LoadAhead().run(kernel)) == "weights"
    assert modelled(LoadAhead().run(kernel)) < 0.9 * modelled(kernel)
    rolled, straight = (compile_traced(through_hbm(12, way)) for way in (True, False))
    times = [simulate(one.program, keep_spans=False).total_ns for one in (rolled, straight)]
    assert times[0] < 1.02 * times[1]
    rng = np.random.default_rng(3)
    weights, state = (rng.random(shape, np.float32) for shape in ((12, 128, WIDTH), (128, WIDTH)))
    expected = state + (weights**8).sum(0)
    np.testing.assert_allclose(rolled(weights, state), expected, rtol=1e-5)


def test_loads_of_what_the_loop_stores_stay_where_they_are():
    kernel = through_hbm(12, True, stored=True)
    assert LoadAhead().run(kernel) is kernel


COLUMNS = 64
PARTS = 3
COMBINED = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}


def random_steps(rng):
    """What each trip does: ("load", "weights" or "state", part), (name of an operator, tile, other
    tile) and ("store", part, tile), tiles by the number of their load. Sums are of weights only, so
    that all numbers stay exact."""
    steps, sources = [], []
    for _ in range(rng.randrange(4, 14)):
        kind = rng.random()
        if len(sources) < 2 or kind < 0.4:
            sources.append(rng.choice(["weights", "state"]))
            steps.append(("load", sources[-1], rng.randrange(PARTS)))
        elif kind < 0.75:
            one, other = rng.sample(range(len(sources)), 2)
            known = ["maximum", "minimum"] + ["add"] * (sources[other] == "weights")
            steps.append((rng.choice(known), one, other))
        else:
            steps.append(("store", rng.randrange(PARTS), rng.randrange(len(sources))))
    return [*steps, ("store", 0, len(sources) - 1)]


def of_steps(steps, trips):
    b = Builder("trn2", name="random")
    weights = b.parameter((trips, PARTS, 128, COLUMNS), "float32", "weights")
    state = b.parameter((PARTS, 128, COLUMNS), "float32", "state")
    with b.loop(0, trips) as trip:
        tiles = []
        for kind, one, other in steps:
            if kind == "load":
                tiles.append(b.tensor((128, COLUMNS), "float32", name="tile"))
                source = weights[trip, other] if one == "weights" else state[other]
                b.emit("dma_copy", dst=tiles[-1], src=source)
            elif kind == "store":
                b.emit("dma_copy", dst=state[one], src=tiles[other])
            else:
                mine, op = tiles[one], getattr(nl, kind)
                b.emit("tensor_tensor", dst=mine, data1=mine, data2=tiles[other], op=op)
    b.result(state)
    return b.kernel()


def in_numpy(steps, weights, state):
    for trip in weights:
        tiles = []
        for kind, one, other in steps:
            if kind == "load":
                tiles.append((trip if one == "weights" else state)[other].copy())
            elif kind == "store":
                state[one] = tiles[other]
            else:
                tiles[one] = COMBINED[kind](tiles[one], tiles[other])
    return state


@pytest.mark.parametrize("seed", range(8))
def test_random_trips_do_what_they_do_in_numpy(seed, monkeypatch):
    monkeypatch.setattr(ahead, "PAYS", 10)  # all that may move does
    rng = Random(seed)
    numbers = np.random.default_rng(seed)
    moved = 0
    for _ in range(3):
        steps = random_steps(rng)
        trips = rng.choice([4, 5, 40])
        kernel = of_steps(steps, trips)
        moved += LoadAhead().run(kernel) is not kernel
        weights = numbers.integers(-9, 9, (trips, PARTS, 128, COLUMNS)).astype(np.float32)
        state = numbers.integers(-9, 9, (PARTS, 128, COLUMNS)).astype(np.float32)
        expected = in_numpy(steps, weights, state.copy())
        np.testing.assert_array_equal(compile_traced(kernel)(weights, state), expected)
    assert moved


def working(squares, last):
    """Each trip works on the state for long, and adds its weights first of all, or last."""
    b = Builder("trn2", name="working")
    weights = b.parameter((12, 128, WIDTH), "float32", "weights")
    state = b.parameter((128, 512), "float32", "state")
    with b.loop(0, 12) as trip:
        mine = b.tensor((128, 512), "float32", name="mine")
        b.emit("dma_copy", dst=mine, src=state)
        for added in (False, True):
            if added is last:
                tile = b.tensor((128, WIDTH), "float32", name="tile")
                b.emit("dma_copy", dst=tile, src=weights[trip])
                b.emit("tensor_tensor", dst=mine, data1=mine, data2=tile[:, :512], op=nl.add)
            if not added:
                for _ in range(squares):
                    b.emit("activation", dst=mine, op=nl.tanh, data=mine)
        b.emit("dma_copy", dst=state, src=mine)
    b.result(state)
    return b.kernel()


@pytest.mark.parametrize("squares", [30, 300])
def test_loads_lead_only_where_there_is_time_for_them(squares):
    """What is used last has its bytes when the trip ends, and would hold up the state."""
    late, early = working(squares, True), working(squares, False)
    assert LoadAhead().run(late) is late
    assert loaded_first(LoadAhead().run(early)) == "weights"
    assert modelled(LoadAhead().run(early)) < modelled(early)
