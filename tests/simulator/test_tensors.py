"""Large tensors are not copied, and nobody sees that they are not."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.files.text import assemble, disassemble
from simulator.execute import LoadedProgram

Array = np.ndarray[Any, Any]

SHAPE = (256, 512)


@nki.jit
def plus_one(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(a.shape[0] // 128):
        rows = nl.ds(i * 128, 128)
        tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[rows, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out[rows, :], src=tile)
    return out


@pytest.fixture(scope="module")
def compiled() -> nki.CompiledKernel:
    return nki.compile(plus_one, nki.TensorSpec(SHAPE, nl.float32), target="trn2")


def test_results_belong_to_the_caller(compiled: nki.CompiledKernel) -> None:
    """A later call changes neither an earlier result nor what was made of it."""
    kept, expected = [], []
    for value in range(4):
        argument = np.full(SHAPE, value, np.float32)
        result = compiled(argument)
        # A view, a part, or the bytes of a result hold its memory as well as the result.
        kept.append((result, result[3:5], memoryview(result), result.view(np.uint32))[value])
        expected.append(np.float32(value + 1))
        del result
    for held, value in zip(kept, expected):
        found = np.asarray(held)
        np.testing.assert_array_equal(found.view(np.float32), value)


def test_a_result_can_be_the_next_argument(compiled: nki.CompiledKernel) -> None:
    value = np.zeros(SHAPE, np.float32)
    for _ in range(5):
        value = compiled(value)
    np.testing.assert_array_equal(value, 5)


def test_arguments_are_read_where_they_are_and_not_written(compiled: nki.CompiledKernel) -> None:
    rng = np.random.default_rng(0)
    argument = rng.uniform(-1, 1, SHAPE).astype(np.float32)
    argument.flags.writeable = False
    for view in (argument, argument[::-1], np.asfortranarray(argument)):
        np.testing.assert_array_equal(compiled(view), view + np.float32(1))


def test_results_can_be_written_to(compiled: nki.CompiledKernel) -> None:
    first = compiled(np.zeros(SHAPE, np.float32))
    first[...] = 7
    second = compiled(np.ones(SHAPE, np.float32))
    assert (first == 7).all() and (second == 2).all()


def test_memory_of_a_dropped_result_is_used_again(compiled: nki.CompiledKernel) -> None:
    argument = np.zeros(SHAPE, np.float32)
    compiled(argument)
    first = compiled(argument)
    place = first.ctypes.data
    del first
    assert compiled(argument).ctypes.data == place


def test_memory_goes_with_the_program(compiled: nki.CompiledKernel) -> None:
    """At once: large memories do not wait for the garbage collector."""
    argument = np.zeros(SHAPE, np.float32)
    program = compiled.program_for([argument])
    gc.disable()
    try:
        for native in (True, False):
            loaded = LoadedProgram(program, native=native)
            result = loaded.run([argument]).outputs[0]
            arena = weakref.ref(loaded.device.cores[0].sbuf.buffer)
            tensors = [weakref.ref(buffer) for buffer in loaded.device.tensors]
            del loaded
            held = [memory() is not None for memory in (arena, *tensors)]
            # The result's memory is that of a tensor in native runs.
            assert not held[0] and sum(held[1:]) <= native
            np.testing.assert_array_equal(result, 1)
            del result
            assert all(memory() is None for memory in tensors)
    finally:
        gc.enable()


@nki.jit
def plus_ramp(a):
    ramp = nl.shared_constant(np.arange(128 * 512, dtype=np.float32).reshape(128, 512))
    out = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
    left, right = (nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=ramp)
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
    nisa.dma_copy(dst=out, src=left)
    return out


@pytest.mark.parametrize("native", [True, False])
def test_constants_are_read_where_the_program_has_them(native: bool) -> None:
    program = nki.compile(plus_ramp, nki.TensorSpec((128, 512), nl.float32), target="trn2").program
    loaded = LoadedProgram(program, native=native)
    (constant,) = (at for at, tensor in enumerate(program.tensors) if tensor.data is not None)
    data = np.frombuffer(program.tensors[constant].data, np.uint8)
    assert np.shares_memory(loaded.device.tensors[constant], data)
    for _ in range(2):
        (result,) = loaded.run([np.ones((128, 512), np.float32)]).outputs
        assert np.array_equal(result.ravel(), np.arange(1, 128 * 512 + 1, dtype=np.float32))


@pytest.mark.parametrize("native", [True, False])
def test_a_program_that_writes_to_a_constant_is_refused(native: bool) -> None:
    program = nki.compile(plus_ramp, nki.TensorSpec((128, 512), nl.float32), target="trn2").program
    constant = next(at for at, tensor in enumerate(program.tensors) if tensor.data is not None)
    (output,) = program.results
    text = disassemble(program)
    assert text.count(f"dst=float32@shared_hbm[t{output}]") == 1
    changed = assemble(
        text.replace(f"dst=float32@shared_hbm[t{output}]", f"dst=float32@shared_hbm[t{constant}]")
    )
    with pytest.raises(nki.NeuronError, match="writes to its constant") as caught:
        LoadedProgram(changed, native=native)
    assert caught.value.code == "program-malformed"
