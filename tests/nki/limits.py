"""What tests of documented limits share: tiles to make calls with, and the call as a kernel."""

import pytest
from surface import psum, sbuf

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError

F32 = "float32"


def tile(*shape, dtype=F32):
    """A tile of zeros."""
    made = sbuf(shape, dtype)
    nisa.memset(dst=made, value=0)
    return made


def empty(*shape, dtype=F32):
    """A tile to write to."""
    return sbuf(shape, dtype)


def in_psum(*shape, dtype=F32):
    made = psum(shape, dtype)
    nisa.memset(dst=made, value=0)
    return made


def hbm(*shape, dtype=F32):
    rows = nl.ndarray(shape, dtype=dtype, buffer=nl.private_hbm)
    nl.store(rows, tile(*shape, dtype=dtype))
    return rows


def picked(view, columns=4):
    """Columns of a tile that indices pick."""
    return view.indirect(tile(view.shape[0], 1, dtype="uint32"), columns)


def product(k=32, m=16, n=32, left="bfloat16", right="bfloat16", dst=F32, **options):
    nisa.nc_matmul(
        dst=psum((m, n), dst), stationary=tile(k, m, dtype=left), moving=tile(k, n, dtype=right),
        **options,
    )  # fmt: skip


def matmul(dst, stationary, moving, **options):
    nisa.nc_matmul(dst=dst, stationary=stationary, moving=moving, **options)


def traced(call, target, cores=1):
    nki.jit(lambda: (call(), None)[1], platform_target=target)[cores].trace()


def refused(call, target, cores=1):
    """The error of a call as the only one of a kernel."""
    with pytest.raises(NeuronError) as caught:
        traced(call, target, cores)
    assert caught.value.location is not None
    return caught.value


def assert_limit(target, call, code, allowed):
    """A call is refused with a code, and the next smaller one, if there is one, is not."""
    assert refused(call, target).code == code
    if allowed is not None:
        traced(allowed, target)
