"""Searches in partitions, and their means and variances, against loops over NumPy values."""

import numpy as np
import pytest
from operation_checks import (
    BF16,
    EPS,
    F32,
    I32,
    P,
    as_f32,
    assert_close,
    assert_same,
    covers,
    integers,
    load,
    normal,
    run,
    sbuf,
    store,
)

import nki
import nki.isa as nisa
import nki.language as nl


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


@nki.jit
def largest(a):
    result = sbuf((a.shape[0], 8), a.dtype)
    nisa.max8(dst=result, src=load(a))
    return store(result)


@covers("max8")
@pytest.mark.parametrize("dtype", [F32, BF16, I32])
@pytest.mark.parametrize("shape", [(P, 8), (P, 40), (32, 5, 9)])
def test_the_eight_largest(shape, dtype):
    a = normal(80, shape, dtype) if dtype != I32 else integers(80, shape, -9, 9)
    expected = np.sort(as_f32(a).reshape(shape[0], -1), axis=1)[:, ::-1][:, :8]
    assert_same(run("max8", largest, a), expected.astype(dtype))


def test_the_eight_largest_wherever_they_are():
    """NaN come first, zeros before negative zeros and these before numbers next to them."""
    line = np.repeat(np.float32([np.nan, 0.0, -0.0, -1e-40, -1.0]), (2, 2, 3, 2, 9))
    a = np.random.default_rng(82).permuted(np.tile(line, (P, 1)), axis=1)
    assert_same(nki.simulate(largest)(a), np.tile(line[:8], (P, 1)))


@pytest.mark.parametrize("shape, text", [((4, 7), "7 elements"), ((2, 3, 4, 2), "4 dimensions")])
def test_max8_refuses(shape, text):
    with pytest.raises(nki.NeuronError, match=text):
        nki.simulate(largest)(normal(81, shape))


ABSENT = -1


def successive(data, values, order):
    """Positions of 8 values in one row; equal values take occurrences in turn, in this order."""
    taken, found = set(), [ABSENT] * 8
    for slot in order:
        free = [i for i in range(len(data)) if data[i] == values[slot] and i not in taken]
        if free:
            found[slot] = free[0]
            taken.add(free[0])
    return found


def values_in(data, seed):
    """Values that are there once, several times and not at all, with repetitions."""
    rng = np.random.default_rng(seed)
    values = np.stack([rng.choice(row, 8) for row in data])
    values[:, 5] = 77
    values[::2, 6] = values[::2, 0]
    return values


@covers("nc_find_index8")
@pytest.mark.parametrize("dtype", [F32, BF16, I32])
@pytest.mark.parametrize("index", ["uint16", "uint32"])
def test_where_eight_values_are(index, dtype):
    @nki.jit
    def kernel(a, values):
        result = sbuf((a.shape[0], 8), index)
        nisa.nc_find_index8(dst=result, data=load(a), vals=load(values))
        return store(result)

    a = integers(82, (P, 3, 11), -6, 6).astype(dtype)
    flat = a.reshape(P, -1)
    values = values_in(flat, 83)
    expected = [successive(row, of, range(8)) for row, of in zip(flat, values)]
    assert_same(run("nc_find_index8", kernel, a, values), np.array(expected).astype(index))


@covers("nc_match_replace8")
@pytest.mark.parametrize("dtype", [F32, BF16, I32])
def test_eight_values_are_replaced(dtype):
    @nki.jit
    def kernel(a, values):
        tile, result = load(a), sbuf((a.shape[0], 8), nl.uint32)
        nisa.nc_match_replace8(dst=tile, data=tile, vals=load(values), imm=-100.0, dst_idx=result)
        return store(tile), store(result)

    a = integers(84, (P, 3, 11), -6, 6).astype(dtype)
    flat = a.reshape(P, -1).copy()
    values = values_in(flat, 85)
    positions = np.array([successive(r, of, range(7, -1, -1)) for r, of in zip(flat, values)])
    for row, at in zip(flat, positions):
        row[at[at != ABSENT]] = -100
    tile, result = run("nc_match_replace8", kernel, a, values)
    assert_same(tile, flat.reshape(a.shape))
    assert_same(result, positions.astype(np.uint32))


def test_equal_values_as_documented():
    """The example of the nc_match_replace8 page, and its opposite in nc_find_index8."""

    @nki.jit
    def kernel(a, values):
        tile, replaced, found = load(a), sbuf((1, 8), nl.uint32), sbuf((1, 8), nl.uint32)
        nisa.nc_find_index8(dst=found, data=tile, vals=load(values))
        nisa.nc_match_replace8(tile, tile, load(values), imm=0.0, dst_idx=replaced)
        return store(replaced), store(found)

    a = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    replaced, found = nki.simulate(kernel)(a, np.array([[3] + [8] * 7], np.float32))
    assert replaced.tolist() == [[2, 10, 9, 8, 7, 6, 5, 4]]
    assert found.tolist() == [[2, 4, 5, 6, 7, 8, 9, 10]]


@covers("bn_stats")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("shape", [(P, 512), (P, 7, 5), (P, 1)])
def test_statistics_of_even_and_odd_elements(shape, dtype):
    @nki.jit
    def kernel(a):
        result = sbuf((P, 6), nl.float32)
        nisa.bn_stats(dst=result, data=load(a))
        return store(result)

    a = normal(86, shape, dtype)
    x = a.astype(np.float64).reshape(P, -1)
    actual = run("bn_stats", kernel, a)
    for first, columns in ((0, x[:, 0::2]), (1, x[:, 1::2])):
        count, mean, spread = actual[:, 3 * first : 3 * first + 3].T
        assert (count == columns.shape[1]).all()
        if columns.shape[1]:
            assert_close(mean, columns.mean(axis=1), 4, np.abs(columns).mean(axis=1))
            assert_close(
                spread, columns.var(axis=1) * columns.shape[1], 64, (columns**2).sum(axis=1)
            )
        else:
            assert (mean == 0).all() and (spread == 0).all()


@covers("bn_aggr")
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_mean_and_variance_of_several_tiles(dtype):
    @nki.jit
    def kernel(a):
        tile, stats, result = load(a), sbuf((P, 3, 6), nl.float32), sbuf((P, 2), a.dtype)
        for part, (start, size) in enumerate(((0, 512), (512, 300), (812, 1))):
            nisa.bn_stats(dst=stats[:, part, :], data=tile[:, nl.ds(start, size)])
        nisa.bn_aggr(dst=result, data=stats)
        return store(result)

    a = (normal(87, (P, 813)) * 3 + 1).astype(dtype)
    x = a.astype(np.float64)
    expected = np.stack([x.mean(axis=1), x.var(axis=1)], axis=1)
    assert_close(
        run("bn_aggr", kernel, a), expected, 1 if dtype == BF16 else 64, np.full((P, 2), 16.0)
    )
    assert EPS[F32] * 64 * 16 < 2e-4


def test_statistics_need_few_elements_and_triples():
    @nki.jit
    def kernel(a, aggregate):
        result = sbuf((4, 2 if aggregate else 6), nl.float32)
        (nisa.bn_aggr if aggregate else nisa.bn_stats)(dst=result, data=load(a))
        return store(result)

    with pytest.raises(nki.NeuronError, match="the limit is 512"):
        nki.simulate(kernel)(normal(88, (4, 513)), False)
    with pytest.raises(nki.NeuronError, match="multiple of 3"):
        nki.simulate(kernel)(normal(89, (4, 8)), True)


def test_what_depends_on_elements_that_were_not_written():
    """Elements before the first of them do not; positions do, wherever they are."""

    @nki.jit
    def kernel(a, positions):
        tile, replaced = sbuf(a.shape, a.dtype), sbuf(a.shape, a.dtype)
        found = sbuf((4, 8), nl.uint32)
        nisa.dma_copy(dst=tile[:, 0:9], src=a[:, 0:9])
        nisa.nc_match_replace8(replaced, tile, load(a)[:, 0:8], imm=0.0, dst_idx=found)
        return store(found if positions else replaced[:, 0:9])

    a = normal(90, (4, 12))
    assert (nki.simulate(kernel)(a, False) == [0] * 8 + [a[0, 8]])[0].all()
    with pytest.raises(nki.NeuronError, match="uninitialised-output"):
        nki.simulate(kernel)(a, True)
