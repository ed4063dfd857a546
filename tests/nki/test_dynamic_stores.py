"""Stores to places that registers decide, one after the other into one tensor."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

MODES = ("device", "reference", "eager")
A = np.arange(1, 13, dtype=np.float32).reshape(2, 6)


def stores(dimension, step):
    """Two stores of two elements; `step` elements and the index along `dimension` apart."""

    def kernel(a, index):
        out = nl.ndarray((8, 6), dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=nl.zeros((8, 6), dtype=a.dtype, buffer=nl.sbuf))
        tile = nl.load(a)
        for j in range(2):
            place = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
            nisa.dma_copy(dst=place, src=index[j : j + 1])
            target = out.ap(
                [[6, 1], [1, 2]], offset=j * step, scalar_offset=place, indirect_dim=dimension
            )
            nisa.dma_copy(dst=target, src=tile[0:1, 2 * j : 2 * j + 2])
        return out

    return nki.jit(kernel, platform_target="trn2")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("dimension", "step", "index"),
    [
        (1, 6, (3, 2)),
        (1, 6, (7, 0)),
        (1, 6, (1, 1)),
        (0, 2, (3, 3)),
        (0, 2, (0, 5)),
        (0, 1, (4, 4)),
    ],
)
def test_the_later_store_wins(mode, dimension, step, index):
    expected = np.zeros(48, np.float32)
    for j, i in enumerate(index):
        begin = j * step + i * (1 if dimension else 6)
        expected[begin : begin + 2] = A[0, 2 * j : 2 * j + 2]
    places = np.array(index, np.int32).reshape(2, 1)
    result = nki.simulate(stores(dimension, step), mode=mode)(A, places)
    np.testing.assert_array_equal(result.reshape(-1), expected)


@pytest.mark.parametrize("mode", [nisa.dge_mode.unknown, nisa.dge_mode.hwdge, nisa.dge_mode.swdge])
def test_only_the_sync_and_the_scalar_engine_command_the_hardware_generator(mode):
    """SDK nki/deep-dives/nki-dge.rst, "hwdge"; of "swdge" GpSimd writes the descriptors."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)

        def move(row):
            tile = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a[nl.ds(row, 128), :])
            nisa.dma_copy(dst=out[nl.ds(row, 128), :], src=tile, dge_mode=mode)

        nl.fori_loop(0, a.shape[0], move, 128)
        return out

    a = np.arange(128 * 256 * 64, dtype=np.float32).reshape(-1, 64)
    compiled = nki.compile(kernel, a=nki.TensorSpec(a.shape, nl.float32), target="trn2")
    found = set()
    for engine, stream in compiled.program.cores[0].streams.items():
        for instruction in stream:
            if instruction.row.name == "DmaCopy":
                dst, _, _, way, _ = instruction.values
                store = not dst.memory.on_chip
                found.add((store, way.name, engine.name))
    allowed = {("hwdge", "sync"), ("hwdge", "scalar"), ("swdge", "gpsimd")}
    assert {pair[1:] for pair in found} <= allowed
    wanted = {"unknown": "swdge"}.get(mode.name, mode.name)
    assert {way for store, way, _ in found if store} == {wanted}
    np.testing.assert_array_equal(compiled(a), a)
