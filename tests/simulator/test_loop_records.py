"""Programs whose instructions all run in the native loop: Python executes none of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operation_checks import load, normal, sbuf, store

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine
from isa.errors import NeuronError
from isa.machine.random import GENERATORS
from isa.spec import Instruction
from simulator.native.codegen.library import library
from simulator.numerics.random import draw, seeded

pytestmark = pytest.mark.skipif(library() is None, reason="there is no LLVM")

Array = np.ndarray[Any, Any]


@nki.jit
def turned(a: Any, identity: Any) -> Any:
    """A tile that passes the array by a streamed matrix, into its own dtype."""
    tile, streamed = load(a), load(identity)
    passed = nl.ndarray((a.shape[1], a.shape[0]), dtype=a.dtype, buffer=nl.psum)
    nisa.nc_matmul(passed, tile, streamed, is_transpose=True)
    result = sbuf(passed.shape, a.dtype)
    nisa.tensor_copy(result, passed)
    return store(result)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(128, 128), (33, 20)])
def test_transpositions_by_an_identity(shape: tuple[int, int], dtype: str, alone: Any) -> None:
    a = normal(1, shape).astype(nl.bfloat16 if dtype == "bfloat16" else dtype)
    (got,) = alone(turned, a, np.eye(shape[0], dtype=a.dtype))
    np.testing.assert_array_equal(got, a.T)


def test_transpositions_by_a_permutation(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy executes them, behind an identity in the same program."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    a, order = normal(2, (33, 20)), np.random.default_rng(2).permutation(33)
    simulated = nki.simulate(turned)
    for picked in (np.arange(33), order, np.arange(33)):
        got = simulated(a, np.eye(33, dtype=np.float32)[:, picked])
        np.testing.assert_array_equal(got, a.T[:, picked])


@nki.jit
def some_columns(a: Any, index: Any) -> Any:
    result = sbuf((a.shape[0], 21), a.dtype)
    nisa.local_gather(result, load(a), load(index), num_valid_indices=21)
    return store(result)


def test_positions_that_fill_no_column(alone: Any) -> None:
    a, rng = normal(4, (32, 50)), np.random.default_rng(4)
    index = rng.integers(0, 50, (32, 2)).astype(np.uint16)
    (got,) = alone(some_columns, a, index)
    for group in (slice(0, 16), slice(16, 32)):
        np.testing.assert_array_equal(got[group], a[group][:, index[group].T.reshape(-1)[:21]])


@nki.jit
def swapped(a: Any, rounds: Any) -> Any:
    """Each core doubles its tile and swaps it with the other's, column by column as registers say;
    then both read what the other has stored."""
    core = nl.program_id(0)
    tile, other = load(a[core]), sbuf(a.shape[1:], a.dtype)
    nisa.memset(other, 0.0)
    stop = nisa.register_alloc()
    nisa.register_load(stop, load(rounds))

    def swap(i: Any) -> None:
        nisa.tensor_scalar(tile[:, nl.ds(i, 1)], tile[:, nl.ds(i, 1)], nl.multiply, 2.0)
        nisa.sendrecv(tile[:, nl.ds(i, 1)], other[:, nl.ds(i, 1)], 1 - core, 1 - core, pipe_id=0)

    nl.fori_loop(0, stop, swap)
    nisa.sendrecv(tile, tile, 1 - core, 1 - core, pipe_id=1)
    shared = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray((2, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=shared[core], src=tile)
    nisa.core_barrier(shared, (0, 1))
    nisa.dma_copy(dst=out[core, 0], src=shared[1 - core])
    nisa.dma_copy(dst=out[core, 1], src=other)
    return out


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_cores_meet(rounds: int, alone: Any) -> None:
    a = normal(5, (2, 8, 16))
    (got,) = alone(swapped, a, np.array([[rounds]], np.int32), cores=2)
    doubled = a.copy()
    doubled[:, :, :rounds] *= 2
    for core in (0, 1):
        np.testing.assert_array_equal(got[core, 0], doubled[core])
        want = np.zeros_like(a[0])
        want[:, :rounds] = doubled[1 - core, :, :rounds]
        np.testing.assert_array_equal(got[core, 1], want)


@nki.jit
def half_initialised(a: Any) -> Any:
    """One core sends a tile half of which nothing has filled, and then a filled one."""
    core = nl.program_id(0)
    tile, other = sbuf(a.shape[1:], a.dtype), sbuf(a.shape[1:], a.dtype)
    half = a.shape[2] // 2
    nisa.dma_copy(dst=tile[:, :half], src=a[core][:, :half])
    if core == 1:
        nisa.dma_copy(dst=tile[:, half:], src=a[core][:, half:])
    nisa.sendrecv(tile, other, 1 - core, 1 - core, pipe_id=0)
    out = nl.ndarray((2, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[core, 0][:, :half], src=other[:, :half])
    nisa.memset(tile[:, half:], float(core))
    nisa.sendrecv(tile, other, 1 - core, 1 - core, pipe_id=0)
    nisa.dma_copy(dst=out[core, 0][:, half:], src=other[:, half:])
    nisa.dma_copy(dst=out[core, 1], src=other)
    return out


def test_python_takes_part_where_data_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was never written stays so on the other core; later exchanges are native ones again."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    a = normal(6, (2, 8, 16))
    second = a.copy()
    second[:, :, 8:] = np.arange(2)[:, None, None]
    for mode in ("device", "reference", "eager"):
        for _ in range(2):
            got = nki.simulate(half_initialised[2], mode=mode)(a)
            np.testing.assert_array_equal(got[:, 1], second[::-1])
            np.testing.assert_array_equal(got[:, 0], second[::-1])


@nki.jit
def sent_back(a: Any) -> Any:
    """What one core never wrote comes to the other."""
    core = nl.program_id(0)
    tile, other = sbuf(a.shape[1:], a.dtype), sbuf(a.shape[1:], a.dtype)
    if core == 1:
        nisa.dma_copy(dst=tile, src=a[core])
    nisa.sendrecv(tile, other, 1 - core, 1 - core, pipe_id=0)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[core], src=other)
    return out


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_what_was_never_written_is_found_on_the_other_core(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(NeuronError) as caught:
        nki.simulate(sent_back[2], mode=mode)(normal(7, (2, 8, 16)))
    assert caught.value.code == "uninitialised-output"


@nki.jit
def found(a: Any, ids: Any, numbers: Any) -> Any:
    """Positions, segments and largest elements; partitions that nothing fills stay so."""
    places, largest = sbuf((32, 9), nl.int32), sbuf((32, 3), nl.bfloat16)
    nisa.memset(places, 0)
    nisa.nonzero_with_count(dst=places, src=load(a), index_offset=5, padding_val=-1)
    bounds, where = sbuf((1, 2, 20), nl.int32), sbuf((32, 3), nl.uint32)
    nisa.sequence_bounds(dst=bounds, segment_ids=load(ids))
    nisa.topk(val_dst=largest, idx_dst=where, src=load(numbers), n=60)
    return store(places), store(bounds), store(where), store(largest)


def test_sequences(alone: Any) -> None:
    rng = np.random.default_rng(8)
    a = np.where(rng.random((32, 8)) < 0.5, 0, rng.standard_normal((32, 8))).astype(np.float32)
    ids = np.sort(rng.integers(0, 5, (1, 20))).astype(np.int32)
    numbers = rng.standard_normal((32, 4)).astype(nl.bfloat16)
    places, bounds, where, largest = alone(found, a, ids, numbers)
    for row in (0, 16):
        positions = np.flatnonzero(a[row]) + 5
        padding = [-1] * (8 - len(positions))
        assert places[row].tolist() == [*positions, *padding, len(positions)]
    for index, number in enumerate(ids[0]):
        run = np.flatnonzero(ids[0] == number)
        want = [run[0], run[-1] + 1] if number else [20, -1]
        assert bounds[0, :, index].tolist() == want
    for first in (0, 16):
        elements = numbers[first : first + 16].T.reshape(-1)[:60]
        order = np.argsort(elements.astype(np.float32), kind="stable")[-3:]
        assert (where[first : first + 16] == order).all()
        assert (largest[first : first + 16] == elements[order]).all()


@nki.jit
def across(a: Any, start: Any) -> Any:
    """Averages of columns, and registers that begin with a column."""
    tile, first = load(a), load(start)
    mean, total = sbuf((1, a.shape[1]), nl.float32), sbuf(start.shape, nl.float32)
    nisa.tensor_partition_reduce(mean, nl.average, tile)
    power = sbuf(a.shape, nl.float32)
    nisa.exponential(
        power,
        tile,
        max_value=0.0,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.load_reduce,
        reduce_init=first,
    )
    return store(mean), store(total)


def test_averages_and_sums_that_begin_with_a_column(alone: Any) -> None:
    a, start = normal(9, (40, 24)), normal(10, (40, 1))
    mean, total = alone(across, a, start, target="trn3")
    np.testing.assert_allclose(mean[0], a.astype(np.float64).mean(axis=0), atol=1e-6)
    want = start + np.exp(a.astype(np.float64)).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(total, want, rtol=1e-6)


@nki.jit
def drawn(words: Any, seeds: Any) -> Any:
    """Numbers from states that are set, and from states that a seed makes."""
    shape = (words.shape[0], 24)
    first, second = sbuf(shape, nl.uint32), sbuf(shape, nl.uint32)
    after = sbuf(words.shape, nl.uint32)
    nisa.rand_set_state(load(words), engine=nisa.engine.gpsimd)
    nisa.rng(first, engine=nisa.engine.gpsimd)
    nisa.rand_get_state(after, engine=nisa.engine.gpsimd)
    nisa.set_rng_seed(load(seeds))
    nisa.rng(second, engine=nisa.engine.vector)
    return store(first), store(after), store(second)


def test_generators(alone: Any) -> None:
    words = np.random.default_rng(11).integers(1, 2**32, (128, 6), dtype=np.uint32)
    first, after, second = alone(drawn, words, np.array([[7]], np.int32))
    generator = GENERATORS[Engine.gpsimd, 3]
    states = words.copy()
    np.testing.assert_array_equal(first, draw(generator, states, 24))
    np.testing.assert_array_equal(after, states)
    generator = GENERATORS[Engine.vector, 3]
    np.testing.assert_array_equal(second, draw(generator, seeded(generator, 7, 128), 24))


@nki.jit
def turned_sums(a: Any) -> Any:
    """Results that are written in another order than what is read, and their sums."""
    tile, result = load(a), sbuf((a.shape[0], a.shape[2], a.shape[1]), nl.bfloat16)
    total = sbuf((a.shape[0], 1), nl.float32)
    turned = tile.ap(
        [[a.shape[1] * a.shape[2], a.shape[0]], [1, a.shape[2]], [a.shape[2], a.shape[1]]]
    )
    nisa.activation_reduce(result, nl.exp, turned, reduce_op=nl.add, reduce_res=total)
    return store(result), store(total)


def test_sums_of_tiles_that_are_no_rows(alone: Any) -> None:
    a = normal(12, (16, 5, 7))
    result, total = alone(turned_sums, a)
    want = np.exp(a.astype(np.float64)).transpose(0, 2, 1)
    np.testing.assert_allclose(result.astype(np.float64), want, rtol=2.0**-8)
    np.testing.assert_allclose(total[:, 0], want.sum(axis=(1, 2)), rtol=1e-6)


@nki.jit
def places_by_turns(a: Any) -> Any:
    """Tiles of three sizes take turns in SBUF, which they fill several times, and rows are doubled
    by a loop on the device."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows = a.shape[1]
    for i in range(a.shape[0]):
        tile = sbuf((rows, 8192 * (1 + i % 3)), a.dtype)
        nisa.memset(tile, float(i))
        part = sbuf((rows, 1), a.dtype)
        nisa.tensor_copy(part, tile[:, 32 * i : 32 * i + 1])
        nisa.dma_copy(out[i, :], part)
    for i in nl.dynamic_range(a.shape[0]):
        row = sbuf((1, rows), a.dtype)
        nisa.dma_copy(row, out[i, :])
        nisa.tensor_tensor(row, row, row, nl.add)
        nisa.dma_copy(out[i, :], row)
    return out


@pytest.mark.filterwarnings("ignore:nki.language.dynamic_range is superseded")
def test_allocations_that_take_turns_in_a_program_with_a_loop(
    monkeypatch: pytest.MonkeyPatch, executed: list[Instruction]
) -> None:
    """Python is asked which allocation it is, and executes no instruction, in the first run."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    got = nki.simulate(places_by_turns)(np.zeros((24, 4), np.float32))
    np.testing.assert_array_equal(got, np.repeat(2 * np.arange(24.0), 4).reshape(24, 4))
    assert not executed
