"""Programs that move rows by indices and registers through memory run natively, and do what the
Python executor does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import Builder, contiguous, hbm, reg, sbuf
from test_native_program import assert_same

from isa.alu import ALU
from isa.dtypes import DTYPES
from isa.enums import DgeMode, Engine, OobMode, RegisterOperation
from isa.machine import control, dma, elementwise, gather
from isa.program import Program
from isa.spec import Instruction
from simulator.execute import LoadedProgram
from simulator.native.codegen.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="there is no native code here")

Array = np.ndarray[Any, Any]
E = Engine

ROWS, COLUMNS, COUNT = 10, 6, 4


def moving(trips: int, scatter: bool, skip: bool = False) -> Program:
    """Iteration i adds i to all indices and gathers rows, or scatters them, some to one row, at a
    column that a register decides."""
    b = Builder()
    table = b.tensor("table", "float32", (ROWS, COLUMNS), "input")
    index = b.tensor("index", "int32", (COUNT, 1), "input")
    out = b.tensor("out", "float32", (ROWS, COLUMNS) if scatter else (COUNT, COLUMNS), "inout")
    b.results.append(out)
    one, places, tile = sbuf("int32", 0, COUNT, 1), sbuf("int32", 4, COUNT, 1), (64, COUNT, 3)
    for view in (one, places, sbuf("float32", *tile)):
        b.begin(E.gpsimd, view)
    b.dma(E.gpsimd, places, hbm(index, "int32", contiguous((COUNT, 1))))
    b.add(E.gpsimd, elementwise.Memset, one, 1)
    begin = b.add(E.gpsimd, control.LoopBegin, reg(0), 0, trips, 1, 0)
    picked: dict[str, Any] = {"vector_offset": places, "vector_stride": COLUMNS}
    dims = ((COLUMNS, COUNT), (1, 3))
    sides = [(table, {}), (out, picked)] if scatter else [(table, picked), (out, {})]
    source, target = (
        hbm(tensor, "float32", dims, registers=((0, 4),), **(more and {**more, "vector_bound": 9}))
        for tensor, more in sides
    )
    b.dma(E.gpsimd, sbuf("float32", *tile), source, skip=skip)
    b.dma(E.gpsimd, target, sbuf("float32", *tile), skip=skip)
    b.add(E.gpsimd, elementwise.TensorTensor, places, places, one, ALU["add"])
    end = b.add(E.gpsimd, control.LoopEnd, begin)
    loop = b.cores[0][E.gpsimd][begin]
    loop.values = (*loop.values[:4], end + 1)
    return b.finish()


def inputs(*index: int, scatter: bool) -> list[Array]:
    table = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    out = np.full((ROWS if scatter else COUNT, COLUMNS), -1, np.float32)
    return [table, np.array(index, np.int32)[:, None], out]


@pytest.mark.parametrize("scatter", [False, True])
def test_rows_move_natively(scatter: bool, executed: list[Instruction]) -> None:
    # A scatter with an index that comes twice is Python's: it warns.
    arrays = inputs(3, 0, 4 if scatter else 3, 1, scatter=scatter)
    expected = arrays[2].copy()
    for i in range(3):
        chosen, columns = arrays[1][:, 0] + i, slice(i, i + 3)
        if scatter:
            for row, place in enumerate(chosen):
                expected[place, columns] = arrays[0][row, columns]
        else:
            expected[:, columns] = arrays[0][chosen, columns]
    outputs, trace, _ = assert_same(moving(3, scatter), arrays)
    np.testing.assert_array_equal(np.frombuffer(outputs[0], "f4").reshape(expected.shape), expected)
    assert trace[0][E.gpsimd].count(COUNT) >= 3
    loaded = LoadedProgram(moving(3, scatter))
    loaded.run(arrays)
    executed.clear()
    loaded.run(arrays)
    assert executed == []


@pytest.mark.parametrize("scatter", [False, True])
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("index", [(3, 0, 7, 1), (3, -1, 4, 12)])
def test_rows_outside(index: tuple[int, ...], skip: bool, scatter: bool) -> None:
    """In the first iteration or a later one."""
    found = assert_same(moving(3, scatter, skip), inputs(*index, scatter=scatter))
    assert (found[0] == "dynamic-out-of-bounds") is not skip
    assert skip or found[2] is not None


def test_rows_that_are_not_written_stay_uninitialised() -> None:
    """A scatter into a tensor that nothing filled initialises its rows alone."""
    program = moving(1, True)
    (out,) = program.results
    program.tensors[out].role = "output"
    program.parameters.remove(out)
    program.parameter_names.remove("out")
    code, what, _ = assert_same(program, inputs(3, 0, 3, 1, scatter=True)[:2])
    assert code == "output-not-written" and "51 of its 60" in what


@pytest.mark.parametrize("columns", [1, 2])
def test_picked_rows_are_transposed_natively(columns: int, executed: list[Instruction]) -> None:
    b = Builder()
    table = b.tensor("table", "float32", (ROWS, COLUMNS), "input")
    index = b.tensor("index", "int32", (COUNT, columns), "input")
    out = b.tensor("out", "float32", (COLUMNS, COUNT * columns), "output")
    places = sbuf("int32", 0, COUNT, columns)
    tile = sbuf("float32", 64, COLUMNS, COUNT * columns)
    for view in (places, tile):
        b.begin(E.sync, view)
    b.dma(E.sync, places, hbm(index, "int32", contiguous((COUNT, columns))))
    rows = hbm(
        *(table, "float32", ((COLUMNS, COUNT * columns), (1, COLUMNS))),
        vector_offset=places,
        vector_stride=COLUMNS,
        vector_bound=ROWS,
    )
    b.add(E.sync, dma.DmaTranspose, tile, rows, 0, DgeMode.none, OobMode.error)
    b.dma(E.sync, hbm(out, "float32", contiguous((COLUMNS, COUNT * columns))), tile)
    program = b.finish()
    arrays = inputs(*range(COUNT), scatter=False)[:1]
    arrays.append(np.random.default_rng(1).integers(0, ROWS, (COUNT, columns)).astype(np.int32))
    outputs, _, _ = assert_same(program, arrays)
    expected = arrays[0][arrays[1].T.reshape(-1)].T
    np.testing.assert_array_equal(np.frombuffer(outputs[0], "f4").reshape(expected.shape), expected)
    loaded = LoadedProgram(program)
    loaded.run(arrays)
    executed.clear()
    loaded.run(arrays)
    assert executed == []


CELLS = {
    "int32": [-7, 2**31 - 1, -(2**31)],
    "uint32": [7, 2**32 - 1, 2**31],
    "int16": [-7, 2**15 - 1],
    "uint8": [0, 255],
    "float32": [-7, 0, 2.0**30, -(2.0**24)],
    "bfloat16": [-7, 2.0**20],
    "float16": [-7, 1024],
    "float8_e4m3": [-7, 16],
}


def through_memory(dtype: str, count: int) -> Program:
    """RegisterLoad of each element, and RegisterStore of three times its value."""
    b = Builder()
    tensors = [b.tensor(name, dtype, (1, count), name) for name in ("input", "output")]
    size = DTYPES[dtype].size
    for offset in (0, 256):
        b.begin(E.sync, sbuf(dtype, offset, 1, count))
    whole = contiguous((1, count))
    b.dma(E.sync, sbuf(dtype, 0, 1, count), hbm(tensors[0], dtype, whole))
    begin = b.add(E.sync, control.LoopBegin, reg(0), 0, count, 1, 0)
    source, target = (sbuf(dtype, at, 1, 1, registers=((0, size),)) for at in (0, 256))
    b.add(E.sync, control.RegisterLoad, reg(1), source)
    b.add(E.sync, control.RegisterAlu, reg(2), RegisterOperation.multiply, reg(1), 3)
    b.add(E.sync, control.RegisterStore, target, reg(2))
    end = b.add(E.sync, control.LoopEnd, begin)
    loop = b.cores[0][E.sync][begin]
    loop.values = (*loop.values[:4], end + 1)
    b.dma(E.sync, hbm(tensors[1], dtype, whole), sbuf(dtype, 256, 1, count))
    return b.finish()


@pytest.mark.parametrize("dtype", CELLS)
def test_registers_go_through_memory_natively(dtype: str, executed: list[Instruction]) -> None:
    row = DTYPES[dtype]
    data = np.array([CELLS[dtype]]).astype(row.numpy)
    program = through_memory(dtype, data.size)
    outputs, _, _ = assert_same(program, [data])
    tripled = [(3 * int(x) + 2**31) % 2**32 - 2**31 for x in data[0]]
    wrapped = np.array(tripled, np.int64)
    stored = wrapped if row.is_integer else wrapped.astype("f4")
    np.testing.assert_array_equal(np.frombuffer(outputs[0], row.numpy), stored.astype(row.numpy))
    loaded = LoadedProgram(program)
    loaded.run([data])
    executed.clear()
    loaded.run([data])
    assert executed == []


@pytest.mark.parametrize("value", [2.5, np.nan, np.inf, 2.0**40])
def test_floats_that_registers_do_not_hold(value: float) -> None:
    """Whole ones wrap, as integers do; others are an error."""
    found = assert_same(through_memory("float32", 2), [np.array([[1, value]], np.float32)])
    if value == 2.0**40:
        assert np.frombuffer(found[0][0], "f4").tolist() == [3, 0]
    else:
        assert found[0] == "value-not-allowed" and found[2] is not None


def test_partitions_and_elements_move_natively(executed: list[Instruction]) -> None:
    """A shuffle to a place that a register moves, at last onto its source; gathers behind it."""
    columns, partitions = 16, 32
    b = Builder()
    a = b.tensor("a", "float32", (partitions, columns), "input")
    index = b.tensor("index", "int32", (partitions, columns), "input")
    out = b.tensor("out", "float32", (partitions, columns), "output")
    whole = contiguous((partitions, columns))
    tile = sbuf("float32", 0, partitions, columns)
    places = sbuf("int32", 256, partitions, columns)
    element, result = (sbuf("float32", at, partitions, columns) for at in (512, 768))
    for view in (sbuf("float32", 0, partitions, 48), places, element, result):
        b.begin(E.gpsimd, view)
    b.dma(E.gpsimd, tile, hbm(a, "float32", whole))
    b.dma(E.gpsimd, places, hbm(index, "int32", whole))
    mask = (*range(1, 32), 0)
    begin = b.add(E.gpsimd, control.LoopBegin, reg(0), 0, 3, 1, 0)
    moved = sbuf("float32", 128, partitions, columns, registers=((0, -64),))
    b.add(E.gpsimd, gather.StreamShuffle, moved, tile, mask)
    end = b.add(E.gpsimd, control.LoopEnd, begin)
    loop = b.cores[0][E.gpsimd][begin]
    loop.values = (*loop.values[:4], end + 1)
    b.add(E.gpsimd, gather.GatherElements, element, tile, places)
    b.add(E.gpsimd, gather.LocalGather, result, element, places, 1, columns)
    b.dma(E.gpsimd, hbm(out, "float32", whole), result)
    program = b.finish()
    rng = np.random.default_rng(4)
    data = rng.standard_normal((partitions, columns)).astype(np.float32)
    order = rng.integers(0, columns, (partitions, columns)).astype(np.int32)
    outputs, _, _ = assert_same(program, [data, order])
    turned = np.take_along_axis(np.roll(data, -1, axis=0), order, 1)
    expected = [
        turned[p, [order[p - p % 16 + i % 16, i // 16] for i in range(columns)]]
        for p in range(partitions)
    ]
    np.testing.assert_array_equal(np.frombuffer(outputs[0], "f4").reshape(data.shape), expected)
    loaded = LoadedProgram(program)
    loaded.run([data, order])
    executed.clear()
    loaded.run([data, order])
    # Onto itself NumPy moves it.
    assert [instruction.row for instruction in executed] == [gather.StreamShuffle]
    wrong = order.copy()
    wrong[5, 7] = columns
    code, _, location = assert_same(program, [data, wrong])
    assert code == "dynamic-out-of-bounds" and location is not None


@pytest.mark.parametrize("index", [(3, 0, 7, 1), (3, 0, 3, 1), (3, 0, 12, 1)])
def test_rows_are_added_to_natively(index: tuple[int, ...], executed: list[Instruction]) -> None:
    """Rows of out += rows of table; they must be there, and different."""
    b = Builder()
    table = b.tensor("table", "float32", (ROWS, COLUMNS), "input")
    chosen = b.tensor("index", "int32", (COUNT, 1), "input")
    out = b.tensor("out", "float32", (ROWS, COLUMNS), "inout")
    b.results.append(out)
    places, tile = sbuf("int32", 0, COUNT, 1), sbuf("float32", 64, COUNT, COLUMNS)
    for view in (places, tile):
        b.begin(E.sync, view)
    dims = contiguous((COUNT, COLUMNS))
    b.dma(E.sync, places, hbm(chosen, "int32", contiguous((COUNT, 1))))
    b.dma(E.sync, tile, hbm(table, "float32", dims))
    picked = {"vector_offset": places, "vector_stride": COLUMNS, "vector_bound": ROWS}
    rows = hbm(out, "float32", dims, **picked)
    options = (ALU["add"], 0, DgeMode.none, OobMode.error)
    b.add(E.sync, dma.DmaCompute, rows, rows, tile, *(None,) * 14, *options)
    b.add(E.sync, dma.DmaCompute, tile, tile, rows, *(None,) * 14, *options)
    b.dma(E.sync, hbm(out, "float32", dims), tile)
    program, arrays = b.finish(), inputs(*index, scatter=True)
    found = assert_same(program, arrays)
    if len({*index}) < COUNT or max(index) >= ROWS:
        assert found[0] in ("indices-not-unique", "dynamic-out-of-bounds") and found[2] is not None
        return
    expected = arrays[2].copy()
    expected[list(index)] += arrays[0][:COUNT]
    expected[:COUNT] = arrays[0][:COUNT] + expected[list(index)]
    np.testing.assert_array_equal(
        np.frombuffer(found[0][0], "f4").reshape(expected.shape), expected
    )
    loaded = LoadedProgram(program)
    loaded.run(arrays)
    executed.clear()
    loaded.run(arrays)
    assert executed == []
