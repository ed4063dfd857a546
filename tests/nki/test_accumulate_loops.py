"""accumulate=None in loops: predicates of iterations, and loops that may run none."""

import numpy as np
import pytest
from accumulations import M, P, R, flags, matmul
from traced import loops, psum, refused, sbuf, traced

import nki
import nki.isa as nisa
import nki.language as nl
from isa.affine import Predicate
from isa.errors import NeuronError


def test_a_rolled_loop_gets_a_predicate():
    def kernel(a):
        tile = psum(P, 512)
        for _ in nl.affine_range(a.shape[0] // P):
            matmul(tile)

    kernel = traced(kernel, (M, 8))
    (loop,) = loops(kernel.bodies[0])
    (flag,) = flags(kernel)
    assert isinstance(flag, Predicate) and flag.op == ">"
    assert flag.form.terms == ((loop.variable, 1),) and flag.form.constant == 0


def test_an_explicit_condition_gives_the_same_predicate():
    def inferred(a):
        tile = psum(P, 512)
        for _ in nl.affine_range(1, a.shape[0] // P):
            matmul(tile)

    def explicit(a):
        tile = psum(P, 512)
        for k in nl.affine_range(1, a.shape[0] // P):
            matmul(tile, accumulate=(k > 1))

    (first,), (second,) = flags(traced(inferred, (M, 8))), flags(traced(explicit, (M, 8)))
    assert first == second and isinstance(first, Predicate)


def test_a_tile_of_the_body_is_fresh_in_each_iteration():
    def kernel(a):
        for _ in nl.affine_range(a.shape[0] // P):
            tile = psum(P, 512)
            matmul(tile)
            matmul(tile)

    assert flags(traced(kernel, (M, 8))) == [False, True]


def test_started_before_the_loop_it_only_adds():
    def kernel(a):
        tile = psum(P, 512)
        matmul(tile)
        for _ in nl.affine_range(a.shape[0] // P):
            matmul(tile)
        matmul(tile)

    assert flags(traced(kernel, (M, 8))) == [False, True, True]


def test_a_dynamic_loop_from_a_register():
    def kernel(a):
        start = nisa.register_alloc(2)
        tile = psum(P, 512)
        for _ in nl.dynamic_range(start, 8):
            matmul(tile)

    kernel = traced(kernel, (4, 4))
    (loop,) = loops(kernel.bodies[0])
    (flag,) = flags(kernel)
    assert dict(flag.form.terms) == {loop.variable: 1, loop.lower: -1}


@pytest.mark.parametrize("trips", [(1, 1), (1, 3), (2, 2), (3, 1)])
def test_nested_loops_overwrite_in_the_very_first_iteration_only(trips):
    N = nki.symbol("N", multiple_of=128, max=8192)

    def kernel(a, b):
        tile = psum(P, 512)
        for _ in nl.affine_range(a.shape[0] // P):
            for _ in nl.affine_range(b.shape[0] // P):
                matmul(tile)

    kernel = traced(kernel, (M, 8), (N, 8))
    (outer,) = loops(kernel.bodies[0])
    (inner,) = outer.body
    (flag,) = flags(kernel)
    for i in range(trips[0]):
        for j in range(trips[1]):
            registers = {outer.variable.number: i, inner.variable.number: j}
            assert flag.evaluate({"M": P, "N": P}, registers) == (i + j > 0)


def test_a_remainder_adds_to_the_whole_tiles():
    def kernel(a):
        tile = psum(P, 512)
        for k in nl.affine_range((a.shape[0] + P - 1) // P):
            rows = a[k * P : (k + 1) * P].shape[0]
            left, right = sbuf(P, P), sbuf(P, 512)
            nisa.nc_matmul(dst=tile, stationary=left[0:rows], moving=right[0:rows])

    kernel = traced(kernel, (R, 8))
    first, rest = flags(kernel)
    assert isinstance(first, Predicate) and rest is True
    # The last, partial tile must not be the only one.
    assert [text.split(" (")[0] for _, text in kernel.guards] == ["R//128 >= 1"]


def test_iterations_of_a_while_have_no_number():
    def kernel(a):
        flag = sbuf(1, 1, dtype=nl.int32)
        tile = psum(P, 512)
        reg = nisa.register_alloc(1)
        while reg:
            matmul(tile)
            nisa.register_load(reg, flag)

    error = refused("loop-carried-state", kernel, (4, 4))
    assert "while" in error.what and error.location.function == "matmul"


def test_regions_that_move_need_an_explicit_flag():
    def kernel(explicit):
        tile = psum(P, 4, 64)
        for i in nl.dynamic_range(4):
            matmul(tile.reshape((P, 256))[:, nl.ds(i, 64)], accumulate=explicit)

    assert flags(traced(lambda a: kernel(False), (4, 4))) == [False]
    refused("psum-overlap", lambda a: kernel(None), (4, 4))


def test_the_flag_must_be_a_truth_value():
    with pytest.raises(NeuronError) as caught:
        traced(lambda a: matmul(psum(P, 512), accumulate="yes"), (4, 4))
    assert caught.value.code == "value-not-allowed"


def counted(times):
    """A register that holds a number."""
    register = nisa.register_alloc()
    nisa.register_load(register, times)
    return register


@nki.jit(platform_target="trn2")
def twice(a, b, counts):
    """A matmul in a loop that may run no iteration, then one into the same tile."""
    out = nl.ndarray((P, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right, tile = nl.load(a), nl.load(b), psum(P, 512)
    for _ in nl.dynamic_range(counted(nl.load(counts))):
        nisa.nc_matmul(dst=tile, stationary=left, moving=right)
    nisa.nc_matmul(dst=tile, stationary=left, moving=right)
    result = sbuf(P, 512)
    nisa.tensor_copy(dst=result, src=tile)
    nisa.dma_copy(dst=out, src=result)
    return out


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_behind_a_loop_that_may_not_run_the_flag_must_be_given(mode):
    a, b = np.ones((P, P), np.float32), np.ones((P, 512), np.float32)
    with pytest.raises(NeuronError) as caught:
        nki.simulate(twice, mode=mode)(a, b, np.ones((1, 1), np.int32))
    assert caught.value.code == "accumulation-undecided"
    assert caught.value.location.line == twice.__wrapped__.__code__.co_firstlineno + 7


@pytest.mark.parametrize("start", [0, 1])
def test_an_unrolled_loop_around_a_device_loop_that_may_not_run(start):
    def kernel(counts):
        tile = psum(P, 512)
        stop = counted(nl.load(counts))
        for _ in range(2):
            for _ in nl.dynamic_range(start, stop):
                matmul(tile)

    assert refused("accumulation-undecided", kernel, (1, 1)).location.function == "matmul"


def test_a_clear_in_a_loop_that_may_not_run():
    def kernel(counts):
        tile = psum(P, 512)
        matmul(tile)
        for _ in nl.dynamic_range(counted(nl.load(counts))):
            nisa.memset(dst=tile, value=0)
        matmul(tile)

    refused("accumulation-undecided", kernel, (1, 1))


def test_behind_a_while_the_flag_must_be_given():
    def kernel(counts):
        tile, left = psum(P, 512), nl.load(counts)
        register = counted(left)
        while register:
            matmul(tile, accumulate=True)
            nisa.register_load(register, left)
        matmul(tile)

    refused("accumulation-undecided", kernel, (1, 1))


def test_a_given_flag_decides_for_what_follows():
    def kernel(counts):
        tile = psum(P, 512)
        for _ in nl.dynamic_range(counted(nl.load(counts))):
            matmul(tile)
        matmul(tile, accumulate=False)
        matmul(tile)

    assert flags(traced(kernel, (1, 1)))[1:] == [False, True]


def test_what_began_before_the_loop_is_decided():
    def kernel(counts):
        tile = psum(P, 512)
        matmul(tile)
        for _ in nl.dynamic_range(counted(nl.load(counts))):
            matmul(tile)
        matmul(tile)

    assert flags(traced(kernel, (1, 1))) == [False, True, True]


def test_another_region_than_the_loop_wrote_is_decided():
    def kernel(counts):
        tile = psum(P, 512)
        for _ in nl.dynamic_range(counted(nl.load(counts))):
            matmul(tile[:, 0:256])
        matmul(tile[:, 256:512])
        matmul(tile[:, 256:512])

    assert flags(traced(kernel, (1, 1)))[1:] == [False, True]


def test_a_loop_over_a_symbol_is_guarded_to_run():
    def kernel(a):
        tile = psum(P, 512)
        for _ in nl.affine_range((a.shape[0] - P) // P):
            matmul(tile)
        matmul(tile)

    kernel = traced(kernel, (M, 8))
    assert flags(kernel)[1] is True
    assert [text.split(" (")[0] for _, text in kernel.guards] == ["M//128 >= 2"]


def test_a_device_loop_of_no_iterations_traces_nothing():
    def kernel(a):
        tile = psum(P, 512)
        for _ in nl.dynamic_range(3, 3):
            matmul(tile)
        matmul(tile)
        for _ in nl.dynamic_range(0, 2):
            matmul(tile)

    assert flags(traced(kernel, (4, 4))) == [False, True]
