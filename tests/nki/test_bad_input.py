"""Kernels that cannot work are refused with the kernel's line, the rule and a way out."""

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


# Operations


@nki.jit
def tall(a):
    tile = nl.ndarray((256, 64), dtype=a.dtype, buffer=nl.sbuf)  # here
    nisa.dma_copy(dst=tile, src=a)
    return a


@in_every_mode
def test_a_tile_of_256_partitions(mode):
    with refused("partition-limit", "[256, 64]", "sbuf", 256, 128, kernel="tall"):
        run(tall, mode, zeros(256, 64))


@nki.jit
def computes_in_hbm(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.tensor_tensor(dst=out, data1=a, data2=a, op=nl.add)  # here
    return out


@nki.jit
def multiplies_into_sbuf(a):
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    product = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.nc_matmul(dst=product, stationary=tile, moving=tile)  # here
    return a


@nki.jit
def loads_into_psum(a):
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.psum)
    nisa.dma_copy(dst=tile, src=a)  # here
    return a


@in_every_mode
@pytest.mark.parametrize(
    "kernel, operand, memory",
    [
        (computes_in_hbm, "dst", "hbm"),
        (multiplies_into_sbuf, "dst", "sbuf"),
        (loads_into_psum, "dst", "psum"),
    ],
)
def test_an_operand_in_the_wrong_memory(mode, kernel, operand, memory):
    name = kernel.function.__name__
    with refused("wrong-memory", operand, memory, kernel=name):
        run(kernel, mode, zeros(64, 64))


@nki.jit
def contracts(a, b):
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    product = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(product, left, right)  # here
    return a


@in_every_mode
def test_a_matmul_whose_contraction_sizes_differ(mode):
    with refused("contraction-mismatch", 64, 96, kernel="contracts"):
        run(contracts, mode, zeros(64, 32), zeros(96, 16))


@nki.jit
def slices_outside(a, size):
    tile = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
    part = tile[:, nl.ds(32, size)]  # here
    nisa.dma_copy(dst=part, src=a)
    return a


@nki.jit
def indexes_outside(a, index):
    row = a[index, :]  # here
    return row


@nki.jit
def pattern_outside(a, count):
    view = a.ap(pattern=[[64, count], [1, 64]])  # here
    return view


@in_every_mode
@pytest.mark.parametrize(
    "kernel, argument, values",
    [
        (slices_outside, 33, ("ds(32, 33)", "size 64", "32 to 64")),
        (indexes_outside, 64, ("index 64", "size 64")),
        (indexes_outside, -65, ("index -65", "size 64")),
        (pattern_outside, 65, ("0 to 4159", "4096")),
    ],
)
def test_a_view_outside_the_tensor(mode, kernel, argument, values):
    with refused("out-of-bounds", *values, kernel=kernel.function.__name__):
        run(kernel, mode, zeros(64, 64), argument)


@nki.jit
def shifts_outside(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows, columns = a.shape
    for i in nl.affine_range(rows // 128):
        tile = nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf)
        source = a[nl.ds(i * 128 + 1, 128), :]  # here
        nisa.dma_copy(dst=tile, src=source)
        nisa.dma_copy(dst=out[nl.ds(i * 128, 128), :], src=tile)
    return out


def test_a_view_outside_the_tensor_in_some_iteration_of_a_rolled_loop():
    rows = nki.symbol("M", multiple_of=128, max=1024)
    with refused("out-of-bounds", "128", "size M", kernel="shifts_outside"):
        nki.compile(shifts_outside, a=nki.TensorSpec((rows, 16), nl.float32))


# Space


@nki.jit
def too_much_sbuf(a, width):
    tiles = []
    for _ in range(3):
        tile = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)  # here
        nisa.memset(dst=tile, value=1.0)
        tiles.append(tile)
    nisa.tensor_tensor(dst=tiles[0], data1=tiles[1], data2=tiles[2], op=nl.add)  # all at once
    nisa.dma_copy(dst=a, src=tiles[0][:, 0:1])
    return a


def test_an_sbuf_that_overflows():
    # trn2 has 224 KiB a partition.
    nki.compile(too_much_sbuf, zeros(128, 1), 56 * 1024 // 3 // 4 * 4)
    values = ("tile", 80 * 1024, 3 * 80 * 1024, 229376)
    with refused("sbuf-overflow", *values, kernel="too_much_sbuf") as caught:
        nki.compile(too_much_sbuf, zeros(128, 1), 20 * 1024)
    live = "\n".join(caught.value.notes)
    line = line_number("tile = nl.ndarray((128, width)")
    assert live.count("tile") == 3 and live.count("81920 B") == 3
    assert live.count(f"line {line}") == 3


@nki.jit
def too_much_psum(a, banks):
    totals = []
    for _ in range(2):
        total = nl.ndarray((128, banks * 512), dtype=nl.float32, buffer=nl.psum)  # here
        totals.append(total)
    nisa.memset(dst=totals[0], value=1.0)
    nisa.tensor_copy(dst=totals[1], src=totals[0])
    tile = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=totals[1][:, 0:1])
    nisa.dma_copy(dst=a, src=tile)
    return a


def test_a_psum_that_overflows():
    # 16 KiB a partition, in banks of 2 KiB.
    nki.compile(too_much_psum, zeros(128, 1), 4)
    with refused("psum-overflow", "total", 10240, kernel="too_much_psum") as caught:
        nki.compile(too_much_psum, zeros(128, 1), 5)
    assert "\n".join(caught.value.notes).count("total") == 2


# Data


@nki.jit
def half_initialised(a):
    tile = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)  # here
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@in_every_mode
def test_uninitialised_data_that_reaches_an_output(mode):
    values = ("out", 128 * 32, 128 * 64, "element 32")
    with refused("uninitialised-output", *values, kernel="half_initialised"):
        run(half_initialised, mode, zeros(128, 64))


@nki.jit
def uninitialised_on_the_side(a):
    tile = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
    copy = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
    nisa.tensor_scalar(dst=copy, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray((128, 32), dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=copy[:, 0:32])
    return out


@in_every_mode
def test_uninitialised_data_that_no_output_depends_on_is_harmless(mode):
    a = np.arange(128 * 64, dtype=F32).reshape(128, 64)
    np.testing.assert_array_equal(run(uninitialised_on_the_side, mode, a), 2 * a[:, :32])


@nki.jit
def forgets_the_output(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)  # here
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    return out


@nki.jit
def writes_half_of_the_output(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)  # here
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.dma_copy(dst=out[0:32, :], src=tile[0:32, :])
    return out


@in_every_mode
@pytest.mark.parametrize(
    "kernel, values",
    [
        (forgets_the_output, ("out", "none of its 256")),
        (writes_half_of_the_output, ("out", "128 of its 256", "element 128")),
    ],
)
def test_an_output_that_is_not_written(mode, kernel, values):
    with refused("output-not-written", *values, kernel=kernel.function.__name__):
        run(kernel, mode, zeros(64, 4))


@in_every_mode
def test_without_checks_the_part_that_is_written_comes_back(mode, monkeypatch):
    a = np.arange(256, dtype=F32).reshape(64, 4)
    with pytest.raises(nki.NeuronError) as caught:
        run(writes_half_of_the_output, mode, a)
    assert "NKI_UNWRITTEN=allowed" in caught.value.hint
    monkeypatch.setenv("NKI_CHECKS", "0")
    np.testing.assert_array_equal(run(writes_half_of_the_output, mode, a)[:32], a[:32])


@nki.jit
def returns_a_tile(a):
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    return tile


@in_every_mode
def test_a_result_on_chip(mode):
    with pytest.raises(nki.NeuronError) as caught:
        run(returns_a_tile, mode, zeros(64, 4))
    assert caught.value.code == "output-not-hbm"
    assert "tile" in caught.value.what and "sbuf" in caught.value.what


@in_every_mode
def test_a_result_that_a_call_makes_is_named_by_the_call(mode):
    def kernel(a):
        return nl.exp(nl.load(a))

    with pytest.raises(
        nki.NeuronError, match=r"returns nl\.exp\(nl\.load\(a\)\), which is in sbuf"
    ):
        run(kernel, mode, zeros(64, 4))


# Cores


@nki.jit
def swaps_without_barrier(a):
    rows, columns = a.shape
    half, core = rows // 2, nl.program_id(0)
    mine, theirs = nl.ds(core * half, half), nl.ds((1 - core) * half, half)
    shared = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((half, columns), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a[mine, :])
    nisa.dma_copy(dst=shared[mine, :], src=tile)  # there
    other = nl.ndarray((half, columns), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=other, src=shared[theirs, :])  # here
    nisa.dma_copy(dst=out[mine, :], src=other)
    return out


def test_a_missing_barrier_between_cores():
    with refused("race", "core 0", "core 1", kernel="swaps_without_barrier") as caught:
        nki.compile(swaps_without_barrier[2], zeros(64, 8))
    error = caught.value
    first, second = (line_number(text) for text in ("# there", "src=shared[theirs, :])  # here"))
    assert f"test_bad_input.py:{first}" in error.what and f":{second}" in error.what
    assert "core_barrier" in error.hint
    assert any("# there" in note for note in error.notes)


def line_number(text):
    """The number of the first line of this file that contains a text."""
    with open(__file__) as source:
        return next(n for n, line in enumerate(source, 1) if text in line)


@nki.jit
def swaps_rows_without_barrier(a):
    rows, columns = a.shape
    core = nl.program_id(0)
    shared = nl.ndarray((2, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray((2, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        here = nl.ds(i * 128, 128)
        tile = nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[here, :])
        nisa.dma_copy(dst=shared[core, here, :], src=tile)
        other = nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=other, src=shared[1 - core, here, :])  # here
        nisa.dma_copy(dst=out[core, here, :], src=other)
    return out


def test_a_missing_barrier_in_a_loop_over_a_launch_symbol():
    rows = nki.symbol("M", multiple_of=128, max=8192)
    spec = nki.TensorSpec((rows, 8), nl.float32)
    with refused("race", "core 0", "core 1", kernel="swaps_rows_without_barrier") as caught:
        nki.compile(swaps_rows_without_barrier[2], a=spec)
    assert any("M = " in note for note in caught.value.notes)
