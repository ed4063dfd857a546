"""Eager mode: values while the kernel's lines execute, cores in turn, errors as they are."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from eager_runs import copy_in, normal, run

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError
from nki.eager.eager import EagerContext
from nki.ir.context import current


def _context() -> EagerContext:
    context = current()
    assert isinstance(context, EagerContext)
    return context


def _copy_out(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_values_are_there_while_the_kernel_runs(capsys: pytest.CaptureFixture[str]) -> None:
    a = normal(4, 6)
    seen: list[Any] = []

    def kernel(x0: Any) -> Any:
        tile = copy_in(x0)
        seen.append(_context().array(tile[1:3, 0:6:2]))
        print(tile[0:1, 0:2])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        seen.append(_context().array(tile))
        return _copy_out(tile)

    outputs, after = run(kernel, a)
    np.testing.assert_array_equal(seen[0], a[1:3, 0:6:2])
    np.testing.assert_array_equal(seen[1], 2 * a)
    np.testing.assert_array_equal(outputs[0], 2 * a)
    assert after[0] is not outputs[0]
    np.testing.assert_array_equal(after[0], a)
    printed = capsys.readouterr().out
    assert "NkiTensor('tile'" in printed
    assert str(a[0:1, 0:2]) in printed


def test_the_debugger_stops_at_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """SDK nki/guides/nki_simulator.rst, "Using breakpoint()": `nki.simulate(my_kernel)(data)`
    stops "here - inspect `tile`", at every call."""
    seen: list[str] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.append(_shown(sys._getframe(1))))

    def _shown(frame: Any) -> str:
        assert frame.f_code.co_name == "my_kernel"
        return repr(frame.f_locals["tile"])

    @nki.jit
    def my_kernel(a_ptr: Any) -> Any:
        tile = nl.load(a_ptr)
        breakpoint()
        result = nl.add(tile, tile)
        return _copy_out(result)

    a = normal(2, 3)
    for call in (nki.simulate(my_kernel), nki.simulate(my_kernel), my_kernel):
        np.testing.assert_array_equal(call(a), 2 * a)
    assert len(seen) == 3 and all(text.endswith(str(a)) for text in seen)
    nki.simulate(my_kernel, mode="device")(a)
    assert str(a) not in seen[3]  # while the kernel is traced


def test_registers_print_their_values(capsys: pytest.CaptureFixture[str]) -> None:
    """The guide, "Using Python print": "any intermediate tensor or register object"."""

    def kernel(x0: Any) -> Any:
        count = nisa.register_alloc()
        unset = nisa.register_alloc()
        nisa.register_load(count, copy_in(x0))
        print(count, unset)
        nl.fori_loop(0, count, lambda i: print(i))

    run(kernel, np.array([[3]], np.int32))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "VirtualRegister('count', value=3) VirtualRegister('unset')"
    assert [line.partition("value=")[2] for line in printed[1:]] == ["0)", "1)", "2)"]


def test_tensors_print_without_data_in_other_modes(capsys: pytest.CaptureFixture[str]) -> None:
    @nki.jit
    def kernel(x0):
        print(x0)
        return _copy_out(copy_in(x0))

    kernel.trace(np.ones((2, 3), np.float32), target="trn2")
    assert capsys.readouterr().out.count("\n") == 1


def test_arrays_that_the_kernel_does_not_write_may_be_read_only() -> None:
    a = normal(2, 8)
    a.flags.writeable = False
    _, after = run(lambda x0: _copy_out(copy_in(x0)), a)
    assert after[0] is a


def test_written_inputs_come_back() -> None:
    def kernel(x0: Any, x1: Any) -> Any:
        tile = copy_in(x0)
        nisa.dma_copy(dst=x1[0:2, :], src=tile)

    a, b = normal(2, 8), normal(4, 8)
    outputs, after = run(kernel, a, b)
    assert outputs == []
    np.testing.assert_array_equal(after[1], np.concatenate([a, b[2:]]))


def test_registers_and_loops_of_the_device_have_values() -> None:
    seen: list[int] = []

    def kernel(x0: Any, x1: Any) -> Any:
        trips = copy_in(x1)
        stop = nisa.register_alloc()
        nisa.register_load(stop, trips)
        out = nl.ndarray(x0.shape, dtype=x0.dtype, buffer=nl.shared_hbm)
        tile = copy_in(x0)
        nisa.dma_copy(dst=out, src=tile)
        row = nl.ndarray((1, 8), dtype=x0.dtype, buffer=nl.sbuf)
        for i in nl.dynamic_range(1, stop, 2):
            seen.append(_context().interpreter.registers[i.number])
            nisa.dma_copy(dst=row, src=x0.ap([[8, 1], [1, 8]], scalar_offset=i))
            nisa.tensor_scalar(dst=row, data=row, op0=nl.add, operand0=1.0)
            nisa.dma_copy(dst=out.ap([[8, 1], [1, 8]], scalar_offset=i), src=row)
        return out

    a = normal(6, 8)
    (out,), _ = run(kernel, a, np.array([[6]], np.int32))
    assert seen == [1, 3, 5]
    expected = a.copy()
    expected[1::2] += np.float32(1)
    np.testing.assert_array_equal(out, expected)


def test_a_dynamic_offset_outside_names_the_line() -> None:
    def kernel(x0: Any, x1: Any) -> Any:
        row = nl.ndarray((1, 8), dtype=x0.dtype, buffer=nl.sbuf)
        index = copy_in(x1)
        nisa.dma_copy(dst=row, src=x0.ap([[8, 1], [1, 8]], scalar_offset=index))
        return _copy_out(row)

    with pytest.raises(NeuronError) as caught:
        run(kernel, normal(6, 8), np.array([[6]], np.int32))
    assert caught.value.code == "dynamic-out-of-bounds"
    assert "scalar_offset=index" in caught.value.location.text


def test_a_register_without_a_value_is_an_error() -> None:
    def kernel(x0: Any) -> Any:
        register = nisa.register_alloc()
        tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.register_store(tile, register)

    with pytest.raises(NeuronError) as caught:
        run(kernel, normal(1, 1))
    assert caught.value.code == "value-not-allowed"
    assert "nisa.register_store" in caught.value.location.text


def test_loops_of_the_device_may_not_be_left() -> None:
    def kernel(x0: Any) -> Any:
        for _ in nl.dynamic_range(4):
            tile = copy_in(x0)
            break
        return _copy_out(tile)

    with pytest.raises(NeuronError) as caught:
        run(kernel, normal(2, 2))
    assert caught.value.code == "loop-break"
    assert "nl.dynamic_range(4)" in caught.value.location.text


def test_uninitialised_data_in_a_result_is_an_error() -> None:
    def kernel(x0: Any) -> Any:
        tile = nl.ndarray((2, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[:, 0:4], src=x0)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        return _copy_out(tile)

    with pytest.raises(NeuronError) as caught:
        run(kernel, normal(2, 4))
    assert caught.value.code == "uninitialised-output"
    assert "nisa.tensor_scalar" in caught.value.location.text
    (out,), _ = run(kernel, np.zeros((2, 4), np.float32), check=False)
    np.testing.assert_array_equal(out[:, :4], 1)
    assert np.isnan(out[:, 4:]).all()


def test_a_result_that_is_not_written_is_an_error() -> None:
    def kernel(x0: Any) -> Any:
        return nl.ndarray((2, 8), dtype=nl.float32, buffer=nl.shared_hbm)

    with pytest.raises(NeuronError) as caught:
        run(kernel, normal(2, 4))
    assert caught.value.code == "output-not-written"


def test_psum_accumulates_and_starts_afresh() -> None:
    def kernel(x0: Any, x1: Any) -> Any:
        stationary, moving = copy_in(x0), copy_in(x1)
        results = []
        for repeats in (1, 3):
            total = nl.ndarray((4, 5), dtype=nl.float32, buffer=nl.psum)
            for _ in range(repeats):
                nisa.nc_matmul(dst=total, stationary=stationary, moving=moving)
            tile = nl.ndarray((4, 5), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=total)
            results.append(_copy_out(tile))
        return tuple(results)

    a, b = normal(8, 4), normal(8, 5)
    (once, thrice), _ = run(kernel, a, b)
    np.testing.assert_allclose(once, a.T @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(thrice, 3 * (a.T @ b), rtol=1e-5, atol=1e-5)


def test_tiles_that_nobody_holds_give_their_memory_back() -> None:
    most = 0

    def kernel(x0: Any) -> Any:
        nonlocal most
        shadow = _context().launch.shadow
        assert shadow is not None
        for _ in range(40):
            tile = copy_in(x0)
            total = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=total, stationary=tile, moving=tile)
            most = max(most, len(shadow.spaces))
        return _copy_out(tile)

    run(kernel, normal(2, 2))
    assert most <= 6


def test_a_specification_has_no_values() -> None:
    with pytest.raises(NeuronError) as caught:
        run(lambda x0: x0, nki.TensorSpec((2, 2), nl.float32))
    assert caught.value.code == "not-a-tensor"


# Two cores ------------------------------------------------------------------------------------


def test_cores_must_make_the_same_shared_tensors() -> None:
    def kernel(x0: Any) -> Any:
        width = 8 + nl.program_id(0)
        return nl.ndarray((2, width), dtype=x0.dtype, buffer=nl.shared_hbm)

    with pytest.raises(NeuronError) as caught:
        run(kernel, normal(2, 8), cores=2)
    assert caught.value.code == "core-mismatch"
