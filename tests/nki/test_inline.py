"""A kernel inlined into another one computes what it computes by itself."""

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
from isa.program import SourceLocation
from nki.ir.builder.builder import Builder
from nki.ir.builder.inline import inline
from nki.ir.nodes import operations
from nki.ir.text import print_kernel
from nki.ir.views.indexing import ds
from nki.kernel import compile_traced, order_traced

RNG = np.random.default_rng(11)
PLACE = SourceLocation("graph.hlo", 12, 2, 9, "fusion.3", "  %call = f32[4,8] custom-call(%a)")


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(kernel, *arrays):
    """What a kernel returns on the device, which is what the reference returns."""
    verify(kernel)
    verify(parse_kernel(print_kernel(kernel)))
    device = compile_traced(kernel)(*[array.copy() for array in arrays])
    ordered = order_traced(kernel)(*[array.copy() for array in arrays])
    for one, other in zip(np.atleast_1d(device), np.atleast_1d(ordered), strict=True):
        np.testing.assert_array_equal(one, other)
    return device


def traced(kernel, *shapes, target="trn2"):
    return kernel.trace(*(nki.TensorSpec(shape, nl.float32) for shape in shapes), target=target)


@nki.jit
def softmax(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.softmax(nl.load(x), axis=1))
    return out


@nki.jit
def layer_norm(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    mean = nl.mean(tile, axis=1)
    centred = nl.subtract(tile, nl.broadcast_to(mean, tile.shape))
    variance = nl.mean(nl.square(centred), axis=1)
    nl.store(out, nl.multiply(centred, nl.broadcast_to(nl.rsqrt(variance), tile.shape)))
    return out


@nki.jit
def through_hbm(x, times):
    """Doubles x by way of a tensor in HBM, as often as times[0, 0] says; counts in a register."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    held = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    left = nl.load(times)
    tile = nl.load(x)
    nl.store(held, tile)
    register = nisa.register_alloc()
    nisa.register_load(register, left)
    for _ in nl.dynamic_range(register):
        part = nl.load(held)
        nisa.tensor_tensor(dst=part, data1=part, data2=part, op=nl.add)
        nl.store(held, part)
    nl.store(out, nl.load(held))
    return out


def test_softmax_in_layer_norm_gives_the_bits_of_the_two_apart():
    shape = (128, 96)
    b = Builder("trn2", name="both")
    x = b.parameter(shape, "float32", "x")
    (between,) = inline(traced(softmax, shape), {"x": x}, b)
    (result,) = inline(traced(layer_norm, shape), {"x": between}, b)
    b.result(result)
    data = normal(*shape)
    found = run(b.kernel(), data)
    np.testing.assert_array_equal(found, layer_norm(softmax(data)))
    powers = np.exp(data - data.max(1, keepdims=True))
    share = powers / powers.sum(1, keepdims=True)
    expected = (share - share.mean(1, keepdims=True)) / share.std(1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_copies_of_a_kernel_have_tensors_in_hbm_and_registers_of_their_own():
    kernel = through_hbm.trace(
        nki.TensorSpec((8, 16), nl.float32), nki.TensorSpec((1, 1), nl.int32), target="trn2"
    )
    b = Builder("trn2", name="two")
    x, y = b.parameter((8, 16), "float32", "x"), b.parameter((8, 16), "float32", "y")
    counts = [b.parameter((1, 1), "int32", name) for name in ("first", "second")]
    results = [
        inline(kernel, {"x": data, "times": count}, b)[0] for data, count in zip((x, y), counts)
    ]
    b.result(*results)
    built = b.kernel()
    assert len({tensor.name for tensor in built.tensors}) == len(built.tensors)
    written = [
        op.values[index].number
        for op in operations(built.bodies[0])
        for index in op.row.register_writes
    ]
    assert len(set(written)) == len(written) == 2
    # The second copy's operations first: where the two shared anything they would disturb each
    # other.
    half = len(built.bodies[0]) // 2
    body = [*built.bodies[0][half:], *built.bodies[0][:half]]
    left, right = normal(8, 16), normal(8, 16)
    twice, thrice = np.array([[2]], np.int32), np.array([[3]], np.int32)
    for other in (built, built.with_bodies([body], built.tensors)):
        found = compile_traced(other)(left, right, twice, thrice)
        np.testing.assert_array_equal(found[0], left * 4)
        np.testing.assert_array_equal(found[1], right * 8)


@nki.jit
def halves(x):
    """Each of two cores negates half of the rows, by way of HBM that they share."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    held = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // 2
    own, other = nl.program_id(0), 1 - nl.program_id(0)
    tile = nl.load(x[nl.ds(own * rows, rows), :])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=-1.0)
    nl.store(held[nl.ds(own * rows, rows), :], tile)
    nisa.core_barrier(held, (0, 1))
    nl.store(out[nl.ds(other * rows, rows), :], nl.load(held[nl.ds(other * rows, rows), :]))
    return out


def test_a_kernel_of_two_cores():
    kernel = traced(halves[2], (64, 32))
    b = Builder("trn2", cores=2)
    x = b.parameter((64, 32), "float32", "x")
    (once,) = inline(kernel, {"x": x}, b)
    for core in range(2):
        b.on(core).emit("core_barrier", data=once, cores=(0, 1))
    (twice,) = inline(kernel, {"x": once}, b)
    b.result(once, twice)
    data = normal(64, 32)
    found = run(b.kernel(), data)
    np.testing.assert_array_equal(found[0], -data)
    np.testing.assert_array_equal(found[1], data)


@st.composite
def views(draw):
    """A view of a parameter with the shape (rows, columns), and the same of an array."""
    rows, columns = draw(st.sampled_from([(8, 6), (4, 12), (1, 6), (8, 1)]))
    before, behind = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    top, left = draw(st.integers(0, 3)), draw(st.integers(0, 5))
    step = draw(st.sampled_from([1, 1, 2]))
    shape = (top + rows + behind, left + columns * step + before)
    key = (slice(top, top + rows), slice(left, left + columns * step, step))
    return shape, key, (rows, columns)


@nki.jit
def pieces(x):
    """Squares x, in pieces of several forms."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in nl.dynamic_range(0, rows, 1):
        tile = nl.load(x[nl.ds(row, 1), :])
        nl.store(out[nl.ds(row, 1), :], nl.multiply(tile, tile))
    split = columns // 2
    if split:
        tile = nl.load(x[:, split:])
        nl.store(out[:, split:], nl.multiply(tile, tile))
    return out


@settings(max_examples=12, deadline=None)
@given(source=views(), offset=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_parameters_and_results_are_bound_to_any_view(source, offset):
    shape, key, size = source
    b = Builder("trn2")
    x = b.parameter(shape, "float32", "x")
    target = b.parameter((size[0] + 3, size[1] + 3), "float32", "target")
    place = tuple(slice(start, start + count) for start, count in zip(offset, size))
    kernel = traced(pieces, size)
    (result,) = inline(kernel, {"x": x[key], "out": target[place]}, b)
    assert result.storage is target.storage
    given_x, given_target = normal(*shape), normal(size[0] + 3, size[1] + 3)
    expected = given_target.copy()
    expected[place] = given_x[key] ** 2
    compile_traced(b.kernel())(given_x, given_target)
    np.testing.assert_array_equal(given_target, expected)


@nki.jit
def flattened(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x.reshape((1, -1)))
    nl.store(out.reshape((1, -1)), tile)
    return out


def refused(code, kernel, bindings, **options):
    b = options.pop("into", None) or Builder("trn2")
    with pytest.raises(NeuronError) as caught:
        inline(kernel, bindings(b), b, PLACE)
    assert caught.value.code == code, caught.value
    assert caught.value.location == PLACE
    return caught.value


def test_bindings_that_do_not_fit():
    kernel = traced(flattened, (4, 8))
    whole = lambda b: b.parameter((4, 8), "float32", "a")  # noqa: E731
    refused("missing-argument", kernel, lambda b: {})
    refused("unknown-argument", kernel, lambda b: {"x": whole(b), "y": whole(b)})
    refused("shape-mismatch", kernel, lambda b: {"x": b.parameter((8, 4), "float32", "a")})
    refused("dtype-not-allowed", kernel, lambda b: {"x": b.parameter((4, 8), "int32", "a")})
    refused("wrong-memory", kernel, lambda b: {"x": b.tensor((4, 8), "float32")})
    refused("not-a-tensor", kernel, lambda b: {"x": 3})
    # Rows that are apart cannot be seen as one row.
    apart = refused(
        "view-not-allowed", kernel, lambda b: {"x": b.parameter((4, 9), "float32", "a")[:, 1:]}
    )
    assert "x of flattened" in apart.what
    refused("generation", kernel, lambda b: {"x": whole(b)}, into=Builder("trn1"))
    two = traced(halves[2], (64, 32))
    refused("core-mismatch", two, lambda b: {"x": b.parameter((64, 32), "float32", "a")})
    b = Builder("trn2", cores=2)
    own = b.on(1).tensor((4, 8), "float32", Memory.private_hbm)
    refused("core-mismatch", kernel, lambda b: {"x": own}, into=b)


def test_a_kernel_over_a_launch_symbol_keeps_its_guards():
    @nki.jit
    def doubled(a):
        assert a.shape[0] >= 256
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(a.shape[0] // 128):
            tile = nl.load(a[nl.ds(i * 128, 128), :])
            nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
            nl.store(out[nl.ds(i * 128, 128), :], tile)
        return out

    rows = nki.symbol("M", multiple_of=128, max=1024)
    kernel = doubled.trace(nki.TensorSpec((rows, 16), nl.float32), target="trn2")
    b = Builder("trn2")
    a = b.parameter((rows, 16), "float32", "a")
    (once,) = inline(kernel, {"a": a}, b)
    (twice,) = inline(kernel, {"a": once}, b)
    b.result(twice)
    built = b.kernel()
    assert [guard.text for guard in built.guards] == [guard.text for guard in kernel.guards] != []
    compiled = compile_traced(built)
    with pytest.raises(NeuronError, match="guard-refused"):
        compiled(normal(128, 16))
    for size in (256, 384):
        data = normal(size, 16)
        np.testing.assert_array_equal(compiled(data), data * 4)


def test_an_overflow_says_whose_tensors_take_the_room():
    @nki.jit
    def wide(x, y):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        left, right, total = nl.load(x), nl.load(y), nl.ndarray(x.shape, dtype=x.dtype)
        nisa.tensor_tensor(dst=total, data1=left, data2=right, op=nl.add)
        nl.store(out, total)
        return out

    shape = (128, 20480)  # of which three do not fit, and one operation needs three
    b = Builder("trn2", name="caller")
    x, small = b.parameter(shape, "float32", "x"), b.parameter((128, 8), "float32", "small")
    own = b.tensor((128, 8), "float32", name="own")
    b.emit("dma_copy", dst=own, src=small)
    (result,) = inline(traced(wide, shape, shape), {"x": x, "y": x}, b)
    b.emit("dma_copy", dst=small, src=own)
    b.result(result)
    with pytest.raises(NeuronError) as caught:
        compile_traced(b.kernel())
    assert caught.value.code == "sbuf-overflow"
    assert caught.value.what.startswith("wide/")
    assert f"{3 * 4 * shape[1]} B  of these are tensors of wide" in "\n".join(caught.value.notes)


@pytest.mark.parametrize("columns", [slice(0, 6), slice(3, 9)])
def test_a_kernel_with_a_loop_in_a_loop_of_its_caller(columns):
    b = Builder("trn2")
    x, out = b.parameter((32, 6), "float32", "x"), b.parameter((32, 9), "float32", "out")
    kernel = traced(pieces, (8, 6))
    with b.loop(0, 32, 8) as row:
        inline(kernel, {"x": x[ds(row, 8), :], "out": out[ds(row, 8), columns]}, b)
    data, target = normal(32, 6), normal(32, 9)
    expected = target.copy()
    expected[:, columns] = data**2
    built = b.kernel()
    verify(built)
    compile_traced(built)(data, target)
    np.testing.assert_array_equal(target, expected)


@nki.jit
def product(a, w):
    """a.T @ w, summed in PSUM over a loop on the device."""
    out = nl.ndarray((a.shape[1], w.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.psum)
    for row in nl.dynamic_range(0, a.shape[0], 128):
        left, right = nl.load(a[nl.ds(row, 128), :]), nl.load(w[nl.ds(row, 128), :])
        nisa.nc_matmul(dst=total, stationary=left, moving=right)
    nl.store(out, nl.copy(total))
    return out


def test_a_sum_over_a_loop_begins_anew_in_each_copy():
    kernel = traced(product, (384, 64), (384, 32))
    b = Builder("trn2")
    a, w = b.parameter((384, 64), "float32", "a"), b.parameter((384, 32), "float32", "w")
    out = b.tensor((64, 32), "float32", Memory.shared_hbm, "out")
    with b.loop(0, 2):
        inline(kernel, {"a": a, "w": w, "out": out}, b)
    (other,) = inline(kernel, {"a": a, "w": w}, b)
    b.result(out, other)
    left, right = normal(384, 64), normal(384, 32)
    for found in run(b.kernel(), left, right):
        np.testing.assert_allclose(found, left.T @ right, rtol=1e-4, atol=1e-4)
