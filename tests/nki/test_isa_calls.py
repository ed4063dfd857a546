"""Calls as earlier versions spelled them mean what their replacements do, and say so."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.superseded import MigrationWarning, warn_once
from nki.superseded.migration import findings, migrated


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def tile(values):
    return nl.ndarray(values.shape, dtype=values.dtype, buffer=nl.sbuf)


def stored(result):
    out = nl.ndarray(result.shape, dtype=result.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=result)
    return out


A = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture(autouse=True)
def hints_come_again():
    """Each parameter of a test runs the same line."""
    warn_once.cache_clear()


def run(kernel, *arrays, cores=1, use):
    """The result, with a hint at the kernel's line that names what to use."""
    with pytest.warns(MigrationWarning, match=use) as caught:
        result = nki.simulate(nki.jit(kernel)[cores])(*arrays)
    assert {warning.filename for warning in caught} == {__file__}
    return result


@pytest.mark.parametrize("op", [None, nl.add])
def test_a_copy_that_accumulates(op):
    def kernel(a):
        result = nl.load(a)
        nisa.dma_copy(dst=result, src=a, dst_rmw_op=op, unique_indices=True)
        return stored(result)

    result = run(kernel, A, use=r"dma_compute\(dst, \[dst, src\]")
    np.testing.assert_array_equal(result, A if op is None else A + A)


def test_a_scatter_that_accumulates():
    def kernel(table, rows, indices):
        there = table.vector_select(0, nl.load(indices))
        nisa.dma_copy(dst=there, src=nl.load(rows), dst_rmw_op=nl.add, unique_indices=True)

    table, rows = np.ones((8, 6), np.float32), np.array([[5], [0], [7], [2]], np.int32)
    run(kernel, table, A, rows, use="dma_compute")
    expected = np.ones((8, 6), np.float32)
    expected[rows[:, 0]] += A
    np.testing.assert_array_equal(table, expected)


def test_scales_before_the_operator():
    def kernel(a):
        result = tile(a)
        nisa.dma_compute(result, [a, a, a], [1.0, 1.0, 1.0], nl.add)
        return stored(result)

    np.testing.assert_array_equal(run(kernel, A, use="srcs, reduce_op, scales"), 3 * A)


def test_a_source_alone_is_copied():
    """SDK nki/migration/index.rst writes `dma_compute(dst, [src], reduce_op=nl.add)` for a copy
    that accumulates; the operation's page has dst = reduce_op(srcs[0], ...)."""

    def kernel(a):
        result = nl.load(a)
        nisa.dma_compute(result, [a], reduce_op=nl.add)
        return stored(result)

    result = run(kernel, A, use=r"dma_compute\(dst, \[dst, src\]\) \(a source alone is copied")
    np.testing.assert_array_equal(result, A)


@pytest.mark.parametrize("flag", [False, True])
def test_a_flag_for_the_dma_engine(flag):
    def kernel(a):
        received, other = tile(a), 1 - nl.program_id(0)
        nisa.sendrecv(nl.load(a), received, other, other, 0, use_gpsimd_dma=flag)
        return stored(received)

    traced = nki.jit(kernel)[2]
    with pytest.warns(MigrationWarning, match="dma_engine"):
        (op,) = [
            node
            for node in traced.trace(A).bodies[0]
            if "pipe_id" in getattr(node, "row", None).field_names
        ]
    expected = nisa.dma_engine.gpsimd_dma if flag else nisa.dma_engine.dma
    assert op.values[op.row.field_names.index("dma_engine")] is expected


def test_an_immediate_for_a_register():
    def kernel():
        register, result = nisa.register_alloc(), nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        nisa.register_move(register, imm=42)
        nisa.register_store(result, register)
        return stored(result)

    assert run(kernel, use=r"register_move\(src=\)") == 42


def test_flags_of_a_matmul():
    def kernel(a, b):
        product = nl.ndarray((6, 6), dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray((6, 6), dtype=nl.float32, buffer=nl.sbuf)
        nisa.nc_matmul(product, nl.load(a), nl.load(b), is_moving_zero=True, psumAccumulateFlag=3)
        nisa.tensor_copy(result, product)
        return stored(result)

    values = np.ones((4, 6), np.float32)
    with pytest.warns(MigrationWarning) as caught:
        result = nki.simulate(nki.jit(kernel))(A, values)
    np.testing.assert_array_equal(result, A.T @ values)
    told = {str(warning.message).partition(" ")[0] for warning in caught}
    assert told == {
        "nki.isa.nc_matmul(is_moving_zero=)",
        "nki.isa.nc_matmul(psumAccumulateFlag=)",
    }


def test_a_float_for_a_tensor_of_integers():
    """SDK nki/migration/index.rst, nisa.memset: strict type matching."""

    def kernel():
        result = nl.ndarray((2, 3), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(result, value=-2.0)
        return stored(result)

    np.testing.assert_array_equal(run(kernel, use=r"memset\(value=2\)"), np.full((2, 3), -2))


def test_the_offset_of_a_selection_as_third():
    def positional(a):
        result = tile(a)
        nisa.affine_select(result, [[-1, 6]], 2, 1, nl.load(a), -9.0)
        return stored(result)

    row, column = np.indices(A.shape)
    expected = np.where(2 + row - column == 0, A, np.float32(-9))
    np.testing.assert_array_equal(run(positional, A, use="offset=offset"), expected)


@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16])
def test_the_destination_decides_the_data_type(dtype):
    def kernel(a):
        result = tile(a)
        nisa.tensor_copy(dst=result, src=nl.load(a), dtype=dtype)
        return stored(result)

    thirds = A / np.float32(3)
    result = run(kernel, thirds, use="data type of the result")
    np.testing.assert_array_equal(result, thirds, strict=True)


def test_keywords_of_no_version_are_refused():
    def kernel(a):
        nisa.dma_copy(dst=tile(a), src=a, dst_rmw_op=nl.add, mask=None)

    with pytest.raises(nki.NeuronError, match="no argument 'mask'"):
        nki.simulate(kernel)(A)


SOURCE = """import nki.isa as nisa
nisa.register_move(r, imm=1)
nisa.sendrecv(a, b, 0, 0, 0, use_gpsimd_dma=True)
nisa.dma_copy(dst=a, src=b, dst_rmw_op=add)
"""


def test_migration_finds_keywords_and_renames_what_keeps_its_meaning():
    assert [(f.line, f.replacement) for f in findings(SOURCE)] == [(2, "src"), (3, None), (4, None)]
    assert migrated(SOURCE) == SOURCE.replace("imm=", "src=")


MASKED = {
    "load": lambda a, tile: nl.load(a, mask=None),
    "store": lambda a, tile: nl.store(a, tile, mask=None),
    "load_transpose2d": lambda a, tile: nl.load_transpose2d(a, mask=None),
    "operator of one": lambda a, tile: nl.exp(tile, mask=None),
    "operator of two": lambda a, tile: nl.add(tile, 1.0, mask=None),
    "reduction": lambda a, tile: nl.sum(tile, axis=1, mask=None),
    "matmul": lambda a, tile: nl.matmul(tile, tile, mask=None),
    "where": lambda a, tile: nl.where(tile, tile, tile, mask=None),
    "operation": lambda a, tile: nisa.tensor_copy(tile, tile, mask=None),
}


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_says_what_to_write(name, mode):
    """SDK nki/migration/index.rst, "Deprecation of masking"."""

    def kernel(a):
        MASKED[name](a, nl.load(a))

    with pytest.raises((TypeError, nki.NeuronError)) as caught:
        nki.simulate(nki.jit(kernel), mode=mode)(A)
    text = "\n".join([str(caught.value), *caught.value.__notes__])
    assert "mask= is not part of this API: slice operands" in text


def test_a_mask_of_the_authors_own_function_is_the_authors():
    def helper(tile):
        return tile

    def kernel(a):
        helper(nl.load(a), mask=None)

    with pytest.raises(TypeError, match="helper") as caught:
        nki.simulate(nki.jit(kernel))(A)
    assert not hasattr(caught.value, "__notes__")


def test_an_operation_that_returned_its_result_says_where_it_goes():
    def kernel(a):
        nisa.activation(op=nl.exp, data=nl.load(a))

    with pytest.raises(nki.NeuronError, match="needs dst") as caught:
        nki.simulate(nki.jit(kernel))(A)
    assert "nl.ndarray" in caught.value.hint


@pytest.mark.parametrize(
    "call",
    [
        lambda t: nisa.nc_matmul(t, t),
        lambda t: nisa.activation(nl.exp, t),
        lambda t: nisa.tensor_tensor(t, t, nl.add),
        lambda t: nisa.tensor_scalar(t, nl.multiply, 2.0),
        lambda t: nisa.tensor_copy(t),
    ],
    ids=["nc_matmul", "activation", "tensor_tensor", "tensor_scalar", "tensor_copy"],
)
def test_an_operation_that_returned_its_result_names_dst_where_operands_are_by_place(call):
    with pytest.raises(nki.NeuronError, match="needs") as caught:
        nki.simulate(lambda a: call(nl.load(a)))(A)
    assert "(dst, " in caught.value.hint and "tile of your own" in caught.value.hint
