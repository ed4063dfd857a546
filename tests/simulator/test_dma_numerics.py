"""Sums that the DMA engines form, against NumPy."""

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
    normal,
    run,
    sbuf,
    store,
)

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.timing import simulate

MODES = ("device", "reference", "eager")


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def summed(arrays, dtype):
    """In fp32, in order."""
    total = arrays[0].astype(np.float32)
    for array in arrays[1:]:
        total = total + array.astype(np.float32)
    return np.rint(total).astype(dtype) if dtype == I32 else total.astype(dtype)


@covers("dma_compute")
@pytest.mark.parametrize("source, target", [(F32, F32), (BF16, BF16), (BF16, F32), (F32, I32)])
@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_sums_in_fp32(count, source, target):
    """From HBM and SBUF alternately, into SBUF; `scales` as a tuple of ones."""

    @nki.jit
    def kernel(a):
        tiles = [load(a[i]) if i % 2 else a[i] for i in range(count)]
        result = sbuf((40, 12), target)
        nisa.dma_compute(result, tiles, nl.add, scales=(1.0,) * count)
        return store(result)

    a = (normal(201, (count, 40, 12)) * 100).astype(source)
    assert_same(run("dma_compute", kernel, a), summed(list(a), target))


@covers("dma_compute")
def test_sums_between_strided_views_of_hbm():
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((2, 3, 20), dtype=nl.bfloat16, buffer=nl.shared_hbm)
        for i in range(2):
            nisa.dma_compute(
                dst=out[i],
                srcs=(a[:, i, :], b[i], out[1 - i]) if i else (a[:, 0], b[0]),
                reduce_op=nl.add,
            )
        return out

    a, b = normal(202, (3, 2, 20)), normal(203, (2, 3, 20), BF16)
    first = summed([a[:, 0], b[0]], BF16)
    assert_same(
        run("dma_compute", kernel, a, b), np.stack([first, summed([a[:, 1], b[1], first], BF16)])
    )


def scattered(table, rows, indices):
    expected = table.copy()
    inside = (indices >= 0) & (indices < len(table))
    for row, index in zip(rows[inside[:, 0]], indices[inside]):
        expected[index] = (table[index].astype(np.float32) + row.astype(np.float32)).astype(
            table.dtype
        )
    return expected


@covers("dma_compute")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("skip", [False, True])
def test_scatter_adds_to_the_rows_that_indices_select(skip, dtype, mode):
    oob = nisa.oob_mode.skip if skip else nisa.oob_mode.error

    def kernel(table, rows, indices):
        there = table.ap(pattern=[[12, 20], [1, 12]], vector_offset=load(indices), indirect_dim=0)
        tile = load(rows)
        nisa.dma_compute(dst=there, srcs=[tile, there], reduce_op=nl.add, oob_mode=oob)

    table, rows = normal(204, (50, 12), dtype), normal(205, (20, 12), dtype)
    indices = np.random.default_rng(206).permutation(50)[:20].astype(np.int32)[:, None]
    if skip:
        indices[[2, 7, 8], 0] = 50, 50, -1
    expected = scattered(table, rows, indices)
    nki.simulate(kernel, mode=mode)(table, rows, indices)
    assert_same(table, expected)


@covers("dma_compute")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("skip", [False, True])
def test_gather_adds_rows_in_place(skip, mode):
    """As nki-library's top-k reduction does; rows may be taken twice."""
    oob = nisa.oob_mode.skip if skip else nisa.oob_mode.error

    def kernel(table, indices):
        index, result = load(indices), sbuf((20, 12), table.dtype)
        for k in range(3):
            rows = table.ap(
                pattern=[[12, 20], [1, 12]], vector_offset=index[:, k : k + 1], indirect_dim=0
            )
            if k == 0:
                nisa.dma_copy(dst=result, src=rows)
            else:
                nisa.dma_compute(
                    dst=result[:, :], srcs=[rows, result[:, :]], reduce_op=nl.add, oob_mode=oob
                )
        return store(result)

    table = normal(207, (50, 12))
    indices = integers(208, (20, 3), 0, 50)
    if skip:
        indices[4, 1:] = 60
    expected = table[indices[:, 0]]
    for k in (1, 2):
        inside = indices[:, k] < 50
        expected[inside] = table[indices[inside, k]] + expected[inside]
    assert_same(nki.simulate(kernel, mode=mode)(table, indices), expected)


@pytest.mark.parametrize("mode", MODES)
def test_a_scatter_refuses_an_index_that_comes_twice(mode):
    def kernel(table, rows, indices):
        there = table.vector_select(0, load(indices))
        nisa.dma_compute(dst=there, srcs=[there, load(rows)], reduce_op=nl.add)

    indices = np.array([[1], [3], [1]], np.int32)
    with pytest.raises(nki.NeuronError, match="Row 1 is selected 2 times") as error:
        nki.simulate(kernel, mode=mode)(normal(209, (5, 4)), normal(210, (3, 4)), indices)
    assert error.value.code == "indices-not-unique"
    assert "dma_compute" in error.value.location.text


def refuse(case, a, indices):
    tile, there = load(a), a.vector_select(0, load(indices))
    row = nisa.register_alloc(1)
    match case:
        case "empty":
            nisa.dma_compute(tile, [], nl.add)
        case "many":
            nisa.dma_compute(tile, [tile] * 17, nl.add)
        case "no list":
            nisa.dma_compute(tile, tile, nl.add)
        case "size":
            nisa.dma_compute(tile, [a, tile[:, 0:2]], nl.add)
        case "operator":
            nisa.dma_compute(tile, [a, tile], nl.multiply)
        case "scales":
            nisa.dma_compute(tile, [a, tile], nl.add, scales=[1.0, 0.5])
        case "dynamic":
            nisa.dma_compute(tile[0:1], [a[nl.ds(row, 1), :]], nl.add)
        case "unique":
            nisa.dma_compute(there, [there, tile], nl.add, unique_indices=False)
        case "other rows":
            nisa.dma_compute(there, [a, tile], nl.add)
        case "three":
            nisa.dma_compute(there, [there, tile, tile], nl.add)
        case "other tile":
            nisa.dma_compute(sbuf(tile.shape, tile.dtype), [there, tile], nl.add)


@pytest.mark.parametrize(
    "case, text",
    [
        ("empty", "srcs is 0 tensors"),
        ("many", "srcs is 17 tensors"),
        ("no list", "expected a list of 1 to 16"),
        ("size", "src1 .* has 8"),
        ("operator", "reduce_op is multiply"),
        ("scales", r"scales is \[1.0, 0.5\] for 2"),
        ("dynamic", "starts where a register says"),
        ("unique", "unique_indices is False"),
        ("other rows", "do not form a scatter or gather"),
        ("three", "do not form a scatter or gather"),
        ("other tile", "do not form a scatter or gather"),
    ],
)
def test_refusals(case, text):
    def kernel(a, indices):
        refuse(case, a, indices)

    with pytest.raises(nki.NeuronError, match=text) as error:
        nki.simulate(kernel)(normal(211, (4, 4)), np.arange(4, dtype=np.int32)[:, None])
    assert "nisa.dma_compute" in error.value.location.text


def test_what_a_sum_reads_must_be_there():
    @nki.jit
    def kernel(a, columns):
        tile, result = sbuf((8, 6), a.dtype), sbuf((8, 6), a.dtype)
        nisa.dma_copy(dst=tile[:, 0:4], src=a[:, 0:4])
        nisa.dma_compute(result, [a, tile], nl.add)
        out = nl.ndarray((8, columns), dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=result[:, 0:columns])
        return out

    a = normal(212, (8, 6))
    assert_same(nki.simulate(kernel)(a, 4), a[:, :4] + a[:, :4])
    with pytest.raises(nki.NeuronError, match="8 of its 40 elements"):
        nki.simulate(kernel)(a, 5)


def test_a_sum_takes_the_dma_engines_longer_than_copies():
    """Each source is read, at half the rate (SDK trainium3_arch.rst, "SBUF Read-Add-Write")."""

    def time(count):
        def kernel(a):
            tile = sbuf((P, 2048), F32)
            nisa.dma_compute(tile, [a[i] for i in range(count)], nl.add)
            return store(tile)

        spec = nki.TensorSpec((4, P, 2048), nl.float32)
        program = nki.compile(kernel, spec, target="trn2").program
        return simulate(program).cores[0].dma_work

    assert time(3) - time(2) == pytest.approx(time(4) - time(3))
    assert time(2) > 3 * (time(1) / 2)
