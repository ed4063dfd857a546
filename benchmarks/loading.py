"""Seconds from a finished program to one that is ready to run natively, by stage.

Run: python benchmarks/loading.py [--first | --proof]

Programs are `tiled` of the tutorials, unrolled to some 10,000, 100,000 and 200,000 instructions,
and the same product with loops that the device counts. Each is loaded right behind its compilation
and from a container file, by one thread and by two, which run a slice each; every load is in a
process of its own. Seconds are of CPU time, as other programs may be at work.

- "read": the container. "turns", "lives", "slices", "places": what `simulator.straight_line` finds
  out, LLVM included where there is enough to walk; "records": what native code walks, LLVM too;
- "all": to load, which has a few things more; "again": the same program once more, with all
  libraries loaded; "before": "all", when loading walked instruction objects (commit b67d210);
- "MiB": by how much the process has grown at its largest.

`--first` prints instead the first call of kernels of the tutorials in a fresh process, with an
empty cache of native code and with a full one. `--proof` prints what `nki.load` takes of the same
files: the first time, when it proves the program, and again, when it has the proof.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tutorials"))

import ml_dtypes
import numpy as np

INNER, COLUMNS = 8192, 8192

GOAL = 0.7
"""Seconds for 200,000 instructions."""

BEFORE = {(256, 1): 0.31, (256, 2): 0.44, (2048, 1): 2.5, (2048, 2): 3.2, (4096, 1): 4.6} | {
    (4096, 2): 6.1
}
"""CPU seconds by rows of the unrolled product and threads, measured from a file."""

STAGES = ("turns", "lives", "slices", "places", "records")


def unrolled(rows: int) -> Any:
    """`tiled` of the tutorials."""
    from matmul_kernels import tiled

    return _compiled(tiled, rows)


def rolled(rows: int) -> Any:
    """`tiled` with loops on the device."""
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @nki.jit
    def tiled(left: Any, right: Any) -> Any:
        result = nl.ndarray((left.shape[1], COLUMNS), dtype=left.dtype, buffer=nl.shared_hbm)

        def row(m: Any) -> None:
            nl.fori_loop(0, COLUMNS, lambda n: tile(m, n), step=512)

        def tile(m: Any, n: Any) -> None:
            total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in range(0, INNER, 128):
                stationary = nl.ndarray((128, 128), dtype=left.dtype, buffer=nl.sbuf)
                moving = nl.ndarray((128, 512), dtype=left.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=stationary, src=left[k : k + 128, nl.ds(m, 128)])
                nisa.dma_copy(dst=moving, src=right[k : k + 128, nl.ds(n, 512)])
                nisa.nc_matmul(dst=total, stationary=stationary, moving=moving)
            product = nl.ndarray((128, 512), dtype=left.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=product, src=total)
            nisa.dma_copy(dst=result[nl.ds(m, 128), nl.ds(n, 512)], src=product)

        nl.fori_loop(0, left.shape[1], row, step=128)
        return result

    return _compiled(tiled, rows)


def _compiled(kernel: Any, rows: int) -> Any:
    import nki
    import nki.language as nl

    specs = [nki.TensorSpec(shape, nl.bfloat16) for shape in ((INNER, rows), (INNER, COLUMNS))]
    return nki.compile(kernel, *specs, target="trn2")


def seconds(spent: dict[str, float], stage: str, function: Callable[..., Any]) -> Any:
    """`function`, whose CPU time is added up."""

    def timed(*args: Any) -> Any:
        start = time.process_time()
        try:
            return function(*args)
        finally:
            spent[stage] = spent.get(stage, 0.0) + time.process_time() - start

    return timed


def loaded(make: Any, rows: int, file: str | None, threads: int) -> dict[str, float]:
    """Load the program from a file, or right behind its compilation; seconds by stage."""
    from isa.files.container import load as read
    from simulator import execute, straight_line
    from simulator.parallel_slices import load as load_program

    spent: dict[str, float] = {}
    read = seconds(spent, "read", read)
    program = make(rows).program if file is None else read(file)
    spent["instructions"] = program.instruction_count
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    load = seconds(spent, "all", partial(load_program, threads=threads))
    names = "turns_of", "walks_of", "halves", "placed"
    for stage, name in zip(STAGES, names):
        setattr(straight_line, name, seconds(spent, stage, getattr(straight_line, name)))
    packed = execute.LoadedProgram._pack
    execute.LoadedProgram._pack = seconds(spent, "records", packed)  # type: ignore[method-assign]
    result = load(program)
    spent["MiB"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown) / 1024
    first = dict(spent)
    del result
    load(program if file is None else read(file))
    return {**first, "again": spent["all"] - first["all"]}


def alone(function: Any, *args: Any) -> Any:
    """What a function gives in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def _save(make: Any, rows: int, file: str) -> None:
    make(rows).save(file)


def print_stages() -> None:
    columns = ("read", *STAGES, "all", "again")
    print(
        f"program   instructions  from   threads{''.join(f'{c:>9}' for c in columns)}   before  MiB"
    )
    cases = [(unrolled, 256), (unrolled, 2048), (unrolled, 4096), (rolled, 4096)]
    with tempfile.TemporaryDirectory() as folder:
        for make, rows in cases:
            file = str(Path(folder, f"{make.__name__}{rows}.neff"))
            alone(_save, make, rows, file)
            for threads in (1, 2):
                for source in (None, file):
                    spent = alone(loaded, make, rows, source, threads)
                    times = "".join(f"{spent.get(name, 0.0):9.3f}" for name in columns)
                    before = BEFORE.get((rows, threads), 0.0) if make is unrolled else 0.0
                    print(
                        f"{make.__name__:10}{int(spent['instructions']):12}  "
                        f"{'file' if source else 'memory':8}{threads:6}{times}"
                        f"{before or '':9}{spent['MiB']:5.0f}",
                        flush=True,
                    )
    print(f"goal for 200,000 instructions: {GOAL} s")


# -- the first call -------------------------------------------------------------------------------


def first_call(number: int, cache: str) -> tuple[str, float]:
    """Name and CPU seconds of the first call of a kernel, the import of the package included."""
    os.environ["XDG_CACHE_HOME"] = cache
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = "trn2"
    rng = np.random.default_rng(0)
    start = time.process_time()
    from flash_attention import flash_attention
    from matmul_kernels import LADDER

    kernel = [*LADDER, flash_attention][number]
    sizes = [(128, 128), (128, 512)] if number == 0 else [(512, 1024), (512, 1024)]
    if kernel is flash_attention:
        sizes = [(128, 1024), (128, 1024), (1024, 128)]
    kernel(*(rng.uniform(-1, 1, size).astype(ml_dtypes.bfloat16) for size in sizes))
    return kernel.__name__, time.process_time() - start


def print_first_calls() -> None:
    from matmul_kernels import LADDER

    print("first call, s     empty cache    full")
    for number in range(len(LADDER) + 1):
        with tempfile.TemporaryDirectory() as cache:
            name, empty = alone(first_call, number, cache)
            full = min(alone(first_call, number, cache)[1] for _ in range(3))
        print(f"{name:18}{empty:11.2f}{full:8.2f}", flush=True)


# -- the proof of what is loaded ------------------------------------------------------------------


def load_seconds(file: str, other: str, cache: str, checked: bool) -> float:
    """CPU seconds of `nki.load` of a file, in a process that has loaded another one before."""
    os.environ["XDG_CACHE_HOME"] = cache
    os.environ["NKI_CHECKS"] = "01"[checked]
    import nki

    nki.load(other)
    start = time.process_time()
    nki.load(file)
    return time.process_time() - start


def print_proofs() -> None:
    print("program   rows  nki.load, ms: unchecked   first   again")
    with tempfile.TemporaryDirectory() as folder:
        other = str(Path(folder, "other.neff"))
        alone(_save, unrolled, 128, other)
        for make, rows in ((unrolled, 256), (unrolled, 2048), (rolled, 4096)):
            file = str(Path(folder, f"{make.__name__}{rows}.neff"))
            alone(_save, make, rows, file)
            taken = [alone(load_seconds, file, other, folder, checked) for checked in (0, 1, 1)]
            columns = "".join(f"{1000 * spent:8.1f}" for spent in taken)
            print(f"{make.__name__:10}{rows:4}{'':19}{columns}", flush=True)


if __name__ == "__main__":
    if "--proof" in sys.argv:
        print_proofs()
    elif "--first" in sys.argv:
        print_first_calls()
    else:
        print_stages()
