"""Rows of published_latencies.csv that are of one instruction or transfer, as small programs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from isa.target import TARGETS
from latency import primitives
from latency.tiles import BANK, P, chip, psum
from simulator.timing import Timeline, simulate

TRN2 = TARGETS["trn2"]


def _compiled(kernel: Any, *specs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing is returned
        return nki.compile(kernel, *specs, target="trn2").program


def _spans_of(timeline: Timeline, queue: bool) -> list[Any]:
    """Spans of the transfers of a program, or of the engine that starts them."""
    tracks = [
        track for track in timeline.cores[0].tracks if track.spans and (track.queue >= 0) is queue
    ]
    return sorted(span for track in tracks for span in track.spans or ())


def _loads(partitions: int, width: int, dtype: Any, count: int = 1) -> Timeline:
    @nki.jit
    def probe(x: Any) -> Any:
        for index in range(count):
            tile = chip((partitions, width), dtype)
            row = nl.ds(index * partitions, partitions)
            nisa.dma_copy(dst=tile, src=x[row, :], dge_mode=nisa.dge_mode.swdge)

    return simulate(_compiled(probe, nki.TensorSpec((partitions * count, width), dtype)))


def _one_engine() -> float:
    ((start, end, *_),) = _spans_of(_loads(4, 4096, nl.bfloat16), True)
    return float(end - start)


def _first_byte() -> float:
    timeline = _loads(P, P, nl.bfloat16)
    return float(_spans_of(timeline, True)[0][0] - _spans_of(timeline, False)[0][1])


@cache
def _rate(size: int) -> float:
    """Bytes a ns of 40 loads of 128 partitions with `size` bytes each."""
    spans = _spans_of(_loads(P, size, nl.int8, 40), True)
    return size * 39 / (spans[-1][1] - spans[0][1])


def _ratio(size: int) -> Callable[[], float]:
    return lambda: _rate(size) / _rate(32768)


def _law(op: str, n: int, func: str = "") -> Callable[[], float]:
    """Completion of an instruction on n fp32 elements a partition."""
    row = {
        "op": op, "engine": "", "in_dtype": "fp32", "out_dtype": "fp32", "src_mem": "SBUF",
        "dst_mem": "SBUF", "func": func,
    }  # fmt: skip
    return lambda: primitives.completion(row, n)


def _matmul_interval() -> float:
    row = {"op": "nc_matmul fp32", "in_dtype": "fp32", "out_dtype": "fp32", "func": ""}
    row |= {"src_mem": "SBUF", "dst_mem": "PSUM", "engine": "TensorE"}
    stream = primitives.program(row, BANK).cores[0].streams
    found = [i for s in stream.values() for i in s if i.row.name == primitives.PRODUCT]
    return float(found[0].row.cost.interval_ns(found[0], TRN2))


def _matmul_rate() -> float:
    """TFLOP/s of 2048 products of the largest tiles, one behind the other."""

    @nki.jit
    def probe() -> Any:
        one, wide = chip((P, P), nl.bfloat16), chip((P, BANK), nl.bfloat16)
        nisa.memset(dst=one, value=1.0)
        nisa.memset(dst=wide, value=1.0)
        for _ in range(2048):
            nisa.nc_matmul(dst=psum((P, BANK)), stationary=one, moving=wide)

    core = simulate(_compiled(probe)).cores[0]
    spans = next(track for track in core.tracks if track.name == "tensor").spans
    assert spans is not None
    return core.flops / (max(spans.end) - min(spans.start)) * 1e-3


ROWS: dict[str, Callable[[], float]] = {
    "DM001": _one_engine, "DM004": _first_byte,
    "DM005": _ratio(32), "DM006": _ratio(64), "DM007": _ratio(128), "DM008": _ratio(256),
    "DM010": _ratio(1024), "DM012": _ratio(4096), "DM013": _ratio(8192), "DM015": _ratio(32768),
    "AG018": _matmul_rate,
    "VG009": _law("tensor_tensor_scan", 256), "VG011": _law("tensor_tensor_scan", 2048),
    "VG013": _law("activation", 256, "exp"), "VG015": _law("activation", 2048, "exp"),
    "VG020": _matmul_interval,
}  # fmt: skip
"""What the model says for a row, in its unit. VG013 and VG015 are the instruction that computes;
reading back its sums is VG016, which is a figure of the target itself."""
