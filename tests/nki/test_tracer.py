"""What the tracer records: operations, tensors, names, lines, roles, cores, guards."""

import sys

import pytest
from traced import operations, psum, refused, sbuf, traced, value

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Memory
from nki.ir.locations import resolve as line_of
from nki.ir.nodes import Op


def test_outside_a_kernel_there_is_nobody_to_run_operations():
    for call in (lambda: nl.ndarray((1, 1), nl.float32), nl.program_id, nisa.register_alloc):
        with pytest.raises(nki.NeuronError) as caught:
            call()
        assert caught.value.code == "no-tracer"
    with pytest.raises(nki.NeuronError) as caught:
        nisa.memset(dst=None, value=0)
    assert caught.value.code == "no-tracer" and caught.value.location.file == __file__


def test_storage_begins_where_it_is_allocated():
    def kernel(a):
        tile, accumulator, scratch = sbuf(128, 8), psum(128, 8), nl.ndarray((4, 8), "int8", nl.hbm)
        shared = nl.ndarray((4, 8), "int8", nl.shared_hbm)
        del tile, accumulator, scratch, shared

    kernel = traced(kernel, (4, 4))
    begun = [value(op, "dst").storage for op in operations(kernel, "storage_begin")]
    assert [t.memory for t in begun] == [Memory.sbuf, Memory.psum, Memory.private_hbm]
    assert [t.core for t in kernel.tensors] == [0, 0, 0, 0, None]
    assert [t.pitch for t in begun] == [8, 8, 0]


def test_roles_follow_use():
    def kernel(a, b, c):
        out = nl.ndarray((128, 8), nl.float32, nl.shared_hbm)
        other = nl.ndarray((128, 8), nl.float32, nl.hbm)
        tile = nl.ndarray((128, 8), nl.float32)
        nisa.dma_copy(dst=tile, src=a)
        nisa.dma_copy(dst=b[0:64], src=tile[0:64])
        nisa.dma_copy(dst=out, src=tile)
        nisa.dma_copy(dst=other, src=tile)
        return out, c

    kernel = traced(kernel, *[(128, 8)] * 3)
    roles = {t.name: t.role for t in kernel.tensors}
    assert roles == {
        "inputs[0]": "input",
        "inputs[1]": "inout",
        "inputs[2]": "inout",
        "out": "output",
        "other": "local",
        "tile": "local",
    }
    assert kernel.parameters == kernel.tensors[:3]
    assert [t.name for t in kernel.results] == ["out", "inputs[2]"]


def test_results_must_be_whole_tensors_in_hbm():
    def hbm():
        return nl.ndarray((128, 8), nl.float32, nl.shared_hbm)

    assert traced(lambda: [hbm(), hbm()]).results[1].role == "output"
    assert traced(lambda: None).results == []
    for body in (lambda: sbuf(128, 8), lambda: 3, lambda: hbm()[0:4], lambda: [hbm(), None]):
        refused("output-not-hbm", body)


def test_no_reorder_and_depends_on_record_order():
    def kernel(a):
        t, u = sbuf(128, 8), sbuf(128, 8)
        first = nisa.memset(dst=t, value=0.0)
        second = nisa.memset(dst=u, value=1.0)
        assert second.depends_on(first) is second
        with nl.no_reorder():
            nisa.tensor_copy(dst=t, src=u)
            for _ in nl.affine_range(2):
                nisa.tensor_copy(dst=u, src=t)
        nisa.tensor_copy(dst=t, src=u)

    kernel = traced(kernel, (4, 4))
    first, second = operations(kernel, "memset")
    assert second.after == (first,)
    a, b, c, d = operations(kernel, "tensor_copy")
    assert (a.after, b.after, c.after, d.after) == ((), (a,), (b,), ())

    def rolled(a):
        with nl.no_reorder():
            for _ in nl.dynamic_range(3):
                pass

    refused("not-supported", rolled, (4, 4))


def test_a_tensor_as_scalar_offset_is_loaded_into_a_register():
    def kernel(a):
        index = sbuf(1, 1, dtype=nl.int32)
        nisa.memset(dst=index, value=2)
        tile = sbuf(4, 8)
        nisa.dma_copy(dst=tile, src=a.ap([[8, 4], [1, 8]], scalar_offset=index))

    kernel = traced(kernel, (16, 8))
    load = operations(kernel, "register_load")[0]
    source = value(operations(kernel, "dma_copy")[0], "src")
    assert source.offset.terms == ((value(load, "dst"), 8),)
    assert "scalar_offset=index" in line_of(load.location).text


def test_loads_stores_and_filled_tensors():
    def kernel(a):
        tile = nl.load(a, dtype=nl.bfloat16)
        ones = nl.ones((128, 8), dtype=nl.int32)
        full = nl.full((128, 8), 3, dtype=nl.float32)
        like = nl.zeros_like(ones)
        empty = nl.empty_like(ones, dtype=nl.float32)
        nl.store(a, tile)
        assert (tile.dtype, like.dtype, empty.dtype) == ("bfloat16", "int32", "float32")
        assert (tile.name, ones.name, full.name) == ("tile", "ones", "full")

    kernel = traced(kernel, (128, 8))
    fills = [value(op, "value") for op in operations(kernel, "memset")]
    assert [repr(v) for v in fills] == ["1", "3.0", "0"]
    assert [line_of(op.location).file for op in operations(kernel, "dma_copy")] == [__file__] * 2


def test_branches_on_symbols_become_guards():
    M = nki.symbol("M", multiple_of=128, max=8192)
    taken = []

    def kernel(a):
        rows = a.shape[0]
        taken.append("large" if rows >= 512 else "small")
        taken.append(rows % 128 == 0)  # proven: no guard
        taken.append(rows > 64)
        taken.append("odd" if rows != 256 else "even")
        taken.append(rows >= 512)

    kernel = traced(kernel, (M, 8))
    assert taken[0] == "large" and taken[1] is True and taken[2] is True and taken[3] == "odd"
    assert [text.split(" (")[0] for _, text in kernel.guards] == ["M >= 512", "M != 256"]
    assert "test_tracer.py:" in kernel.guards[0].text
    from isa.affine import evaluate

    admitted = [
        m
        for m in (128, 256, 384, 512, 640)
        if all(evaluate(form, {"M": m}) >= 0 for form, _ in kernel.guards)
    ]
    assert admitted == [512, 640]
    assert [s.name for s in kernel.symbols] == ["M"]


def test_symbols_are_no_integers():
    M = nki.symbol("M", max=8192)
    error = refused("symbol-range", lambda a: range(a.shape[0]), (M, 8))
    assert "range" in error.location.text
    refused("symbol-index", lambda a: [1, 2][a.shape[0]], (M, 8))
    other = nki.symbol("M", max=100)
    refused("value-not-allowed", lambda a, b: None, (M, 8), (other, 8))


def test_errors_of_the_author_pass_unchanged():
    def kernel(a):
        raise AssertionError("kernel validation")

    with pytest.raises(AssertionError, match="kernel validation"):
        traced(kernel, (4, 4))


def test_tracing_is_repeatable():
    def kernel(a):
        tile = sbuf(128, 8)
        nisa.dma_copy(dst=tile, src=a)
        nisa.activation(dst=tile, op=nl.exp, data=tile)

    from ir_comparison import same

    first, second = traced(kernel, (128, 8)), traced(kernel, (128, 8))
    assert same(first, second)
    assert all(isinstance(n, Op) for n in first.bodies[0])
    assert sys.getrefcount(first) < 5


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_matmul_tile_sizes_are_the_same_on_every_target(target):
    """Kernels tile by them, and their PSUM tiles of fp32 are one bank (SDK tiling-overview.rst)."""
    seen = []

    def kernel(a):
        seen.append((nl.tile_size.gemm_stationary_fmax, nl.tile_size.gemm_moving_fmax))

    traced(kernel, (4, 4), target=target)
    assert seen == [(128, 512)]
