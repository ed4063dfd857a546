"""The text of every error that a kernel can end with names a line of its file, whatever raises it:
what `mistakes.py` does not have, because it takes another launch."""

from itertools import product

import numpy as np
import pytest
from mistakes import MISTAKES

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import CATALOGUE

A = np.arange(32, dtype=np.float32).reshape(8, 4)


def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
    nl.store(out, tile)
    return out


def copied(a):
    return stored(nl.load(a))


def rows_of(symbol, function):
    return nki.compile(function, nki.TensorSpec((symbol, 4), nl.float32), target="trn2")


def symbol_index():
    rows_of(nki.symbol("M", max=64), lambda a: [0] * a.shape[0])


def symbol_range():
    rows_of(nki.symbol("M", max=64), lambda a: [nl.load(a) for _ in range(a.shape[0])])


def guard_refused():
    def kernel(a):
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        return out

    arguments = nki.TensorSpec((nki.symbol("M", max=64, multiple_of=16), 4), nl.float32)
    compiled = nki.compile(kernel, arguments, target="trn2")
    compiled(A)


def no_tracer():
    nl.load(A)


def wrong_arguments():
    nki.jit(copied)(A, A)


def sbuf_overflow():
    def kernel(a):
        tiles = [nl.ndarray((128, 40_000), nl.float32, nl.sbuf) for _ in range(2)]
        for tile in tiles:
            nisa.memset(dst=tile, value=0)
        total = tiles[0]
        nisa.tensor_tensor(dst=total, data1=total, data2=tiles[1], op=nl.add)
        return stored(total[:, 0:4])

    nki.simulate(nki.jit(kernel, target="trn2"))(A)


def race():
    def kernel(a):
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        tile = nl.load(a)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=out, src=tile)
        else:
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
            nisa.dma_copy(dst=out, src=tile)
        return out

    nki.simulate(nki.jit(kernel, target="trn2")[2])(A)


def core_mismatch():
    def kernel(a):
        return stored(nl.load(a[0 : 4 + nl.program_id(0), :]))

    nki.simulate(nki.jit(kernel, target="trn2")[2])(A)


def deadlock():
    def kernel(a):
        out = stored(nl.load(a))
        if nl.program_id(0) == 0:
            nisa.core_barrier(out, (0, 1))
        return out

    nki.simulate(nki.jit(kernel, target="trn2")[2], mode="eager")(A)


def indices_not_unique():
    def kernel(a):
        rows = nl.full((4, 1), 1, dtype=nl.int32)
        out = stored(nl.load(a))
        to = out.vector_select(0, rows)
        nisa.dma_compute(dst=to, srcs=[to, nl.load(a[0:4, :])], reduce_op=nl.add)
        return out

    nki.simulate(nki.jit(kernel, target="trn2"))(A)


def hbm_overflow():
    def kernel(a):
        held = nl.ndarray((1 << 16, 1 << 20), nl.float32, nl.private_hbm)
        nl.store(held[0:128, 0:64], nl.load(a))
        return stored(nl.load(a))

    nki.compile(kernel, nki.TensorSpec((128, 64), nl.float32), target="trn2")


def register_overflow():
    def kernel(a):
        counts = nl.ndarray((1, 65), nl.int32, nl.sbuf)
        nisa.memset(counts, 1)
        registers = [nisa.register_alloc() for _ in range(65)]
        for i, register in enumerate(registers):
            nisa.register_load(register, counts[0:1, i : i + 1])
        tile = nl.load(a)
        for register in registers:
            for _ in nl.dynamic_range(register):
                nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        return stored(tile)

    nki.simulate(nki.jit(kernel, target="trn2"))(A)


def semaphore_overflow():
    """At each of 24 levels all engines and queues wait for each other."""
    engines = nisa.engine.vector, nisa.engine.scalar, nisa.engine.gpsimd

    def kernel(a):
        out, tile = nl.ndarray(a.shape, a.dtype, nl.shared_hbm), nl.load(a)

        def level(inside):
            for one, other in product(engines, engines):
                nisa.tensor_copy(dst=tile, src=tile, engine=one)
                nisa.tensor_copy(dst=tile, src=tile, engine=other)
            for one in engines:
                nisa.dma_copy(dst=out, src=tile)
                nisa.dma_copy(dst=tile, src=a)
                nisa.tensor_copy(dst=tile, src=tile, engine=one)
            if inside:
                nl.fori_loop(0, 2, lambda _: level(inside - 1))

        level(24)
        return out

    nki.compile(kernel, nki.TensorSpec(A.shape, nl.float32), target="trn2")


LAUNCHES = {
    "symbol-index": symbol_index,
    "symbol-range": symbol_range,
    "guard-refused": guard_refused,
    "no-tracer": no_tracer,
    "unknown-argument": wrong_arguments,
    "sbuf-overflow": sbuf_overflow,
    "hbm-overflow": hbm_overflow,
    "register-overflow": register_overflow,
    "semaphore-overflow": semaphore_overflow,
    "race": race,
    "core-mismatch": core_mismatch,
    "deadlock": deadlock,
    "indices-not-unique": indices_not_unique,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", LAUNCHES)
def test_the_text_names_a_line_of_the_file(code):
    with pytest.raises(nki.NeuronError) as caught:
        LAUNCHES[code]()
    assert caught.value.code == code, caught.value
    assert f"\n  at {__file__}:" in str(caught.value)


NOT_HERE = (
    *(
        "symbol-branch",
        "shape-unsolved",
        "integer-division",
    ),  # tests/isa/test_predicate.py
    *("loop-limit", "time-limit", "memory-limit"),  # tests/simulator/test_watchdog.py
    "simulated-time-limit",  # the same
    "uninitialised-control",  # tests/simulator/test_uninitialised_control.py
)
"""Codes of kernels that other tests meet, or none."""


def test_every_code_of_kernels_is_met():
    codes = {code for code, entry in CATALOGUE.items() if entry.number < 500}
    met = {mistake.code for mistake in MISTAKES.values()} | {*LAUNCHES, *NOT_HERE}
    assert codes <= met, codes - met
