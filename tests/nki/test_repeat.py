"""A kernel placed many times computes what its copies one by one compute, and is built once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.parser import parse_kernel
from tile_ir.verify import verify

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Memory
from isa.errors import NeuronError
from nki.ir.builder.builder import Builder
from nki.ir.builder.inline import inline
from nki.ir.builder.repeat import repeat
from nki.ir.nodes import Loop
from nki.ir.text import print_kernel
from nki.kernel import compile_traced, order_traced

SIZE = 32
RNG = np.random.default_rng(5)


def weights_of(count):
    return (RNG.standard_normal((count, SIZE, SIZE)) / np.sqrt(SIZE)).astype(np.float32)


@nki.jit
def layer(x, w):
    """relu(w.T @ x) + x, and the sums of its rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, stationary = nl.load(x), nl.load(w)
    product = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=stationary, moving=tile)
    result = nl.add(nl.maximum(product, 0.0), tile)
    nl.store(out, result)
    nl.store(sums, nl.sum(result, axis=1))
    return out, sums


def in_numpy(x, weights):
    sums = []
    for w in weights:
        x = np.maximum(w.T @ x, 0) + x
        sums.append(x.sum(1, keepdims=True))
    return x, sums


def traced(columns=16, target="trn2"):
    shapes = (SIZE, columns), (SIZE, SIZE)
    return layer.trace(*(nki.TensorSpec(shape, nl.float32) for shape in shapes), target=target)


def loops(kernel):
    return [node for node in kernel.bodies[0] if isinstance(node, Loop)]


def results(kernel, *arrays):
    """What the device and the reference return, which has the same bits."""
    verify(kernel)
    verify(parse_kernel(print_kernel(kernel)))
    device = compile_traced(kernel)(*[array.copy() for array in arrays])
    ordered = order_traced(kernel)(*[array.copy() for array in arrays])
    for one, other in zip(device, ordered, strict=True):
        np.testing.assert_array_equal(one, other)
    return device


def stacked(count, together, columns=16):
    """Layers with weights in one tensor, on a state in place."""
    b = Builder("trn2", name="stacked")
    x = b.parameter((SIZE, columns), "float32", "x")
    weights = b.parameter((count, SIZE, SIZE), "float32", "weights")
    state = b.tensor((SIZE, columns), "float32", Memory.shared_hbm, "state")
    b.emit("dma_copy", dst=state, src=x)
    times = [{"x": state, "w": weights[i], "out": state} for i in range(count)]
    kernel = traced(columns)
    if together:
        found = repeat(kernel, times, b)
    else:
        found = [inline(kernel, bound, b) for bound in times]
    b.result(state, *[sums for _, sums in found])
    return b.kernel()


def test_a_loop_has_the_bits_of_copies_one_by_one():
    weights, x = weights_of(12), RNG.standard_normal((SIZE, 16)).astype(np.float32)
    rolled, straight = stacked(12, True), stacked(12, False)
    assert [(node.lower, node.upper) for node in loops(rolled)] == [(0, 12)]
    assert loops(straight) == []
    found, expected = results(rolled, x, weights), results(straight, x, weights)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    state, sums = in_numpy(x, weights)
    for one, other in zip(found, [state, *sums], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_equal_parameters_in_one_tensor_are_a_loop():
    count, size = 6, SIZE * SIZE * 4
    b = Builder("trn2", name="parameters")
    x = b.parameter((SIZE, 16), "float32", "x")
    arena = b.tensor((count * size,), "uint8", Memory.shared_hbm, "arena")
    weights = [
        b.parameter((SIZE, SIZE), "float32", f"w{i}", within=arena, offset=size * i)
        for i in range(count)
    ]
    state = b.tensor((count + 1, SIZE, 16), "float32", Memory.shared_hbm, "state")
    b.emit("dma_copy", dst=state[0], src=x)
    times = [{"x": state[i], "w": w, "out": state[i + 1]} for i, w in enumerate(weights)]
    repeat(traced(), times, b)
    b.result(state)
    kernel = b.kernel()
    assert [(node.lower, node.upper) for node in loops(kernel)] == [(0, count)]
    data, start = weights_of(count), RNG.standard_normal((SIZE, 16)).astype(np.float32)
    verify(kernel)
    found = compile_traced(kernel)(start, *data)
    np.testing.assert_array_equal(found, order_traced(kernel)(start, *data))
    np.testing.assert_array_equal(found[0], start)
    np.testing.assert_allclose(found[-1], in_numpy(start, data)[0], rtol=1e-4, atol=1e-4)


@settings(max_examples=8, deadline=None)
@given(picked=st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_any_choice_of_weights(picked):
    """Loops where what is picked goes on evenly, copies elsewhere."""
    b = Builder("trn2", name="picked")
    x = b.parameter((SIZE, 8), "float32", "x")
    weights = b.parameter((5, SIZE, SIZE), "float32", "weights")
    times = [{"x": x, "w": weights[i], "out": x} for i in picked]
    found = repeat(traced(8), times, b)
    b.result(x, *[sums for _, sums in found])
    data, start = weights_of(5), RNG.standard_normal((SIZE, 8)).astype(np.float32)
    state, sums = in_numpy(start, data[picked])
    for one, other in zip(results(b.kernel(), start, data), [state, *sums], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@nki.jit
def halves(x):
    """Each of two cores doubles half of the rows of x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // 2
    own = nl.program_id(0)
    tile = nl.load(x[nl.ds(own * rows, rows), :])
    nl.store(out[nl.ds(own * rows, rows), :], nl.add(tile, tile))
    return out


def test_a_kernel_of_two_cores_is_a_loop_on_both():
    kernel = halves[2].trace(nki.TensorSpec((64, 8), nl.float32), target="trn2")
    b = Builder("trn2", cores=2)
    x = b.parameter((5, 64, 8), "float32", "x")
    found = repeat(kernel, [{"x": x[i]} for i in range(5)], b)
    b.result(*[out for (out,) in found])
    built = b.kernel()
    assert [[type(node) for node in body] for body in built.bodies] == [[Loop], [Loop]]
    data = RNG.standard_normal((5, 64, 8)).astype(np.float32)
    for one, other in zip(results(built, data), data, strict=True):
        np.testing.assert_array_equal(one, other + other)


def test_times_bind_the_same_names():
    b = Builder("trn2")
    x = b.parameter((SIZE, 16), "float32", "x")
    weights = b.parameter((2, SIZE, SIZE), "float32", "weights")
    times = [{"x": x, "w": weights[0], "out": x}, {"x": x, "w": weights[1]}]
    with pytest.raises(NeuronError, match="x, w, out, and with x, w") as caught:
        repeat(traced(), times, b)
    assert caught.value.code == "value-not-allowed"


@pytest.mark.parametrize(("offset", "shape"), [(-4, (4, 4)), (4, (4, 4)), (0, (5, 4))])
def test_a_parameter_lies_inside_of_its_tensor(offset, shape):
    b = Builder("trn2")
    arena = b.tensor((64,), "uint8", Memory.shared_hbm, "arena")
    with pytest.raises(NeuronError) as caught:
        b.parameter(shape, "float32", "w", within=arena, offset=offset)
    assert caught.value.code == "out-of-bounds"


def test_a_parameter_does_not_lie_on_chip():
    b = Builder("trn2")
    tile = b.tensor((4, 4), "float32", name="tile")
    with pytest.raises(NeuronError) as caught:
        b.parameter((4, 4), "float32", "w", within=tile)
    assert caught.value.code == "wrong-memory"
