"""Programs built by hand against NumPy: streams, semaphores, loops, registers, gather, errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from programs import Builder, contiguous, hbm, psum, reg, sbuf

from isa.alu import ACTIVATIONS, ALU
from isa.array_tiles import WHOLE_ARRAY
from isa.enums import Condition, Engine, ReduceCommand, RegisterOperation
from isa.errors import NeuronError
from isa.machine import control, elementwise, scalar, tensor, vector
from simulator.execute import LoadedProgram, run
from simulator.watchdog import RunLimits, limited

E = Engine


def load_add_store() -> Builder:
    """out = a + b on [128, 64] float32 tiles; loads on sync, add on vector, store on scalar."""
    b = Builder()
    a = b.tensor("a", "float32", (128, 64), "input")
    c = b.tensor("b", "float32", (128, 64), "input")
    out = b.tensor("out", "float32", (128, 64), "output")
    tiles = [sbuf("float32", offset, 128, 64) for offset in (0, 256, 512)]
    dims = contiguous((128, 64))
    for tile, source in zip(tiles, (a, c)):
        b.begin(E.sync, tile)
        b.dma(E.sync, tile, hbm(source, "float32", dims), updates=((0, 1),))
    b.begin(E.vector, tiles[2])
    b.add(
        E.vector,
        elementwise.TensorTensor,
        tiles[2],
        tiles[0],
        tiles[1],
        ALU["add"],
        waits=((0, 2),),
        updates=((1, 1),),
    )
    b.dma(E.scalar, hbm(out, "float32", dims), tiles[2], waits=((1, 1),))
    return b


def pair(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((128, 64)).astype(np.float32) for _ in range(2)]


def test_load_add_store() -> None:
    a, b = pair()
    result = run(load_add_store().finish(), [a, b])
    np.testing.assert_array_equal(result.outputs[0], a + b)
    np.testing.assert_array_equal(result.inputs_after[0], a)
    assert result.findings == []
    assert all(not events for events in result.trace.cores[0].values())


def test_loaded_program_runs_again() -> None:
    loaded = LoadedProgram(load_add_store().finish())
    for seed in range(3):
        a, b = pair(seed)
        np.testing.assert_array_equal(loaded.run([a, b]).outputs[0], a + b)


def test_tiled_loop_with_register_offsets() -> None:
    """Rows in tiles of 128 by a rolled loop; tile i starts at register * row bytes."""
    rows, columns = 512, 32
    b = Builder()
    a = b.tensor("a", "bfloat16", (rows, columns), "input")
    out = b.tensor("out", "float32", (rows, columns), "output")
    source, result = sbuf("bfloat16", 0, 128, columns), sbuf("float32", 1024, 128, columns)
    dims = contiguous((128, columns))
    begin = b.add(E.sync, control.LoopBegin, reg(5), 0, rows, 128, 6)
    b.begin(E.sync, source)
    b.dma(E.sync, source, hbm(a, "bfloat16", dims, registers=((5, columns * 2),)))
    b.begin(E.sync, result, waits=((0, 0),), updates=((1, 1),))
    b.dma(
        E.sync,
        hbm(out, "float32", dims, registers=((5, columns * 4),)),
        result,
        waits=((2, 1),),
    )
    b.add(E.sync, control.LoopEnd, begin)
    loop = b.add(E.scalar, control.LoopBegin, reg(0), 0, 4, 1, 3)
    b.add(
        E.scalar,
        scalar.Activate,
        result,
        source,
        ACTIVATIONS["square"],
        None,
        0.5,
        ReduceCommand.idle,
        waits=((1, 1),),
        updates=((2, 1),),
    )
    b.add(E.scalar, control.LoopEnd, loop)
    data = np.random.default_rng(1).standard_normal((rows, columns)).astype(ml_dtypes.bfloat16)
    ran = run(b.finish(), [data])
    wide = data.astype(np.float32) * np.float32(0.5)
    np.testing.assert_array_equal(ran.outputs[0], wide * wide)
    trace = {engine: list(events) for engine, events in ran.trace.cores[0].items()}
    # Trip count, then the rows of a load and a store in each of four iterations.
    assert trace[E.sync] == [4] + [128] * 8
    assert trace[E.scalar] == [4]
    assert ran.findings == []


def test_matmul_accumulates_over_k() -> None:
    k_tiles, m, n = 3, 64, 96
    b = Builder()
    lhs = b.tensor("lhs", "bfloat16", (k_tiles * 128, m), "input")
    rhs = b.tensor("rhs", "bfloat16", (k_tiles * 128, n), "input")
    out = b.tensor("out", "float32", (m, n), "output")
    acc, row = psum("float32", 0, m, n), sbuf("float32", 8192, m, n)
    b.begin(E.tensor, acc)
    for k in range(k_tiles):
        left, right = sbuf("bfloat16", 512 * k, 128, m), sbuf("bfloat16", 512 * k + 256, 128, n)
        for tile, source, width in ((left, lhs, m), (right, rhs, n)):
            b.begin(E.sync, tile)
            dims = contiguous((128, width))
            b.dma(
                E.sync,
                tile,
                hbm(source, "bfloat16", dims, element=k * 128 * width),
                updates=((0, 1),),
            )
        b.add(E.tensor, tensor.LoadStationary, left, WHOLE_ARRAY, waits=((0, 2),))
        last = ((1, 1),) if k == k_tiles - 1 else ()
        b.add(E.tensor, tensor.MultiplyMoving, acc, right, k > 0, WHOLE_ARRAY, updates=last)
    b.begin(E.vector, row)
    b.add(E.vector, elementwise.TensorCopy, row, acc, waits=((1, 1),), updates=((2, 1),))
    b.dma(E.gpsimd, hbm(out, "float32", contiguous((m, n))), row, waits=((2, 1),))
    rng = np.random.default_rng(2)
    x = rng.standard_normal((k_tiles * 128, m)).astype(ml_dtypes.bfloat16)
    y = rng.standard_normal((k_tiles * 128, n)).astype(ml_dtypes.bfloat16)
    ran = run(b.finish(), [x, y])
    expected = x.astype(np.float64).T @ y.astype(np.float64)
    np.testing.assert_allclose(ran.outputs[0], expected, rtol=1e-5, atol=1e-4)
    assert ran.findings == []


def test_trip_count_from_memory_and_branch() -> None:
    """A while loop that doubles a register until it reaches a bound read from a tensor."""
    b = Builder()
    bound = b.tensor("bound", "int32", (1,), "input")
    out = b.tensor("out", "int32", (2,), "output")
    one = ((1, 1),)
    b.add(E.sync, control.RegisterLoad, reg(0), hbm(bound, "int32", one))
    b.add(E.sync, control.RegisterMove, reg(1), 1)
    b.add(E.sync, control.RegisterMove, reg(2), 0)
    head = b.add(E.sync, control.Branch, Condition.ge, reg(1), reg(0), 7)
    b.add(E.sync, control.RegisterAlu, reg(1), RegisterOperation.multiply, reg(1), 2)
    b.add(E.sync, control.RegisterAlu, reg(2), RegisterOperation.add, reg(2), 1)
    b.add(E.sync, control.Branch, Condition.always, 0, 0, head)
    b.add(E.sync, control.RegisterStore, hbm(out, "int32", one), reg(1))
    b.add(E.sync, control.RegisterStore, hbm(out, "int32", one, element=1), reg(2))
    program = b.finish()
    for limit, value, steps in ((1, 1, 0), (100, 128, 7)):
        ran = run(program, [np.array([limit], np.int32)])
        assert ran.outputs[0].tolist() == [value, steps]
        assert list(ran.trace.cores[0][E.sync]) == [0, 1] * steps + [1]


def test_loop_bounds_from_registers_may_be_empty() -> None:
    b = Builder()
    count = b.tensor("count", "float32", (1, 1), "input")
    out = b.tensor("out", "int32", (1,), "output")
    b.add(E.gpsimd, control.RegisterLoad, reg(3), hbm(count, "float32", ((1, 1), (1, 1))))
    b.add(E.gpsimd, control.RegisterMove, reg(9), 100)
    begin = b.add(E.gpsimd, control.LoopBegin, reg(1), 2, reg(3), 3, 5)
    b.add(E.gpsimd, control.RegisterAlu, reg(9), RegisterOperation.add, reg(9), reg(1))
    b.add(E.gpsimd, control.LoopEnd, begin)
    b.add(E.gpsimd, control.RegisterStore, hbm(out, "int32", ((1, 1),)), reg(9))
    program = b.finish()
    for upper in (0, 2, 3, 12):
        ran = run(program, [np.full((1, 1), upper, np.float32)])
        assert ran.outputs[0][0] == 100 + sum(range(2, upper, 3))
        assert list(ran.trace.cores[0][E.gpsimd]) == [len(range(2, upper, 3))]
    with pytest.raises(NeuronError, match=r"register is loaded from 2\.5") as caught:
        run(program, [np.full((1, 1), 2.5, np.float32)])
    assert caught.value.location.line == 1


def gather_program(skip: bool, scatter: bool) -> Builder:
    rows, columns, count = 10, 6, 4
    b = Builder()
    table = b.tensor("table", "float32", (rows, columns), "input")
    index = b.tensor("index", "int32", (count, 1), "input")
    out_shape = (rows, columns) if scatter else (count, columns)
    out = b.tensor("out", "float32", out_shape, "inout")
    b.results.append(out)
    positions, tile = sbuf("int32", 0, count, 1), sbuf("float32", 64, count, columns)
    b.dma(E.gpsimd, positions, hbm(index, "int32", contiguous((count, 1))))
    indirect = {"vector_offset": positions, "vector_stride": columns, "vector_bound": rows}
    dims = contiguous((count, columns))
    if scatter:
        b.dma(E.gpsimd, tile, hbm(table, "float32", dims))
        b.dma(E.gpsimd, hbm(out, "float32", dims, **indirect), tile, skip=skip)
    else:
        b.dma(E.gpsimd, tile, hbm(out, "float32", dims))
        b.dma(E.gpsimd, tile, hbm(table, "float32", dims, **indirect), skip=skip)
        b.dma(E.gpsimd, hbm(out, "float32", dims), tile)
    return b


@pytest.mark.parametrize("scatter", [False, True])
def test_gather_and_scatter(scatter: bool) -> None:
    table = np.arange(60, dtype=np.float32).reshape(10, 6)
    index = np.array([[7], [0], [3], [9]], np.int32)
    start = -np.ones((10 if scatter else 4, 6), np.float32)
    ran = run(gather_program(False, scatter).finish(), [table, index, start])
    expected = start.copy()
    if scatter:
        expected[index[:, 0]] = table[:4]
    else:
        expected = table[index[:, 0]]
    np.testing.assert_array_equal(ran.outputs[0], expected)
    np.testing.assert_array_equal(ran.inputs_after[2], expected)
    assert 4 in ran.trace.cores[0][E.gpsimd]


@pytest.mark.parametrize("scatter", [False, True])
def test_indices_outside_are_an_error_or_skipped(scatter: bool) -> None:
    table = np.arange(60, dtype=np.float32).reshape(10, 6)
    index = np.array([[7], [-1], [10], [2]], np.int32)
    start = -np.ones((10 if scatter else 4, 6), np.float32)
    with pytest.raises(NeuronError, match=r"Index 1 .* is -1") as caught:
        run(gather_program(False, scatter).finish(), [table, index, start])
    assert caught.value.code == "dynamic-out-of-bounds"
    assert caught.value.location is not None
    ran = run(gather_program(True, scatter).finish(), [table, index, start])
    expected = start.copy()
    if scatter:
        expected[[7, 2]] = table[[0, 3]]
    else:
        expected[[0, 3]] = table[[7, 2]]
    np.testing.assert_array_equal(ran.outputs[0], expected)
    assert 2 in ran.trace.cores[0][E.gpsimd]


def test_dynamic_offset_outside() -> None:
    def build(skip: bool) -> Builder:
        b = Builder()
        a = b.tensor("a", "float32", (8, 4), "input")
        where = b.tensor("where", "int32", (1,), "input")
        out = b.tensor("out", "float32", (2, 4), "inout")
        dims = contiguous((2, 4))
        b.add(E.sync, control.RegisterLoad, reg(0), hbm(where, "int32", ((1, 1),)))
        b.dma(
            E.sync,
            hbm(out, "float32", dims),
            hbm(a, "float32", dims, registers=((0, 16),)),
            skip=skip,
        )
        return b

    a = np.arange(32, dtype=np.float32).reshape(8, 4)
    out = np.zeros((2, 4), np.float32)
    for row in (0, 6):
        ran = run(build(False).finish(), [a, np.array([row], np.int32), out])
        np.testing.assert_array_equal(ran.inputs_after[2], a[row : row + 2])
        assert list(ran.trace.cores[0][E.sync]) == [2]
    for row in (7, -1):
        with pytest.raises(NeuronError) as caught:
            run(build(False).finish(), [a, np.array([row], np.int32), out])
        assert caught.value.code == "dynamic-out-of-bounds"
        ran = run(build(True).finish(), [a, np.array([row], np.int32), out])
        np.testing.assert_array_equal(ran.inputs_after[2], out)
        assert list(ran.trace.cores[0][E.sync]) == [0]


def test_accumulators_are_those_of_the_destination_partitions() -> None:
    b = Builder()
    a = b.tensor("a", "float32", (64, 8), "input")
    out = b.tensor("out", "float32", (64, 1), "output")
    tile, result = sbuf("float32", 0, 64, 8, start=32), sbuf("float32", 64, 64, 1, start=32)
    b.dma(E.scalar, tile, hbm(a, "float32", contiguous((64, 8))))
    b.add(
        E.scalar,
        scalar.Activate,
        tile,
        tile,
        ACTIVATIONS["copy"],
        None,
        1.0,
        ReduceCommand.reset_reduce,
    )
    b.add(E.scalar, scalar.ActReadAccumulator, result, 0)
    b.dma(E.scalar, hbm(out, "float32", contiguous((64, 1))), result)
    a_value = np.arange(512, dtype=np.float32).reshape(64, 8)
    loaded = LoadedProgram(b.finish())
    np.testing.assert_array_equal(loaded.run([a_value]).outputs[0][:, 0], a_value.sum(axis=1))
    assert np.isnan(loaded.device.cores[0].accumulators[E.scalar][:32]).all()


def exchange(barrier: bool) -> Builder:
    """Each core writes its half of a shared tensor, then copies the other's half out."""
    b = Builder(cores=2)
    a = b.tensor("a", "float32", (2, 4), "input")
    shared = b.tensor("shared", "float32", (2, 4), "internal")
    out = b.tensor("out", "float32", (2, 4), "output")
    row = ((1, 4),)
    for core in range(2):
        mine, other = 4 * core, 4 * (1 - core)
        b.dma(E.sync, hbm(shared, "float32", row, mine), hbm(a, "float32", row, mine), core=core)
        if barrier:
            b.add(
                E.sync,
                control.CoreBarrier,
                hbm(shared, "float32", contiguous((2, 4))),
                (0, 1),
                core=core,
            )
        b.dma(E.sync, hbm(out, "float32", row, mine), hbm(shared, "float32", row, other), core=core)
    return b


def test_core_barrier() -> None:
    a = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(run(exchange(True).finish(), [a]).outputs[0], a[::-1])
    # Without the barrier core 0 reads what core 1 has not written.
    with pytest.raises(NeuronError) as caught:
        run(exchange(False).finish(), [a])
    assert caught.value.code == "uninitialised-output"


def test_barrier_that_one_core_misses_is_a_deadlock() -> None:
    b = exchange(True)
    del b.cores[1][E.sync][1]
    with pytest.raises(NeuronError, match=r"waits in CoreBarrier \(barrier\) for core 1") as caught:
        run(b.finish(), [np.zeros((2, 4), np.float32)])
    assert caught.value.code == "deadlock"


def test_deadlock_names_every_engine_and_semaphore() -> None:
    b = Builder()
    b.add(E.vector, control.Nop, waits=((3, 1),), updates=((4, 1),))
    b.add(E.scalar, control.Nop, waits=((4, 2),), updates=((3, 1),))
    with pytest.raises(NeuronError) as caught:
        run(b.finish(), [])
    assert caught.value.code == "deadlock"
    text = str(caught.value)
    assert "vector: Nop (instruction 0) waits for S[3]>=1 (is 0)" in text
    assert "scalar: Nop (instruction 0) waits for S[4]>=2 (is 0)" in text
    assert caught.value.location.line in (1, 2)


def test_semaphores_must_balance() -> None:
    b = Builder()
    b.add(E.vector, control.Nop, updates=((7, 2),))
    b.add(E.scalar, control.Nop, waits=((7, 1),))
    with pytest.raises(NeuronError, match=r"unbalanced.*S\[7\]=1") as caught:
        run(b.finish(), [])
    assert caught.value.code == "deadlock"


def test_runaway_loop() -> None:
    b = Builder()
    b.add(E.sync, control.Branch, Condition.always, 0, 0, 0)
    with pytest.raises(NeuronError) as caught, limited(RunLimits(instructions=1000)):
        run(b.finish(), [])
    assert caught.value.code == "loop-limit"


def test_inputs_must_match() -> None:
    program = load_add_store().finish()
    a, b = pair()
    for bad in ([a], [a, b[:64]], [a, b.astype(np.float64)]):
        with pytest.raises(NeuronError) as caught:
            run(program, bad)
        assert caught.value.code == "input-mismatch"


def test_operand_outside_its_memory() -> None:
    b = Builder()
    b.add(E.vector, elementwise.Memset, sbuf("float32", 224 * 1024 - 4, 128, 2), 0.0)
    with pytest.raises(NeuronError) as caught:
        run(b.finish(), [])
    assert caught.value.code == "out-of-bounds"
    assert caught.value.location.line == 1
    b = Builder()
    b.add(E.vector, elementwise.Memset, sbuf("float32", 0, 128, 2, start=1), 0.0)
    with pytest.raises(NeuronError) as caught:
        run(b.finish(), [])
    assert caught.value.code == "address-out-of-range"


def test_constants_and_reduce() -> None:
    data = np.arange(12, dtype=np.float16).reshape(3, 4)
    b = Builder()
    constant = b.tensor("c", "float16", (3, 4), "constant", data=data.tobytes())
    out = b.tensor("out", "float16", (3, 1), "output")
    tile, result = sbuf("float16", 0, 3, 4), sbuf("float16", 64, 3, 1)
    b.dma(E.vector, tile, hbm(constant, "float16", contiguous((3, 4))))
    b.add(E.vector, vector.TensorReduce, result, tile, ALU["maximum"], 1, True)
    b.dma(E.vector, hbm(out, "float16", contiguous((3, 1))), result)
    ran = run(b.finish(), [])
    np.testing.assert_array_equal(ran.outputs[0][:, 0], -data.max(axis=1))


def test_unchecked_runs_give_the_same() -> None:
    a, b = pair()
    program = load_add_store().finish()
    checked, unchecked = run(program, [a, b]), run(program, [a, b], check=False)
    np.testing.assert_array_equal(checked.outputs[0], unchecked.outputs[0])
