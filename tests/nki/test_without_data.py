"""A kernel is profiled for shapes alone; what needs data says that it got none."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit(target="trn2")
def copy(a, factor=2.0):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        here = nl.ds(start, 128)
        x = nl.load(a[here, :])
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[here, :], src=x)
    return out


@nki.jit(target="trn2")
def until_small(a):
    out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    tile = nl.load(a)
    register = nisa.register_alloc()
    nisa.register_load(dst=register, src=tile)
    for _ in nl.dynamic_range(register):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2)
    nisa.dma_copy(dst=out, src=tile)
    return out


SPEC = nki.TensorSpec((512, 256), nl.float32)


def test_a_profile_of_shapes_is_that_of_arrays() -> None:
    outputs, of_shapes = nki.profile(copy)(SPEC)
    assert outputs is None
    of_arrays = nki.profile(copy)(np.ones((512, 256), np.float32))[1]
    assert of_shapes.to_dict() == of_arrays.to_dict()
    assert of_shapes.arguments == {"factor": 2.0}
    assert "<svg" in of_shapes._repr_html_()
    assert repr(of_shapes) == (
        f"<profile of copy on trn2: {of_shapes.total_us:.2f} us, {of_shapes.bound}; "
        "text() is the report>"
    )
    assert nki.profile(copy[2])(a=SPEC)[1].cores == 2


def refused(call) -> nki.NeuronError:
    with pytest.raises(nki.NeuronError) as caught:
        call()
    return caught.value


def test_sizes_that_are_open_are_asked_for() -> None:
    rows = nki.symbol("M", 512, multiple_of=128)
    error = refused(lambda: nki.profile(copy)(nki.TensorSpec((rows, 256), nl.float32)))
    assert error.code == "input-mismatch" and "a has the shape (M, 256)" in error.what
    assert "numbers" in error.hint


@pytest.mark.filterwarnings("ignore:nki.language.dynamic_range")
def test_a_kernel_whose_data_decide_its_time_needs_them() -> None:
    error = refused(lambda: nki.profile(until_small)(nki.TensorSpec((1, 1), nl.int32)))
    assert error.code == "missing-argument" and "arrays" in error.hint
    assert nki.profile(until_small)(np.full((1, 1), 3, np.int32))[0].item() == 24


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_nothing_is_computed_without_data(mode) -> None:
    for call in (nki.simulate(copy, mode=mode), copy):
        error = refused(lambda call=call: call(SPEC))
        assert error.code == "input-mismatch"
        assert "a is a TensorSpec" in error.what and "no data" in error.what
        assert "nki.profile" in error.hint and "nki.compile" in error.hint
    error = refused(lambda: nki.compile(copy, SPEC)(SPEC))
    assert error.code == "input-mismatch" and "no data" in error.what


@pytest.mark.parametrize("function", [nki.profile, nki.simulate, nki.benchmark])
def test_arguments_of_a_kernel_beside_it_are_told_where_to_go(function) -> None:
    name = f"{function.__name__}(kernel)(...)"
    for call in (lambda: function(copy, SPEC, SPEC, SPEC, SPEC), lambda: function(copy, a=SPEC)):
        error = refused(call)
        assert error.code == "unknown-argument" and name in error.hint
