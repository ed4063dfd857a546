"""Random numbers against the published generators, written out here in Python's integers."""

import itertools

import numpy as np
import pytest
from operation_checks import (
    BF16,
    F32,
    I32,
    P,
    assert_same,
    covers,
    integers,
    load,
    run,
    sbuf,
    store,
)

import nki
import nki.isa as nisa
import nki.language as nl

WORD = (1 << 32) - 1
MARSAGLIA = (123456789, 362436069, 521288629, 88675123, 5783321, 6615241)
"""The state of the example in "Xorshift RNGs" (2003), section 3.1."""


@pytest.fixture(autouse=True)
def trn3(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


def xorwow(state, count):
    """`count` numbers, and the state after them."""
    x, y, z, w, v, d = map(int, state)
    numbers = []
    for _ in range(count):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4) ^ t ^ (t << 1)) & WORD
        d = (d + 362437) & WORD
        numbers.append((d + v) & WORD)
    return numbers, [x, y, z, w, v, d]


def test_the_reference_gives_the_numbers_of_other_implementations():
    assert xorwow(MARSAGLIA, 3)[0] == [246875399, 3690007200, 1264581005]


def states(seed, lanes, words):
    return np.random.default_rng(seed).integers(0, 1 << 32, (lanes, words), dtype=np.uint32)


@covers("rand_set_state", "rand_get_state", "rng")
@pytest.mark.parametrize("first", [0, 32])
def test_gpsimd_draws_xorwow_lane_by_lane(first):
    """Lanes are those of the partitions: a tile from partition 32 draws from lanes 32 and on."""
    lanes, count = 20, 11

    @nki.jit
    def kernel(words, others):
        whole, after = sbuf((64, count), nl.uint32), sbuf((64, 6), nl.uint32)
        given = sbuf((64, 6), nl.uint32)
        nisa.dma_copy(dst=given[first : first + lanes], src=words)
        nisa.rand_set_state(given[first : first + lanes])
        tile = whole[first : first + lanes]
        nisa.rng(dst=tile[:, 0:4], engine=nisa.engine.gpsimd)
        nisa.rng(dst=tile[:, 4:], engine=nisa.engine.gpsimd)
        nisa.rand_get_state(after[first : first + lanes])
        return store(tile), store(after[first : first + lanes])

    words = states(1, lanes, 6)
    numbers, after = run("rng", kernel, words, words)
    expected = [xorwow(row, count) for row in words]
    assert_same(numbers, np.array([n for n, _ in expected], np.uint32))
    assert_same(after, np.array([s for _, s in expected], np.uint32))


@covers("rng", "rand_set_state", "rand_get_state")
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32])
def test_the_vector_engine_takes_turns_on_four_states(dtype):
    count = 10

    @nki.jit
    def kernel(words):
        nisa.rand_set_state(load(words), engine=nisa.engine.vector)
        tile = nl.ndarray((P, 2, count // 2), dtype=np.dtype(dtype).name, buffer=nl.psum)
        nisa.rng(dst=tile)
        result, after = sbuf(tile.shape, tile.dtype), sbuf((P, 24), nl.uint32)
        nisa.tensor_copy(dst=result, src=tile)
        nisa.rand_get_state(after, engine=nisa.engine.vector)
        return store(result), store(after)

    words = states(2, P, 24)
    numbers, after = run("rng", kernel, words)
    expected = np.empty((P, count), np.uint32)
    final = np.empty((P, 24), np.uint32)
    for lane in range(P):
        for s in range(4):
            part = slice(6 * s, 6 * s + 6)
            drawn, final[lane, part] = xorwow(words[lane, part], len(range(s, count, 4)))
            expected[lane, s::4] = drawn
    low = expected.astype(f"u{np.dtype(dtype).itemsize}").view(dtype)
    assert_same(numbers, low.reshape(P, 2, count // 2))
    assert_same(after, final)


@covers("rand2")
@pytest.mark.parametrize("dtype", [F32, BF16, I32])
def test_uniform_numbers_between_limits(dtype):
    """Numbers or columns; what is drawn is the upper 24 bits, scaled in fp32."""

    @nki.jit
    def kernel(words, low, high):
        nisa.rand_set_state(load(words), engine=nisa.engine.vector)
        tile, other = sbuf((P, 4), dtype), sbuf((P, 4), dtype)
        nisa.rand2(dst=tile, min=load(low), max=load(high))
        nisa.rand2(dst=other, min=-8.0, max=8.0)
        return store(tile), store(other)

    words = states(3, P, 24)
    low = np.linspace(-50, 0, P, dtype=np.float32)[:, None]
    high = np.linspace(1, 90, P, dtype=np.float32)[:, None]
    drawn = [[xorwow(row[6 * s : 6 * s + 6], 2)[0] for s in range(4)] for row in words]
    unit = (np.array(drawn) >> 8).astype(np.float32) / np.float32(1 << 24)
    expected = [low + unit[:, :, 0] * (high - low), np.float32(-8) + unit[:, :, 1] * np.float32(16)]
    for actual, exact in zip(run("rand2", kernel, words, low, high), expected):
        assert_same(actual, (np.rint(exact) if dtype is I32 else exact).astype(dtype))


@covers("dropout")
@pytest.mark.parametrize("dtype", [F32, BF16, I32])
def test_dropout_keeps_or_zeroes_by_the_numbers_of_the_engine(dtype):
    @nki.jit
    def kernel(words, a, rates):
        source, column = load(a), load(rates)
        tile, other, none, all_ = (sbuf(a.shape, a.dtype) for _ in range(4))
        nisa.rand_set_state(load(words), engine=nisa.engine.vector)
        nisa.dropout(dst=tile, data=source, prob=0.25)
        nisa.dropout(dst=other, data=source, prob=column)
        nisa.dropout(dst=none, data=source, prob=0.0)
        nisa.dropout(dst=all_, data=source, prob=1.0)
        return store(tile), store(other), store(none), store(all_)

    words, a = states(4, P, 24), integers(5, (P, 8), 1, 90).astype(dtype)
    rates = np.linspace(0, 1, P, dtype=np.float32)[:, None]
    drawn = [[xorwow(row[6 * s : 6 * s + 6], 4)[0] for s in range(4)] for row in words]
    unit = (np.array(drawn) >> 8) / 2.0**24
    first, second = (unit[:, :, i : i + 2].transpose(0, 2, 1).reshape(P, 8) for i in (0, 2))
    tile, other, none, all_ = run("dropout", kernel, words, a, rates)
    zero = a.dtype.type(0)
    assert_same(tile, np.where(first < 0.25, zero, a))
    assert_same(other, np.where(second < rates, zero, a))
    assert_same(none, a)
    assert_same(all_, np.zeros_like(a))


def register_steps(register, steps):
    """The Galois register of x^32 + x^22 + x^2 + x + 1, bit by bit."""
    for _ in range(steps):
        register = (register >> 1) ^ (0x80200003 if register & 1 else 0)
    return register


def test_the_register_has_the_longest_period():
    """2^32 - 1 steps are the identity, and no proper divisor of them is (on a basis)."""

    def matrix(bits):  # columns of the map that bits' repeated squaring gives
        return [register_steps(1 << i, 1) for i in range(32)] if bits is None else bits

    def product(left, right):
        def apply(value):
            result = 0
            for i in range(32):
                if value >> i & 1:
                    result ^= left[i]
            return result

        return [apply(column) for column in right]

    def power(exponent):
        result, square = [1 << i for i in range(32)], matrix(None)
        while exponent:
            if exponent & 1:
                result = product(result, square)
            square = product(square, square)
            exponent >>= 1
        return result

    identity = [1 << i for i in range(32)]
    assert power(WORD) == identity
    assert all(power(WORD // prime) != identity for prime in (3, 5, 17, 257, 65537))


@covers("set_rng_seed", "rng")
def test_the_vector_engine_before_gen4_draws_from_a_shift_register(monkeypatch):
    """Each word is the register 32 steps on; lanes differ; seeds repeat."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")

    @nki.jit
    def kernel(seeds):
        tiles = []
        for i in range(3):
            nisa.set_rng_seed(load(seeds[nl.ds(i, 1), :]))
            tile = sbuf((P, 5), nl.uint32)
            nisa.rng(dst=tile)
            tiles.append(store(tile))
        return tuple(tiles)

    first, other, again = run("set_rng_seed", kernel, np.array([[7], [8], [7]], np.int32))
    assert_same(first, again)
    assert len(np.unique(np.concatenate([first, other]))) == 2 * P * 5
    for row in (first[0], first[77], other[127]):
        for earlier, later in itertools.pairwise(row):
            assert register_steps(int(earlier), 32) == later


def test_all_modes_draw_the_same_numbers():
    """Two engines with a state each; a loop; what the seed leaves out starts from the lane."""

    def kernel(seed):
        out = nl.ndarray((4, P, 6), dtype=nl.uint32, buffer=nl.shared_hbm)
        for i in nl.affine_range(4):
            tile = sbuf((P, 6), nl.uint32)
            nisa.rng(dst=tile[:, 0:3])
            nisa.rng(dst=tile[:, 3:6], engine=nisa.engine.gpsimd)
            nisa.dma_copy(dst=out[i], src=tile)
            if i == 1:
                nisa.set_rng_seed(load(seed))
        return out

    seed = np.array([[3]], np.int32)
    modes = ("device", "reference", "eager")
    results = [nki.simulate(kernel, mode=mode)(seed) for mode in modes]
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])
    assert len(np.unique(results[0])) > 0.999 * results[0].size


@pytest.mark.parametrize(
    "target, operation, text",
    [
        ("trn1", lambda t: nisa.rng(t, engine=nisa.engine.gpsimd), "random numbers on the gpsimd"),
        ("trn2", lambda t: nisa.rand_get_state(t, nisa.engine.vector), "state words on the vector"),
        ("trn2", lambda t: nisa.rand2(t, 0.0, 1.0), "rand2 exists on gen4"),
        ("trn3", lambda t: nisa.rand2(t, 2.0, 1.0), "min is 2.0, max is 1.0"),
        ("trn3", lambda t: nisa.rand_set_state(t), r"shape \[128, 24\], expected \[lanes, 6\]"),
        ("trn3", lambda t: nisa.dropout(t, t, 1.5), "prob is 1.5"),
        ("trn3", lambda t: nisa.set_rng_seed(t), "one element"),
    ],
)
def test_refusals(monkeypatch, target, operation, text):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)

    @nki.jit
    def kernel(a):
        tile = load(a)
        operation(tile)
        return store(tile)

    with pytest.raises(nki.NeuronError, match=text):
        nki.simulate(kernel)(states(6, P, 24))


def test_a_lane_seeded_with_nothing_draws_nothing():
    @nki.jit
    def kernel(words, rows):
        given, tile = sbuf((32, 6), nl.uint32), sbuf((32, 4), nl.uint32)
        nisa.dma_copy(dst=given[0:20], src=words)
        nisa.rand_set_state(given)
        nisa.rng(dst=tile, engine=nisa.engine.gpsimd)
        out = nl.ndarray((rows, 4), dtype=nl.uint32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile[0:rows])
        return out

    nki.simulate(kernel)(states(7, 20, 6), 20)
    with pytest.raises(nki.NeuronError, match="4 of its 84 elements"):
        nki.simulate(kernel)(states(7, 20, 6), 21)
