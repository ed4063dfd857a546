"""Views of tensors against the same views of a NumPy array of flat indices."""

import inspect
import re

import pytest
from hypothesis import given, settings
from traced import refused, sbuf, traced
from viewed import assert_same, inside, view_steps

import nki
import nki.language as nl


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


def test_start_partition_follows_views_and_addresses():
    def body():
        tile = nl.ndarray((64, 8), dtype=nl.float32, buffer=nl.sbuf, address=(32, 64))
        assert tile.first == 32
        assert tile[32:64, :].first == 64
        assert tile[nl.ds(32, 32), :][8:16, 1:2].first == 72
        assert tile.ap(pattern=[[8, 16], [1, 8]], offset=8 * 16).first == 48
        assert tile[32:64].permute((0, 1)).reshape((32, 2, 4)).first == 64

    traced(body)


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
