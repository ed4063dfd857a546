"""Writes that two cores both make: the proof decides whether they are the same for any data."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

SPEC = nki.TensorSpec((2, 4), nl.float32)
ALIKE = np.ones((2, 4), np.float32)
"""With this all that the cores make is the same."""


def both(make):
    """A kernel whose cores both write what `make(a, core)` gives to one place."""

    def kernel(a):
        out = nl.ndarray((1, 4), dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=make(a, nl.program_id(0)))  # both write
        return out

    return nki.jit(kernel, platform_target="trn2")[2]


def own_row(a, core):
    return nl.load(a[core : core + 1])


def scaled_by_core(a, core):
    tile = nl.load(a[0:1])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.minimum, operand0=float(core + 1))
    return tile


def half_of_each(a, core):
    """Columns that depend on the core within a tile that else does not."""
    tile = nl.load(a[0:1])
    nisa.tensor_copy(dst=tile[:, 1:3], src=nl.load(a[core : core + 1, 1:3]))
    return tile


def other_order(a, core):
    """Differences depend on which operand comes first."""
    tile = nl.ndarray((1, 4), dtype=a.dtype, buffer=nl.sbuf)
    rows = nl.load(a[0:1]), nl.load(a[1:2])
    nisa.tensor_tensor(dst=tile, data1=rows[core], data2=rows[1 - core], op=nl.subtract)
    return tile


def other_columns(a, core):
    """The same tile, of which each core takes another part."""
    tile = nl.ndarray((1, 8), dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile[:, 0:4], src=nl.load(a[0:1]))
    nisa.tensor_copy(dst=tile[:, 4:8], src=nl.load(a[1:2]))
    return tile[:, nl.ds(4 * core, 4)]


def product_in_loop(a, core):
    total = nl.load(a[0:1])

    def multiply(row):
        nisa.tensor_tensor(dst=total, data1=total, data2=nl.load(a[nl.ds(row, 1)]), op=nl.multiply)

    nl.fori_loop(0, 1 + core, multiply)
    return total


def trips_of_own(a, core):
    """How often a loop runs is what the core has loaded."""
    times = nl.load(a[core : core + 1, 0:1])
    count = nl.copy(times, dtype=nl.int32)
    register = nisa.register_alloc()
    nisa.register_load(register, count)
    total = nl.load(a[0:1])

    def add(_):
        nisa.tensor_tensor(dst=total, data1=total, data2=total, op=nl.add)

    nl.fori_loop(0, register, add)
    return total


def swapped(a, core):
    """Each core has what the other one has loaded."""
    tile, mine = nl.ndarray((1, 4), dtype=a.dtype, buffer=nl.sbuf), own_row(a, core)
    other = 1 - core
    nisa.sendrecv(src=mine, dst=tile, send_to_rank=other, recv_from_rank=other, pipe_id=0)
    return tile


def private_sum(a, core):
    """A product in PSUM whose moving tile is the core's own."""
    result = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=result, stationary=nl.load(a[0:1]), moving=own_row(a, core))
    return nl.copy(result[0:1])


DIFFERENT = [
    own_row,
    scaled_by_core,
    half_of_each,
    other_order,
    other_columns,
    product_in_loop,
    trips_of_own,
    swapped,
    private_sum,
]


@pytest.mark.parametrize("make", DIFFERENT, ids=lambda make: make.__name__)
@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_cores_that_may_write_different_values_are_refused_whatever_these_are(mode, make):
    """With equal rows both cores write the same; with other data they would not."""
    with pytest.raises(
        nki.NeuronError, match=r"cross-core.*core 0 and core 1 both write"
    ) as caught:
        nki.simulate(both(make), mode=mode)(ALIKE)
    assert caught.value.code == "race"
    assert caught.value.location.text.strip().endswith("# both write")


@pytest.mark.parametrize("make", DIFFERENT, ids=lambda make: make.__name__)
def test_they_are_refused_without_data(make):
    with pytest.raises(nki.NeuronError, match="both write"):
        nki.compile(both(make), SPEC)


def own_row_cleared(a, core):
    """What depends on the core is overwritten."""
    tile = own_row(a, core)
    nisa.dma_copy(dst=tile, src=a[1:2])
    return tile


def through_hbm(a, core):
    """Each core makes half of a tensor that both read behind a barrier."""
    held = nl.ndarray((2, 4), dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=held[core : core + 1], src=a[core : core + 1])
    nisa.core_barrier(held, (0, 1))
    return nl.load(held[1:2])


def unused_part(a, core):
    """One tile, in which only the columns that are not used depend on the core."""
    tile = nl.ndarray((1, 8), dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile[:, 0:4], src=nl.load(a[1:2]))
    nisa.tensor_copy(dst=tile[:, 4:8], src=own_row(a, core))
    return tile[:, 0:4]


def two_parts(a, core):
    """A tile that two instructions fill."""
    tile = nl.ndarray((1, 4), dtype=a.dtype, buffer=nl.sbuf)
    for part in range(2):
        columns = nl.ds(2 * part, 2)
        nisa.tensor_copy(dst=tile[:, columns], src=nl.load(a[1:2, columns]))
    return tile


def last_row(a, core):
    """A loop at whose end the tile holds the last row."""
    tile = nl.zeros((1, 4), dtype=a.dtype, buffer=nl.sbuf)

    def step(row):
        nisa.dma_copy(dst=tile, src=a[nl.ds(row, 1)])

    nl.fori_loop(0, 2, step)
    return tile


def trips_of_both(a, core):
    return trips_of_own(a, 0)


def products(a, core):
    """Two cores that begin with work of their own."""
    for _ in range(core):
        nisa.tensor_copy(dst=nl.load(a), src=nl.zeros((2, 4), dtype=a.dtype, buffer=nl.sbuf))
    result = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=result, stationary=nl.load(a), moving=nl.load(a))
    return nl.copy(result[0:1])


def exchanged(a, core):
    """Each core loads half of a tile and gets the other half from its partner, in its own order."""
    tile, other = nl.ndarray((1, 4), dtype=a.dtype, buffer=nl.sbuf), 1 - core
    mine, theirs = nl.ds(2 * core, 2), nl.ds(2 * other, 2)
    half, received = (nl.ndarray((1, 2), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.tensor_copy(dst=half, src=nl.load(a[1:2, mine]))
    nisa.sendrecv(src=half, dst=received, send_to_rank=other, recv_from_rank=other, pipe_id=0)
    pieces = [(mine, half), (theirs, received)]
    for columns, piece in pieces[::-1] if core else pieces:
        nisa.tensor_copy(dst=tile[:, columns], src=piece)
    return tile


def exchanged_sum(a, core):
    """Each core adds what its partner has to what it has itself: first and second row."""
    tile, other = nl.load(a[core : core + 1]), 1 - core
    received = nl.ndarray((1, 4), dtype=a.dtype, buffer=nl.sbuf)
    nisa.sendrecv(src=tile, dst=received, send_to_rank=other, recv_from_rank=other, pipe_id=0)
    total = nl.add(tile, received)
    return nl.subtract(total, nl.load(a[0:1]))


SAME = [
    exchanged,
    exchanged_sum,
    own_row_cleared,
    through_hbm,
    unused_part,
    two_parts,
    last_row,
    products,
]


@pytest.mark.parametrize("make", SAME, ids=lambda make: make.__name__)
@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_cores_that_write_the_same_are_accepted(mode, make):
    a = np.arange(8, dtype=np.float32).reshape(2, 4)
    expected = (a.T @ a)[:1] if make is products else a[1:]
    np.testing.assert_array_equal(nki.simulate(both(make), mode=mode)(a), expected)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_a_count_that_both_cores_load(mode):
    a = np.full((2, 4), 3, np.float32)
    result = nki.simulate(both(trips_of_both), mode=mode)(a)
    np.testing.assert_array_equal(result, 8 * a[:1])


def test_writes_in_loops_are_compared_round_by_round():
    """The last write of each core counts: here row 1 on both, and row 1 on one of them only."""

    def kernel(a, first):
        out = nl.ndarray((1, 4), dtype=a.dtype, buffer=nl.shared_hbm)
        begin = first if nl.program_id(0) else 0
        for row in range(2):
            nisa.dma_copy(dst=out, src=a[(row + begin) % 2 : (row + begin) % 2 + 1])
        return out

    launched = nki.jit(kernel, platform_target="trn2")[2]
    nki.compile(launched, SPEC, 0)
    with pytest.raises(nki.NeuronError, match="both write"):
        nki.compile(launched, SPEC, 1)
