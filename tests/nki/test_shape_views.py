"""Views of tensors in other shapes against those of NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traced import traced
from viewed import assert_same, inside, view_steps

import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError


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
