"""Matmuls into PSUM tiles, and the flags that they get."""

from traced import operations, sbuf, value

import nki
import nki.isa as nisa

M = nki.symbol("M", multiple_of=128, max=8192)
R = nki.symbol("R", max=8192)
P = 128


def matmul(dst, **options):
    """A matmul into a [m, n] region."""
    m, n = dst.shape
    left = sbuf(P, P)[:, 0:m]
    nisa.nc_matmul(dst=dst, stationary=left, moving=sbuf(P, 512)[:, 0:n], **options)


def flags(kernel):
    return [value(op, "accumulate") for op in operations(kernel, "nc_matmul")]
