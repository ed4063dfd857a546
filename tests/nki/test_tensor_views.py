"""Views of tensors against the same views of a NumPy array of flat indices."""

import inspect
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traced import refused, sbuf, traced

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError


def elements(view):
    """The storage elements that a view shows, by its shape, strides and offset."""
    reach = view.offset + sum((n - 1) * max(s, 0) for n, s in zip(view.shape, view.strides))
    flat = np.arange(reach + 1)
    return np.lib.stride_tricks.as_strided(
        flat[view.offset :], view.shape, [8 * s for s in view.strides]
    )


def assert_same(view, oracle):
    np.testing.assert_array_equal(elements(view), oracle)


def inside(test, shape=(128, 4, 6), buffer=nl.sbuf, dtype="float32"):
    """Run test(tensor, array of its flat indices) in a kernel."""

    def body():
        tensor = nl.ndarray(shape, dtype=dtype, buffer=buffer)
        test(tensor, np.arange(np.prod(shape)).reshape(shape))

    traced(body)


def test_completion_offers_what_is_documented() -> None:
    """Names with a docstring of their own, or in code font in that of the class or its views."""
    told = (inspect.getdoc(nl.NkiTensor) or "") + (inspect.getdoc(nl.NkiTensor.__init__) or "")

    def check(tensor, _):
        offered = {name for name in dir(tensor) if not name.startswith("_")}
        assert offered == {name for name in dir(nl.NkiTensor) if not name.startswith("_")}
        assert {"reshape", "ap", "shape", "dtype"} <= offered
        for name in offered:
            found = inspect.getattr_static(nl.NkiTensor, name)
            documented = not inspect.ismemberdescriptor(found) and inspect.getdoc(found)
            assert documented or re.search(rf"`[^`]*\b{name}\b[^`]*`", told), name

    inside(check)


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum, nl.private_hbm])
def test_a_new_tensor_is_dense(buffer):
    def check(t, a):
        assert (t.shape, t.strides, t.offset) == ((128, 4, 6), (24, 6, 1), 0)
        assert (t.ndim, t.size, t.dtype, t.buffer) == (3, 128 * 24, nl.float32, buffer)
        assert t.is_contiguous() and not t.is_indirect()
        assert t.get_pattern() == [[24, 128], [6, 4], [1, 6]]
        assert_same(t, a)

    inside(check, buffer=buffer)


# Index expressions that mean the same in NumPy.
KEYS = [
    np.s_[...],
    np.s_[:, 1:3],
    np.s_[32:64, ..., ::2],
    np.s_[0:32, 1:4:2, 5:],
    np.s_[:, -3:-1, :],
    np.s_[:, :, :100],
    np.s_[64:, 3:, 1::3],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.private_hbm])
def test_slices_are_those_of_numpy(key, buffer):
    inside(lambda t, a: assert_same(t[key], a[key]), buffer=buffer)


def test_integers_keep_two_dimensions_on_chip():
    def check(t, a):
        assert_same(t[:, 1], a[:, 1])
        assert_same(t[:, :, -1], a[:, :, -1])
        assert_same(t[5], a[5:6])
        assert_same(t[5, 2], a[5:6, 2])
        assert_same(t[:, 2, 3], a[:, 2, 3:4])
        assert_same(t[-1, 2, 3], a[-1:, 2, 3:4])

    inside(check)


def test_integers_drop_dimensions_in_hbm():
    def check(t, a):
        assert_same(t[3], a[3])
        assert_same(t[3, 1:2, 2], a[3, 1:2, 2])
        assert_same(t[0, 1, 2], a[0, 1, 2:3])

    inside(check, buffer=nl.private_hbm)


def test_ds_is_start_and_size():
    def check(t, a):
        assert_same(t[nl.ds(32, 64), nl.ds(1, 2)], a[32:96, 1:3])
        assert_same(t[0:32, nl.ds(0, 4), 5], a[0:32, 0:4, 5])

    inside(check)


def test_start_partition_follows_views_and_addresses():
    def body():
        tile = nl.ndarray((64, 8), dtype=nl.float32, buffer=nl.sbuf, address=(32, 64))
        assert tile.first == 32
        assert tile[32:64, :].first == 64
        assert tile[nl.ds(32, 32), :][8:16, 1:2].first == 72
        assert tile.ap(pattern=[[8, 16], [1, 8]], offset=8 * 16).first == 48
        assert tile[32:64].permute((0, 1)).reshape((32, 2, 4)).first == 64

    traced(body)


def axis_key(draw, size):
    """An index of one dimension that selects something."""
    kind = draw(st.sampled_from(["all", "slice", "step", "int"]))
    start = draw(st.integers(0, size - 1))
    stop = draw(st.integers(start + 1, size))
    if kind == "all":
        return slice(None)
    if kind == "int":
        return draw(st.integers(-size, size - 1))
    return slice(start, stop, draw(st.integers(1, 3)) if kind == "step" else None)


@st.composite
def view_steps(draw):
    """A shape of HBM and a chain of views of it, as pairs of functions (ours, NumPy's)."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    array = np.arange(np.prod(shape)).reshape(shape)
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["index", "permute", "expand", "broadcast", "split"]))
        rank = array.ndim
        if kind == "index":
            key = tuple(axis_key(draw, n) for n in array.shape)
            if all(isinstance(k, int) for k in key):
                continue
            step = (lambda t, key=key: t[key]), (lambda a, key=key: a[key])
        elif kind == "permute":
            order = draw(st.permutations(range(rank)))
            step = (lambda t, o=order: t.permute(o)), (lambda a, o=order: a.transpose(o))
        elif kind == "expand" and rank < 6:
            dim = draw(st.integers(0, rank))
            step = (lambda t, d=dim: t.expand_dim(d)), (lambda a, d=dim: np.expand_dims(a, d))
        elif kind == "broadcast" and 1 in array.shape:
            dim = array.shape.index(1)
            size = draw(st.integers(1, 4))
            step = (
                lambda t, d=dim, n=size: t.broadcast(d, n),
                lambda a, d=dim, n=size: np.repeat(a, n, axis=d),
            )
        elif kind == "split":
            dim = draw(st.integers(0, rank - 1))
            size = array.shape[dim]
            part = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
            sizes = (*array.shape[:dim], part, size // part, *array.shape[dim + 1 :])
            step = (
                lambda t, d=dim, n=part: t.reshape_dim(d, (n, -1)),
                lambda a, s=sizes: a.reshape(s),
            )
        else:
            continue
        steps.append(step)
        array = step[1](array)
    return shape, steps


@settings(max_examples=150, deadline=None)
@given(view_steps())
def test_chains_of_views_are_those_of_numpy(case):
    shape, steps = case

    def check(t, a):
        for ours, numpys in steps:
            t, a = ours(t), numpys(a)
            assert_same(t, a)
        assert t.size == a.size

    inside(check, shape, nl.private_hbm)


@settings(max_examples=150, deadline=None)
@given(view_steps(), st.data())
def test_reshape_is_a_view_exactly_where_numpy_needs_no_copy(case, data):
    shape, steps = case

    def check(t, a):
        array = np.arange(np.prod(shape)).reshape(shape)
        for ours, numpys in steps:
            t = ours(t)
            a = numpys(a)
        sizes = data.draw(st.permutations(factors(data, a.size)))
        strided = np.lib.stride_tricks.as_strided(
            array.reshape(-1)[t.offset :], t.shape, [8 * s for s in t.strides]
        )
        try:
            probe = strided.view()
            probe.shape = sizes
        except AttributeError:
            with pytest.raises(NeuronError) as caught:
                t.reshape(sizes)
            assert caught.value.code == "reshape"
        else:
            assert_same(t.reshape(sizes), a.reshape(sizes))

    inside(check, shape, nl.private_hbm)


def factors(data, size):
    """Some sizes whose product is `size`."""
    sizes = []
    while size > 1 and len(sizes) < 3:
        part = data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
        sizes.append(part)
        size //= part
    return [*sizes, size]


def test_shape_methods_on_chip():
    def check(t, a):
        assert_same(t.permute((0, 2, 1)), a.transpose(0, 2, 1))
        assert_same(t.flatten_dims(1, 2), a.reshape(128, 24))
        assert_same(t.reshape((128, 2, 12)), a.reshape(128, 2, 12))
        assert_same(t.reshape((128, -1)), a.reshape(128, 24))
        assert_same(t[:, :, 0:1].broadcast(2, 5), np.repeat(a[:, :, 0:1], 5, axis=2))
        assert_same(t.expand_dim(1).squeeze_dim(1), a)
        assert_same(t[32:64].reshape((32, 8, 3)), a[32:64].reshape(32, 8, 3))
        assert_same(t.slice(1, 0, 4, 2), a[:, 0:4:2])
        assert_same(t.select(1, 3), a[:, 3])
        assert t.permute((0, 2, 1)).is_contiguous() is False

    inside(check)


def test_rearrange_splits_permutes_and_merges():
    def check(t, a):
        assert_same(
            t.rearrange(("p", ("h", "w"), "c"), ("p", "w", "c", "h"), {"h": 2}),
            a.reshape(128, 2, 2, 6).transpose(0, 2, 3, 1),
        )
        assert_same(t.rearrange(("a", "b", "c"), ("a", ("b", "c"))), a.reshape(128, 24))
        with pytest.raises(NeuronError) as caught:
            t.rearrange(("p", "h", "c"), ("p", ("c", "h")))
        assert caught.value.code == "reshape"
        with pytest.raises(NeuronError) as caught:
            t.rearrange(("p", "h", "c"), ("p", "h", "d"))
        assert caught.value.code == "reshape"

    inside(check)


def test_the_documented_pattern_of_a_slice():
    def check(t, a):
        u = t.slice(dim=1, start=8, end=24)
        v = t.ap(pattern=[[64, 128], [1, 16]], offset=8)
        assert u.get_pattern() == v.get_pattern() == [[64, 128], [1, 16]]
        assert u.offset == v.offset == 8

    inside(check, (128, 64))


def test_ap_on_a_view_of_adjacent_columns_steps_by_its_own_partitions():
    def check(t, a):
        part = t[8:40, 16:48]
        assert_same(part.ap(pattern=[[32, 16], [1, 8]], offset=4), a[8:24, 20:28])
        assert_same(part.ap(pattern=[[64, 16], [1, 8]], offset=4), a[8:24, 20:28])  # the storage's
        halves = part.ap(pattern=[[64, 16], [1, 8]], offset=4, dtype=nl.bfloat16)
        assert (halves.strides, halves.offset) == ((128, 1), 2 * (8 * 64 + 16) + 4)
        for view in (t[:, ::2], part):
            with pytest.raises(NeuronError) as caught:
                view.ap(pattern=[[31, 16], [1, 8]])
            assert caught.value.code == "view-not-allowed"
        with pytest.raises(NeuronError) as caught:
            t[:, ::2].ap(pattern=[[32, 16], [1, 8]])
        assert caught.value.code == "view-not-allowed"

    inside(check, (128, 64))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(0, 59),
)
def test_ap_addresses_storage(pattern, offset):
    grid = np.indices([n for _, n in pattern])
    expected = offset + sum(g * s for g, (s, _) in zip(grid, pattern))

    def check(t, a):
        view = t[5:9].ap(pattern=pattern, offset=offset - 5)
        assert view.storage is t.storage  # asked of a view that leaves it, raises
        assert_same(view, expected)

    code = "view-not-allowed" if pattern[0][0] < 0 else "out-of-bounds"
    if code == "out-of-bounds" and expected.min() >= 0 and expected.max() < 60:
        inside(check, (60,), nl.private_hbm)
    else:
        with pytest.raises(NeuronError) as caught:
            inside(check, (60,), nl.private_hbm)
        assert caught.value.code == code


def test_view_regroups_bytes_as_numpy_does():
    def check(t, a):
        halves = t.view(nl.bfloat16)
        assert (halves.shape, halves.strides) == ((128, 16), (16, 1))
        bytes_ = t[32:64, 2:4].view(nl.uint8)
        assert (bytes_.shape, bytes_.strides) == ((32, 8), (32, 1))
        assert (bytes_.offset, bytes_.first) == (4 * (32 * 8 + 2), 32)
        again = bytes_.view(nl.float32)
        assert (again.shape, again.strides, again.offset) == ((32, 2), (8, 1), 32 * 8 + 2)
        cast = t.ap(pattern=[[16, 128], [1, 16]], dtype=nl.bfloat16)
        assert (cast.shape, cast.dtype) == ((128, 16), nl.bfloat16)
        assert t.reinterpret_cast(nl.int32).dtype == nl.int32

    inside(check, (128, 8))


def test_dynamic_indices_move_the_offset():
    def body(a):
        index = sbuf(1, 1, dtype=nl.int32)
        nisa.memset(dst=index, value=3)
        row = a.select(0, index)
        assert row.shape == (128, 8) and row.is_indirect()
        assert [c for _, c in row.offset.terms] == [1024]
        register = nisa.register_alloc(2)
        moved = a.ap(pattern=[[8, 128], [1, 8]], scalar_offset=register, indirect_dim=0)
        assert [c for _, c in moved.offset.terms] == [1024] and moved.is_indirect()
        column = sbuf(128, 4, 16).select(1, index)
        assert column.shape == (128, 16) and [c for _, c in column.offset.terms] == [16]
        window = a[nl.ds(register, 2), 0:4]
        assert window.shape == (2, 4, 8)
        with pytest.raises(NeuronError):
            moved.ap(pattern=[[8, 128], [1, 8]], scalar_offset=register)
        with pytest.raises(NeuronError):
            row.select(0, index)

    kernel = traced(body, (4, 128, 8))
    names = [op.row.name for op in kernel.bodies[0]]
    assert names.count("register_load") == 2


def test_row_indices():
    def body(a):
        rows = sbuf(32, 1, dtype=nl.int32)
        nisa.iota(dst=rows, pattern=[[1, 1]], channel_multiplier=2)
        gathered = a.vector_select(0, rows)
        assert gathered.shape == (32, 64)
        assert (gathered.vector_stride, gathered.vector_bound) == (64, 100)
        part = a.ap(pattern=[[64, 32], [1, 16]], offset=16, vector_offset=rows)
        assert (part.offset, part.vector_stride, part.vector_bound) == (16, 64, 100)
        assert part.vector_offset is rows
        assert gathered[:, 0:8].vector_offset is rows
        with pytest.raises(NeuronError):
            gathered[0:8, :]

    traced(body, (100, 64))


REFUSED = [
    ("partition-limit", lambda t: nl.ndarray((256, 8), nl.float32)),
    ("out-of-bounds", lambda t: t[128]),
    ("out-of-bounds", lambda t: t[:, 4:9][:, :, 6]),
    ("out-of-bounds", lambda t: t[:, 4:4]),
    ("out-of-bounds", lambda t: t[:, nl.ds(2, 3)]),
    ("out-of-bounds", lambda t: t[:, nl.ds(2, 0)]),
    ("out-of-bounds", lambda t: t[:, nl.ds(2, 0), 1][0:2]),
    ("out-of-bounds", lambda t: t.slice(1, 0, 5)),
    ("out-of-bounds", lambda t: t.ap(pattern=[[24, 128], [1, 25]])),
    ("out-of-bounds", lambda t: t.ap(pattern=[[24, 128], [1, 24]], offset=24)),
    ("out-of-bounds", lambda t: t.permute((0, 2, 1)).select(3, 0)),
    ("view-not-allowed", lambda t: t[::2]),
    ("view-not-allowed", lambda t: t[:, ::-1]),
    ("view-not-allowed", lambda t: t.permute((1, 0, 2))),
    ("view-not-allowed", lambda t: t[0:1].broadcast(0, 4)),
    ("view-not-allowed", lambda t: t.broadcast(1, 4)),
    ("view-not-allowed", lambda t: t.reshape((64, 48))),
    ("view-not-allowed", lambda t: t.ap(pattern=[[48, 64], [1, 24]])),
    ("view-not-allowed", lambda t: t[:, :, ::2].view(nl.bfloat16)),
    (
        "view-not-allowed",
        lambda t: t[:, :, 0:3].view("uint8").view("float16")[:, :, 1:3].view("int32"),
    ),
    ("view-not-allowed", lambda t: t[0, 0, 0, 0]),
    ("reshape", lambda t: t.reshape((128, 25))),
    ("reshape", lambda t: t.permute((0, 2, 1)).flatten_dims(1, 2)),
    ("not-supported", lambda t: t.__setitem__((0, 0), "zero")),
    ("out-of-bounds", lambda t: t[range(1, 129)]),
    ("out-of-bounds", lambda t: t[range(-2, 0)]),
    ("out-of-bounds", lambda t: t[range(3, 3)]),
    ("view-not-allowed", lambda t: t[:, range(3, 0, -1)]),
    ("not-supported", lambda t: t + 1),
    ("not-supported", lambda t: list(t)),
    ("not-supported", lambda t: nl.prelu(t)),
    ("value-not-allowed", lambda t: t[1.5]),
    ("dtype-not-allowed", lambda t: t.view("float13")),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refused_views_name_their_line(case):
    code, view = REFUSED[case]
    error = refused(code, lambda: view(sbuf(128, 4, 6)).storage)
    assert "t: " in error.location.text
    assert error.what and error.why and error.hint


INDICES = [
    (lambda: np.arange(4)[:, None], "an array of shape (4, 1)", "first-generation"),
    (lambda: np.array([True] * 128), "an array of shape (128,)", "nl.ds(start"),
    (lambda: [0, 1], "a list", "vector_offset"),
    (lambda: sbuf(1, 1), "tensor 'sbuf", "nisa.register_load"),
    (lambda: None, "None", "expand_dim"),
    (lambda: 1.5, "1.5", "Convert"),
]


@pytest.mark.parametrize("case", range(len(INDICES)))
def test_what_is_no_index_says_what_to_write(case):
    index, what, hint = INDICES[case]
    for key in (lambda: index(), lambda: (..., index()), lambda: slice(index(), 4)):
        if case == 4 and isinstance(key(), slice):
            continue  # no beginning
        error = refused("value-not-allowed", lambda key=key: sbuf(128, 4, 6)[key()])
        assert what in error.what and "\n" not in error.what and hint in error.hint


def test_what_is_no_loop_bound_says_what_to_write():
    error = refused("value-not-allowed", lambda: list(nl.affine_range(sbuf(1, 1))))
    assert "a loop bound is tensor" in error.what and "register_load" in error.hint


def test_symbolic_sizes():
    M = nki.symbol("M", max=1000)
    K = nki.symbol("K", multiple_of=128, max=4096)

    def body(a, b):
        assert a.shape == (M, 64) and a.strides == (64, 1)
        assert a[0:M, 0:8].shape == (M, 8)
        assert str(a[0:512].shape[0]) == "min(M, 512)"
        assert b.reshape((K // 128, 128, 16)).strides == (2048, 16, 1)
        assert b.reshape((-1, 64)).shape[0] == K // 4
        assert b.reshape_dim(0, (K // 128, -1)).shape == (K // 128, 128, 16)
        assert (a[M - 1 :].shape[0], a[M - 1].offset) == (1, 64 * (M - 1))
        tile = nl.ndarray((K // 64, 4), dtype=nl.float32, buffer=nl.sbuf)
        assert tile.shape == (K // 64, 4) and tile.storage.shape == (64, 4)

    traced(body, (M, 64), (K, 16))
    refused("out-of-bounds", lambda a: a[M], (M, 64))


def test_too_many_dimensions_say_which_ones_merge():
    def refusal(change):
        def body(_):
            tile = nl.ndarray((64, 2, 3, 2, 3, 2), nl.float32)
            nisa.memset(dst=change(tile), value=0.0)

        with pytest.raises(NeuronError) as caught:
            traced(body, (4, 4))
        assert caught.value.code == "view-not-allowed"
        return caught.value

    dense = refusal(lambda t: t)
    assert "[[72, 64], [36, 2], [12, 3], [6, 2], [2, 3], [1, 2]]" in dense.what
    assert "dst.flatten_dims(1, 5)." in dense.hint
    turned = refusal(lambda t: t.permute((0, 3, 1, 2, 4, 5)))
    assert "dst.flatten_dims(4, 5).flatten_dims(2, 3)." in turned.hint
    assert "in a loop" in refusal(lambda t: t.permute((0, 5, 4, 3, 2, 1))).hint

    def merged(_):
        tile = nl.ndarray((64, 2, 3, 2, 3, 2), nl.float32).permute((0, 3, 1, 2, 4, 5))
        nisa.memset(dst=tile.flatten_dims(4, 5).flatten_dims(2, 3), value=0.0)

    traced(merged, (4, 4))
