"""The first iteration of a loop that starts a sum, apart from the others."""

from __future__ import annotations

import numpy as np
import pytest
from tile_ir.verify import verify

import nki
import nki.isa as nisa
import nki.language as nl
from nki.ir.nodes import Loop, operations
from nki.kernel import order_traced
from nki.passes.order.peel import PeelAccumulation

P = 128


@nki.jit
def product(a, b):
    """a.T @ b, summed over a loop on the device."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.psum)

    def step(row):
        nisa.nc_matmul(
            dst=total,
            stationary=nl.load(a[nl.ds(row, P), :]),
            moving=nl.load(b[nl.ds(row, P), :]),
        )

    nl.fori_loop(0, a.shape[0], step, P)
    nl.store(out, nl.copy(total))
    return out


def traced(rows):
    specs = nki.TensorSpec((rows, 16), nl.float32), nki.TensorSpec((rows, 8), nl.float32)
    return product.trace(*specs, target="trn2")


def loops(kernel):
    return [node for node in kernel.bodies[0] if isinstance(node, Loop)]


def flags(loop):
    """What the matmuls of a loop do to what is there."""
    at = {op.row: op.row.field_names for op in operations([loop])}
    return [
        op.values[at[op.row].index("accumulate")]
        for op in operations([loop])
        if "accumulate" in at[op.row]
    ]


@pytest.mark.parametrize("trips", [1, 2, 5])
def test_the_first_iteration_overwrites_and_the_others_add(trips):
    kernel = traced(trips * P)
    peeled = PeelAccumulation().run(kernel)
    verify(peeled)
    (whole,) = loops(kernel)
    first, rest = loops(peeled)
    assert (whole.lower, whole.upper) == (0, trips * P)
    assert (first.lower, first.upper, rest.lower, rest.upper) == (0, P, P, trips * P)
    assert flags(first) == [False] and flags(rest) == [True]
    assert first.variable is not rest.variable
    rng = np.random.default_rng(trips)
    a, b = (rng.standard_normal((trips * P, n)).astype(np.float32) for n in (16, 8))
    np.testing.assert_allclose(order_traced(peeled)(a, b), a.T @ b, rtol=1e-4, atol=1e-4)


def test_of_a_symbol_the_first_loop_has_one_trip_at_most():
    kernel = PeelAccumulation().run(traced(nki.symbol("K", max=8 * P, multiple_of=P)))
    verify(kernel)
    first, rest = loops(kernel)
    assert flags(first) == [False] and flags(rest) == [True]
    compiled = order_traced(kernel)
    for trips in (1, 4):
        a, b = (np.full((trips * P, n), 0.5, np.float32) for n in (16, 8))
        np.testing.assert_array_equal(compiled(a, b), np.full((16, 8), trips * P / 4, np.float32))


def test_a_loop_without_a_sum_stays_the_same_object():
    def copied(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)

        def row(at):
            nl.store(out[nl.ds(at, P), :], nl.load(a[nl.ds(at, P), :]))

        nl.fori_loop(0, a.shape[0], row, P)
        return out

    kernel = nki.jit(copied).trace(nki.TensorSpec((4 * P, 8), nl.float32), target="trn2")
    peeled = PeelAccumulation().run(kernel)
    assert [type(node) for node in peeled.bodies[0]] == [type(node) for node in kernel.bodies[0]]
    assert loops(peeled)[0] is loops(kernel)[0]
