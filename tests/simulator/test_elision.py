"""Tiles that are read and written in HBM, at the other end of transfers that are left out then."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from programs import Builder, contiguous, hbm, sbuf

import nki
import nki.isa as nisa
import nki.language as nl
from isa.alu import ALU
from isa.enums import Engine
from isa.machine import elementwise
from isa.machine.dma import DmaCopy
from isa.program import Program
from simulator.execute import LoadedProgram
from simulator.native.codegen.library import library
from simulator.native.loop import draft
from simulator.straight_line import prepare
from simulator.straight_line.elision import LEAST_ROW, MOST_READS

pytestmark = pytest.mark.skipif(library() is None, reason="there is no native code here")

P = 128
WIDTH = LEAST_ROW // 4

Array = np.ndarray[Any, Any]


def random(*shape: int) -> Array:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def tile(width: int = WIDTH, rows: int = P, dtype: Any = nl.float32) -> Any:
    return nl.ndarray((rows, width), dtype=dtype, buffer=nl.sbuf)


def loaded(source: Any) -> Any:
    found = tile(source.shape[1], source.shape[0])
    nisa.dma_copy(dst=found, src=source)
    return found


def stored(found: Any) -> Any:
    out = nl.ndarray(found.shape, dtype=found.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=found)
    return out


@nki.jit
def parts_of_rows(a):
    """Some partitions and columns of a tile, which is a part of a larger tensor."""
    x = loaded(a[16 : 16 + P, 32 : 32 + WIDTH])
    y = tile(WIDTH // 2, 32)
    nisa.tensor_tensor(dst=y, data1=x[64:96, 0 : WIDTH // 2], data2=x[32:64, 1::2], op=nl.subtract)
    return stored(y)


def numpy_parts_of_rows(a):
    x = a[16 : 16 + P, 32 : 32 + WIDTH]
    return x[64:96, : WIDTH // 2] - x[32:64, 1::2]


@nki.jit
def reduced(a):
    x = loaded(a[0:P, 0:WIDTH])
    low, y = tile(1), tile()
    nisa.tensor_reduce(dst=low, op=nl.maximum, data=x, axis=1, negate=True)
    nisa.activation(dst=y, op=nl.relu, data=x, bias=low, scale=-1.0)
    return stored(y)


def numpy_reduced(a):
    x = a[:P, :WIDTH]
    return np.maximum(-x - x.max(1, keepdims=True), 0)


@nki.jit
def as_words(a):
    """The bits of the numbers, without their signs."""
    x = loaded(a[0:P, 0:WIDTH])
    y = tile()
    nisa.tensor_scalar(
        dst=y.view(nl.uint32), data=x.view(nl.uint32), op0=nl.bitwise_and, operand0=0x7FFFFFFF
    )
    return stored(y)


def numpy_as_words(a):
    return np.abs(a[:P, :WIDTH])


@nki.jit
def two_tiles(a):
    x, y = loaded(a[0:P, 0:WIDTH]), loaded(a[P : 2 * P, WIDTH : 2 * WIDTH])
    z = tile()
    nisa.tensor_tensor(dst=z, data1=x, data2=y, op=nl.multiply)
    return stored(z)


def numpy_two_tiles(a):
    return a[:P, :WIDTH] * a[P : 2 * P, WIDTH : 2 * WIDTH]


SERVED = {
    "parts of rows": (parts_of_rows, numpy_parts_of_rows, 1, 0),
    "reduced": (reduced, numpy_reduced, 1, 1),
    "as words": (as_words, numpy_as_words, 1, 0),
    "two tiles": (two_tiles, numpy_two_tiles, 2, 0),
}
"""Kernel, the same in NumPy, and how many loads and stores have nothing to do."""


@nki.jit
def changed_tile(a):
    x = loaded(a[0:P, 0:WIDTH])
    nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
    y = tile()
    nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0)
    return stored(y)


@nki.jit
def changed_tensor(a):
    x = loaded(a[0:P, 0:WIDTH])
    zeros, y = tile(), tile()
    nisa.memset(dst=zeros, value=0.0)
    nisa.dma_copy(dst=a[0:P, 0:WIDTH], src=zeros)
    nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=2.0)
    return stored(y)


@nki.jit
def loaded_in_halves(a):
    x, y = tile(), tile()
    nisa.dma_copy(dst=x[:, 0 : WIDTH // 2], src=a[0:P, 0 : WIDTH // 2])
    nisa.dma_copy(dst=x[:, WIDTH // 2 : WIDTH], src=a[0:P, WIDTH // 2 : WIDTH])
    nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=2.0)
    return stored(y)


@nki.jit
def written_by_the_program(a):
    x = loaded(a[0:P, 0:WIDTH])
    nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
    middle = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
    nisa.dma_copy(dst=middle, src=x)
    z, y = loaded(middle), tile()
    nisa.tensor_scalar(dst=y, data=z, op0=nl.add, operand0=1.0)
    return stored(y)


@nki.jit
def read_often(a):
    x, y = loaded(a[0:P, 0:WIDTH]), tile()
    for _ in range(MOST_READS + 1):
        nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=2.0)
    return stored(y)


@nki.jit
def stored_again(a):
    """Read by a transfer too."""
    x, y = loaded(a[0:P, 0:WIDTH]), tile()
    nisa.dma_copy(dst=y, src=x)
    nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=2.0)
    return stored(y)


@nki.jit
def short_rows(a):
    x, y = loaded(a[0:P, 0 : WIDTH - 1]), tile(WIDTH - 1)
    nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=2.0)
    return stored(y)


@nki.jit
def converted(a):
    x, y = tile(dtype=nl.bfloat16), tile()
    nisa.dma_copy(dst=x, src=a[0:P, 0:WIDTH])
    nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=2.0)
    return stored(y)


REFUSED = (
    *(changed_tile, changed_tensor, loaded_in_halves, written_by_the_program, read_often),
    *(stored_again, short_rows, converted),
)
"""Kernels that add 2, with loads of which none can be left out."""


def program_of(kernel: Any, *inputs: Array) -> Program:
    return nki.compile(kernel, *inputs, target="trn2").program_for(inputs)


def idle(program: Program) -> list[int]:
    """How many loads and how many stores move nothing."""
    prepared = prepare(program).placed()
    found = []
    for core, known in zip(prepared.program.cores, prepared.cores, strict=True):
        for engine, stream in core.streams.items():
            uses, kinds, _ = known.stream(engine, stream)
            for kind, template, places in zip(kinds, uses.templates, uses.places, strict=True):
                found += [template] * (places.size if kind.idle or kind.spared else 0)
    on_chip = [i.values[0].memory.on_chip for i in found if i.row is DmaCopy]
    return [on_chip.count(True), on_chip.count(False)]


@pytest.mark.parametrize("name", SERVED)
def test_rows_are_read_in_hbm(name):
    kernel, expected, *counts = SERVED[name]
    a = random(2 * P, 2 * WIDTH)
    program = program_of(kernel, a)
    assert idle(program) == counts
    for check in (True, False):
        found = LoadedProgram(program, check).run([a]).outputs[0]
        np.testing.assert_array_equal(found, expected(a))


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda kernel: kernel.__name__)
def test_a_tile_that_is_more_than_a_copy_is_loaded(kernel):
    a = random(2 * P, 2 * WIDTH)
    program = program_of(kernel, a)
    assert idle(program)[0] == 0
    found = LoadedProgram(program).run([a]).outputs[0]
    x = a[:P, : found.shape[1]]
    if kernel is converted:
        x = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_allclose(found, x.astype(np.float32) + 2, rtol=1e-6)


@nki.jit
def scaled(a, factor):
    """In two steps, the last of them in place."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(a.shape[0] // P):
        x, y = tile(a.shape[1], dtype=a.dtype), tile(a.shape[1], dtype=a.dtype)
        f = tile(1)
        nisa.dma_copy(dst=f, src=factor)
        nisa.dma_copy(dst=x, src=a[nl.ds(i * P, P), :])
        nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=f)
        nisa.activation(dst=y, op=nl.copy, data=y)
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=y)
    return out


SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-39, -3e-42, 3.4e38, 1.0], np.float32)


@pytest.mark.parametrize("width", [2 * WIDTH, 2 * WIDTH + 5])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_results_are_written_at_once(dtype, width, monkeypatch):
    """Past the caches or not, where rows begin at a line of cache and where they do not."""
    a = np.random.default_rng(0).normal(size=(2 * P, width)).astype(np.float32)
    a.reshape(-1)[::13][: SPECIAL.size] = SPECIAL
    with np.errstate(all="ignore"):
        a = a.astype(dtype)
    factor = np.linspace(-2, 2, P, dtype=np.float32)[:, np.newaxis]
    program = program_of(scaled, a, factor)
    assert idle(program) == [2, 2]
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float32) * np.tile(factor, (2, 1))).astype(dtype)
    for limit in (0, 1 << 30):
        monkeypatch.setattr(draft, "PAST_CACHES", limit)
        found = LoadedProgram(program).run([a, factor]).outputs[0]
        np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


def chain(a: Any) -> Any:
    """A tile with an element more than the argument."""
    x, y = loaded(a[0:P, 0:WIDTH]), tile()
    nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
    nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0)
    return y


@nki.jit
def stored_twice(a):
    y = chain(a)
    stored(y)
    return stored(y)


@nki.jit
def stored_in_part(a):
    y = chain(a)
    out = nl.ndarray((P, WIDTH), dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[:, 0 : WIDTH // 2], src=y[:, 0 : WIDTH // 2])
    nisa.dma_copy(dst=out[:, WIDTH // 2 : WIDTH], src=y[:, WIDTH // 2 : WIDTH])
    return out


@nki.jit
def written_in_halves(a):
    x, y = loaded(a[0:P, 0:WIDTH]), tile()
    nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
    for half in (slice(0, WIDTH // 2), slice(WIDTH // 2, WIDTH)):
        nisa.tensor_scalar(dst=y[:, half], data=x[:, half], op0=nl.add, operand0=1.0)
    return stored(y)


@nki.jit
def stored_as_another_type(a):
    y = chain(a)
    out = nl.ndarray((P, WIDTH), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out


@nki.jit
def read_behind_its_store(a):
    y = chain(a)
    out = stored(y)
    low = tile(1)
    nisa.tensor_reduce(dst=low, op=nl.maximum, data=y, axis=1)
    stored(low)
    return out


@nki.jit
def reduced_too(a):
    """What an instruction does to the registers of its partitions goes by its result."""
    x = chain(a)
    y, total = tile(), tile(1)
    nisa.activation_reduce(dst=y, op=nl.copy, data=x, reduce_op=nl.add, reduce_res=total)
    stored(total)
    return stored(y)


KEPT = (
    *(stored_twice, stored_in_part, written_in_halves),
    *(stored_as_another_type, read_behind_its_store, reduced_too),
)
"""Kernels that add 2, with stores of which none can be left out."""


@pytest.mark.parametrize("kernel", KEPT, ids=lambda kernel: kernel.__name__)
def test_a_result_that_others_need_is_stored_from_its_tile(kernel):
    a = random(2 * P, 2 * WIDTH)
    program = program_of(kernel, a)
    assert idle(program)[1] == 0
    found = LoadedProgram(program).run([a]).outputs[0]
    expected = (a[:P, :WIDTH] + 1 + 1).astype(found.dtype)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("between", ["a store", "a load", "nothing"])
def test_what_uses_a_tensor_in_between_keeps_its_order(between):
    """Zeros that are stored there after the result was computed, but before it is stored; or what
    the tensor holds, which is loaded in between and stored to another one."""
    builder, vector = Builder(), Engine.vector
    shape, pattern = (P, WIDTH), contiguous((P, WIDTH))
    source, target = (builder.tensor(name, "float32", shape, "inout") for name in "ab")
    x, y, z = (sbuf("float32", 4 * WIDTH * number, P, WIDTH) for number in range(3))
    for each in (x, y, z):
        builder.begin(vector, each)
    builder.dma(vector, x, hbm(source, "float32", pattern))
    builder.add(vector, elementwise.Memset, z, 0.0)
    double = (y, x, ALU["multiply"], 2.0, False, None, None, False)
    builder.add(vector, elementwise.TensorScalar, *double)
    if between == "a store":
        builder.dma(vector, hbm(target, "float32", pattern), z)
    if between == "a load":
        builder.dma(vector, z, hbm(target, "float32", pattern))
    builder.dma(vector, hbm(target, "float32", pattern), y)
    builder.dma(vector, hbm(source, "float32", pattern), z)
    program = builder.finish()
    assert idle(program) == [0, int(between == "nothing")]
    a, b = random(P, WIDTH), random(P, WIDTH) + 1
    first, second = LoadedProgram(program).run([a, b]).inputs_after
    np.testing.assert_array_equal(first, b if between == "a load" else np.zeros_like(a))
    np.testing.assert_array_equal(second, 2 * a)


@nki.jit
def on_two_cores(a):
    out = nl.ndarray((2 * P, WIDTH), dtype=a.dtype, buffer=nl.shared_hbm)
    first = nl.program_id(0) * P
    x, y = loaded(a[nl.ds(first, P), 0:WIDTH]), tile()
    nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
    nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out[nl.ds(first, P), :], src=y)
    return out


def test_a_core_of_several_stores_its_tiles():
    a = random(2 * P, 2 * WIDTH)
    program = program_of(on_two_cores[2], a)
    assert idle(program)[1] == 0
    found = LoadedProgram(program).run([a]).outputs[0]
    np.testing.assert_array_equal(found, a[:, :WIDTH] + 1 + 1)


@nki.jit
def half_written(a):
    x, y, z = tile(), tile(), loaded(a[0:P, 0:WIDTH])
    nisa.tensor_copy(dst=x[:, 0 : WIDTH // 2], src=z[:, 0 : WIDTH // 2])
    nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0)
    return stored(y)


def test_uninitialised_data_is_found_as_before():
    a = random(2 * P, 2 * WIDTH)
    program = program_of(half_written, a)
    assert idle(program) == [1, 1]
    errors = []
    for native in (True, False):
        loaded_program = LoadedProgram(program, native=native)
        with pytest.raises(nki.NeuronError) as error:
            loaded_program.run([a])
        findings = loaded_program.shadow.findings
        errors.append((error.value.code, str(error.value), error.value.location, findings))
    assert errors[0] == errors[1]
    assert errors[0][0] == "uninitialised-output"
    found = LoadedProgram(program, check=False).run([a]).outputs[0]
    expected = LoadedProgram(program, check=False, native=False).run([a]).outputs[0]
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(found[:, WIDTH // 2 :]).all()


@nki.jit
def sums_alone(a):
    """The squares themselves are read by nobody."""
    x = loaded(a[0:P, 0:WIDTH])
    squares, total = tile(), tile(1)
    nisa.activation_reduce(dst=squares, op=nl.square, data=x, reduce_op=nl.add, reduce_res=total)
    return stored(total)


@nki.jit
def sums_and_squares(a):
    x = loaded(a[0:P, 0:WIDTH])
    squares, total, y = tile(), tile(1), tile()
    nisa.activation_reduce(dst=squares, op=nl.square, data=x, reduce_op=nl.add, reduce_res=total)
    nisa.tensor_scalar(dst=y, data=squares, op0=nl.subtract, operand0=total)
    return stored(y)


@pytest.mark.parametrize("check", [True, False])
def test_what_nobody_reads_is_not_written(check):
    a = random(2 * P, 2 * WIDTH)
    x = a[:P, :WIDTH].astype(np.float64) ** 2
    totals = x.sum(1, keepdims=True)
    for kernel, unread, expected in (
        (sums_alone, True, totals),
        (sums_and_squares, False, x - totals),
    ):
        loaded_program = LoadedProgram(program_of(kernel, a), check)
        sbuf = loaded_program.device.cores[0].sbuf
        found = loaded_program.run([a]).outputs[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        written = np.count_nonzero(sbuf.buffer.reshape(P, -1)[:, : sbuf.partition_bytes])
        assert (written < P * WIDTH) == unread


def test_the_argument_may_be_anywhere():
    """An array that does not begin where its elements would lie in lines of cache, nor in words;
    another one in the next run."""
    expected = numpy_two_tiles(random(2 * P, 2 * WIDTH))
    data = random(2 * P, 2 * WIDTH).tobytes()
    loaded_program = LoadedProgram(program_of(two_tiles, random(2 * P, 2 * WIDTH)))
    for skipped in (0, 1, 4):
        memory = np.frombuffer(bytes(skipped) + data, np.uint8)[skipped:]
        a = memory.view(np.float32).reshape(2 * P, 2 * WIDTH)
        np.testing.assert_array_equal(loaded_program.run([a]).outputs[0], expected)


def test_threads_share_rows_in_hbm():
    a = random(2 * P, 2 * WIDTH)
    program = program_of(two_tiles, a)
    found = LoadedProgram(program, threads=2).run([a]).outputs[0]
    np.testing.assert_array_equal(found, numpy_two_tiles(a))
