"""Indices and slices of tensors against those of NumPy."""

import numpy as np
import pytest
from traced import refused, sbuf, traced
from viewed import assert_same, inside

import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError

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
