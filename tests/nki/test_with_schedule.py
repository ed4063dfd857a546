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
