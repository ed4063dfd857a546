"""Kernels whose Python cannot be traced, and launches that do not fit, are refused at the line."""

import traceback

import ml_dtypes
import numpy as np
import pytest
from refusals import refused

import nki
import nki.isa as nisa
import nki.language as nl

MODES = ("device", "reference", "eager")
F32 = np.float32


@pytest.fixture(autouse=True)
def nothing_left(tmp_path, monkeypatch):
    """Runs in an empty folder, which must be empty afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    yield
    assert list(tmp_path.iterdir()) == []


def zeros(*shape, dtype=F32):
    return np.zeros(shape, dtype)


def run(kernel, mode, *inputs):
    return nki.simulate(kernel, mode=mode)(*inputs)


in_every_mode = pytest.mark.parametrize("mode", MODES)
when_compiled = pytest.mark.parametrize("mode", ["device", "reference"])


@nki.jit
def tall(a):
    tile = nl.ndarray((256, 64), dtype=a.dtype, buffer=nl.sbuf)  # here
    nisa.dma_copy(dst=tile, src=a)
    return a


# Python at tracing time


@nki.jit
def branches_on_a_register(a, counts):
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=counts)
    count = nisa.register_alloc()
    nisa.register_load(count, tile)
    if count:  # here
        nisa.memset(dst=tile, value=0)
    return a


@nki.jit
def compares_a_register(a, counts):
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=counts)
    count = nisa.register_alloc()
    nisa.register_load(count, tile)
    while count > 3:  # here
        nisa.memset(dst=tile, value=0)
    return a


@nki.jit
def branches_on_a_loop_variable(a, counts):
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    for i in nl.dynamic_range(4):
        if i == 0:  # here
            nisa.memset(dst=tile, value=0)
    return a


@in_every_mode
@pytest.mark.parametrize(
    "kernel, value",
    [
        (branches_on_a_register, "'count'"),
        (compares_a_register, "'count'"),
        (branches_on_a_loop_variable, "'i'"),
    ],
)
def test_a_branch_on_a_register(mode, kernel, value):
    with refused("register-branch", value, kernel=kernel.function.__name__):
        run(kernel, mode, zeros(4, 4), zeros(1, 1, dtype=np.int32))


@nki.jit
def calculates_with_a_register(a):
    count = nisa.register_alloc(3)
    double = count * 2  # here
    nisa.register_move(count, double)
    return a


@nki.jit
def counts_with_a_register(a):
    for i in range(nisa.register_alloc(3)):  # here
        nisa.register_alloc(i)
    return a


@in_every_mode
@pytest.mark.parametrize("kernel", [calculates_with_a_register, counts_with_a_register])
def test_python_arithmetic_on_a_register(mode, kernel):
    with refused("register-arithmetic", "register", kernel=kernel.function.__name__):
        run(kernel, mode, zeros(4, 4))


@nki.jit
def breaks_out_of_a_dynamic_loop(a):
    tile = nl.ndarray((4, 4), dtype=a.dtype, buffer=nl.sbuf)
    for _ in nl.dynamic_range(4):  # here
        nisa.memset(dst=tile, value=0)
        break
    return a


@nki.jit
def returns_from_a_dynamic_loop(a):
    tile = nl.ndarray((4, 4), dtype=a.dtype, buffer=nl.sbuf)
    for _ in nl.dynamic_range(4):  # here
        nisa.memset(dst=tile, value=0)
        return a


@nki.jit
def breaks_out_of_a_while(a):
    count = nisa.register_alloc(3)
    while count:
        nisa.register_move(count, 0)
        break  # here
    return a


@in_every_mode
@pytest.mark.parametrize(
    "kernel", [breaks_out_of_a_dynamic_loop, returns_from_a_dynamic_loop, breaks_out_of_a_while]
)
def test_leaving_a_dynamic_loop(mode, kernel):
    with refused("loop-break", kernel=kernel.function.__name__):
        run(kernel, mode, zeros(4, 4))


@nki.jit
def counts_in_python(a):
    tile = nl.ndarray((4, 4), dtype=a.dtype, buffer=nl.sbuf)
    value = 1.0
    for _ in nl.dynamic_range(4):
        nisa.memset(dst=tile, value=value)  # here
        value *= 2
    return a


@nki.jit
def keeps_a_tile(a):
    tile = nl.ndarray((4, 4), dtype=a.dtype, buffer=nl.sbuf)
    for _ in nl.dynamic_range(4):
        following = nl.ndarray((4, 4), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=following, src=tile)  # here
        tile = following
    return a


@nki.jit
def uses_after_the_loop(a):
    for _ in nl.dynamic_range(4):
        tile = nl.ndarray((4, 4), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a)
    nisa.dma_copy(dst=a, src=tile)  # here
    return a


@when_compiled
@pytest.mark.parametrize(
    "kernel, values",
    [
        (counts_in_python, ("1.0", "2.0")),
        (keeps_a_tile, ("'tile'", "'following'")),
        (uses_after_the_loop, ("'tile",)),
    ],
)
def test_python_state_carried_through_a_rolled_loop(mode, kernel, values):
    with refused("loop-carried-state", *values, kernel=kernel.function.__name__):
        run(kernel, mode, zeros(4, 4))


# Launch symbols


@nki.jit
def ranges_over_a_symbol(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(a.shape[0] // 128):  # here
        nisa.dma_copy(dst=out[nl.ds(i * 128, 128), :], src=a[nl.ds(i * 128, 128), :])
    return out


def test_range_over_a_launch_symbol():
    rows = nki.symbol("M", multiple_of=128, max=8192)
    with refused("symbol-range", "M", kernel="ranges_over_a_symbol") as caught:
        nki.compile(ranges_over_a_symbol, a=nki.TensorSpec((rows, 64), nl.float32))
    assert "nl.affine_range" in caught.value.hint


@nki.jit
def indexes_by_a_symbol(a):
    names = ["x", "y", "z"]
    print(names[a.shape[0] - 1])  # here
    return a


def test_a_launch_symbol_where_python_needs_an_integer():
    rows = nki.symbol("M", max=3)
    with refused("symbol-index", "M", kernel="indexes_by_a_symbol"):
        nki.compile(indexes_by_a_symbol, a=nki.TensorSpec((rows, 64), nl.float32))


@nki.jit
def doubles_rows(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows, columns = a.shape
    if rows >= 256:  # here
        for i in nl.affine_range(rows // 128):
            tile = nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a[nl.ds(i * 128, 128), :])
            nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
            nisa.dma_copy(dst=out[nl.ds(i * 128, 128), :], src=tile)
    return out


@pytest.mark.parametrize(
    "size, values, kernel",
    [
        (8320, (8320, "at most 8192"), None),  # the symbol's own range: no line is to blame
        (200, (200, "multiple of 128"), None),
        (128, (128, "M >= 256"), "doubles_rows"),  # the branch goes another way for larger sizes
    ],
)
def test_a_size_that_the_guards_refuse(size, values, kernel):
    rows = nki.symbol("M", multiple_of=128, max=8192)
    compiled = nki.compile(doubles_rows, a=nki.TensorSpec((rows, 16), nl.float32))
    np.testing.assert_array_equal(compiled(np.ones((384, 16), F32)), np.full((384, 16), 2, F32))
    with refused("guard-refused", *values, kernel=kernel):
        compiled(zeros(size, 16))


# Launches


@nki.jit
def adds(a, b):
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=left)
    return out


@pytest.fixture
def compiled_adds():
    return nki.compile(adds, a=nki.TensorSpec((8, 4), nl.float32), b=zeros(8, 4))


@pytest.mark.parametrize(
    "arrays, code, values",
    [
        ((zeros(8, 4), zeros(8, 4, dtype=np.float16)), "input-mismatch", ("b", "float16")),
        ((zeros(8, 4), zeros(8, 5)), "input-mismatch", ("b", "[8, 4]", "[8, 5]")),
        ((zeros(8, 4), zeros(8, 4, 1)), "input-mismatch", ("b", "[8, 4]", "[8, 4, 1]")),
        ((zeros(8, 4),), "input-mismatch", ("adds", "a, b", "1")),
        ((zeros(8, 4),) * 3, "input-mismatch", ("adds", "a, b", "3")),
        ((zeros(8, 4), 3.0), "not-a-tensor", ("b", "float")),
    ],
)
def test_arrays_that_do_not_fit_a_compiled_kernel(compiled_adds, arrays, code, values):
    with refused(code, *values):
        compiled_adds(*arrays)


def test_a_name_that_a_compiled_kernel_does_not_have(compiled_adds):
    with refused("input-mismatch", "c"):
        compiled_adds(zeros(8, 4), c=zeros(8, 4))


def test_arguments_that_the_kernel_does_not_have():
    with refused("unknown-argument", "adds", "bias"):
        nki.compile(adds, zeros(8, 4), zeros(8, 4), bias=zeros(8, 4))
    with refused("missing-argument", "adds", "b"):
        adds(zeros(8, 4))


def test_an_unknown_target(monkeypatch):
    with refused("unknown-target", "'trn9'"):
        nki.compile(adds, zeros(8, 4), zeros(8, 4), target="trn9")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "gpu")
    with refused("unknown-target", "'gpu'"):
        adds(zeros(8, 4), zeros(8, 4))


def test_an_unknown_mode():
    with refused("unknown-mode", "'hardware'", "device", "reference", "eager"):
        nki.simulate(adds, mode="hardware")


@pytest.mark.parametrize("grid", [3, (4, 8), (2, 1)])
def test_a_number_of_cores_that_there_is_not(grid):
    """A grid of requests and heads is a loop: a program is a core."""
    with refused("value-not-allowed", f"kernel[{grid}]") as caught:
        adds[grid](zeros(8, 4), zeros(8, 4))
    assert "loop over" in caught.value.hint


@in_every_mode
def test_bytes_moved_into_a_packed_type(mode, monkeypatch):
    """The bytes of four values are viewed as one element; a cast is no way."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")

    @nki.jit
    def loads(data, viewed):
        tile = nl.ndarray((8, 16), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        source = data.view(nl.float8_e4m3fn_x4) if viewed else data
        nisa.dma_copy(dst=tile, src=source)  # here
        out = nl.ndarray((8, 64), dtype=nl.uint8, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile.view(nl.uint8))
        return out

    data = np.arange(8 * 64, dtype=np.uint8).reshape(8, 64)
    with refused("dtype-not-allowed", "float8_e4m3fn_x4", "uint8", kernel="loads") as caught:
        run(loads, mode, data, False)
    assert "src.view(nl.float8_e4m3fn_x4)" in caught.value.hint
    np.testing.assert_array_equal(run(loads, mode, data, True), data)


@in_every_mode
def test_the_fp8_of_torch_on_trn2(mode):
    """torch has only float8_e4m3fn; up to 240 its bits are those of float8_e4m3."""

    @nki.jit
    def loads(data, viewed):
        tile = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.sbuf)
        source = data.view(nl.float8_e4m3) if viewed else data
        nisa.dma_copy(dst=tile, src=source)  # here
        out = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    data = np.linspace(-240, 240, 128).reshape(8, 16).astype(ml_dtypes.float8_e4m3fn)
    with refused("generation", "float8_e4m3fn", "gen4", kernel="loads") as caught:
        run(loads, mode, data, False)
    assert "view(nl.float8_e4m3)" in caught.value.hint
    np.testing.assert_array_equal(run(loads, mode, data, True), data.astype(F32))


def test_an_operation_outside_a_kernel():
    name = "test_an_operation_outside_a_kernel"
    with refused("no-tracer", "nisa.memset", kernel=name):
        nisa.memset(dst=None, value=0)  # here
    with refused("no-tracer", "register_alloc"):
        nisa.register_alloc(1)


def test_symbols_and_specifications_that_mean_nothing():
    name = "test_symbols_and_specifications_that_mean_nothing"
    with refused("value-not-allowed", "'1M'", kernel=name):
        nki.symbol("1M")  # here
    with refused("value-not-allowed", "M", 300, 200, kernel=name):
        nki.symbol("M", min=300, max=200)  # here
    with refused("value-not-allowed", "-1"):
        nki.TensorSpec((-1, 4), nl.float32)
    with refused("dtype-not-allowed", "float31"):
        nki.TensorSpec((1, 4), "float31")


# Running


@nki.jit
def copies_rows(a, starts):
    out = nl.ndarray((8, a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=starts)
    start = nisa.register_alloc()
    nisa.register_load(start, tile)
    rows = nl.ndarray((8, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=a[nl.ds(start, 8), :])  # here
    nisa.dma_copy(dst=out, src=rows)
    return out


@nki.jit
def gathers_rows(a, starts):
    out = nl.ndarray((1, a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    index = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=index, src=starts)
    rows = nl.ndarray((1, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=a.vector_select(0, index))  # here
    nisa.dma_copy(dst=out, src=rows)
    return out


@in_every_mode
@pytest.mark.parametrize("kernel, last", [(copies_rows, 24), (gathers_rows, 31)])
@pytest.mark.parametrize("beyond", [1, 1000, -1000])
def test_a_dynamic_transfer_out_of_bounds(mode, kernel, last, beyond):
    a = np.arange(32 * 4, dtype=F32).reshape(32, 4)
    good = run(kernel, mode, a, np.array([[last]], np.int32))
    np.testing.assert_array_equal(good, a[last : last + len(good)])
    start = last + beyond
    with refused("dynamic-out-of-bounds", kernel=kernel.function.__name__):
        run(kernel, mode, a, np.array([[start]], np.int32))


@nki.jit
def doubles_own_half(a):
    rows = nl.ds(nl.program_id(0) * 8, 8)
    tile = nl.ndarray((8, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile[:, 0:32], src=a[rows, 0:32])
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)  # here
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[rows, :], src=tile)
    return out


@in_every_mode
def test_errors_on_two_cores(mode):
    with refused("partition-limit", 256, kernel="tall"):
        run(tall[2], mode, zeros(256, 64))
    with refused("uninitialised-output", "out", 512, 1024, kernel="doubles_own_half"):
        run(doubles_own_half[2], mode, zeros(16, 64))


def test_own_frames_on_demand(monkeypatch):
    monkeypatch.setenv("NKI_TRACEBACK", "1")
    with pytest.raises(nki.NeuronError) as caught:
        tall(zeros(256, 64))
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files[-1].endswith("nki/ir/builder/allocation.py")


def test_exceptions_of_the_kernel_itself_pass_unchanged():
    @nki.jit
    def divides(a):
        return a.shape[0] / 0

    for mode in MODES:
        with pytest.raises(ZeroDivisionError) as caught:
            run(divides, mode, zeros(4, 4))
        last = traceback.extract_tb(caught.value.__traceback__)[-1]
        assert (last.filename, last.name) == (__file__, "divides")


def test_inputs_are_as_before_when_a_run_fails():
    @nki.jit
    def updates_then_fails(a, starts):
        tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=7.0)
        nisa.dma_copy(dst=a, src=tile)
        return copies_rows(a, starts)

    for mode in MODES:
        a = zeros(32, 4)
        with refused("dynamic-out-of-bounds", kernel="copies_rows"):
            run(updates_then_fails, mode, a, np.array([[500]], np.int32))
        assert not a.any()
