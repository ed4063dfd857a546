"""Integers and flags of NumPy, as shape arithmetic gives them, are what Python's are."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

A = np.arange(48, dtype=np.float32).reshape(8, 6)
CUBE = A.reshape(8, 2, 3)
ONE, TWO, THREE, SIX, EIGHT = (np.int64(n) for n in (1, 2, 3, 6, 8))

VIEWS = {
    "ap": (lambda t: t.ap([[SIX, EIGHT], [TWO, TWO]], offset=ONE), A[:, 1:4:2]),
    "ap of an array": (lambda t: t.ap(np.array([[6, 8], [2, 3]])), A[:, ::2]),
    "ds": (lambda t: t[:, nl.ds(ONE, np.int32(2))], A[:, 1:3]),
    "slice": (lambda t: t.slice(ONE, ONE, SIX, TWO), A[:, 1:6:2]),
    "reshape": (lambda t: t.reshape((EIGHT, np.prod([2, 3]))), A),
    "reshape to three": (lambda t: t.reshape((EIGHT, np.int32(-1), THREE)), CUBE),
    "reshape_dim": (lambda t: t.reshape_dim(ONE, (TWO, THREE)), CUBE),
    "permute": (
        lambda t: t.reshape((8, 2, 3)).permute(np.array([0, 2, 1])),
        CUBE.transpose(0, 2, 1),
    ),
    "select": (lambda t: t.reshape((8, 2, 3)).select(ONE, ONE), CUBE[:, 1]),
    "broadcast": (lambda t: t[:, 0:1].broadcast(-ONE, THREE), np.repeat(A[:, :1], 3, 1)),
    "dimensions": (
        lambda t: t.expand_dim(ONE).squeeze_dim(ONE).reshape((8, 2, 3)).flatten_dims(ONE, TWO),
        A,
    ),
    "rearrange": (
        lambda t: t.rearrange(("p", ("x", "y")), ("p", "y", "x"), {"x": TWO}),
        CUBE.transpose(0, 2, 1),
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    view, expected = VIEWS[name]

    @nki.jit
    def kernel(a):
        out = nl.ndarray(expected.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(view(nl.load(a))))
        return out

    np.testing.assert_array_equal(kernel(A), expected)


def shuffled(tile, dst):
    nisa.nc_stream_shuffle(dst, tile, np.concatenate([np.arange(8)[::-1], np.full(24, 255)]))


def masked(tile, dst):
    pattern = np.array([[-1, 6]])
    nisa.affine_select(dst, pattern, ONE, tile, np.float32(0), nl.greater_equal, offset=ONE)


def counted(tile, dst):
    nisa.tensor_copy(dst, tile)
    register = nisa.register_alloc(THREE)

    def body(i):
        nisa.tensor_scalar(dst, dst, nl.add, np.float32(1), reverse0=np.bool_(True))

    nl.fori_loop(np.int64(0), register, body, step=ONE)


def reduced(tile, dst):
    nisa.tensor_copy(dst, tile)
    nisa.tensor_reduce(dst[:, 0:1], nl.add, tile, axis=np.array([1]), negate=np.bool_(True))


OPERATIONS = {
    shuffled: A[::-1],
    masked: np.where(np.arange(8)[:, None] + 1 >= np.arange(6), A, 0),
    counted: A + 3,
    reduced: np.hstack([-A.sum(1, keepdims=True), A[:, 1:]]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations(operation):
    @nki.jit
    def kernel(a):
        tile = nl.load(a)
        dst = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        operation(tile, dst)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=dst)
        return out

    np.testing.assert_array_equal(kernel(A), OPERATIONS[operation])
