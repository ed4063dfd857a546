"""Semaphores of bodies without control flow: the same from their dependences as from records of
what every access did."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matmul_kernels import LADDER

import nki
import nki.isa as nisa
import nki.language as nl
from isa.files.text import disassemble
from nki.passes import lower
from nki.passes.analysis import dependences, rerolled
from nki.passes.analysis.occupants import _one_by_one, last_holders
from nki.passes.order import pipeline
from nki.passes.synchronise.waits import Walk

MATRICES = nki.TensorSpec((1024, 512), nl.bfloat16), nki.TensorSpec((1024, 1024), nl.bfloat16)


@nki.jit
def begun_in_parts(a):
    """Tiles that transfers fill in two parts, the second once the first is in use."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for row in range(0, a.shape[0], 128):
        whole = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        half = a.shape[1] // 2
        rows = nl.ds(row, 128)
        left, right = nl.ds(0, half), nl.ds(half, half)
        nisa.dma_copy(dst=whole[:, left], src=a[rows, left])
        nisa.tensor_scalar(dst=whole[:, left], data=whole[:, left], op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=whole[:, right], src=a[rows, right])
        nisa.activation(dst=whole, op=nl.exp, data=whole)
        nisa.dma_copy(dst=out[rows, left], src=whole[:, left])
        nisa.tensor_scalar(dst=whole[:, left], data=whole[:, left], op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out[rows, right], src=whole[:, right])
    return out


@nki.jit
def filled_by_a_transfer_and_a_memset(a):
    """ScalarE has one half of tiles transferred, and computes; VectorE fills the other half."""
    rows, half = a.shape
    out = nl.ndarray((rows, 2 * half), dtype=a.dtype, buffer=nl.shared_hbm)
    zero = nl.ndarray((128, 8), dtype=a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=zero, value=0.0)
    for row in nl.affine_range(rows // 128):
        tile = nl.ndarray((128, 2 * half), dtype=a.dtype, buffer=nl.sbuf)
        part = a[nl.ds(row * 128, 128), :]
        _transferred(tile[:, nl.ds(0, half)], part)
        nisa.memset(dst=tile[:, nl.ds(half, half)], value=2.0, engine=nisa.engine.vector)
        _computed(zero)
        nisa.dma_copy(dst=out[nl.ds(row * 128, 128), :], src=tile)
    return out


@nki.jit
def taken_by_a_transfer_and_a_memset(a):
    """A tile with many accesses, of whose bytes ScalarE has one half transferred, while it
    computes; VectorE fills the other."""
    rows, half = a.shape
    out = nl.ndarray((rows, 2 * half), dtype=a.dtype, buffer=nl.shared_hbm)
    zero = nl.ndarray((rows, 8), dtype=a.dtype, buffer=nl.sbuf, address=(0, 0))
    nisa.memset(dst=zero, value=0.0)
    tile = nl.ndarray((rows, 2 * half), dtype=a.dtype, buffer=nl.sbuf, address=(0, 4096))
    for column in range(0, 2 * half, 8):
        nisa.memset(dst=tile[:, nl.ds(column, 8)], value=1.0, engine=nisa.engine.gpsimd)
    nisa.dma_copy(dst=out, src=tile)
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf, address=(0, 4096))
    right = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf, address=(0, 4096 + 4 * half))
    _transferred(left, a)
    nisa.memset(dst=right, value=2.0, engine=nisa.engine.vector)
    _computed(zero)
    nisa.dma_copy(dst=out[:, nl.ds(0, half)], src=left)
    nisa.dma_copy(dst=out[:, nl.ds(half, half)], src=right)
    return out


def _transferred(dst, src):
    nisa.dma_copy(dst=dst, src=src, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.scalar)


def _computed(data):
    """What ScalarE computes VectorE takes."""
    power, total = (nl.ndarray(data.shape, dtype=data.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.activation(dst=power, op=nl.exp, data=data)
    nisa.tensor_scalar(dst=total, data=power, op0=nl.add, operand0=1.0, engine=nisa.engine.vector)


@nki.jit
def loops(a, plan):
    """Loops, one behind the other, of operations on the tiles of a rotation."""
    out = nl.ndarray((64, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    once = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=once, src=a)
    for times, kept, body in plan:
        tiles = [once]
        for number in range(times):
            for kind, source in body:
                tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
                old = tiles[-1 - source % len(tiles)]
                if kind == 0:
                    nisa.dma_copy(dst=tile, src=a)
                elif kind == 1:
                    nisa.tensor_copy(dst=tile, src=old, engine=nisa.engine.vector)
                elif kind == 2:
                    nisa.activation(dst=tile, op=nl.exp, data=old)
                elif kind == 3:
                    nisa.tensor_tensor(
                        dst=tile, data1=old, data2=once, op=nl.add, engine=nisa.engine.gpsimd
                    )
                else:
                    nisa.dma_copy(dst=out[number % 64], src=old)
                    continue
                tiles = [*tiles, tile][-kept:]
    nisa.dma_copy(dst=out[63], src=once)
    return out


BODY = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=6)
LOOP = st.tuples(st.integers(1, 30), st.integers(1, 6), BODY.map(tuple))


TILE_SIZES = st.sampled_from([512, 1000, 4096])  # a rotation has 96, 48 or 12 tiles


@settings(max_examples=40, deadline=None)
@given(TILE_SIZES, st.lists(LOOP, min_size=1, max_size=3).map(tuple))
@example(  # the second loop waits for what the scheduler has put ahead of the first
    1000,
    (
        (1, 4, ((4, 1), (4, 3), (3, 2), (3, 2), (0, 4))),
        (90, 5, ((3, 4), (0, 1), (1, 4))),
    ),
)
@example(4096, ((90, 2, ((1, 5), (3, 5))), (90, 3, ((1, 4), (3, 5), (1, 0), (0, 0), (3, 2)))))
def test_the_periods_that_are_left_out_are_as_those_before(size, plan):
    a = nki.TensorSpec((128, size), nl.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rerolled, "REPEATING", 1 << 60)
        walked = disassemble(nki.compile(loops, a, plan, target="trn2").program)
        patch.setattr(rerolled, "REPEATING", 4)
        assert disassemble(nki.compile(loops, a, plan, target="trn2").program) == walked


LONG = {
    "hoisted": (LADDER[1], *[nki.TensorSpec((2048, n), nl.bfloat16) for n in (2048, 4096)]),
    "rotation": (loops, nki.TensorSpec((128, 4096), nl.float32), ((300, 2, ((0, 0), (2, 0))),)),
}


@pytest.mark.parametrize("name", LONG)
def test_most_of_what_repeats_is_left_out(name, monkeypatch):
    kernel, *arguments = LONG[name]
    monkeypatch.setattr(pipeline, "FEW", 1 << 60)  # samples are compiled too
    monkeypatch.setattr(rerolled, "REPEATING", 1 << 60)
    whole = disassemble(nki.compile(kernel, *arguments, target="trn2").program)
    walked = []
    to = Walk.to
    monkeypatch.setattr(rerolled, "REPEATING", 50)
    monkeypatch.setattr(
        Walk, "to", lambda self, end: walked.append((self.at, end)) or to(self, end)
    )
    assert disassemble(nki.compile(kernel, *arguments, target="trn2").program) == whole
    assert sum(end - start for start, end in walked) < 2 / 3 * walked[-1][1]


@nki.jit
def tiles_of_others_begin_in_between(a):
    """The scheduler leaves the first two lines of the loop, in which tiles repeat, for the end;
    between them begin, now and then, those of the last line, which are written before."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    whole = tile = small = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=whole, value=1.0, engine=nisa.engine.vector)
    for number in range(64):
        old, tile = tile, nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=old, engine=nisa.engine.gpsimd)
        nisa.activation(dst=_tile_like(tile[:, :8]), op=nl.exp, data=tile[:, :8])
        if number**2 % 7 < 2:
            small = _tile_like(tile[:, :8])
        nisa.memset(dst=small[:, :8], value=1.0, engine=nisa.engine.vector)
    for _ in range(20):
        nisa.activation(dst=_tile_like(whole), op=nl.exp, data=whole)
    nisa.dma_copy(dst=out, src=tile)
    nisa.dma_copy(dst=out[:, :8], src=small)
    return out


def _tile_like(data):
    return nl.ndarray(data.shape, dtype=data.dtype, buffer=nl.sbuf)


def test_tiles_that_begin_between_the_steps_of_a_repetition(monkeypatch):
    found = []
    run = lower.Synchronise.run

    def observed(self, steps):
        result = run(self, steps)
        found.extend(core.signals for core in result.cores)
        return result

    monkeypatch.setattr(pipeline, "FEW", 1 << 60)  # samples are compiled too
    monkeypatch.setattr(lower.Synchronise, "run", observed)
    a = nki.TensorSpec((128, 512), nl.float32)
    programs = []
    for least in (1 << 60, 8):
        monkeypatch.setattr(rerolled, "REPEATING", least)
        compiled = nki.compile(tiles_of_others_begin_in_between, a, target="trn2")
        programs.append(disassemble(compiled.program))
    assert [bool(each.repetitions) for each in found] == [False, True]
    assert programs[0] == programs[1]


@nki.jit
def first_tile_for_long(a):
    """Tiles are stored some iterations after they were made; the first ones store the first."""
    out = nl.ndarray((40, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    tiles = [_tile_like(a)]
    nisa.memset(dst=tiles[0], value=1.0)
    for number in range(40):
        nisa.dma_copy(dst=out[number], src=tiles[max(number - 3, 0)])
        tiles.append(_tile_like(a))
        nisa.activation(dst=tiles[-1], op=nl.exp, data=tiles[0])
    return out


@nki.jit
def loaded_before_the_loop(a):
    """Every iteration loads a tile, and VectorE reads the second tile of all: it is known to wait
    for the first one, and one transfer later is where what it knows would be if it took turns."""
    tiles = [_tile_like(a) for _ in range(34)]
    for tile in tiles[:2]:
        nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_copy(dst=_tile_like(a), src=tiles[0], engine=nisa.engine.vector)
    nisa.dma_copy(dst=tiles[2], src=a)
    nisa.memset(dst=_tile_like(a), value=1.0, engine=nisa.engine.vector)
    for tile in tiles[3:]:
        nisa.dma_copy(dst=tile, src=a)
        nisa.tensor_copy(dst=_tile_like(a), src=tiles[1], engine=nisa.engine.vector)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tiles[1])
    return out


@pytest.mark.parametrize("kernel", [first_tile_for_long, loaded_before_the_loop])
def test_steps_that_follow_the_same_one_in_several_periods(kernel, monkeypatch):
    a = nki.TensorSpec((128, 512), nl.float32)
    programs = []
    for least in (1 << 60, 4):
        monkeypatch.setattr(rerolled, "REPEATING", least)
        programs.append(disassemble(nki.compile(kernel, a, target="trn2").program))
    assert programs[0] == programs[1]


def test_a_transfer_tells_others_once_it_is_complete(monkeypatch):
    """Whoever comes after its issue takes no semaphore of its engine: that computes meanwhile."""
    monkeypatch.setattr(dependences, "_MANY", 1)
    rows = nki.symbol("rows", multiple_of=128, max=1024)
    a = np.arange(128 * 512, dtype=np.float32).reshape(128, 512)
    for kernel in (filled_by_a_transfer_and_a_memset, taken_by_a_transfer_and_a_memset):
        result = nki.simulate(kernel, mode="device")(a)  # compiling checks for races
        np.testing.assert_array_equal(result, np.append(a, np.full_like(a, 2), axis=1))
    nki.compile(filled_by_a_transfer_and_a_memset, nki.TensorSpec((rows, 64), nl.float32))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 96), st.integers(1, 32), st.integers(0, 60), st.integers(1, 16)),
        min_size=1,
        max_size=12,
    )
)
def test_bytes_are_taken_from_whatever_had_them_last(places):
    boxes, last = [], {}
    expected = set()
    for number, (partition, rows, low, words) in enumerate(places):
        boxes.append((0, partition, partition + rows, 4 * low, 4 * (low + words)))
        for byte in product(range(partition, partition + rows), range(4 * low, 4 * (low + words))):
            if byte in last:
                expected.add((number, last[byte]))
            last[byte] = number
    columns = np.array(boxes, np.int64)
    one, other = last_holders(columns)
    assert set(zip(one.tolist(), other.tolist())) == expected
    one, other = _one_by_one(columns)  # which may name one whose bytes have all been taken since
    assert expected <= set(zip(one.tolist(), other.tolist()))
