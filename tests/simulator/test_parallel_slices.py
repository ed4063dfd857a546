"""Two slices of a program at the same time: the bits, messages and refusals of the whole one."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError
from isa.program import Program
from simulator import parallel_slices
from simulator.execute import LoadedProgram
from simulator.native.codegen.library import library
from simulator.parallel_slices import ParallelSlices
from simulator.straight_line import prepare, slices

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(library() is None, reason="there is no native code here")

TILES, P, WIDE = 4, 128, 256


@pytest.fixture(autouse=True)
def _small_programs_on_a_free_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "LEAST_COST", 0)
    monkeypatch.setattr(slices, "MOST_IN_BOTH", 0.3)
    monkeypatch.setattr(parallel_slices, "busy", lambda threads: False)


def tile(shape: Any, dtype: Any = nl.float32, buffer: Any = nl.sbuf) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def weights_of(a: Any, right: Any, i: int) -> tuple[Any, Any]:
    """exp(a_i.T @ right) for tile i of the columns of a, and the sums of its rows."""
    left = tile((P, P), a.dtype)
    nisa.dma_copy(dst=left, src=a[:, nl.ds(i * P, P)])
    product = tile((P, WIDE), buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=left, moving=right)
    powers, total = tile((P, WIDE), a.dtype), tile((P, 1))
    nisa.activation_reduce(
        dst=powers, op=nl.exp, data=product, reduce_op=nl.add, reduce_res=total, scale=0.01
    )
    return powers, total


def stored(out: Any, i: int, powers: Any, total: Any) -> None:
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=powers, data=powers, op0=nl.multiply, operand0=total)
    nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=powers)


def loaded_right(b: Any) -> Any:
    right = tile((P, WIDE), b.dtype)
    nisa.dma_copy(dst=right, src=b)
    return right


def result(a: Any) -> Any:
    return nl.ndarray((a.shape[1], WIDE), dtype=a.dtype, buffer=nl.shared_hbm)


@nki.jit
def attention(a, b):
    """softmax(a.T @ b / 100), a tile of 128 rows after the other."""
    right, out = loaded_right(b), result(a)
    for i in range(a.shape[1] // P):
        stored(out, i, *weights_of(a, right, i))
    return out


@nki.jit
def by_columns(a, b):
    """a.T @ b, with a result's left and right half in slices of their own."""
    left, out = tile((P, P), a.dtype), nl.ndarray((P, WIDE), dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=left, src=a[:, nl.ds(0, P)])
    for n in range(2):
        right = tile((P, WIDE // 2), b.dtype)
        nisa.dma_copy(dst=right, src=b[:, nl.ds(n * WIDE // 2, WIDE // 2)])
        product, copy = tile((P, WIDE // 2), buffer=nl.psum), tile((P, WIDE // 2), a.dtype)
        nisa.nc_matmul(dst=product, stationary=left, moving=right)
        nisa.tensor_copy(dst=copy, src=product)
        nisa.dma_copy(dst=out[:, nl.ds(n * WIDE // 2, WIDE // 2)], src=copy)
    return out


def inputs_of(dtype: Any = np.float32, tiles: int = TILES) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.uniform(-2, 2, (P, n)).astype(dtype) for n in (tiles * P, WIDE)]


def program_of(kernel: Any, inputs: list[Array]) -> Program:
    return nki.compile(kernel, *inputs, target="trn2").program_for(inputs)


def in_slices(kernel: Any, inputs: list[Array], threads: int = 2) -> ParallelSlices:
    loaded = parallel_slices.load(program_of(kernel, inputs), threads=threads)
    assert isinstance(loaded, ParallelSlices)
    return loaded


def expected_softmax(a: Array, b: Array) -> Array:
    powers = np.exp(a.astype(np.float64).T @ b.astype(np.float64) / 100)
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("threads", [2, 4])
def test_slices_give_the_same_bits(dtype: Any, threads: int) -> None:
    inputs = inputs_of(dtype)
    loaded = in_slices(attention, inputs, threads)
    whole = LoadedProgram(loaded.program)
    held = []
    for scale in (1, 0.5, -1):
        scaled = [(array * np.array(scale, dtype)).astype(dtype) for array in inputs]
        found, one = loaded.run(scaled), whole.run(scaled)
        assert found.outputs[0].tobytes() == one.outputs[0].tobytes()
        assert found.trace == one.trace and found.findings == one.findings == []
        tolerance = 1e-5 if dtype is np.float32 else 1e-2
        exact = expected_softmax(*scaled)
        assert np.allclose(found.outputs[0].astype(np.float64), exact, rtol=tolerance)
        held.append((found.outputs[0], one.outputs[0]))
    assert loaded._whole is None
    assert all(left.tobytes() == right.tobytes() for left, right in held)


def test_halves_of_rows_are_slices_of_their_own() -> None:
    inputs = inputs_of()
    loaded = in_slices(by_columns, inputs)
    exact = inputs[0][:, :P].astype(np.float64).T @ inputs[1]
    assert np.allclose(loaded.run(inputs).outputs[0], exact, atol=1e-4)
    assert loaded._whole is None


@nki.jit
def in_parts(a, b):
    """As `attention`, with tiles that are written in parts, and again."""
    right, out = tile((P, WIDE), b.dtype), result(a)
    for n in range(2):
        half = nl.ds(n * WIDE // 2, WIDE // 2)
        nisa.dma_copy(dst=right[:, half], src=b[:, half])
    for i in range(a.shape[1] // P):
        powers, total = weights_of(a, right, i)
        whole = tile((P, WIDE), a.dtype)
        nisa.memset(dst=whole, value=9.0)
        for n in range(4):
            quarter = nl.ds(n * WIDE // 4, WIDE // 4)
            nisa.tensor_copy(dst=whole[:, quarter], src=powers[:, quarter])
        nisa.memset(dst=powers, value=7.0)
        stored(out, i, whole, total)
    return out


def test_tiles_are_written_in_parts() -> None:
    inputs = inputs_of()
    loaded = in_slices(in_parts, inputs)
    assert np.allclose(loaded.run(inputs).outputs[0], expected_softmax(*inputs), rtol=1e-5)
    assert loaded._whole is None


def test_a_busy_machine_runs_one_behind_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of()
    loaded = in_slices(attention, inputs)
    expected = loaded.run(inputs).outputs[0].tobytes()
    monkeypatch.setattr(parallel_slices, "busy", lambda threads: True)
    monkeypatch.setattr(threading, "Thread", None)
    assert loaded.run(inputs).outputs[0].tobytes() == expected


def test_each_slice_has_what_its_stores_need() -> None:
    inputs = inputs_of()
    found = prepare(program_of(attention, inputs)).halves()
    assert found is not None
    for half in (each.program for each in found):
        ((stream,),) = [list(core.streams.values()) for core in half.cores]
        names = [instruction.row.name for instruction in stream]
        assert names.count("MultiplyMoving") == TILES // 2 == names.count("Reciprocal")
        # Two tiles on the left, the one on the right, two results.
        assert names.count("DmaCopy") == 2 + 1 + 2
        assert not any(instruction.waits or instruction.updates for instruction in stream)


# What is left whole -------------------------------------------------------------------------------


@nki.jit
def reads_its_result(a, b):
    right, out = loaded_right(b), result(a)
    for i in range(TILES):
        powers, total = weights_of(a, right, i)
        if i == TILES - 1:
            nisa.dma_copy(dst=powers, src=out[nl.ds(0, P), :])
        stored(out, i, powers, total)
    return out


@nki.jit
def writes_its_argument(a, b):
    right, out = loaded_right(b), result(a)
    for i in range(TILES):
        powers, total = weights_of(a, right, i)
        stored(out, i, powers, total)
    nisa.dma_copy(dst=b, src=powers)
    return out


@nki.jit
def stores_twice(a, b):
    right, out = loaded_right(b), result(a)
    for i in (*range(TILES), *range(TILES)):
        stored(out, i, *weights_of(a, right, i))
    return out


@nki.jit
def sums_as_it_goes(a, b):
    right, out, sums = loaded_right(b), result(a), tile((P, WIDE), a.dtype)
    nisa.memset(dst=sums, value=0.0)
    for i in range(TILES):
        powers, total = weights_of(a, right, i)
        nisa.tensor_tensor(dst=sums, data1=sums, data2=powers, op=nl.add)
        stored(out, i, sums, total)
    return out


@nki.jit
def draws(a, b):
    right, out = loaded_right(b), result(a)
    for i in range(TILES):
        powers, total = weights_of(a, right, i)
        noise = tile((P, WIDE), nl.uint32)
        nisa.rng(dst=noise)
        nisa.tensor_tensor(dst=powers, data1=powers, data2=noise, op=nl.add)
        stored(out, i, powers, total)
    return out


@nki.jit
def loops(a, b):
    right, out = loaded_right(b), result(a)

    def doubled(_: Any) -> None:
        nisa.tensor_tensor(dst=right, data1=right, data2=right, op=nl.add)

    nl.fori_loop(0, 200, doubled)
    for i in range(TILES):
        stored(out, i, *weights_of(a, right, i))
    return out


@nki.jit
def by_rows_alone(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(TILES):
        part = tile((P, P), a.dtype)
        nisa.dma_copy(dst=part, src=a[:, nl.ds(i * P, P)])
        nisa.dma_copy(dst=out[:, nl.ds(i * P, P)], src=part)
    return out


@nki.jit
def one_store(a, b):
    right, out = loaded_right(b), nl.ndarray((P, WIDE), dtype=a.dtype, buffer=nl.shared_hbm)
    stored(out, 0, *weights_of(a, right, 0))
    return out


@nki.jit
def picks_rows(a, b):
    right, out = loaded_right(b), result(a)
    rows = tile((P, 1), nl.int32)
    nisa.iota(dst=rows, pattern=[[0, 1]], offset=0, channel_multiplier=1)
    for i in range(TILES):
        powers, total = weights_of(a, right, i)
        nisa.dma_copy(dst=powers, src=b.ap(pattern=[[WIDE, P], [1, WIDE]], vector_offset=rows))
        stored(out, i, powers, total)
    return out


@pytest.mark.parametrize(
    "kernel",
    [
        *(reads_its_result, writes_its_argument, stores_twice, sums_as_it_goes, draws, loops),
        *(by_rows_alone, one_store, picks_rows),
    ],
    ids=lambda kernel: kernel.__name__,
)
def test_what_has_no_halves_stays_whole(kernel: Any) -> None:
    inputs = inputs_of()
    assert prepare(program_of(attention, inputs)).halves() is not None
    assert prepare(program_of(kernel, inputs)).halves() is None


def test_costs_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of()
    program = program_of(attention, inputs)
    for name, value in (("LEAST_COST", 1e9), ("MOST_IN_BOTH", 0.01), ("MOST_ABOVE_HALF", -0.1)):
        with monkeypatch.context() as patch:
            patch.setattr(slices, name, value)
            assert prepare(program).halves() is None
    # Of three tiles one half has two.
    assert prepare(program_of(attention, inputs_of(tiles=3))).halves() is None


def test_what_a_call_wants_decides() -> None:
    program = program_of(attention, inputs_of())
    for loaded in (
        parallel_slices.load(program, threads=1),
        parallel_slices.load(program, check=False, threads=2),
        parallel_slices.load(program, native=False, threads=2),
    ):
        assert isinstance(loaded, LoadedProgram)


# What is worth a word -----------------------------------------------------------------------------


@nki.jit
def forgets_a_tile(a, b):
    """The third tile is multiplied by what nobody wrote."""
    right, out = loaded_right(b), result(a)
    for i in range(TILES):
        moving = tile((P, WIDE), b.dtype) if i == 2 else right
        stored(out, i, *weights_of(a, moving, i))
    return out


@nki.jit
def forgets_a_result(a, b):
    right, out = loaded_right(b), result(a)
    for i in range(TILES):
        powers, _ = weights_of(a, right, i)
        nisa.dma_copy(dst=out[nl.ds(i * P, P - (i == 2)), :], src=powers[0 : P - (i == 2), :])
    return out


@nki.jit
def reads_for_nothing(a, b):
    """What is not initialised does not come to a result."""
    right, out = loaded_right(b), result(a)
    for i in range(TILES):
        powers, total = weights_of(a, right, i)
        if i == 3:
            rest, copy = tile((P, 8)), tile((P, 8))
            nisa.tensor_copy(dst=copy, src=rest)
        stored(out, i, powers, total)
    return out


def said_of(loaded: LoadedProgram | ParallelSlices, inputs: list[Array]) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = loaded.run(inputs)
        except NeuronError as error:
            return error.code, str(error), error.location
        return found.findings, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("kernel", [forgets_a_tile, forgets_a_result, reads_for_nothing])
def test_the_whole_program_says_what_is_wrong(kernel: Any) -> None:
    inputs = inputs_of()
    loaded = in_slices(kernel, inputs)
    expected = said_of(LoadedProgram(loaded.program), inputs)
    assert said_of(loaded, inputs) == expected == said_of(loaded, inputs)
    assert expected[0] and loaded._whole is not None


def test_wrong_arguments_are_refused_as_ever() -> None:
    loaded = in_slices(attention, inputs_of())
    with pytest.raises(NeuronError, match="takes 2 tensors"):
        loaded.run(inputs_of()[:1])
    assert loaded._whole is None


# What ends a run ----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
def test_an_interrupt_ends_both(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of()
    loaded = in_slices(attention, inputs)
    expected = loaded.run(inputs).outputs[0].tobytes()

    def interrupted() -> None:
        raise KeyboardInterrupt

    others = set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(loaded._slices[which], "execute", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loaded.run(inputs)
    assert set(threading.enumerate()) == others
    other = loaded._slices[1 - which]._compiled
    assert other is not None and other.stopped
    assert loaded.run(inputs).outputs[0].tobytes() == expected


def test_a_stopped_run_ends_soon() -> None:
    from simulator.native.loop.program import StoppedError

    inputs = inputs_of()
    (first, _) = in_slices(attention, inputs)._slices
    first.prepare(inputs)
    first.stop()
    assert first._compiled is not None
    with pytest.raises(StoppedError):
        first._compiled.look()


def test_whatever_fails_in_a_slice_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of()
    loaded = in_slices(attention, inputs)
    expected = loaded.run(inputs).outputs[0].tobytes()

    def failing() -> None:
        raise NeuronError("deadlock", "It is stuck.")

    monkeypatch.setattr(loaded._slices[1], "execute", failing)
    assert loaded.run(inputs).outputs[0].tobytes() == expected
    assert loaded._whole is not None
