"""What the release notes of NKI 0.4 and 0.5 say that earlier simulators got wrong, a test for each.

Each test names the release and the entry of SDK release-notes/components/nki.rst, "Bug Fixes" (or
"Improvements"). Expectations are NumPy formulas and the documents' own examples; every mode runs.
"""

import copy
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from release_notes import MODES, RANDOM, like, normal, run, stored

import nki
import nki.isa as nisa
import nki.language as nl

pytestmark = [pytest.mark.parametrize("mode", MODES), pytest.mark.usefixtures("on_trn2")]


# -- 0.5 ------------------------------------------------------------------------------------------


def test_05_packed_rows_outside_are_skipped(mode, monkeypatch):
    """0.5: "dma_copy out-of-bounds error with x4 dtypes and oob_mode.skip"."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    rows = RANDOM.integers(0, 2**31, (8, 4)).astype(np.uint32)
    index = np.array([[3], [99], [0], [8]], np.int32)

    def kernel(rows, index):
        packed = rows.ap([[4, 8], [1, 4]], dtype=nl.float8_e5m2_x4)
        tile = nl.ndarray((4, 4), dtype=nl.float8_e5m2_x4, buffer=nl.sbuf)
        nisa.memset(dst=tile.view(nl.uint32), value=7)
        picked = packed.ap([[4, 4], [1, 4]], vector_offset=nl.load(index), indirect_dim=0)
        nisa.dma_copy(dst=tile, src=picked, oob_mode=nisa.oob_mode.skip)
        return stored(tile.view(nl.uint32))

    expected = np.full((4, 4), 7, np.uint32)
    expected[[0, 2]] = rows[[3, 0]]
    np.testing.assert_array_equal(run(kernel, rows, index, mode=mode), expected)


def test_05_products_of_operands_with_more_dimensions(mode):
    """0.5 (and 0.4): "nc_matmul with >2D operands in conv-style kernels"."""
    a, b = normal(32, 4, 4), normal(32, 6, 8)

    def kernel(a, b):
        product = nl.ndarray((16, 3, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=nl.load(a), moving=nl.load(b)[:, ::2, ::2])
        return stored(product)

    expected = np.einsum("pm,pij->mij", a.reshape(32, 16).astype(np.float64), b[:, ::2, ::2])
    np.testing.assert_allclose(run(kernel, a, b, mode=mode), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_05_while_loops_end(count, mode):
    """0.5: "while-loop failing to terminate correctly"."""
    given = np.array([[count]], np.int32)

    def kernel(given):
        left = nl.load(given)
        total = nl.zeros((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        register = nisa.register_alloc()
        nisa.register_load(register, left)

        def body(condition):
            nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=2)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
            nisa.register_load(condition, left)
            return condition

        nl.while_loop(register, body)
        return stored(total)

    np.testing.assert_array_equal(run(kernel, given, mode=mode), [[2 * count]])


def test_05_a_gathering_transpose_leaves_what_it_skips(mode):
    """0.5: "gather transpose overwriting valid dst with OOB zeros"."""
    rows = normal(32, 16, dtype=ml_dtypes.bfloat16)
    index = RANDOM.permutation(32)[:16].astype(np.uint32).reshape(16, 1)
    index[[2, 9]] = 32

    def kernel(rows, index):
        tile = nl.full((16, 16), 5.0, dtype=nl.bfloat16, buffer=nl.sbuf)
        picked = rows.ap([[16, 16], [1, 16]], vector_offset=nl.load(index), indirect_dim=0)
        nisa.dma_transpose(dst=tile, src=picked, axes=(1, 0), oob_mode=nisa.oob_mode.skip)
        return stored(tile)

    expected = np.full((16, 16), 5, ml_dtypes.bfloat16)
    inside = index[:, 0] < 32
    expected[:, inside] = rows[index[inside, 0]].T
    np.testing.assert_array_equal(run(kernel, rows, index, mode=mode), expected)


def test_05_reshape_keeps_the_number_of_elements(mode):
    """0.5, Improvements: "reshape now asserts that the total element count is preserved"."""

    def kernel(a):
        nl.load(a).reshape((4, 5))

    with pytest.raises(nki.NeuronError, match=r"\[4, 5\]|\(4, 5\)"):
        run(kernel, normal(4, 6), mode=mode)


# -- 0.4 ------------------------------------------------------------------------------------------


def test_04_skipped_rows_keep_the_bits_of_integers(mode):
    """0.4: "dma_copy with oob_mode.skip no longer casts integer tiles to float32"."""
    rows = RANDOM.integers(2**24, 2**31, (8, 6)).astype(np.int32)
    index = np.array([[7], [8], [2]], np.int32)
    held = np.full((3, 6), 2**30 + 1, np.int32)

    def kernel(rows, index, held):
        tile = nl.load(held)
        picked = rows.ap([[6, 3], [1, 6]], vector_offset=nl.load(index), indirect_dim=0)
        nisa.dma_copy(dst=tile, src=picked, oob_mode=nisa.oob_mode.skip)
        return stored(tile)

    expected = np.stack([rows[7], held[1], rows[2]])
    np.testing.assert_array_equal(run(kernel, rows, index, held, mode=mode), expected)


def test_04_a_shuffle_leaves_partitions_of_mask_255(mode):
    """0.4: "nc_stream_shuffle with mask=255 now preserves existing destination data"."""
    a, b = normal(32, 5), normal(32, 5)
    mask = [255 if i % 3 == 0 else 31 - i for i in range(32)]

    def kernel(a, b):
        tile = nl.load(b)
        nisa.nc_stream_shuffle(dst=tile, src=nl.load(a), shuffle_mask=mask)
        return stored(tile)

    expected = np.stack([b[i] if m == 255 else a[m] for i, m in enumerate(mask)])
    np.testing.assert_array_equal(run(kernel, a, b, mode=mode), expected)


def test_04_a_local_gather_into_a_part(mode):
    """0.4: "local_gather now produces correct results, including when the destination uses a
    sub-view"."""
    a = normal(32, 20)
    index = RANDOM.integers(0, 20, (32, 1)).astype(np.uint16)

    def kernel(a, index):
        tile = nl.zeros((32, 24), dtype=nl.float32, buffer=nl.sbuf)
        nisa.local_gather(dst=tile[:, 4:20], src_buffer=nl.load(a), index=nl.load(index))
        return stored(tile)

    expected = np.zeros((32, 24), np.float32)
    for group in (slice(0, 16), slice(16, 32)):
        expected[group, 4:20] = a[group][:, index[group, 0]]
    np.testing.assert_array_equal(run(kernel, a, index, mode=mode), expected)


def test_04_quantising_to_e4m3fn(mode, monkeypatch):
    """0.4: "quantize_mx with float8_e4m3fn_x4 output now simulates correctly"."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    values = np.exp2(RANDOM.integers(-3, 4, (32, 64))).astype(ml_dtypes.bfloat16)

    def kernel(a):
        packed = nl.ndarray((32, 16), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scale = nl.ndarray((4, 16), dtype=nl.uint8, buffer=nl.sbuf)
        nisa.quantize_mx(dst=packed, src=nl.load(a), dst_scale=scale)
        return stored(packed.view(nl.uint32), scale)

    words, scale = run(kernel, values, mode=mode)
    stored_values = words.view(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    powers = np.exp2(scale.astype(np.float64) - 127).repeat(8, axis=0).repeat(4, axis=1)
    np.testing.assert_array_equal(stored_values * powers, values.astype(np.float64))


def test_04_offsets_from_registers(mode):
    """0.4: "iota and affine_select now handle dynamic register offsets correctly"."""
    a, start = normal(8, 6), np.array([[3]], np.int32)

    def kernel(a, start):
        register = nisa.register_alloc()
        nisa.register_load(register, nl.load(start))
        numbers, tile = nl.ndarray((8, 6), dtype=nl.int32, buffer=nl.sbuf), nl.load(a)
        nisa.iota(dst=numbers, pattern=[[2, 6]], offset=register, channel_multiplier=10)
        selected = like(tile)
        nisa.affine_select(
            dst=selected,
            pattern=[[-1, 6]],
            channel_multiplier=0,
            on_true_tile=tile,
            on_false_value=0.0,
            cmp_op=nl.greater_equal,
            offset=register,
        )
        return stored(numbers, selected)

    numbers, selected = run(kernel, a, start, mode=mode)
    row, column = np.indices(a.shape)
    np.testing.assert_array_equal(numbers, 3 + 10 * row + 2 * column)
    np.testing.assert_array_equal(selected, np.where(column <= 3, a, 0))


@pytest.mark.parametrize("scales", [None, [1.0, 1.0], [2.0, 3.0]])
def test_04_dma_compute_adds_no_scales(scales, mode):
    """0.4: "dma_compute no longer applies a fictional additive scale mode": all must be 1."""
    a, b = normal(8, 6), normal(8, 6)

    def kernel(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_compute(out, [a, b], nl.add, scales=scales)
        return out

    if scales == [2.0, 3.0]:
        with pytest.raises(nki.NeuronError, match=r"every scale is 1\.0"):
            run(kernel, a, b, mode=mode)
    else:
        np.testing.assert_array_equal(run(kernel, a, b, mode=mode), a + b)


def test_04_logical_and(mode):
    """0.4: "nl.logical_and in CPU simulation now produces correct results"."""
    a, b = (np.array([x], np.float32) for x in ([0, 0, 2, -3, 0.5], [0, 2, 0, 4, 0.25]))

    def kernel(a, b):
        return stored(nl.logical_and(nl.load(a), nl.load(b)))

    np.testing.assert_array_equal(run(kernel, a, b, mode=mode) != 0, np.logical_and(a, b))


@pytest.mark.parametrize("construct", ["dynamic_range", "fori_loop"])
@pytest.mark.filterwarnings("ignore::nki.superseded.MigrationWarning")
def test_04_writing_the_variable_of_a_loop_is_refused(construct, mode):
    """0.4: "writing to the induction variable of an nl.dynamic_range loop"."""
    bound = np.array([[3]], np.int32)

    def body(i):
        nisa.register_move(i, 0)

    def kernel(bound):
        register = nisa.register_alloc()
        nisa.register_load(register, nl.load(bound))
        if construct == "fori_loop":
            nl.fori_loop(0, register, body)
        else:
            for i in nl.dynamic_range(register):
                body(i)

    with pytest.raises(nki.NeuronError) as caught:
        run(kernel, bound, mode=mode)
    assert "nisa.register_move(i, 0)" in str(caught.value.location.text)


def test_04_a_loop_follows_what_came_before_it(mode):
    """0.4: "race conditions in dynamic loop kernels when loop-body memory accesses overlapped with
    pre-loop accesses"."""
    a, trips = normal(16, 8), np.array([[4]], np.int32)

    def kernel(a, trips):
        register = nisa.register_alloc()
        nisa.register_load(register, nl.load(trips))
        tile, total = nl.load(a), nl.zeros((16, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=tile, op=nl.square, data=tile)

        def body(i):
            nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)

        nl.fori_loop(0, register, body)
        nisa.memset(dst=tile, value=0.0)
        return stored(total, tile)

    total, tile = run(kernel, a, trips, mode=mode)
    np.testing.assert_allclose(total, 4 * a.astype(np.float64) ** 2, rtol=1e-6)
    assert not tile.any()


def test_04_printing_a_tensor_of_one_dimension(mode, capsys):
    """0.4: "nl.device_print failing verification on 1-D HBM tensors"."""
    a = np.array([1, 2, 3], np.float32)

    def kernel(a):
        nl.device_print("row", a)

    run(kernel, a, mode=mode)
    printed = capsys.readouterr().out
    assert "row" in printed and "1" in printed and "3" in printed


def test_04_frozen_objects_can_be_made(mode):
    """0.4: "NKIObject subclasses decorated with @dataclass(frozen=True)"."""

    @dataclass(frozen=True)
    class Factor(nl.NKIObject):
        value: float

    def kernel(a):
        tile, factor = nl.load(a), Factor(3.0)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor.value)
        return stored(tile)

    a = normal(4, 5)
    np.testing.assert_array_equal(run(kernel, a, mode=mode), a * np.float32(3))


@dataclass
class Options(nl.NKIObject):
    """Without __hash__, as dataclasses that compare are."""

    factor: float


@pytest.mark.parametrize("argument", [None, Options(2.0)], ids=["None", "dataclass"])
def test_04_calls_with_equal_arguments_compile_once(argument, mode, capsys):
    """0.4: "nki.jit cache misses when NKIObject subclasses are decorated with @dataclass", and
    "when a kernel is invoked with None arguments"."""

    def kernel(a, options):
        print("traced")
        return stored(nl.load(a))

    kernel = nki.jit(kernel)
    for _ in range(3):
        nki.simulate(kernel, mode=mode)(normal(4, 5), copy.copy(argument))
    assert capsys.readouterr().out.count("traced") == (3 if mode == "eager" else 1)


def test_04_an_engine_for_a_transpose_is_honoured(mode):
    """0.4: "nc_transpose silently ignoring the engine argument"."""
    a = normal(32, 32)

    def kernel(engine, buffer):
        def transposed(a):
            tile = nl.load(a)
            result = like(tile, buffer=buffer)
            nisa.nc_transpose(dst=result, data=tile, engine=engine)
            return stored(result)

        return transposed

    for engine, buffer in ((nisa.engine.vector, nl.psum), (nisa.engine.tensor, nl.psum)):
        np.testing.assert_array_equal(run(kernel(engine, buffer), a, mode=mode), a.T)
        assert engine in engines(kernel(engine, buffer), a, "transpose")
    np.testing.assert_array_equal(run(kernel(nisa.engine.vector, nl.sbuf), a, mode=mode), a.T)


def engines(kernel, a, line):
    """The engines of the program that run instructions of lines with this text."""
    program = nki.compile(nki.jit(kernel), a).program
    return {
        nisa.engine[engine.name]
        for engine, stream in program.cores[0].streams.items()
        for i in stream
        if f"nc_{line}" in program.locations[i.location].text
    }


def test_04_32_bit_integers_are_exact_in_sbuf(mode):
    """SDK nki.isa.tensor_tensor: int32 goes to GpSimdE, whose arithmetic is exact, unless an
    operand is in PSUM, where VectorE computes in fp32."""
    a, b = (RANDOM.integers(2**24, 2**30, (4, 5)).astype(np.int32) | 1 for _ in range(2))

    def kernel(buffer):
        def added(a, b):
            left = like(nl.load(a), buffer=buffer)
            nisa.tensor_copy(dst=left, src=nl.load(a))
            result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=result, data1=left, data2=nl.load(b), op=nl.add)
            return stored(result)

        return added

    np.testing.assert_array_equal(run(kernel(nl.sbuf), a, b, mode=mode), a + b)
    rounded = run(kernel(nl.psum), a, b, mode=mode)
    single = a.astype(np.float32) + b.astype(np.float32)
    np.testing.assert_array_equal(rounded.astype(np.float32), single)
    assert (rounded != a + b).any()
