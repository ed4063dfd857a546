"""accumulate=None: per allocation and region, against a simulation of every PSUM element."""

import numpy as np
import pytest
from accumulations import P, flags, matmul
from hypothesis import given, settings
from hypothesis import strategies as st
from traced import psum, refused, sbuf, traced

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError


def test_the_first_matmul_overwrites_and_later_ones_add():
    def kernel(a):
        for _ in range(2):
            tile = psum(P, 512)
            for _ in nl.affine_range(3):
                matmul(tile)

    assert flags(traced(kernel, (4, 4))) == [False, True, True] * 2


def test_flags_that_are_given_stay():
    def kernel(a):
        tile = psum(P, 512)
        for k in range(3):
            matmul(tile, accumulate=k > 0)
        matmul(tile, accumulate=False)
        matmul(tile, accumulate=np.True_)
        matmul(tile)

    assert flags(traced(kernel, (4, 4))) == [False, True, True, False, True, True]


def test_state_follows_the_allocation_not_the_address():
    def kernel(a):
        for _ in range(2):
            matmul(nl.ndarray((P, 512), nl.float32, nl.psum, address=(0, 0)))

    assert flags(traced(kernel, (4, 4))) == [False, False]


CLEARED = [
    lambda tile: nisa.memset(dst=tile, value=0.0),
    lambda tile: nisa.memset(dst=tile[:, 500:], value=0.0),
    lambda tile: nisa.tensor_copy(dst=tile[0:64, 0:8], src=sbuf(P, 512)[0:64, 0:8]),
]


@pytest.mark.parametrize("clear", CLEARED)
@pytest.mark.parametrize("flag", [True, np.True_])
def test_a_sum_onto_data_of_another_instruction_is_refused(clear, flag):
    """SDK nki.isa.nc_matmul, note in "Accumulation mode": undefined on NeuronCore-v2 and v3."""

    def kernel(a):
        tile = psum(P, 512)
        matmul(tile)
        clear(tile)
        matmul(tile, accumulate=flag)

    assert refused("accumulation-not-started", kernel, (4, 4)).location.function == "matmul"
    assert flags(traced(kernel, (4, 4), target="trn3")) == [False, True]


def test_a_sum_beside_data_of_another_instruction():
    def kernel(a):
        tile = psum(P, 512)
        nisa.memset(dst=tile, value=0.0)
        matmul(tile[:, 0:256])
        matmul(tile[:, 0:256], accumulate=True)
        matmul(tile[:, 8:16], accumulate=True)

    assert flags(traced(kernel, (4, 4))) == [False, True, True]


def test_another_instruction_starts_the_region_again():
    def kernel(a):
        tile = psum(P, 512)
        matmul(tile)
        nisa.memset(dst=tile, value=0.0)
        matmul(tile)
        matmul(tile)
        nisa.tensor_copy(dst=sbuf(P, 512), src=tile)
        matmul(tile)
        nisa.memset(dst=tile[:, 0:256], value=0.0)
        matmul(tile[:, 256:512])
        matmul(tile[:, 0:256])

    assert flags(traced(kernel, (4, 4))) == [False, False, True, True, True, False]


regions = st.tuples(
    st.sampled_from([0, 32, 64, 96]), st.integers(1, 32), st.integers(0, 15), st.integers(1, 16)
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["matmul", "matmul", "memset"]), regions), max_size=8))
def test_regions_against_a_mask_of_elements(steps):
    """A matmul accumulates where all of its elements were written by matmuls, overwrites where
    none were, and is refused in between."""
    started = np.zeros((P, 32), bool)
    expected, refused_at = [], None
    for index, (kind, (first, rows, start, width)) in enumerate(steps):
        part = started[first : first + rows, start : start + width]
        if kind == "memset":
            part[...] = False
        elif part.any() != part.all():
            refused_at = index
            break
        else:
            expected.append(bool(part.all()))
            part[...] = True

    def kernel(a):
        tile = psum(P, 32)
        for kind, (first, rows, start, width) in steps:
            region = tile[first : first + rows, start : start + width]
            if kind == "memset":
                nisa.memset(dst=region, value=0.0)
            else:
                matmul(region)

    if refused_at is None:
        assert flags(traced(kernel, (4, 4))) == expected
    else:
        assert "earlier matmuls wrote only a part" in refused("psum-overlap", kernel, (4, 4)).what


def test_many_banks_of_one_tile():
    def kernel(a):
        tile = psum(P, 4, 64)
        for _ in range(3):
            for bank in range(4):
                matmul(tile[:, bank, :])

    assert flags(traced(kernel, (4, 4))) == [False] * 4 + [True] * 8


def test_a_write_anywhere_leaves_it_open_what_is_started():
    def kernel(explicit):
        tile = psum(P, 64)
        matmul(tile)
        for i in nl.dynamic_range(32):
            nisa.memset(dst=tile[:, nl.ds(i, 32)], value=0.0)
        matmul(tile, accumulate=explicit)

    refused("psum-overlap", lambda a: kernel(None), (4, 4))
    assert flags(traced(lambda a: kernel(True), (4, 4))) == [False, True]


def test_a_matmul_anywhere_leaves_it_open_what_is_started():
    """The elements that i has picked are started: they may not be overwritten unasked."""

    def kernel(explicit):
        tile = psum(P, 64)
        for i in nl.dynamic_range(32):
            matmul(tile[:, nl.ds(i, 32)], accumulate=False)
        matmul(tile, accumulate=explicit)

    error = refused("psum-overlap", lambda a: kernel(None), (4, 4))
    assert "registers" in error.what
    assert flags(traced(lambda a: kernel(True), (4, 4))) == [False, True]
    assert flags(traced(lambda a: kernel(False), (4, 4))) == [False, False]


def test_a_sum_anywhere_onto_data_of_another_instruction_is_refused():
    """Whichever elements the register picks, no matmul wrote them last."""

    def kernel(a, begin=lambda tile: None):
        tile = psum(P, 64)
        begin(tile)
        nisa.memset(dst=tile, value=0.0)
        for i in nl.dynamic_range(32):
            matmul(tile[:, nl.ds(i, 32)], accumulate=True)

    refused("accumulation-not-started", kernel, (4, 4))
    refused("accumulation-not-started", lambda a: kernel(a, matmul), (4, 4))
    assert flags(traced(kernel, (4, 4), target="trn3")) == [True]


def test_a_sum_anywhere_in_a_tile_that_a_matmul_began_in_part():
    def kernel(a):
        tile = psum(P, 64)
        nisa.memset(dst=tile, value=0.0)
        matmul(tile[:, 0:32])
        for i in nl.dynamic_range(8):
            matmul(tile[:, nl.ds(i, 8)], accumulate=True)

    assert flags(traced(kernel, (4, 4))) == [False, True]


@nki.jit(platform_target="trn2")
def parts(a, b, begun, moves):
    """Products in `begun` columns of four, then a sum onto each column; where it
    `moves`, the column of a sum is a register."""
    left, right, tile = nl.load(a), nl.load(b), psum(P, 4)
    for i in range(begun):
        nisa.nc_matmul(dst=tile[:, i : i + 1], stationary=left, moving=right, accumulate=False)
    for i in nl.dynamic_range(4) if moves else range(4):
        nisa.nc_matmul(dst=tile[:, nl.ds(i, 1)], stationary=left, moving=right, accumulate=True)
    out, result = nl.ndarray((P, 4), dtype=nl.float32, buffer=nl.shared_hbm), sbuf(P, 4)
    nisa.tensor_copy(dst=result, src=tile)
    nisa.dma_copy(dst=out, src=result)
    return out


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("moves", [False, True])
def test_a_sum_onto_what_nothing_wrote_is_found_in_a_run(mode, moves):
    """SDK nki.isa.nc_matmul, "Accumulation mode": undefined on all targets."""
    a, b = np.ones((P, P), np.float32), np.ones((P, 1), np.float32)
    run = nki.simulate(parts, mode=mode)
    np.testing.assert_array_equal(run(a, b, 4, moves), np.full((P, 4), 2.0 * P))
    for begun in (0, 3):
        with pytest.raises(NeuronError) as caught:
            run(a, b, begun, moves)
        assert caught.value.code == "uninitialised-output"
        assert f"{P * (4 - begun)} of its {P * 4} elements" in caught.value.what


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_writes_of_symbolic_sizes_assume_nothing(target):
    """Every size that the symbol admits runs: other instructions than matmuls write PSUM too."""
    rows = nki.symbol("rows", max=P)

    @nki.jit(platform_target=target)
    def kernel(a, b):
        data, other = nl.load(a), nl.load(b)
        turned = psum(data.shape[1], data.shape[0])
        nisa.nc_transpose(dst=turned, data=data)
        square = psum(data.shape[1], 16)
        nisa.memset(square, value=7.0)
        for _ in range(2):
            nisa.nc_matmul(dst=square, stationary=data, moving=other)
        first = nl.copy(square)
        nisa.tensor_copy(dst=square, src=turned[:, 0:16])
        nisa.nc_matmul(dst=square, stationary=data, moving=other)
        total = nl.ndarray(first.shape, dtype=first.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=total, data1=first, data2=square, op=nl.add)
        out = nl.ndarray((a.shape[1], 16), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    specs = nki.TensorSpec((32, rows), "float32"), nki.TensorSpec((32, 16), "float32")
    assert kernel.trace(*specs).guards == []
    compiled = nki.compile(kernel, *specs)
    for size in (1, 20, P):
        a = np.arange(32 * size, dtype=np.float32).reshape(32, size) % 5
        b = np.arange(32 * 16, dtype=np.float32).reshape(32, 16) % 3
        np.testing.assert_array_equal(compiled(a, b), 3 * (a.T @ b))


def test_a_part_of_symbolic_size_is_another_than_one_of_fixed_size():
    rows = nki.symbol("rows", max=P)

    def kernel(a):
        tile = psum(P, P)
        left, right = sbuf(P, P), sbuf(P, P)
        nisa.nc_matmul(
            dst=tile[:, 0 : a.shape[0]], stationary=left, moving=right[:, 0 : a.shape[0]]
        )
        nisa.nc_matmul(dst=tile[:, 0:64], stationary=left, moving=right[:, 0:64])

    with pytest.raises(NeuronError) as caught:
        traced(kernel, (rows, 8))
    assert caught.value.code == "psum-overlap"
