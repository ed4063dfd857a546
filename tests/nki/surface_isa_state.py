"""Cases of `nki.isa`: random numbers, registers, cores, and what is known of the device."""

from functools import partial

import numpy as np
from surface import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    SINCE_TRN2,
    TRN3,
    case,
    sbuf,
    values,
)

import nki.isa as nisa
import nki.language as nl

isa = partial(case, "nki.isa")
SHAPE = (16, 24)
SCAN = tuple(d for d in NUMBERS if d not in ("tfloat32", "int32", "uint32"))
PRODUCTS = tuple(d for d in FLOATS)


def wide(*arrays):
    return tuple(a.astype(np.float64) for a in arrays)


# Random numbers

MARSAGLIA = np.array([[123456789, 362436069, 521288629, 88675123, 5783321, 6615241]], np.uint32)
XORWOW = np.array([[246875399, 3690007200, 1264581005]], np.uint32)
"""The first numbers of the state above (Marsaglia, Xorshift RNGs, 2003)."""


@isa(INTEGERS, SINCE_TRN2)
def rng(dtype):
    def body(state):
        out = sbuf((1, 3), dtype)
        nisa.rand_set_state(state)
        nisa.rng(out, engine=nisa.engine.gpsimd)
        return out

    return body, (MARSAGLIA,), XORWOW.astype(dtype)  # the low bits


@isa(("uint32",), SINCE_TRN2)
def rand_get_state(dtype):
    def body(state):
        out = sbuf((1, 6), dtype)
        nisa.rand_set_state(state)
        nisa.rand_get_state(out)
        return out

    return body, (MARSAGLIA,), MARSAGLIA


@isa(("uint32", "int32", "float32"))
def set_rng_seed(dtype):
    def body(seed):
        pair = [sbuf((64, 32), nl.uint32) for _ in range(2)]
        for tile in pair:
            nisa.set_rng_seed(seed)
            nisa.rng(tile)
        return nl.bitwise_xor(*pair)

    return body, (np.array([[42]], dtype),), np.zeros((64, 32))


@isa(tuple(d for d in NUMBERS if d != "float8_e4m3fn"), TRN3)
def rand2(dtype):
    def body():
        out = sbuf((128, 200), dtype)
        nisa.rand2(dst=out, min=0.0, max=64.0)
        return out

    def uniform(got):
        sample = got.astype(float)
        return 0 <= sample.min() < 1 and 60 < sample.max() <= 64 and abs(sample.mean() - 32) < 1

    return body, (), uniform


@isa((*NUMBERS, "bool"))
def dropout(dtype):
    x = values(dtype, (128, 100), low=1, high=2)

    def body(a):
        out = sbuf(a.shape, a.dtype)
        nisa.dropout(dst=out, data=a, prob=0.25)
        return out

    return body, (x,), lambda got: abs(got.astype(float).mean() - 0.75) < 0.02


# Registers


@isa(("int32", "uint32"))
def register_load(dtype):
    x = np.array([[5]], dtype)

    def body(a):
        first, second = nisa.register_alloc(), nisa.register_alloc(3)
        nisa.register_load(first, a)
        out = sbuf((1, 3), dtype)
        nisa.register_store(out[:, 0:1], first)
        nisa.register_store(out[:, 1:2], second)
        nisa.register_move(second, first)
        nisa.register_store(out[:, 2:3], second)
        return out

    return body, (x,), np.array([[5, 3, 5]])


# Cores


@isa((*NUMBERS, "bool"), SINCE_TRN2, cores=2)
def sendrecv(dtype):
    x = values(dtype, (2, 24))

    def body(a):
        mine, other = nl.program_id(0), 1 - nl.program_id(0)
        received = sbuf((1, 24), a.dtype)
        row = nl.copy(nl.load(a_rows(a)[nl.ds(mine, 1), :]))
        nisa.sendrecv(src=row, dst=received, send_to_rank=other, recv_from_rank=other, pipe_id=0)
        out = nl.ndarray((2, 24), dtype=received.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.ds(mine, 1), :], received)
        return out

    return body, (x,), x[::-1]


def a_rows(tile):
    """A tile's data in HBM, private to the core, so that rows of it can be loaded."""
    rows = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.private_hbm)
    nl.store(rows, tile)
    return rows


@isa((*NUMBERS, "bool"), SINCE_TRN2, cores=2)
def core_barrier(dtype):
    x = values(dtype, (2, 24))

    def body(a):
        mine, other = nl.program_id(0), 1 - nl.program_id(0)
        shared = nl.ndarray((2, 24), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(shared[nl.ds(mine, 1), :], nl.load(a_rows(a)[nl.ds(mine, 1), :]))
        nisa.core_barrier(shared, (0, 1))
        out = nl.ndarray((2, 24), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.ds(mine, 1), :], nl.load(shared[nl.ds(other, 1), :]))
        return out

    return body, (x,), x[::-1]


# What is known of the device

VERSIONS = {"trn1": 2, "trn2": 3, "trn3": 4}


@isa(("float32",))
def get_nc_version(dtype):
    def body():
        assert nisa.get_nc_sub_version() == 0  # the first revision
        version = nisa.get_nc_version()
        assert isinstance(version, nisa.nc_version)
        assert nisa.nc_version.gen2 <= version <= nisa.nc_version.gen4
        return nl.full((1, 1), version.value, nl.float32)

    return body, (), lambda got: got[0, 0] in VERSIONS.values()


@isa(("float32",), SINCE_TRN2)
def engine(dtype):
    names = ("vector", "scalar", "gpsimd", "unknown")

    def body(a):
        results = []
        for name in names:
            named = getattr(nisa, f"{name}_engine")
            assert named == getattr(nisa.engine, name)
            out = sbuf(a.shape, a.dtype)
            nisa.tensor_copy(dst=out, src=a, engine=named)
            results.append(out)
        return tuple(results)

    x = values(dtype, SHAPE)
    return body, (x,), (x,) * len(names)


USED_BY = {
    "nki.isa.rand_set_state": "nki.isa.rand_get_state",
    "nki.isa.register_alloc": "nki.isa.register_load",
    "nki.isa.register_move": "nki.isa.register_load",
    "nki.isa.register_store": "nki.isa.register_load",
    "nki.isa.VirtualRegister": "nki.isa.register_load",
    "nki.isa.nc_version": "nki.isa.get_nc_version",
    "nki.isa.get_nc_sub_version": "nki.isa.get_nc_version",
    "nki.isa.vector_engine": "nki.isa.engine",
    "nki.isa.scalar_engine": "nki.isa.engine",
    "nki.isa.gpsimd_engine": "nki.isa.engine",
    "nki.isa.unknown_engine": "nki.isa.engine",
}
"""Names whose use is in the case of another name."""
