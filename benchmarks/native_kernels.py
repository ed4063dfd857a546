"""Speed of single micro-kernels, each against NumPy in the same run, pinned to one CPU.

Run: python benchmarks/native_kernels.py [matmul] [convert] [move] [rows] [indexed] [mx] [levels]

Times are medians of interleaved repeats, in CPU time of the thread, so that a busy machine disturbs
them little. Peaks are what a loop of independent multiply-adds in registers reaches in this run;
the limit of a dtype that pairs hold is the higher one.
NumPy multiplies by BLAS on one thread and converts with ml_dtypes where it has no dtype of its own.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

from isa.alu import ACTIVATIONS, ALU
from isa.dtypes import DTYPES
from isa.enums import Engine, ReduceCommand
from isa.machine import accumulate, activation2, gpsimd, random, scan, search, statistics
from isa.machine.dma import DmaCompute, DmaCopy, DmaTranspose
from isa.machine.elementwise import TensorCopy
from isa.machine.gather import GatherElements, LocalGather, StreamShuffle
from isa.machine.mx import LoadStationaryMx, MultiplyMovingMx, QuantizeMx
from isa.machine.tensor import LoadStationary, MultiplyMoving, TransposeStationary
from simulator.device_state import Arena, LoadedTiles
from simulator.kernels import fixed
from simulator.native.codegen.library import Library, host_levels, library
from simulator.native.codegen.rates import multiply_adds
from simulator.native.matmul.blocks import block_for
from simulator.native.matmul.gemm import MultiplyKernel
from simulator.native.matmul.gemm_image import Image, Load
from simulator.native.matmul.plans import HeldTile
from simulator.numerics.random import initial_states
from simulator.oracle import quiet
from simulator.views import Indirect, bits, dtype_name, strided

Array = np.ndarray[Any, Any]
Arm = Callable[[], Any]

P = 128
PARTITION_BYTES = 192 * 1024


def peak(dot: bool) -> float:
    """GF/s of multiply-adds."""
    functions = library()
    assert functions is not None
    return 2 * multiply_adds(functions, dot, steps=20000, trials=40) / 1e9


def medians(arms: dict[str, Arm], repeats: int = 25) -> dict[str, float]:
    """Seconds by arm."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for arm in arms.values():
        arm()
    for _ in range(repeats):
        for name, arm in arms.items():
            start = time.thread_time()
            arm()
            times[name].append(time.thread_time() - start)
    return {name: median(values) for name, values in times.items()}


def on_chip(dtype: str, *shape: int) -> Array:
    """A tile in an arena of its own."""
    arena = Arena(shape[0], PARTITION_BYTES)
    size = DTYPES[dtype].size
    strides = [size]
    for count in reversed(shape[2:]):
        strides.insert(0, strides[0] * count)
    return strided(arena.buffer, dtype, 0, shape, (arena.pitch, *strides))


def random_tile(dtype: str, *shape: int) -> Array:
    """Values of all sizes, without NaN."""
    view = on_chip(dtype, *shape)
    rng = np.random.default_rng(0)
    if DTYPES[dtype].is_float:
        view[...] = (rng.standard_normal(shape) * 8).astype(view.dtype)
    else:
        bits(view)[...] = rng.integers(0, 2 if dtype == "bool" else 100, shape)
    return view


def state() -> Any:
    """What the kernels need of a core."""
    return SimpleNamespace(
        stationary=LoadedTiles(),
        sbuf=Arena(0, PARTITION_BYTES),
        engine=Engine.vector,
        start_partition=0,
        number=0,
        threads=1,
    )


def call(row: Any, engine: Engine, core: Any, *values: Any) -> Arm:
    return fixed(row, engine, core, values, native=True)


def matmul() -> None:
    functions = library()
    has_dot = functions is not None and functions.level.bf16_dot
    peaks = {False: peak(False), True: peak(True) if has_dot else 0.0}
    print(
        f"peak of fp32 multiply-adds {peaks[False]:.0f} GF/s, of bfloat16 pairs {peaks[True]:.0f}"
    )
    header = f"{'[128,128].T @ [128,N]':28}{'N':>5}{'us':>8}{'GF/s':>8}"
    print(header + f"{'of peak':>9}{'NumPy':>8}{'ratio':>7}")
    for dtype in ("float32", "bfloat16", "float16", "float8_e4m3", "int8"):
        for columns in (512, 128, 16):
            core = state()
            a, b = random_tile(dtype, P, P), random_tile(dtype, P, columns)
            dst = on_chip("float32", P, columns)
            load = call(LoadStationary, Engine.tensor, core, a, 0, 0)
            multiply = call(MultiplyMoving, Engine.tensor, core, dst, b, False, 0, 0)
            left, right = (np.ascontiguousarray(x.astype(np.float32)) for x in (a, b))
            product = np.empty((P, columns), np.float32)
            load()
            t = medians(
                {
                    "multiply": multiply,
                    "load": load,
                    "numpy": partial(np.matmul, left.T, right, product),
                }
            )
            work = 2 * P * P * columns / 1e9
            speed = work / t["multiply"]
            limit = peaks[False] if dtype in ("float32", "float16") else max(peaks.values())
            print(
                f"{dtype:28}{columns:5}{t['multiply'] * 1e6:8.1f}{speed:8.1f}{speed / limit:9.2f}"
                f"{work / t['numpy']:8.1f}{t['numpy'] / t['multiply']:7.2f}"
                f"   load {t['load'] * 1e6:.1f} us",
                flush=True,
            )


CONVERTED = (
    *("bfloat16", "float16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn"),
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "bool"),
)


def convert() -> None:
    print(f"{'conversions of [128,512]':32}{'us':>8}{'G/s':>8}{'NumPy':>8}{'ratio':>7}")
    pairs = [(name, "float32") for name in CONVERTED]
    pairs += [("float32", name) for name in CONVERTED]
    pairs += [("bfloat16", "float8_e4m3"), ("float8_e4m3", "bfloat16"), ("bfloat16", "float16")]
    for source, target in pairs:
        src, dst = random_tile(source, P, 512), on_chip(target, P, 512)
        run = call(TensorCopy, Engine.vector, state(), dst, src)
        t = medians({"native": run, "numpy": partial(numpy_cast, dst, src)})
        report(f"{source} to {target}", t, src.size)


def numpy_cast(dst: Array, src: Array) -> None:
    with np.errstate(all="ignore"):
        if dtype_name(dst) == "bool" or not DTYPES[dtype_name(dst)].is_integer:
            dst[...] = src
        else:
            row = DTYPES[dtype_name(dst)]
            wide = np.float32 if row.size < 4 else np.float64
            dst[...] = np.clip(np.rint(src.astype(wide)), row.lowest, row.largest)


def report(name: str, t: dict[str, float], elements: int) -> None:
    print(
        f"{name:32}{t['native'] * 1e6:8.2f}{elements / t['native'] / 1e9:8.2f}"
        f"{t['numpy'] * 1e6:8.1f}{t['numpy'] / t['native']:7.2f}",
        flush=True,
    )


def move() -> None:
    print(f"{'moving':40}{'us':>8}{'G/s':>8}{'NumPy':>8}{'ratio':>7}")
    for dtype in ("float32", "bfloat16", "uint8"):
        core = state()
        src, dst = random_tile(dtype, P, P), on_chip(dtype, P, P)
        call(LoadStationary, Engine.tensor, core, src, 0, 0)()
        held = np.ascontiguousarray(bits(src))
        arms: dict[str, Arm] = {
            "native": call(TransposeStationary, Engine.tensor, core, dst, 0, False),
            "numpy": partial(np.copyto, bits(dst), held.T),
        }
        report(f"TensorE transpose {dtype} [128,128]", medians(arms), src.size)
        wide, out = random_tile(dtype, P, 32, 16), on_chip(dtype, P, 16, 32)
        for label, view in (
            ("copy [128,32,16]", wide),
            ("copy, last two exchanged", wide.transpose(0, 2, 1)),
            ("copy of every second", on_chip(dtype, P, 1024)[:, ::2]),
            ("copy reversed", wide.reshape(P, 512)[:, ::-1]),
        ):
            target = out if view.ndim == 3 and view.shape[1] == 16 else on_chip(dtype, *view.shape)
            arms: dict[str, Arm] = {
                "native": call(TensorCopy, Engine.vector, core, target, view),
                "numpy": partial(np.copyto, bits(target), bits(view)),
            }
            report(f"{label} {dtype}", medians(arms), view.size)
        hbm = np.zeros((512, P), src.dtype)
        loaded = on_chip(dtype, P, 512)
        for label, target, source in (
            ("DMA load [128,512]", loaded, hbm.reshape(P, 512)),
            ("DMA transposing load [512,128]", loaded, hbm.T),
            ("DMA transposing store [512,128]", hbm.T, loaded),
        ):
            arms: dict[str, Arm] = {
                "native": call(DmaCopy, Engine.sync, core, target, source, 0, None, None),
                "numpy": partial(np.copyto, bits(target), bits(source)),
            }
            report(f"{label} {dtype}", medians(arms), source.size)


def compared(
    name: str,
    row: Any,
    engine: Engine,
    values: tuple[Any, ...],
    elements: int,
    core: Any = None,
) -> None:
    """A row by its micro-kernel and by its NumPy kernel."""
    core = core or state()
    arms = {
        "native": call(row, engine, core, *values),
        "numpy": fixed(row, engine, core, values, native=False),
    }
    with quiet():
        report(name, medians(arms), elements)


def indexed() -> None:
    print(f"{'moves by index, against the oracle':32}{'us':>8}{'G/s':>8}{'NumPy':>8}{'ratio':>7}")
    rng = np.random.default_rng(0)
    no_dma = (0, None, None)
    for dtype, width in (("bfloat16", 512), ("bfloat16", 16), ("float32", 1)):
        size = DTYPES[dtype].size
        table = strided(
            np.zeros(4096 * width * size, np.uint8), dtype, 0, *_rows(4096, width, size)
        )
        tile, index = random_tile(dtype, P, width), on_chip("int32", P, 1)
        index[...] = rng.permutation(4096)[:P, None]
        rows = Indirect(table, index)
        label = f"{P} rows of {width} {dtype}"
        for name, values in (("gather", (tile, rows)), ("scatter", (rows, tile))):
            compared(f"{name} {label}", DmaCopy, Engine.sync, (*values, *no_dma), tile.size)
        if width > 1:
            turned = on_chip(dtype, min(width, P), P)
            picked = Indirect(table[:, :P], index)
            values = (turned, picked, *no_dma)
            compared(f"transposed {label}", DmaTranspose, Engine.sync, values, turned.size)
    for shape in ((512, P), (8, 4, 16, P)):
        source, target = (
            random_tile("bfloat16", *shape),
            on_chip("bfloat16", P, *shape[1:-1], shape[0]),
        )
        values = (target, source, *no_dma)
        compared(f"DMA transpose {list(shape)}", DmaTranspose, Engine.sync, values, source.size)

    table = np.zeros((4096, 512), np.float32)
    index = on_chip("int32", P, 1)
    index[...] = rng.permutation(4096)[:P, None]
    tile, picked = random_tile("float32", P, 512), Indirect(table, index)
    options = (*(None,) * 14, ALU["add"], *no_dma)
    for name, values in (("tiles", (tile, tile, tile)), ("into rows", (picked, picked, tile))):
        compared(f"sum of {name}", DmaCompute, Engine.sync, (*values, *options), tile.size)
    for dtype in ("bfloat16", "float32"):
        data, target = random_tile(dtype, P, 512), on_chip(dtype, P, 512)
        index = on_chip("uint16", P, 512)
        index[...] = rng.integers(0, 512, (P, 512))
        broadcast = (target, data, (0,) * 32)
        compared(f"shuffle {dtype}", StreamShuffle, Engine.vector, broadcast, data.size)
        values = (target, data, index)
        compared(f"elements {dtype}", GatherElements, Engine.gpsimd, values, data.size)
        local = (target, data, index[:, :32], 1, 512)
        compared(f"local {dtype}", LocalGather, Engine.gpsimd, local, data.size)
        over = (on_chip("float32", 1, 512), data, ALU["add"])
        compared(f"over partitions {dtype}", gpsimd.PartitionReduce, Engine.gpsimd, over, data.size)


def microscaled() -> None:
    print(f"{'MX, against the oracle':32}{'us':>8}{'G/s':>8}{'NumPy':>8}{'ratio':>7}")
    rng = np.random.default_rng(0)
    for packed in ("float8_e4m3fn_x4", "float4_e2m1fn_x4"):
        for columns in (512, 16):
            core = state()
            tile, moving = on_chip(packed, P, P), on_chip(packed, P, columns)
            for view in (tile, moving):
                # Small codes are finite.
                stored = bits(view)
                stored[...] = (
                    rng.integers(0, 1 << 30, view.shape) & 0x3F3F3F3F & np.iinfo(stored.dtype).max
                )
            scales = [on_chip("uint8", P, n) for n in (P, columns)]
            for view in scales:
                view[...] = 127
            dst = on_chip("float32", P, columns)
            load = (tile, scales[0], 0)
            label = f"{packed[:11]} [128,{columns}]"
            compared(f"load {label}", LoadStationaryMx, Engine.tensor, load, 4 * tile.size, core)
            call(LoadStationaryMx, Engine.tensor, core, *load)()
            multiply = (dst, moving, scales[1], False, 0)
            sums = 4 * P * dst.size
            compared(f"multiply {label}", MultiplyMovingMx, Engine.tensor, multiply, sums, core)
            if packed.startswith("float8"):
                core.unknown_groups = None
                source = random_tile("bfloat16", P, 4 * columns)
                values = (moving, source, scales[1])
                compared(f"quantize {label}", QuantizeMx, Engine.vector, values, source.size, core)


def _rows(count: int, width: int, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shape and strides of rows without gaps."""
    return (count, width), (width * size, size)


def levels() -> None:
    print(f"{'[128,128].T @ [128,512], GF/s':32}{'float32':>9}{'bfloat16':>9}")
    for level in host_levels():
        functions, block = Library(level=level), block_for(level, level.form)
        speeds = []
        for dtype in ("float32", "bfloat16"):
            a, b = random_tile(dtype, P, P), random_tile(dtype, P, 512)
            dst = on_chip("float32", P, 512)
            held = HeldTile()
            maker = functions.function(Image(dtype, block.form_of(dtype)))
            multiply = functions.function(MultiplyKernel(dtype, "float32", False, block))
            words = held.load_words((P, P), dtype, maker)
            words[1], words[4] = a.ctypes.data, a.strides[0]
            functions.function(Load())(words)
            words = dst.ctypes.data, b.ctypes.data, held.image, P, P, 512
            words = *words, dst.strides[0], b.strides[0], 0, P, b.ctypes.data, b.strides[0], 0
            arguments = (ctypes.c_int64 * len(words))(*words)
            seconds = medians({"multiply": partial(multiply, arguments)})["multiply"]
            speeds.append(2 * P * P * 512 / seconds / 1e9)
        print(f"{level.name:32}{speeds[0]:9.1f}{speeds[1]:9.1f}", flush=True)


GENERATION = 3
"""That of the target whose random numbers are drawn."""


def rows() -> None:
    """Instructions against the NumPy oracle, which gives the same bits."""
    print(f"{'rows':32}{'us':>8}{'G/s':>8}{'NumPy':>8}{'ratio':>7}")
    for dtype in ("float32", "bfloat16"):
        for label, row, elements, values in vector_rows(dtype):
            core, engine = state(), row.engines[0]
            core.accumulators = {engine: np.zeros(P, np.float32)}
            core.random = initial_states(GENERATION, P)
            core.device = SimpleNamespace(target=SimpleNamespace(generation=GENERATION))
            run = call(row, engine, core, *values)
            arms: dict[str, Arm] = {
                "native": run,
                "numpy": fixed(row, engine, core, values, native=False),
            }
            with quiet():
                report(f"{label} {dtype}", medians(arms, 9), elements)


def vector_rows(dtype: str) -> Iterator[tuple[str, Any, int, tuple[Any, ...]]]:
    """A label, the row, how many elements, and the values of its fields."""
    add, multiply = ALU["add"], ALU["multiply"]
    wide, other, out = random_tile(dtype, P, 2048), random_tile(dtype, P, 2048), tile_for(dtype)
    operators = (multiply, add, False, False)
    yield "scan", scan.TensorTensorScan, wide.size, (out, wide, other, 0.0, *operators)
    command = ReduceCommand.reset_reduce
    chain = (multiply, add, 0.5, None, command)
    yield "cumulative", scan.TensorScalarCumulative, wide.size, (out, wide, *chain)
    yield "bn_stats", statistics.BnStats, wide.size, (on_chip("float32", P, 6), wide)
    triples = random_tile("float32", P, 4, 6)
    yield "bn_aggr", statistics.BnAggregate, triples.size, (on_chip("float32", P, 2), triples)
    largest, positions = on_chip(dtype, P, 8), on_chip("uint32", P, 8)
    yield "max8", search.Max8, wide.size, (largest, wide)
    largest[...] = np.sort(wide, axis=1)[:, :-9:-1]
    yield "find_index8", search.FindIndex8, wide.size, (positions, wide, largest)
    yield "match_replace8", search.MatchReplace8, wide.size, (out, wide, largest, -1.0, None)
    pattern, keep = ((-1, 2048),), ALU["greater_equal"]
    values = (out, wide, pattern, 1000, 8, keep, -1e9)
    yield "affine_select", gpsimd.AffineSelect, wide.size, values
    yield "iota", gpsimd.Iota, wide.size, (out, pattern, 1000, 8)
    bounds = [random_tile("float32", P, 1) for _ in range(2)]
    values = (out, wide, keep, ALU["less"], *bounds, 0, command)
    yield "range_select", accumulate.RangeSelect, wide.size, values
    mask = random_tile("uint8", P, 2048)
    yield (
        "select_reduce",
        accumulate.SelectReduce,
        wide.size,
        (out, mask, wide, 0.0, False, command),
    )
    yield "dropout", random.Dropout, wide.size, (out, wide, 0.3)
    chain = (ACTIVATIONS["exp"], multiply, 0.125, add, -1.0, False, False, 0.0, add, command)
    yield "activate2", activation2.Activate2, wide.size, (out, wide, *chain)


def tile_for(dtype: str) -> Array:
    """Where results go."""
    return on_chip(dtype, P, 2048)


PARTS = {
    "matmul": matmul,
    "convert": convert,
    "move": move,
    "rows": rows,
    "indexed": indexed,
    "mx": microscaled,
    "levels": levels,
}


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    functions = library()
    assert functions is not None, "llvmlite is needed"
    print(f"{functions.level.cpu}, load {os.getloadavg()[0]:.1f}, NumPy {np.__version__}")
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
