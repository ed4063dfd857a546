"""Kernels with more live on chip than there is room for: what waits elsewhere comes back."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Memory
from isa.errors import NeuronError
from isa.operations.control import StorageBegin
from isa.operations.dma import DmaCopy
from isa.target import TARGETS
from nki.ir.nodes import Access, Op, Tensor
from nki.ir.rewrite import Numbering
from nki.passes.place.spill import SpillWarning, spilled

TRN2 = TARGETS["trn2"]
WIDE = 8192
"""Columns of float32: seven tiles of so many fit into SBUF, all of which 128 rows keep for
themselves."""


@nki.jit(platform_target="trn2")
def sums_of_neighbours(x):
    """y[i] = (x[i] + x[i + 1]) * (x[i + 1] + x[i + 2]) around, with all of x in SBUF."""
    count = x.shape[0]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf) for _ in range(count)]  # here
    for number, tile in enumerate(tiles):
        nisa.dma_copy(dst=tile, src=x[number])
    first = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=first, src=tiles[0])
    for number in range(count):
        other = tiles[number + 1] if number + 1 < count else first
        nisa.tensor_tensor(dst=tiles[number], data1=tiles[number], data2=other, op=nl.add)
    nisa.tensor_copy(dst=first, src=tiles[0])
    for number in range(count):
        other = tiles[number + 1] if number + 1 < count else first
        nisa.tensor_tensor(dst=tiles[number], data1=tiles[number], data2=other, op=nl.multiply)
    for number, tile in enumerate(tiles):
        nisa.dma_copy(dst=out[number], src=tile)
    return out


def expected_sums(x):
    sums = x + np.roll(x, -1, axis=0)
    return sums * np.roll(sums, -1, axis=0)


def test_results_stay_and_the_warning_names_the_tiles_line():
    x = np.random.default_rng(0).standard_normal((8, 128, WIDE)).astype(np.float32)
    with pytest.warns(SpillWarning, match="SBUF has no room .* wait in HBM") as caught:
        result = sums_of_neighbours(x)
    np.testing.assert_array_equal(result, expected_sums(x))
    (warning,) = [w for w in caught if w.category is SpillWarning]
    with open(__file__) as source:
        line = source.read().splitlines()[warning.lineno - 1]
    assert warning.filename == __file__ and line.endswith("# here")


BANKS = 12
"""Accumulators of one bank each; PSUM has 8."""


@nki.jit(platform_target="trn2")
def sums_of_products(x, weights):
    """Sums in more accumulators than there are banks; a step needs the end of the step before."""
    out = nl.ndarray((BANKS, *x.shape[1:]), dtype=x.dtype, buffer=nl.shared_hbm)
    sums = [nl.ndarray(x.shape[1:], dtype=nl.float32, buffer=nl.psum) for _ in range(BANKS)]
    moving = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=moving, value=0.0)
    for step in range(x.shape[0]):
        stationary = nl.load(weights[step])
        nisa.tensor_tensor(dst=moving, data1=moving, data2=nl.load(x[step]), op=nl.add)
        for number, total in enumerate(sums):
            nisa.nc_matmul(dst=total, stationary=stationary, moving=moving, accumulate=step > 0)
            nisa.tensor_scalar(dst=moving, data=moving, op0=nl.add, operand0=float(number))
    for number, total in enumerate(sums):
        nisa.dma_copy(dst=out[number], src=nl.copy(total))
    return out


def test_accumulators_wait_in_sbuf():
    rng = np.random.default_rng(4)
    x, weights = (
        rng.integers(-4, 5, (3, 128, columns)).astype(np.float32) for columns in (512, 128)
    )
    moving = np.zeros_like(x[0])
    expected = np.zeros((BANKS, *x.shape[1:]), np.float32)
    for tile, stationary in zip(x, weights):
        moving += tile
        for number in range(BANKS):
            expected[number] += stationary.T @ moving
            moving += number
    with pytest.warns(SpillWarning, match="PSUM has no room .* wait in SBUF"):
        np.testing.assert_array_equal(sums_of_products(x, weights), expected)


@nki.jit(platform_target="trn2")
def turned(x, cosine, sine):
    """Pairs of rows (i, i + 64) turned by angles, with a tile for each product."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    half = (64, x.shape[1])
    whole, turn = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=whole, src=x)
    angles = [nl.ndarray((64, 1), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2)]
    nisa.dma_copy(dst=angles[0], src=cosine)
    nisa.dma_copy(dst=angles[1], src=sine)
    low, low_cosine, high_cosine, low_sine, high_sine = (
        nl.ndarray(half, dtype=x.dtype, buffer=nl.sbuf) for _ in range(5)
    )
    nisa.tensor_copy(dst=low, src=whole[64:128])
    for dst, data, angle in (
        (high_cosine, whole[0:64], angles[0]),
        (low_cosine, low, angles[0]),
        (high_sine, whole[0:64], angles[1]),
        (low_sine, low, angles[1]),
    ):
        nisa.tensor_scalar(dst=dst, data=data, op0=nl.multiply, operand0=angle)
    nisa.tensor_tensor(dst=turn[0:64], data1=high_cosine, data2=low_sine, op=nl.subtract)
    nisa.tensor_tensor(dst=turn[64:128], data1=low_cosine, data2=high_sine, op=nl.add)
    nisa.dma_copy(dst=out, src=turn)
    return out


def test_tiles_of_64_rows_take_half_the_room():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((128, 16_384)).astype(np.float32)
    cosine, sine = rng.standard_normal((2, 64, 1)).astype(np.float32)
    high, low = x[:64], x[64:]
    expected = np.concatenate([high * cosine - low * sine, low * cosine + high * sine])
    with pytest.warns(SpillWarning, match=f": 1 of them.* {2 * 64 * 65_536} bytes"):
        np.testing.assert_allclose(turned(x, cosine, sine), expected, rtol=1e-6, atol=1e-6)


def test_what_fits_is_not_moved():
    with warnings.catch_warnings():
        warnings.simplefilter("error", SpillWarning)
        nki.compile(sums_of_neighbours, np.zeros((6, 128, WIDE), np.float32))


def test_one_instruction_that_needs_more_than_there_is_is_refused():
    @nki.jit(platform_target="trn2")
    def kernel(x):
        tiles = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(3)]
        nisa.dma_copy(dst=tiles[0], src=x)
        nisa.dma_copy(dst=tiles[1], src=x)
        nisa.tensor_tensor(dst=tiles[2], data1=tiles[0], data2=tiles[1], op=nl.add)
        nisa.dma_copy(dst=x, src=tiles[2])
        return x

    with pytest.raises(NeuronError) as caught:
        nki.compile(kernel, np.zeros((128, 20_000), np.float32))
    assert caught.value.code == "sbuf-overflow"


@nki.jit(platform_target="trn2")
def loop_between(x, y):
    """Tiles that wait while a rolled loop needs the room, in which others wait too."""
    out = nl.ndarray(y.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf) for _ in range(y.shape[0])]
    total = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for number, tile in enumerate(tiles):
        nisa.dma_copy(dst=tile, src=y[number])
    for i in nl.affine_range(x.shape[0]):
        inner = [nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf) for _ in range(7)]
        for number, tile in enumerate(inner):
            nisa.dma_copy(dst=tile, src=x[i])
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=number + 1.0)
        for tile in inner:
            nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
        for tile in reversed(inner):
            nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.maximum)
    for number, tile in enumerate(tiles):
        nisa.tensor_tensor(dst=tile, data1=tile, data2=total, op=nl.subtract)
        nisa.dma_copy(dst=out[number], src=tile)
    return out


def test_what_a_loop_does_not_use_waits_and_its_own_tiles_too():
    rng = np.random.default_rng(1)
    x = rng.integers(0, 9, (5, 128, WIDE)).astype(np.float32)
    y = rng.integers(0, 9, (4, 128, WIDE)).astype(np.float32)
    specs = nki.TensorSpec((nki.symbol("N", max=8), 128, WIDE), nl.float32), y
    with pytest.warns(SpillWarning):
        compiled = nki.compile(loop_between, *specs)
    for count in (2, 5):
        total = np.zeros(x.shape[1:], np.float32)
        for tile in x[:count]:
            total = np.maximum(total + 28 * tile, 7 * tile)
        np.testing.assert_array_equal(compiled(x[:count], y), y - total)


def test_what_cores_exchange_stays_in_place():
    """Each core writes into the other's tile, which therefore keeps its place."""

    @nki.jit(platform_target="trn2")
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        mine = nl.program_id(0)
        tiles = [nl.ndarray(x.shape[2:], dtype=x.dtype, buffer=nl.sbuf) for _ in range(7)]
        received = nl.ndarray(x.shape[2:], dtype=x.dtype, buffer=nl.sbuf)
        for number, tile in enumerate(tiles):
            nisa.dma_copy(dst=tile, src=x[mine, number])
        nisa.sendrecv(
            src=tiles[0], dst=received, send_to_rank=1 - mine, recv_from_rank=1 - mine, pipe_id=0
        )
        for tile in reversed(tiles):
            nisa.tensor_tensor(dst=tile, data1=tile, data2=received, op=nl.add)
        for number, tile in enumerate(tiles):
            nisa.dma_copy(dst=out[mine, number], src=tile)
        return out

    x = np.random.default_rng(2).standard_normal((2, 7, 128, WIDE)).astype(np.float32)
    with pytest.warns(SpillWarning):
        result = kernel[2](x)
    np.testing.assert_array_equal(result, x + x[::-1, :1])


@pytest.mark.parametrize("rows", [True, False])
def test_what_a_transfer_may_leave_out_is_kept(rows):
    """A tile waits, and then a load whose index is outside writes to all or none of it."""

    @nki.jit(platform_target="trn2")
    def kernel(x, index):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        place = nl.ndarray(index.shape, dtype=index.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=place, src=index)
        tiles = [nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf) for _ in range(8)]
        for number, tile in enumerate(tiles):
            nisa.dma_copy(dst=tile, src=x[number])
        for number in (*range(8), *range(8)):
            total = tiles[number]
            nisa.tensor_tensor(dst=total, data1=total, data2=tiles[number - 7], op=nl.add)
        for number, tile in enumerate(tiles):
            if rows:
                chosen = x.reshape((8 * 128, WIDE)).vector_select(0, place[:, number : number + 1])
            else:
                chosen = x.select(0, place[0:1, number : number + 1])
            nisa.dma_copy(dst=tile, src=chosen, oob_mode=nisa.oob_mode.skip)
        for number, tile in enumerate(tiles):
            nisa.dma_copy(dst=out[number], src=tile)
        return out

    x = np.random.default_rng(6).standard_normal((8, 128, WIDE)).astype(np.float32)
    index = np.full((128, 8), 10_000, np.int32)
    expected = x.copy()
    for number in (*range(8), *range(8)):
        expected[number] += expected[number - 7]
    for number, source in ((1, 3), (6, 0)):
        index[:, number] = source * 128 + np.arange(128) if rows else source
        expected[number] = x[source]
    with pytest.warns(SpillWarning):
        np.testing.assert_array_equal(kernel(x, index), expected)


def test_what_was_not_written_stays_uninitialised():
    @nki.jit(platform_target="trn2")
    def kernel(x, rows):
        out = nl.ndarray((rows, WIDE), dtype=x.dtype, buffer=nl.shared_hbm)
        half = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
        tiles = [nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf) for _ in range(7)]
        for number, tile in enumerate(tiles):
            nisa.dma_copy(dst=tile, src=x[number])
        nisa.tensor_copy(dst=half[0:64], src=tiles[0][0:64])
        for tile in (*tiles, *tiles):
            nisa.tensor_tensor(
                dst=tiles[0][0:64], data1=tiles[0][0:64], data2=tile[0:64], op=nl.maximum
            )
        nisa.tensor_tensor(dst=half[0:64], data1=half[0:64], data2=tiles[0][0:64], op=nl.subtract)
        nisa.dma_copy(dst=out, src=half[0:rows])
        return out

    x = np.random.default_rng(3).standard_normal((7, 128, WIDE)).astype(np.float32)
    with pytest.warns(SpillWarning):
        np.testing.assert_array_equal(kernel(x, 64), x[0, :64] - x[:, :64].max(axis=0))
    with pytest.warns(SpillWarning), pytest.raises(NeuronError) as caught:
        kernel(x, 65)
    assert caught.value.code == "uninitialised-output"


# The rewrite by itself, on a machine of NumPy


def copied(dst, src, row=None):
    """`dst = src` as an operation; `row` writes only that one."""
    rows, offset = (2, 0) if row is None else (1, row * 4)
    views = (Access(tensor, "int32", (rows, 4), (4, 1), offset) for tensor in (dst, src))
    return Op(DmaCopy, DmaCopy.resolve((*views, *DEFAULTS), TRN2))


DEFAULTS = tuple(field.default for _, _, field in DmaCopy.attributes)


def run(nodes, tensors):
    """What is in HBM at the end, and the most bytes of tensors in SBUF that live together."""
    held = {tensor: np.full((2, 4), -1) for tensor in tensors if not tensor.memory.on_chip}
    for number, tensor in enumerate(t for t in tensors if t.role == "input"):
        held[tensor][:] = number
    last = {}
    for number, node in enumerate(nodes):
        for value in node.values:
            if isinstance(value, Access) and node.row is not StorageBegin:
                last[value.storage] = number
    live, most = set(), 0
    for number, node in enumerate(nodes):
        if node.row is StorageBegin:
            held[node.values[0].storage] = np.full((2, 4), -1)
            continue
        dst, src = node.values[:2]
        rows = slice(dst.offset // 4, dst.offset // 4 + dst.shape[0])
        live |= {t for t in (dst.storage, src.storage) if t.memory.on_chip}
        most = max(most, len(live))
        held[dst.storage][rows] = held[src.storage][rows]
        live = {t for t in live if last[t] > number}
    return {t.name: array for t, array in held.items() if t.role == "output"}, most


moves = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from((None, 0, 1))), max_size=40
)


@settings(max_examples=200, deadline=None)
@given(moves, st.integers(2, 5))
def test_any_sequence_of_copies_gives_the_same_in_less_room(steps, places):
    def eight(first, memory, role):
        return [
            Tensor(n, f"{role}{n}", memory, "int32", (2, 4), role, core=0)
            for n in range(first, first + 8)
        ]

    inputs = eight(0, Memory.private_hbm, "input")
    outputs = eight(8, Memory.private_hbm, "output")
    tiles = eight(16, Memory.sbuf, "local")
    begins = [Op(StorageBegin, (Access(tile, "int32", (2, 4), (4, 1)),)) for tile in tiles]
    body = [
        *begins,
        *(copied(tile, source) for tile, source in zip(tiles, inputs)),
        *(copied(tiles[dst], tiles[src], row) for dst, src, row in steps),
        *(copied(out, tile) for out, tile in zip(outputs, tiles)),
    ]
    numbering = Numbering([*inputs, *outputs, *tiles], [])
    before, _ = run(body, numbering.tensors)
    found = spilled(body, Memory.sbuf, 16 * places, TRN2, numbering)
    assert found is not None
    after, most = run(found[0], numbering.tensors)
    assert most <= places
    for name in before:
        np.testing.assert_array_equal(after[name], before[name])
