"""Isolated instructions and transfers with measured laws, each as a small program of ours.

A law is startup + slope * elements, over a range of sizes: programs are timed at its ends and in
the geometric middle. What is compared is the time from the start of the instruction until its
result is visible. Whoever measured products gave the time from when the tensor engine takes one,
which is when the product in front of it starts; so those are two products, one behind the other.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine
from isa.target import TARGETS, Target
from latency.tiles import BANK, P, chip, output, psum
from simulator.timing import simulate

Row = dict[str, str]
DTYPES = {"fp32": nl.float32, "bf16": nl.bfloat16, "-": nl.float32}
BUFFERS = {"SBUF": nl.sbuf, "PSUM": nl.psum}
ENGINES = {
    "VectorE": nisa.engine.vector,
    "ScalarE": nisa.engine.scalar,
    "GpSimdE": nisa.engine.gpsimd,
}
FUNCTIONS = {
    "": nl.copy, "copy": nl.copy, "exp": nl.exp, "square": nl.square, "rsqrt": nl.rsqrt,
    "sqrt": nl.sqrt, "silu": nl.silu,
}  # fmt: skip


def _sources(row: Row, n: int) -> list[Any]:
    """Tiles that hold ones, as the row says where and of what type."""
    dtypes, places = row["in_dtype"].split("+"), row["src_mem"].split("+")
    found = []
    for index, dtype in enumerate(dtypes):
        tile = chip((P, n), DTYPES[dtype], BUFFERS[places[min(index, len(places) - 1)]])
        nisa.memset(dst=tile, value=1.0, engine=nisa.engine.vector)
        found.append(tile)
    return found


def _copy(row: Row, dst: Any, data: Any) -> None:
    nisa.tensor_copy(dst=dst, src=data[0], engine=ENGINES[row["engine"]])


def _add(row: Row, dst: Any, data: Any) -> None:
    nisa.tensor_tensor(
        dst=dst, data1=data[0], data2=data[-1], op=nl.add, engine=ENGINES[row["engine"]]
    )


def _scale(row: Row, dst: Any, data: Any) -> None:
    nisa.tensor_scalar(
        dst=dst, data=data[0], op0=nl.multiply, operand0=2.0, engine=ENGINES[row["engine"]]
    )


def _reduce(row: Row, dst: Any, data: Any) -> None:
    op = nl.maximum if row["func"] == "max" else nl.add
    nisa.tensor_reduce(dst=dst[:, nl.ds(0, 1)], op=op, data=data[0], axis=1)


def _reciprocal(row: Row, dst: Any, data: Any) -> None:
    nisa.reciprocal(dst=dst, data=data[0])


def _scan(row: Row, dst: Any, data: Any) -> None:
    nisa.tensor_tensor_scan(
        dst=dst, data0=data[0], data1=data[-1], initial=0.0, op0=nl.multiply, op1=nl.add
    )


def _memset(row: Row, dst: Any, data: Any) -> None:
    nisa.memset(dst=dst, value=0.0, engine=nisa.engine.vector)


def _shuffle(row: Row, dst: Any, data: Any) -> None:
    nisa.nc_stream_shuffle(dst=dst, src=data[0], shuffle_mask=list(range(32)))


def _select(row: Row, dst: Any, data: Any) -> None:
    predicate = chip(dst.shape, nl.uint8)
    nisa.memset(dst=predicate, value=1, engine=nisa.engine.gpsimd)
    nisa.tensor_copy_predicated(dst=dst, src=data[0], predicate=predicate)


def _activate(row: Row, dst: Any, data: Any) -> None:
    function, bias = row["func"].split("/")[0], None
    if function == "exp" and row["src_mem"] == "SBUF":
        bias = chip((P, 1))
        nisa.memset(dst=bias, value=0.0, engine=nisa.engine.gpsimd)
    nisa.activation(dst=dst, op=FUNCTIONS[function], data=data[0], bias=bias)


def _affine(row: Row, dst: Any, data: Any) -> None:
    nisa.affine_select(
        dst=dst,
        pattern=[[1, dst.shape[1]]],
        channel_multiplier=1,
        on_true_tile=data[0],
        on_false_value=0.0,
    )


def _turn(row: Row, dst: Any, data: Any) -> None:
    engine = ENGINES.get(row["engine"], nisa.engine.tensor)
    tile = data[0][nl.ds(0, 32), :] if engine is nisa.engine.vector else data[0]
    result = psum((P, P)) if engine is nisa.engine.tensor else dst[nl.ds(0, 32), :]
    nisa.nc_transpose(dst=result, data=tile, engine=engine)


def _multiply(row: Row, dst: Any, data: Any) -> None:
    nisa.nc_matmul(dst=dst, stationary=data[0][:, nl.ds(0, P)], moving=data[0])


PRODUCT = "MultiplyMoving"

OPERATIONS: dict[str, tuple[str, Callable[[Row, Any, Any], None]]] = {
    "tensor_copy": ("TensorCopy", _copy),
    "tensor_tensor": ("TensorTensor", _add),
    "tensor_tensor (binary)": ("TensorTensor", _add),
    "tensor_scalar": ("TensorScalar", _scale),
    "tensor_reduce": ("TensorReduce", _reduce),
    "reciprocal": ("Reciprocal", _reciprocal),
    "tensor_tensor_scan": ("TensorTensorScan", _scan),
    "memset": ("Memset", _memset),
    "stream_shuffle": ("StreamShuffle", _shuffle),
    "nc_transpose 32x32 (STREAM_TRANSPOSE)": ("Transpose32", _turn),
    "predicated copy": ("CopyPredicated", _select),
    "activation": ("Activate", _activate),
    "affine_select": ("AffineSelect", _affine),
    "nc_matmul bf16": (PRODUCT, _multiply),
    "nc_matmul fp32": (PRODUCT, _multiply),
    "nc_transpose 128x128 stream": ("TransposeStationary", _turn),
}
"""The machine instruction that each law is of, and the operation that becomes it."""

FIXED = {
    "ACT_TABLE_LOAD": "activation_table_load_ns",
    "MOVE uint32 immediate": "sequencer_move_ns",
    "activation accumulate readback": "accumulator_read_ns",
    "fixed kernel overhead": "kernel_overhead_ns",
}
"""Laws that are a figure of the target themselves: nothing is predicted, the figure is the row."""

SLOPES = {
    "tensor_tensor (binary)": 1 / 0.96,
    "tensor_scalar": 0.5 / 0.96,
    "nc_matmul bf16": 1.9875 / 2.4,
    "nc_matmul fp32": 8 / 2.4,
}
"""ns an element where the table has a formula in words."""


def sizes(row: Row) -> list[int]:
    """Elements a partition at which a law is compared."""
    low, high = int(row["min_elems"] or 64), int(row["max_elems"] or 2048)
    return sorted({low, round(math.sqrt(low * high)), high})


def published(row: Row, n: int) -> float:
    """What a law says for n elements, in ns."""
    slope = SLOPES.get(row["op"])
    if slope is None:
        slope = 0.0 if row["per_element_ns"] == "-" else float(row["per_element_ns"])
    return float(row["startup_ns"]) + slope * n


def program(row: Row, n: int) -> Any:
    """The law's operation on n elements a partition, compiled."""
    operation = OPERATIONS[row["op"]][1]

    @nki.jit
    def probe() -> Any:
        data = [] if row["op"] == "memset" else _sources(row, n)
        dst = chip((P, n), DTYPES[row["out_dtype"]], BUFFERS[row["dst_mem"]])
        operation(row, dst, data)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing is returned
        return nki.compile(probe, target="trn2").program


def completion(row: Row, n: int, target: Target = TARGETS["trn2"]) -> float:
    """What the model says for n elements, in ns."""
    name, compiled = OPERATIONS[row["op"]][0], program(row, n)
    streams = compiled.cores[0].streams
    last = [i for stream in streams.values() for i in stream if i.row.name == name][-1]
    assert last.row.cost is not None
    if name == PRODUCT:
        core = simulate(compiled).cores[0]
        loads = next(track.spans for track in core.tracks if track.name == "tensor load")
        assert loads is not None
        return core.engines[Engine.tensor].finished - loads.start[0]
    return last.row.cost.completion_ns(last, target)


def compared(rows: list[Row]) -> Iterator[tuple[Row, str, float, float]]:
    """(law, size in words, published, predicted) of every law that a program of ours stands for."""
    for row in rows:
        if row["op"] in OPERATIONS:
            for n in sizes(row):
                yield row, f"{n} elements", published(row, n), completion(row, n)
        elif row["engine"] == "DMA":
            yield from _transfers(row)


def _transfers(row: Row) -> Iterator[tuple[Row, str, float, float]]:
    """A load or a store of 128 partitions, from the trigger until its semaphore."""
    load = row["dst_mem"] == "SBUF"
    fixed, slope = (1957.6, 1.3046) if load else (1691.5, 0.9628)
    for elements in (BANK, 2 * BANK, 8 * BANK):
        payload = elements * 4 * P / 16 / (368 / 16)
        yield row, f"{elements} elements", fixed + slope * payload, _transfer(load, elements)


def _transfer(load: bool, elements: int) -> float:
    @nki.jit
    def probe(x: Any) -> Any:
        tile, result = chip((P, elements)), output((P, elements), nl.float32)
        if load:
            nisa.dma_copy(dst=tile, src=x)
        else:
            nisa.memset(dst=tile, value=0.0, engine=nisa.engine.vector)
            nisa.dma_copy(dst=result, src=tile)
        return result

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a result is not written
        made = nki.compile(probe, nki.TensorSpec((P, elements), nl.float32), target="trn2")
    timeline = simulate(made.program)
    core = timeline.cores[0]
    triggers = [
        span
        for track in core.tracks
        if track.queue < 0 and track.name.endswith("sequencer") and track.spans
        for span in track.spans
    ]
    return timeline.total_ns - triggers[-1][0]


def reason(row: Row) -> str:
    """Why a law is not compared."""
    figure = FIXED.get(row["op"])
    return f"is the figure {figure} itself" if figure else "no operation of ours is this"
