"""`kernel.with_schedule`: edges between named instructions (SDK how-to-scheduling-apis.rst)."""

import numpy as np
import pytest
from refusals import refused

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine

MODES = ("device", "reference", "eager")
A = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32)


@nki.jit(platform_target="trn2")
def two_tiles(a):
    out = nl.ndarray((256, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
    x, y = nl.load(a[0:128, :]), nl.load(a[128:256, :])
    nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
    nisa.activation(dst=x, op=nl.exp, data=x)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5, name="half")  # here
    nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=1.0, name="plus1")  # here
    nl.store(out[0:128, :], x)
    nl.store(out[128:256, :], y)
    return out


def vector_lines(kernel):
    program = nki.compile(kernel, A).program
    stream = program.cores[0].streams[Engine.vector]
    found = [program.locations[instruction.location].text for instruction in stream]
    return [text.split('name="')[1].split('"')[0] for text in found if "name=" in text]


@pytest.mark.parametrize("edge", [("plus1", "half"), ("plus1", ["half"])])
def test_an_edge_keeps_what_need_not_wait_from_overtaking(edge):
    assert vector_lines(two_tiles) == ["plus1", "half"]
    assert vector_lines(two_tiles.with_schedule([edge])) == ["half", "plus1"]


@pytest.mark.parametrize("mode", MODES)
def test_values_stay(mode):
    expected = nki.simulate(two_tiles, mode=mode)(A)
    scheduled = two_tiles.with_schedule([("plus1", "half")])
    np.testing.assert_array_equal(nki.simulate(scheduled, mode=mode)(A), expected)
    np.testing.assert_array_equal(expected[128:], A[128:] + np.float32(1))


def test_an_engine_waits_for_another():
    """The edge is from VectorE to ScalarE, which share no data: ScalarE waits."""

    @nki.jit(platform_target="trn2")
    def kernel(a):
        out = nl.ndarray((256, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
        x, y = nl.load(a[0:128, :]), nl.load(a[128:256, :])
        nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0, name="first")
        nisa.activation(dst=y, op=nl.exp, data=y, name="second")
        nl.store(out[0:128, :], x)
        nl.store(out[128:256, :], y)
        return out

    def waits(chosen):
        program = nki.compile(chosen, A).program
        return sum(len(i.waits) for i in program.cores[0].streams[Engine.scalar])

    assert waits(kernel.with_schedule([("second", "first")])) == waits(kernel) + 1


@pytest.mark.parametrize("mode", MODES)
def test_edges_that_make_no_sense_are_refused(mode):
    def run(*edges):
        nki.simulate(two_tiles.with_schedule(edges), mode=mode)(A)

    with refused("value-not-allowed", "'minus1'", "half, plus1"):
        run(("minus1", "half"))
    with refused("value-not-allowed", "'half'", "'plus1'", kernel="two_tiles"):
        run(("half", "plus1"))
    with refused("value-not-allowed", "'half'", "'half'", kernel="two_tiles"):
        run(("half", "half"))


@pytest.mark.parametrize("edges", [["half"], [("half",)], [(1, "half")], [("half", [])]])
def test_what_is_no_list_of_pairs_is_refused(edges):
    with refused("value-not-allowed", "with_schedule"):
        two_tiles.with_schedule(edges)


def test_cores_keep_the_schedule():
    assert two_tiles.with_schedule([("plus1", "half")])[2].schedule == (("plus1", ("half",)),)


def tile(value):
    made = nl.ndarray((4, 4), nl.float32, nl.sbuf)
    return made, nisa.memset(dst=made, value=value)


def out_of_a_loop():
    kept = []
    nl.fori_loop(0, 4, lambda i: kept.append(tile(1.0)[1]))
    tile(2.0)[1].depends_on(kept[0])


def out_of_a_while():
    register, kept = nisa.register_alloc(1), []

    def body(condition):
        kept.append(tile(1.0)[1])
        nisa.register_move(condition, 0)
        return condition

    nl.while_loop(register, body)
    tile(2.0)[1].depends_on(kept[0])


def into_a_loop_beside():
    kept = []
    nl.fori_loop(0, 4, lambda i: kept.append(tile(1.0)[1]))
    nl.fori_loop(0, 4, lambda i: tile(2.0)[1].depends_on(kept[0]))


def on_itself():
    one = tile(1.0)[1]
    one.depends_on(one)


def on_a_later_one():
    one, other = tile(1.0)[1], tile(2.0)[1]
    one.depends_on(other)


@pytest.mark.parametrize(
    "body", [out_of_a_loop, out_of_a_while, into_a_loop_beside, on_itself, on_a_later_one]
)
def test_an_edge_from_what_need_not_run_before_is_refused(body):
    """SDK nki/api/nki/isa/__init__.py, depends_on: "both instructions must sit at the same
    dynamic-loop nesting (or the producer in an enclosing scope)"."""
    with pytest.raises(nki.NeuronError, match="memset depends on") as caught:
        nki.jit(lambda: body() and None, platform_target="trn2")()
    assert caught.value.location.file == __file__


def test_an_edge_out_of_a_loop_by_names_is_refused():
    def kernel(a):
        data = nl.load(a)

        def body(i):
            nisa.tensor_scalar(data, data, nl.add, 1.0, name="inner")

        nl.fori_loop(0, 2, body)
        nisa.tensor_scalar(data, data, nl.add, 1.0, name="outer")

    run = nki.jit(kernel, platform_target="trn2").with_schedule([("outer", "inner")])
    with pytest.raises(nki.NeuronError, match="which has not run there"):
        run(np.ones((4, 4), np.float32))


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_edges_from_around_a_loop_and_between_iterations_of_python(mode):
    def kernel(a):
        data, first = tile(0.0)
        last = first
        for _ in nl.static_range(3):
            last = nisa.tensor_scalar(data, data, nl.add, 1.0).depends_on(last, first)

        def body(i):
            one = nisa.tensor_scalar(data, data, nl.add, 1.0).depends_on(last)
            nisa.tensor_scalar(data, data, nl.multiply, 2.0).depends_on(one)

        nl.fori_loop(0, 2, body)
        out = nl.ndarray((4, 4), nl.float32, nl.shared_hbm)
        nl.store(out, data)
        return out

    run = nki.simulate(nki.jit(kernel, platform_target="trn2"), mode=mode)
    np.testing.assert_array_equal(run(np.zeros((1, 1), np.float32)), np.full((4, 4), 18.0))
