"""dma_copy with addresses that the kernel computes: every documented combination of offsets,
descriptor modes, out-of-bounds modes and data types, in all modes, against NumPy."""

import numpy as np
import pytest
from operation_checks import BF16, F32, assert_same, load, normal, sbuf, store

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import DgeMode
from nki.ir.nodes import Op, walk
from simulator.timing import simulate

MODES = ("device", "reference", "eager")
DGE, OOB = nisa.dge_mode, nisa.oob_mode


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def offset_of(kind, tensor):
    """A register or an SBUF tensor with the one element of an HBM tensor."""
    tile = load(tensor)
    if kind == "tensor":
        return tile
    register = nisa.register_alloc()
    nisa.register_load(register, tile)
    return register


def number(value):
    return np.array([[value]], np.int32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["register", "tensor"])
@pytest.mark.parametrize("dge", [mode for mode in DGE if mode is not DGE.none])
def test_a_scalar_offset_moves_the_source_or_the_destination(dge, kind, mode):
    """Rows of HBM by `indirect_dim=0`, columns of SBUF by `indirect_dim=1`."""

    def kernel(a, row, column):
        start, side = offset_of(kind, row), offset_of(kind, column)
        tile = sbuf((8, 30), a.dtype)
        nisa.memset(tile, 0.0)
        source = a.ap(pattern=[[12, 8], [1, 12]], scalar_offset=start, indirect_dim=0)
        target = tile.ap(pattern=[[30, 8], [1, 12]], scalar_offset=side, indirect_dim=1)
        nisa.dma_copy(dst=target, src=source, dge_mode=dge)
        out = nl.ndarray((20, 12), dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a[0:20, :])
        moved = tile.ap(pattern=[[30, 8], [1, 12]], scalar_offset=side, indirect_dim=1)
        back = out.ap(pattern=[[12, 8], [1, 12]], scalar_offset=start, indirect_dim=0)
        nisa.dma_copy(dst=back, src=moved, dge_mode=dge)
        return store(tile), out

    a = normal(501, (32, 12))
    tile, out = nki.simulate(kernel, mode=mode)(a, number(11), number(17))
    expected = np.zeros((8, 30), np.float32)
    expected[:, 17:29] = a[11:19]
    assert_same(tile, expected)
    assert_same(out, a[:20])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("row", [25, -1])
def test_a_scalar_offset_outside(row, into, mode):
    """skip leaves the destination as it was; error names the line."""

    def kernel(a, rows, oob):
        start = offset_of("register", rows)
        tile = sbuf((8, 12), a.dtype)
        nisa.memset(tile, 5.0)
        there = a.ap(pattern=[[12, 8], [1, 12]], scalar_offset=start, indirect_dim=0)
        dst, src = (there, tile) if into else (tile, there)
        nisa.dma_copy(dst=dst, src=src, oob_mode=oob)
        return store(tile)

    a = normal(502, (32, 12))
    before = a.copy()
    assert_same(nki.simulate(kernel, mode=mode)(a, number(row), OOB.skip), np.full((8, 12), 5, F32))
    assert_same(a, before)
    with pytest.raises(nki.NeuronError) as error:
        nki.simulate(kernel, mode=mode)(a, number(row), OOB.error)
    assert error.value.code == "dynamic-out-of-bounds"
    assert "dma_copy" in error.value.location.text


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize("target", [F32, BF16])
def test_row_indices_on_one_side_and_an_offset_on_the_other(target, dtype, mode):
    """Gather into columns that a register names, with a cast; scatter from there."""

    def kernel(table, rows, column, result):
        indices, side = load(rows), offset_of("register", column)
        tile = sbuf((20, 30), target)
        nisa.memset(tile, 0.0)
        part = tile.ap(pattern=[[30, 20], [1, 12]], scalar_offset=side, indirect_dim=1)
        nisa.dma_copy(dst=part, src=table.vector_select(0, indices), dge_mode=DGE.swdge)
        again = tile.ap(pattern=[[30, 20], [1, 12]], scalar_offset=side, indirect_dim=1)
        nisa.dma_copy(dst=result.vector_select(0, indices), src=again)
        return store(tile)

    table, result = normal(503, (50, 12)), np.zeros((50, 12), np.float32)
    rows = np.random.default_rng(504).permutation(50)[:20].astype(dtype)[:, None]
    tile = nki.simulate(kernel, mode=mode)(table, rows, number(9), result)
    expected = np.zeros((20, 30), np.float32)
    expected[:, 9:21] = table[rows[:, 0]]
    assert_same(tile, expected.astype(target))
    scattered = np.zeros((50, 12), np.float32)
    scattered[rows[:, 0]] = table[rows[:, 0]].astype(target)
    assert_same(result, scattered)


@pytest.mark.parametrize(
    "target, static, dynamic, cast, rows",
    [
        ("trn1", DGE.none, DGE.swdge, DGE.swdge, DGE.swdge),
        ("trn2", DGE.none, DGE.hwdge, DGE.swdge, DGE.swdge),
        ("trn3", DGE.none, DGE.hwdge, DGE.swdge, DGE.swdge),
    ],
)
def test_who_writes_the_descriptors_when_the_kernel_leaves_it_open(
    target, static, dynamic, cast, rows
):
    """SDK nki/deep-dives/nki-dge.rst: hwdge from gen3 on, without casts and row indices."""

    @nki.jit(platform_target=target)
    def kernel(a, indices, row):
        start, index = offset_of("register", row), load(indices)
        tile, narrow = sbuf((4, 12), a.dtype), sbuf((4, 12), BF16)
        source = a.ap(pattern=[[12, 4], [1, 12]], scalar_offset=start, indirect_dim=0)
        nisa.dma_copy(dst=tile, src=a[0:4, :])
        nisa.dma_copy(dst=tile, src=source)
        nisa.dma_copy(dst=narrow, src=source)
        nisa.dma_copy(dst=tile, src=a.vector_select(0, index))

    spec = nki.TensorSpec((16, 12), nl.float32), nki.TensorSpec((4, 1), nl.int32)
    traced = kernel.trace(*spec, nki.TensorSpec((1, 1), nl.int32))
    copies = [n for n in walk(traced.bodies[0]) if isinstance(n, Op) and "oob_mode" in _names(n)]
    modes = [n.values[_names(n).index("dge_mode")] for n in copies]
    assert modes[2:] == [static, dynamic, cast, rows]


def _names(op):
    return op.row.field_names


@pytest.mark.parametrize(
    "target, options, text",
    [
        ("trn1", {"dge_mode": DGE.hwdge}, "dge_mode=hwdge exists on gen3"),
        ("trn2", {"dge_mode": DGE.hwdge, "cast": True}, "with dge_mode=hwdge"),
        ("trn2", {"dge_mode": DGE.hwdge, "rows": True}, "row indices with dge_mode=hwdge"),
        ("trn2", {"dge_mode": DGE.none, "rows": True}, "row indices with dge_mode=none"),
        ("trn2", {"engine": nisa.engine.scalar}, "engine=scalar with dge_mode=unknown"),
        ("trn2", {"priority": 1}, "priority=1 exists on gen4"),
    ],
)
def test_refusals(monkeypatch, target, options, text):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    given = {k: v for k, v in options.items() if k not in ("cast", "rows")}

    def kernel(a, indices):
        tile = sbuf((4, 12), BF16 if "cast" in options else a.dtype)
        source = a.vector_select(0, load(indices)) if "rows" in options else a[0:4, :]
        nisa.dma_copy(dst=tile, src=source, **given)

    with pytest.raises(nki.NeuronError, match=text):
        nki.simulate(kernel)(normal(505, (16, 12)), np.zeros((4, 1), np.int32))


def test_the_engine_that_writes_descriptors_spends_its_time_on_it():
    """About 600 ns an instruction for hwdge (SDK nki-dge.rst); GpSimd's own time for swdge. With
    prepared descriptors 400, by published matrix products whose 320 loads come first; that
    a single transfer takes 600 to reach its queue (measured 599 and 609 ns) is another matter."""

    def held(mode, engine):
        named = {"engine": engine} if mode is DgeMode.hwdge else {}

        @nki.jit
        def kernel(a):
            tile = sbuf((16, 12), a.dtype)
            for _ in range(20):
                nisa.dma_copy(dst=tile, src=a, dge_mode=mode, **named)
            return store(tile)

        spec = nki.TensorSpec((16, 12), nl.float32)
        timeline = simulate(nki.compile(kernel, spec, target="trn2").program)
        found = timeline.cores[0].engines[engine]
        return found.busy + found.sequencer

    assert held(DgeMode.hwdge, nisa.engine.sync) / 20 == pytest.approx(600, rel=0.1)
    assert held(DgeMode.swdge, nisa.engine.gpsimd) > 20 * 600
    assert held(DgeMode.none, nisa.engine.sync) / 20 == pytest.approx(400, rel=0.02)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("column", [3, -1])
def test_a_register_that_leaves_a_tile_reaches_no_other(column, mode):
    """Tiles lie side by side on chip; an access stays within its own."""

    def kernel(a, columns):
        before, tile, behind = load(a), load(a), load(a)
        result, start = sbuf((4, 6), a.dtype), nisa.register_alloc()
        nisa.register_load(start, load(columns))
        part = tile.ap([[8, 4], [1, 6]], scalar_offset=start, indirect_dim=1)
        nisa.tensor_copy(result, part)
        return store(result), store(before), store(behind)

    a = normal(506, (4, 8))
    result, _, _ = nki.simulate(kernel, mode=mode)(a, number(2))
    assert_same(result, a[:, 2:])
    with pytest.raises(nki.NeuronError) as error:
        nki.simulate(kernel, mode=mode)(a, number(column))
    assert error.value.code == "dynamic-out-of-bounds"
    assert "tensor_copy" in error.value.location.text
