"""Views of tensors, and arrays of flat indices that show what they are."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from traced import traced

import nki.language as nl


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
