"""Operations of the GpSimd engine on sequences and over partitions, against loops, on trn2."""

import numpy as np
import pytest
from operation_checks import (
    BF16,
    F32,
    I32,
    P,
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
def over_partitions(a, op, dtype):
    result = sbuf((1, *a.shape[1:]), dtype)
    nisa.tensor_partition_reduce(dst=result, op=op, data=load(a))
    return store(result)


@covers("tensor_partition_reduce")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("partitions", [1, 40, P])
def test_reductions_over_partitions(partitions, dtype):
    a = normal(110, (partitions, 3, 7), dtype)
    x = a.astype(np.float64)
    scale = np.abs(x).sum(axis=0, keepdims=True)
    for op, expected, size in (
        (nl.add, x.sum(axis=0, keepdims=True), scale),
        (nl.average, x.mean(axis=0, keepdims=True), scale / partitions),
    ):
        actual = run("tensor_partition_reduce", over_partitions, a, op, "float32")
        assert_close(actual, expected, partitions, size)
    largest = run("tensor_partition_reduce", over_partitions, a, nl.maximum, a.dtype.name)
    assert_same(largest, a.max(axis=0, keepdims=True))


def test_bits_over_partitions():
    a = integers(111, (P, 9), -(2**31), 2**31 - 1)
    for op, function in ((nl.bitwise_or, np.bitwise_or), (nl.bitwise_and, np.bitwise_and)):
        few = a[:3] if op is nl.bitwise_and else a
        actual = nki.simulate(over_partitions)(few, op, "int32")
        assert_same(actual, function.reduce(few, axis=0, keepdims=True))
    with pytest.raises(nki.NeuronError, match="op is minimum"):
        nki.simulate(over_partitions)(a, nl.minimum, "int32")


def bounds_of(ids):
    """Begin and end of the run of equal ids around each element, by looking left and right."""
    n, result = len(ids), []
    for i, own in enumerate(ids):
        first, last = i, i
        while first > 0 and ids[first - 1] == own:
            first -= 1
        while last < n - 1 and ids[last + 1] == own:
            last += 1
        result.append((n, -1) if own == 0 else (first, last + 1))
    return np.array(result).T


@covers("sequence_bounds")
@pytest.mark.parametrize("dtype", [F32, I32])
@pytest.mark.parametrize("seed", range(5))
def test_bounds_of_segments(seed, dtype):
    @nki.jit
    def kernel(ids):
        result = sbuf((1, 2, ids.shape[1]), dtype.name)
        nisa.sequence_bounds(dst=result, segment_ids=load(ids))
        return store(result)

    rng = np.random.default_rng(seed)
    ids = np.repeat(rng.integers(0, 4, 30), rng.integers(1, 6, 30)).astype(dtype)[None]
    assert_same(run("sequence_bounds", kernel, ids), bounds_of(ids[0])[None].astype(dtype))


@covers("nonzero_with_count")
@pytest.mark.parametrize("dtype", [F32, I32])
@pytest.mark.parametrize("offset, padding", [(0, -1), (1000, 7)])
def test_positions_of_nonzero_elements(offset, padding, dtype):
    """Partitions between the multiples of 16 keep what they hold."""

    @nki.jit
    def kernel(a):
        result = sbuf((P, a.shape[1] + 1), nl.int32)
        nisa.memset(result, 42)
        nisa.nonzero_with_count(result, load(a), index_offset=offset, padding_val=padding)
        return store(result)

    a = integers(112, (P, 25), 0, 3).astype(dtype)
    a[16], a[32] = 0, 1
    expected = np.full((P, 26), 42, np.int32)
    for row in range(0, P, 16):
        found = [i + offset for i in range(25) if a[row, i] != 0]
        expected[row] = found + [padding] * (25 - len(found)) + [len(found)]
    assert_same(run("nonzero_with_count", kernel, a), expected)


@nki.jit
def top(a, k, n):
    values, indices = sbuf((a.shape[0], k), nl.bfloat16), sbuf((a.shape[0], k), nl.uint32)
    nisa.topk(val_dst=values, idx_dst=indices, src=load(a), n=n)
    return store(values), store(indices)


@covers("topk")
@pytest.mark.parametrize("k, n", [(8, 42), (1, 8), (48, 48), (17, 48)])
def test_the_largest_of_a_sequence_over_sixteen_partitions(k, n):
    a = normal(113, (32, 3), BF16)
    a[4, 1] = a[9, 0]  # equal values
    values, indices = run("topk", top, a, k, n)
    for first in (0, 16):
        elements = [float(a[first + i % 16, i // 16]) for i in range(n)]
        order = sorted(range(n), key=lambda i: (elements[i], -i))[n - k :]
        for row in range(first, first + 16):
            assert indices[row].tolist() == order
            assert values[row].astype(float).tolist() == [elements[i] for i in order]


@pytest.mark.parametrize(
    "k, n, text",
    [(8, 7, "n is 7, expected 8 to 48"), (4, 49, "n is 49"), (30, 20, "30 largest of 20")],
)
def test_topk_refusals(k, n, text):
    with pytest.raises(nki.NeuronError, match=text):
        nki.simulate(top)(normal(114, (16, 3), BF16), k, n)


def test_what_sequences_read():
    """Elements behind the n-th and other partitions are not read."""

    @nki.jit
    def kernel(a, rows, n):
        tile, half = sbuf((32, 3), a.dtype), sbuf((32, 4), nl.int32)
        nisa.dma_copy(dst=tile[:, 0:2], src=a[:, 0:2])
        values, indices = sbuf((32, 4), nl.bfloat16), sbuf((32, 4), nl.uint32)
        nisa.topk(values, indices, tile, n)
        counts = sbuf((32, 3), nl.int32)
        nisa.memset(half, 0)
        nisa.tensor_copy(counts[0:rows], load(a)[0:rows])
        nisa.nonzero_with_count(half, counts)
        return store(indices), store(half)

    a = normal(115, (32, 3), BF16)
    nki.simulate(kernel)(a, 32, 32)
    for rows, n in ((32, 33), (16, 32)):
        with pytest.raises(nki.NeuronError, match="uninitialised-output"):
            nki.simulate(kernel)(a, rows, n)
