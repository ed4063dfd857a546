"""What profiles say of transfers that convert, and of runs that are short."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.target import TARGETS

ROWS, COLUMNS = 2048, 512


def _copy(dtype):
    @nki.jit(target="trn2")
    def copied(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for start in range(0, ROWS, 128):
            here = nl.ds(start, 128)
            x = nl.ndarray((128, a.shape[1]), dtype=dtype or a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x, src=a[here, :])
            nisa.dma_copy(dst=out[here, :], src=x)
        return out

    return copied


def _profile(dtype, columns):
    a = np.ones((ROWS, columns), ml_dtypes.bfloat16)
    return nki.profile(_copy(dtype))(a)[1]


def test_conversion_is_a_cause_of_its_own_and_the_advice_says_so() -> None:
    converted = _profile(nl.float32, 4 * COLUMNS)
    causes = {one.cause: one for one in converted.path}
    assert causes["DMA conversion"].ns == pytest.approx(causes["DMA bandwidth"].ns), "half the rate"
    assert sum(one.percent for one in converted.path) == pytest.approx(100)
    assert "the transfer converts now, at 50% of the rate" in converted.verdict
    limits = {one.name: one.total_ns for one in converted.limits}
    assert limits["no conversions or sums by DMA"] < 0.6 * converted.total_ns
    assert "DMA conversion" not in {one.cause for one in _profile(None, 4 * COLUMNS).path}


def _turned(columns):
    """Rows of tiles that are mixed with each other, so that no row can go to another partition."""

    @nki.jit(target="trn2")
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for start in range(0, ROWS, 128):
            here = nl.ds(start, 128)
            x = nl.load(a[here, :])
            nisa.nc_stream_shuffle(dst=x, src=x, shuffle_mask=[*range(1, 32), 0])
            nisa.dma_copy(dst=out[here, :], src=x)
        return out

    return nki.profile(kernel)(np.ones((ROWS, columns), ml_dtypes.bfloat16))[1]


def test_a_verdict_on_short_runs_says_what_longer_ones_are_worth() -> None:
    assert 2 * COLUMNS < TARGETS["trn2"].dma_short_run_bytes.value <= 8 * COLUMNS
    short, long = _turned(COLUMNS), _turned(4 * COLUMNS)
    assert not any(one.bottleneck == "short rows" for one in short.advice)
    assert "short runs, 1,024 B a descriptor: without their cost" in short.verdict
    assert "neighbouring rows on one partition" in short.verdict
    assert "short runs" not in long.verdict


def test_advice_that_makes_longer_runs_takes_the_place_of_that() -> None:
    short, long = _profile(None, COLUMNS), _profile(None, 4 * COLUMNS)
    assert short.verdict.startswith("short rows at test_transfer_causes.py:"), short.verdict
    assert "short runs" not in short.verdict
    assert not any(one.bottleneck == "short rows" for one in long.advice)


def test_the_least_time_says_at_which_rate_it_is() -> None:
    text = " ".join(_profile(None, COLUMNS).text().split())
    assert "us by DMA bandwidth, 6.40 us by GpSimdE, each at its full rate; the time is" in text


def test_advice_that_changes_an_argument_says_so() -> None:
    found = nki.profile(_copy(None))(np.ones((ROWS, 2048), np.float32))[1]
    narrow = next(one for one in found.advice if one.bottleneck == "32-bit operands")
    assert narrow.text == "make x, a, out bfloat16 (the caller passes a like that)", narrow.text


def test_a_store_that_converts_is_found_beside_columns_that_stay_in_fp32() -> None:
    """A quotient by a column has columns in between, which instructions want in fp32."""

    @nki.jit(target="trn2")
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for start in range(0, ROWS, 128):
            here = nl.ds(start, 128)
            x = nl.load(a[here, :])
            total = nl.sum(x, axis=1, keepdims=True, dtype=nl.float32)
            nl.store(out[here, :], nl.divide(x, total))
        return out

    found = nki.profile(kernel)(np.ones((ROWS, 2048), ml_dtypes.bfloat16))[1]
    narrow = [one.text for one in found.advice if "the transfer converts now" in one.text]
    assert narrow and "make tensor bfloat16" in narrow[0]
