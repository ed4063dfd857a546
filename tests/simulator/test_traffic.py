"""Bytes to and from HBM beside the least, and whose bytes were moved for want of room."""

from __future__ import annotations

import warnings

import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.profile import profile
from simulator.timing import simulate


@nki.jit(target="trn2")
def used_twice(a):
    """Nine tiles of 32 KiB a partition, where seven have room."""
    kept = []
    for start in range(0, 9 * 128, 128):
        tile = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[nl.ds(start, 128), :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        kept.append(tile)
    total = nl.zeros((128, 1), dtype=nl.float32)
    for _ in range(2):
        for tile in kept:
            nisa.tensor_tensor(dst=total, data1=total, data2=tile[:, :1], op=nl.add)
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


def test_spills_are_what_is_moved_more_than_once():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = nki.compile(used_twice, nki.TensorSpec((1152, 8192), nl.float32)).program
    report = profile(program, simulate(program))
    found, dma = report.traffic, report.dma
    assert (found.argument_bytes, found.result_bytes) == (1152 * 8192 * 4, 128 * 4)
    assert found.spills and {one.tensor.partition(".")[0] for one in found.spills} == {"tile"}
    assert {one.file for one in found.spills} == {__file__}
    assert found.saved_bytes == dma.hbm_write_bytes - found.result_bytes > 0
    assert found.reloaded_bytes == dma.hbm_read_bytes - found.argument_bytes > 0
    summary = report.to_dict()["summary"]
    assert summary["spill_save_bytes"] == found.saved_bytes
    assert summary["inputs_outputs_weights_size_bytes"] == 1152 * 8192 * 4 + 128 * 4
    text = report.text()
    line = used_twice.function.__code__.co_firstlineno + 5
    assert "spills: tensors that waited in HBM" in text
    assert f"test_traffic.py:{line}" in text and f"{found.spills[0].saved_bytes:,}" in text


@pytest.mark.parametrize("times", [1, 3])
def test_without_spills_none_are_named(times):
    @nki.jit(target="trn2")
    def loads(a):
        for _ in range(times):
            tile = nl.load(a)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    program = nki.compile(loads, nki.TensorSpec((128, 64), nl.float32)).program
    report = profile(program, simulate(program))
    assert report.traffic.spills == []
    assert report.traffic.argument_bytes == 128 * 64 * 4
    assert f"all arguments once: {report.traffic.argument_bytes:,} B" in report.text()
    assert "spills: tensors" not in report.text()
