"""Columns picked by indices on chip (gen4), against NumPy indexing."""

import numpy as np
import pytest
from operation_checks import BF16, F32, I32, P, assert_same, load, normal, sbuf, store

import nki
import nki.isa as nisa
import nki.language as nl

MODES = ("device", "reference", "eager")


@pytest.fixture(autouse=True)
def trn3(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


def snake(index, count, group=16):
    """For every partition: element i is its group's index[i % group, i // group]."""
    rows = [
        [index[p - p % group + i % group, i // group] for i in range(count)]
        for p in range(len(index))
    ]
    return np.array(rows)


def indices(seed, partitions, columns, bound, dtype=I32, distinct=0):
    random = np.random.default_rng(seed)
    if not distinct:
        return random.integers(0, bound, (partitions, columns)).astype(dtype)
    groups = [random.permutation(bound)[: 16 * columns] for _ in range(partitions // 16)]
    return np.concatenate([g.reshape(columns, 16).T for g in groups]).astype(dtype)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [F32, BF16, np.dtype(np.uint8)])
@pytest.mark.parametrize("engine", [nisa.engine.vector, nisa.engine.scalar])
def test_copies_gather_columns(engine, dtype, mode):
    def kernel(a, index):
        tile = sbuf((P, 37), a.dtype)
        source = load(a).reshape((P, 60)).indirect(load(index), 37)
        nisa.tensor_copy(dst=tile, src=source, engine=engine)
        return store(tile)

    a = (normal(401, (P, 5, 12)) * 50 + 100).astype(dtype)
    index = indices(402, P, 3, 60)
    expected = np.take_along_axis(a.reshape(P, 60), snake(index, 37), axis=1)
    assert_same(nki.simulate(kernel, mode=mode)(a, index), expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.uint16, np.int16, np.uint32])
def test_results_are_scattered_and_sources_gathered(dtype, mode):
    """Both at once, from a slice; what no index names keeps its value."""

    def kernel(a, b, there, here):
        result, addend = sbuf((32, 50), a.dtype), load(b)
        nisa.memset(result, -1.0)
        target = result[:, 2:].indirect(load(there), 32)
        source = load(a)[:, 10:40].indirect(load(here), num_elem=32)
        nisa.tensor_tensor(dst=target, data1=source, data2=addend, op=nl.subtract)
        return store(result)

    a, b = normal(403, (32, 40)), normal(404, (32, 32))
    there, here = indices(405, 16, 2, 48, dtype, True), indices(406, 32, 2, 30, dtype)
    there = np.concatenate([there, there[::-1]])
    expected = np.full((32, 50), -1, np.float32)
    rows = np.arange(32)[:, None]
    values = a[:, 10:][rows, snake(here, 32)] - b
    expected[rows, 2 + snake(there, 32)] = values
    assert_same(nki.simulate(kernel, mode=mode)(a, b, there, here), expected)


@pytest.mark.parametrize("mode", MODES)
def test_every_operation_that_takes_indices(mode):
    """Each against the same operation on gathered columns."""

    def kernel(a, index, gathered, mask):
        picked, plain = load(a).indirect(load(index), 16), load(gathered)
        results = []
        for source in (picked, plain):
            tile, total = sbuf((32, 16), nl.float32), sbuf((32, 1), nl.float32)
            nisa.tensor_scalar(tile, source, nl.multiply, 3.0, op1=nl.add, operand1=1.0)
            results.append(store(tile))
            nisa.tensor_reduce(total, nl.add, source, axis=1)
            results.append(store(total))
            nisa.tensor_scalar_cumulative(tile, source, nl.add, nl.add, 0.5)
            results.append(store(tile))
            nisa.activation(tile, nl.exp, source, bias=None, scale=0.5)
            results.append(store(tile))
            nisa.activation_reduce(tile, nl.square, source, nl.add, total)
            results += [store(tile), store(total)]
            nisa.activate2(tile, nl.tanh, source, 2.0, 0.5, nl.multiply, nl.add)
            results.append(store(tile))
            nisa.exponential(
                tile, source, reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_res=total
            )
            results += [store(tile), store(total)]
            nisa.tensor_scalar_reduce(tile, source, nl.add, 2.0, reduce_op=nl.add, reduce_res=total)
            results += [store(tile), store(total)]
        spread = sbuf((32, 40), nl.float32)
        nisa.memset(spread, 7.0)
        nisa.tensor_copy_predicated(spread.indirect(load(index), 16), plain, load(mask))
        return (*results, store(spread))

    a, index = normal(407, (32, 40)), indices(408, 32, 1, 40, distinct=True)
    columns = snake(index, 16)
    gathered = np.take_along_axis(a, columns, axis=1)
    mask = np.random.default_rng(409).integers(0, 2, (32, 16)).astype(np.uint8)
    *results, spread = nki.simulate(kernel, mode=mode)(a, index, gathered, mask)
    half = len(results) // 2
    for picked, plain in zip(results[:half], results[half:]):
        assert_same(picked, plain)
    expected = np.full((32, 40), 7, np.float32)
    np.put_along_axis(expected, columns, np.where(mask, gathered, np.float32(7)), axis=1)
    assert_same(spread, expected)


@pytest.mark.parametrize("mode", MODES)
def test_matmul_operands_in_groups_of_32(mode):
    def kernel(a, b, rows, columns, places):
        product, result = nl.ndarray((64, 80), dtype=nl.float32, buffer=nl.psum), None
        nisa.memset(product, 0.0)
        nisa.nc_matmul(
            dst=product.indirect(load(places), 40),
            stationary=load(a).indirect(load(rows), 64),
            moving=load(b).indirect(load(columns), 40),
            accumulate=False,
        )
        result = sbuf((64, 80), nl.float32)
        nisa.tensor_copy(dst=result, src=product)
        return store(result)

    random = np.random.default_rng(410)
    a, b = (random.integers(-4, 5, (64, n)).astype(BF16) for n in (100, 70))
    rows, columns = random.integers(0, 70, (2, 64, 2)).astype(np.uint16)
    places = np.concatenate([random.permutation(80)[:64].reshape(2, 32).T] * 2).astype(np.uint16)
    left = np.take_along_axis(a, snake(rows, 64, 32), axis=1).astype(np.float32)
    right = np.take_along_axis(b, snake(columns, 40, 32), axis=1).astype(np.float32)
    expected = np.zeros((64, 80), np.float32)
    expected[:, snake(places, 40, 32)[0]] = left.T @ right
    assert_same(nki.simulate(kernel, mode=mode)(a, b, rows, columns, places), expected)


@pytest.mark.parametrize("mode", MODES)
def test_mx_tiles_and_scales_have_the_same_indices(mode):
    """Against the product of tiles that were quantised from gathered groups of four columns."""

    def quantised(source, columns):
        data = nl.ndarray((64, columns), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scale = sbuf((64, columns), nl.uint8)
        nisa.quantize_mx(dst=data, src=load(source), dst_scale=scale)
        return data, scale

    def product(tiles):
        (left, left_scale), (right, right_scale) = tiles
        result = nl.ndarray((32, 32), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(result, left, right, left_scale, right_scale)
        tile = sbuf((32, 32), nl.float32)
        nisa.tensor_copy(tile, result)
        return store(tile)

    def kernel(a, b, picked_a, picked_b, rows, columns):
        indices = [load(index) for index in (rows, columns)]
        whole = [quantised(source, 24) for source in (a, b)]
        picked = [
            tuple(tile.indirect(index, 32) for tile in tiles)
            for tiles, index in zip(whole, indices)
        ]
        return product(picked), product([quantised(s, 32) for s in (picked_a, picked_b)])

    random = np.random.default_rng(418)
    a, b = (random.standard_normal((64, 96)).astype(BF16) for _ in range(2))
    rows, columns = random.integers(0, 24, (2, 32, 1)).astype(np.uint16)
    gathered = [
        s.reshape(64, 24, 4)[:, i[:, 0]].reshape(64, 128) for s, i in ((a, rows), (b, columns))
    ]
    both = [np.concatenate([index, index]) for index in (rows, columns)]
    indirect, direct = nki.simulate(kernel, mode=mode)(a, b, *gathered, *both)
    assert_same(indirect, direct)
    assert np.unique(direct).size > 100

    def unlike(a, b, picked_a, picked_b, rows, columns):
        (data, scale), index = quantised(a, 24), load(rows)
        picked = data.indirect(index, 24)
        result = nl.ndarray((24, 24), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(result, picked, data, scale, scale)

    with pytest.raises(nki.NeuronError, match="do not have the same indices"):
        nki.simulate(unlike, mode=mode)(a, b, *gathered, *both)


@pytest.mark.parametrize("mode", MODES)
def test_indices_change_in_a_loop(mode):
    """The device waits for new indices, and for the scatter before, in every iteration."""

    def kernel(a, index, count):
        source, result = load(a), sbuf((16, 64), a.dtype)
        nisa.memset(result, 0.0)
        stop, picked = nisa.register_alloc(), sbuf((16, 1), nl.int32)
        nisa.register_load(stop, load(count))
        for i in nl.dynamic_range(stop):
            nisa.dma_copy(dst=picked, src=index[:, nl.ds(i, 1)])
            columns = result.indirect(picked)
            nisa.tensor_tensor(dst=columns, data1=columns, data2=source, op=nl.add)
        return store(result)

    a, index = normal(411, (16, 16)), indices(412, 16, 3, 64, distinct=True)
    expected = np.zeros((16, 64), np.float32)
    for i in range(3):
        expected[:, index[:, i]] += a
    count = np.array([[3]], np.int32)
    assert_same(nki.simulate(kernel, mode=mode)(a, index, count), expected)


@pytest.mark.parametrize("mode", MODES)
def test_only_what_is_picked_must_be_there(mode):
    def kernel(a, picked, placed):
        part, tile = sbuf((16, 40), a.dtype), sbuf((16, 16), a.dtype)
        spread = sbuf((16, 20), a.dtype)
        nisa.dma_copy(dst=part[:, 0:10], src=a)
        nisa.tensor_copy(dst=tile, src=part.indirect(load(picked)))
        nisa.tensor_copy(dst=spread.indirect(load(placed)), src=tile)
        out = nl.ndarray((16, 16), dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=spread[:, 0:16])
        return out

    a = normal(413, (16, 10))
    picked = (np.arange(16, dtype=np.int32) % 10)[:, None]
    placed = np.random.default_rng(417).permutation(16).astype(np.int32)[:, None]
    run = nki.simulate(kernel, mode=mode)
    expected = np.empty((16, 16), np.float32)
    expected[:, placed[:, 0]] = a[:, picked[:, 0]]
    assert_same(run(a, picked, placed), expected)
    elsewhere = placed.copy()
    elsewhere[5] = 17
    with pytest.raises(nki.NeuronError, match="16 of its 256 elements") as error:
        run(a, picked, elsewhere)  # nothing goes to a column
    picked[5] = 11
    with pytest.raises(nki.NeuronError, match="16 of its 256 elements") as error:
        run(a, picked, placed)  # nothing is in a column
    assert error.value.code == "uninitialised-output"
    picked[5] = 40
    with pytest.raises(nki.NeuronError, match="columns 0 to 39") as error:
        run(a, picked, placed)
    assert error.value.code == "dynamic-out-of-bounds"
    assert "tensor_copy" in error.value.location.text


REFUSALS = {
    "hbm": (lambda a, i: a.indirect(i), "in private_hbm"),
    "twice": (lambda a, i: load(a).indirect(i).indirect(i), "already has an index"),
    "sliced": (lambda a, i: load(a).indirect(i)[:, 0:4], "a part of an indirect"),
    "strided": (lambda a, i: load(a)[:, 0:8:2].indirect(i), "strides"),
    "partitions": (lambda a, i: load(a).indirect(i[0:8]), "the index is"),
    "engine": (
        lambda a, i: nisa.tensor_copy(
            sbuf((16, 16), F32), load(a).indirect(i), engine=nisa.engine.gpsimd
        ),
        "must be vector or scalar",
    ),
    "operand": (
        lambda a, i: nisa.tensor_tensor(load(a), load(a), load(a).indirect(i), op=nl.add),
        "data2 cannot carry indices",
    ),
    "dtype": (
        lambda a, i: nisa.tensor_copy(sbuf((16, 16), F32), load(a).indirect(load(a)[:, 0:1])),
        "indices of src are float32",
    ),
    "addresses": (
        lambda a, i: nisa.tensor_copy(
            sbuf((16, 16), F32), nl.ndarray((64, 20), F32, address=(32, 0))[0:16].indirect(i)
        ),
        None,
    ),
    "start": (
        lambda a, i: nisa.tensor_copy(
            sbuf((16, 16), F32),
            nl.ndarray((16, 20), F32, address=(32, 0)).indirect(
                nl.ndarray((16, 1), I32, address=(64, 0))
            ),
        ),
        "src starts at partition 32, its indices at 64",
    ),
}


@pytest.mark.parametrize("case", [c for c, (_, text) in REFUSALS.items() if text])
def test_refusals(case):
    use, text = REFUSALS[case]

    def kernel(a, index):
        use(a, load(index))

    with pytest.raises(nki.NeuronError, match=text):
        nki.simulate(kernel)(normal(414, (16, 20)), np.zeros((16, 1), np.int32))


def test_a_group_must_hold_as_many_indices_as_are_taken():
    """Without num_elem all of index.size is meant, which only one group can hold."""

    def kernel(a, index):
        nisa.tensor_reduce(sbuf((32, 1), F32), nl.add, load(a).indirect(load(index)), axis=1)

    with pytest.raises(nki.NeuronError, match=r"takes 64 indices, a group of 16 .* holds 32"):
        nki.simulate(kernel)(normal(416, (32, 20)), np.zeros((32, 2), np.int32))


def test_generations_before_gen4_have_no_indices(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")

    def kernel(a, index):
        nisa.tensor_copy(sbuf((16, 16), F32), load(a).indirect(load(index)))

    with pytest.raises(nki.NeuronError, match=r"indirect\(\) \(src\) exists on gen4"):
        nki.simulate(kernel)(normal(415, (16, 20)), np.zeros((16, 1), np.int32))
