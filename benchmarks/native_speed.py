"""Speed of simulated kernels against what else computes the same, in one process.

Run: python benchmarks/native_speed.py [--quick] [--numpy] [--only=WORD] [--memory] [--library]
     python benchmarks/native_speed.py --checks [--quick] [--only=WORD]
     python benchmarks/native_speed.py --threads        (two CPUs, nothing else on them)

Arms are interleaved on one pinned CPU, one thread each; figures are medians in ms. "exec" is
execution alone of a loaded program, with the run-time checks; "call" a call of a compiled kernel,
arrays in and arrays out; "first" one trace, compilation and call, micro-kernels that are not in the
disk cache included; "refer." a call in reference mode. Peers: "eager", the same instructions on
NumPy tiles (`native_programs`); torch, XLA:CPU and the interpreter of Pallas TPU where they are
installed (`native_peers`). "limit" is the time that the multiply-adds of the matmuls take at the
peak that a loop of them in registers reaches in this run, for the dtype's faster instruction.

Ratios are the time of a peer over ours (above 1, ours is faster), those of the limit a share of it;
behind a slash stands the goal, and "!" marks what misses it. `--numpy` adds our NumPy backend.
`--memory` and `--library` measure peak memory, and building and loading the micro-kernels, in
processes of their own; without options everything but threads, the NumPy backend and `--checks` is
measured: execution with the run-time checks, and with NKI_CHECKS=0.
"""

from __future__ import annotations

import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["NKI_NUM_THREADS"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
if hasattr(os, "sched_setaffinity") and "--threads" not in sys.argv:
    # Before anything counts CPUs.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import native_programs as programs
import numpy as np
from flash_attention import eager_flash_attention, flash_attention
from native_kernels import peak
from native_peers import peers

import nki
from simulator.execute import LoadedProgram
from simulator.native.codegen.library import Library, library
from simulator.parallel_slices import ParallelSlices, load

Array = np.ndarray[Any, Any]

P = programs.P
F32, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Goal:
    """Least ratios: eager / exec, eager / call, XLA / exec, limit / exec."""

    eager: float = 0.0
    call: float = 0.0
    xla: float = 0.0
    limit: float = 0.0


GOALS = {
    ("matmul", BF16): Goal(eager=2.2, xla=1.7, limit=0.72),
    ("flash", BF16): Goal(eager=3.5, xla=2.2, limit=0.65),
    ("softmax", BF16): Goal(eager=6, xla=2),
    ("rmsnorm", BF16): Goal(eager=8, xla=2),
    ("gelu", BF16): Goal(eager=5, xla=2),
    ("ops", BF16): Goal(eager=9, call=5),
    ("fp8", BF16): Goal(eager=10),
    **{(name, F32): Goal(xla=1) for name in ("matmul", "flash", "softmax", "rmsnorm", "gelu")},
}
"""By the kind of a case and its dtype; for the full sizes and tiles of [128, 16]."""

DEVICE_OVER_REFERENCE = 1.3
TWO_THREADS = 1.5
WARM_MS, COLD_MS = 10.0, 1500.0
MEMORY_SHARE, MEMORY_BESIDE = 1.2, 200.0


@dataclass
class Case:
    """A kernel on inputs. `flops`: of its matmuls."""

    kind: str
    name: str
    kernel: Any
    eager: Callable[..., Array]
    inputs: list[Array]
    flops: float = 0.0
    full: bool = field(default=True)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.inputs[0].dtype

    @property
    def goal(self) -> Goal:
        """What holds for it; no goals where it is smaller than they are stated for."""
        return GOALS.get((self.kind, self.dtype), Goal()) if self.full else Goal()


def random(*shape: int, dtype: Any) -> Array:
    """Uniform numbers, a row at a time so that little memory is used beside them."""
    rng, result = np.random.default_rng(0), np.empty(shape, dtype)
    for row in result:
        row[...] = rng.uniform(-1, 1, shape[1:])
    return result


def cases(quick: bool, only: str = "") -> list[Case]:
    """All cases whose name contains `only`, with inputs."""
    found = []
    rows = 1024 if quick else 4096
    for dtype in (BF16, F32):
        size = 512 if quick else 2048
        shapes: list[tuple[str, str, Any, Any, list[tuple[int, ...]], float]] = [
            (
                *("matmul", f"matmul {size}^3", programs.matmul, programs.eager_matmul),
                [(size, size)] * 2,
                2.0 * size**3,
            ),
            (
                *("flash", f"flash attention {rows}x128", flash_attention, eager_flash_attention),
                [(P, rows), (P, rows), (rows, P)],
                4.0 * P * rows**2,
            ),
        ]
        plane = (rows, rows)
        for kind, kernel, eager, inputs in (
            ("softmax", programs.softmax, programs.eager_softmax, [plane]),
            ("rmsnorm", programs.rmsnorm, programs.eager_rmsnorm, [plane, (P, rows)]),
            ("gelu", programs.gelu_chain, programs.eager_gelu_chain, [plane] * 2),
        ):
            title = "gelu chain" if kind == "gelu" else kind
            shapes.append((kind, f"{title} [{rows},{rows}]", kernel, eager, inputs, 0.0))
        casts = (programs.casts, programs.eager_casts)
        if dtype == BF16:
            shapes.append(("fp8", "fp8 casts [1024,1024]", *casts, [(1024, 1024)], 0.0))
        for width in (16, 64, 256):
            name = f"{4 * programs.SMALL_STEPS} ops [128,{width}]"
            small = (programs.small_tiles, programs.eager_small_tiles)
            shapes.append(("ops", name, *small, [(P, width)] * 2, 0.0))
        for kind, name, kernel, eager, inputs, flops in shapes:
            if only in name:
                arrays = [random(*shape, dtype=dtype) for shape in inputs]
                full = kind == "fp8" or (inputs[0][1] == 16 if kind == "ops" else not quick)
                found.append(Case(kind, name, kernel, eager, arrays, flops, full))
    if not found:
        sys.exit(f"no case has {only!r} in its name")
    return found


# One CPU ----------------------------------------------------------------------------------------


def timed(function: Callable[..., Any], *arguments: Any) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def execution(loaded: LoadedProgram | ParallelSlices, inputs: list[Array]) -> float:
    """Seconds that execution alone takes."""
    loaded.prepare(inputs)
    return timed(loaded.execute)


def measure(case: Case, with_numpy: bool) -> dict[str, float]:
    """Medians in milliseconds by arm; "limit" is not measured but computed."""
    inputs = case.inputs
    first = timed(nki.simulate(case.kernel, backend="native"), *inputs)
    compiled = nki.compile(case.kernel, *inputs, target="trn2")
    program = compiled.program_for(inputs)
    native = LoadedProgram(program)
    reference = nki.simulate(case.kernel, mode="reference")
    arms = peers(case.kind, inputs) | {
        "call": lambda: compiled(*inputs),
        "refer.": lambda: reference(*inputs),
        "eager": lambda: case.eager(*inputs),
    }
    if with_numpy:
        backend = LoadedProgram(program, native=False)
        arms["numpy"] = lambda: backend.run(inputs)
    for arm in arms.values():
        arm()
    execution(native, inputs)
    times: dict[str, list[float]] = {arm: [] for arm in (*arms, "exec")}
    peaks = []
    started = time.perf_counter()
    while len(times["exec"]) < 5 or (
        len(times["exec"]) < 25 and time.perf_counter() - started < 2.0
    ):
        for arm, function in arms.items():
            times[arm].append(timed(function))
        times["exec"].append(execution(native, inputs))
        if case.flops:
            peaks.append(_peak(case.dtype))
    medians = {arm: statistics.median(values) * 1e3 for arm, values in times.items()}
    if peaks:
        medians["limit"] = case.flops / statistics.median(peaks) / 1e6
    return medians | {"first": first * 1e3}


def _peak(dtype: np.dtype[Any]) -> float:
    functions = library()
    assert functions is not None, "llvmlite is needed"
    pairs = dtype == BF16 and functions.level.bf16_dot
    return max(peak(False), peak(True) if pairs else 0.0)


COLUMNS = ("exec", "call", "first", "refer.", "eager", "torch", "xla", "pallas", "limit")
RATIOS = (
    *(("eager", "exec"), ("eager", "call"), ("torch", "exec"), ("xla", "exec")),
    *(("pallas", "call"), ("limit", "exec"), ("refer.", "call")),
)


def goals_of(case: Case) -> dict[tuple[str, str], float]:
    """Goals by ratio; 0 where there is none."""
    goal = case.goal
    return {
        ("eager", "exec"): goal.eager,
        ("eager", "call"): goal.call,
        ("xla", "exec"): goal.xla,
        ("limit", "exec"): goal.limit,
        ("refer.", "call"): 1 / DEVICE_OVER_REFERENCE,
    }


def one_cpu(quick: bool, with_numpy: bool, only: str) -> None:
    columns = (*COLUMNS, "numpy") if with_numpy else COLUMNS
    print(f"{'':34}" + "".join(f"{column:>9}" for column in columns), end=" | ")
    print("".join(f"{f'{top}/{bottom}':>13}" for top, bottom in RATIOS))
    for case in cases(quick, only):
        t = measure(case, with_numpy)
        cells = [f"{t[column]:9.2f}" if column in t else f"{'':9}" for column in columns]
        goals = goals_of(case)
        for top, bottom in RATIOS:
            text = ""
            if top in t:
                ratio, goal = t[top] / t[bottom], goals.get((top, bottom), 0.0)
                text = f"{ratio:.2f}" + (f"/{goal:.2g}" if goal else "")
                text += "!" if ratio < goal else ""
            cells.append(f"{text:>13}")
        cells.insert(len(columns), " | ")
        print(f"{case.name:26}{case.dtype.name:8}" + "".join(cells), flush=True)


def checks(quick: bool, only: str) -> None:
    """Execution with run-time checks and without, interleaved."""
    print(f"{'':34}{'checked':>9}{'without':>9}{'ratio':>9}")
    for case in cases(quick, only):
        program = nki.compile(case.kernel, *case.inputs, target="trn2").program_for(case.inputs)
        loaded = [LoadedProgram(program, check=check) for check in (True, False)]
        times: list[list[float]] = [[], []]
        for _ in range(12):
            for each, program_of in zip(times, loaded):
                each.append(execution(program_of, case.inputs))
        checked, without = (statistics.median(each[2:]) * 1e3 for each in times)
        print(
            f"{case.name:26}{case.dtype.name:8}{checked:9.2f}{without:9.2f}"
            f"{checked / without:9.2f}",
            flush=True,
        )


# Two CPUs ---------------------------------------------------------------------------------------


def threads(quick: bool, only: str) -> None:
    """Execution by one thread and by two, interleaved."""
    print(f"{'':34}{'one':>9}{'two':>9}{'gain':>9}   goal {TWO_THREADS}")
    for case in cases(quick, only):
        if case.kind not in ("matmul", "flash", "softmax", "rmsnorm", "gelu"):
            continue
        program = nki.compile(case.kernel, *case.inputs, target="trn2").program_for(case.inputs)
        loaded = [load(program, threads=count) for count in (1, 2)]
        times: list[list[float]] = [[], []]
        for _ in range(8):
            for each, program_of in zip(times, loaded):
                each.append(execution(program_of, case.inputs))
        one, two = (statistics.median(each[1:]) * 1e3 for each in times)
        mark = (
            "!" if one / two < TWO_THREADS and case.kind in ("matmul", "flash", "softmax") else ""
        )
        print(
            f"{case.name:26}{case.dtype.name:8}{one:9.2f}{two:9.2f}{one / two:8.2f}x{mark}",
            flush=True,
        )


# Memory and the library, in processes of their own ------------------------------------------------


def child(*arguments: str, **environment: str) -> str:
    """What this script prints in a process of its own."""
    return subprocess.run(
        [sys.executable, __file__, *arguments],
        env=os.environ | environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def _status(key: str) -> float:
    """A line of /proc/self/status, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    raise KeyError(key)


def memory_of(name: str, dtype: str, quick: bool) -> None:
    """In a child: what one call of a compiled kernel adds to the process after import."""
    before = _status("VmRSS")
    (case,) = (case for case in cases(quick, name) if case.dtype.name == dtype)
    compiled = nki.compile(case.kernel, *case.inputs, target="trn2")
    result = compiled(*case.inputs)
    tensors = sum(array.nbytes for array in (*case.inputs, result)) / 2**20
    added, bound = _status("VmHWM") - before, MEMORY_SHARE * tensors + MEMORY_BESIDE
    print(
        f"{case.name:26}{dtype:8} tensors {tensors:7.1f} MiB, added at most {added:7.1f}, "
        f"goal {bound:7.1f}{'!' if added > bound else ''}"
    )


def memory(quick: bool) -> None:
    rows, size = (1024, 512) if quick else (4096, 2048)
    plane = f"[{rows},{rows}]"
    for name in (f"matmul {size}^3", f"flash attention {rows}x128", f"softmax {plane}", plane):
        kinds = (f"rmsnorm {plane}", f"gelu chain {plane}") if name == plane else (name,)
        for kind in kinds:
            for dtype in ("bfloat16", "float32"):
                options = ["--quick"] if quick else []
                print(
                    child(f"--memory-of={kind}", f"--dtype={dtype}", *options), end="", flush=True
                )


def library_of() -> None:
    """In a child: time spent on the micro-kernels of all kernels, at small sizes."""
    import llvmlite.binding  # noqa: F401  (not ours)

    start = time.perf_counter()
    functions = library()
    opened = (time.perf_counter() - start) * 1e3
    assert functions is not None, "llvmlite is needed"
    spent: list[float] = []
    load = Library._load

    def measured(self: Library, kernel: Any) -> Any:
        begin = time.perf_counter()
        result = load(self, kernel)
        spent.append((time.perf_counter() - begin) * 1e3)
        return result

    Library._load = measured  # type: ignore[method-assign]
    for case in cases(quick=True):
        nki.simulate(case.kernel)(*case.inputs)
    per = statistics.median(spent)
    first = opened + sum(spent[:10])
    print(
        f"{len(spent)} micro-kernels: opening {opened:.1f} ms, the first ten {first - opened:.1f}, "
        f"all {sum(spent):.1f} (median {per:.2f} each)"
    )


def library_times() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for label, goal in (("cold build", COLD_MS), ("warm start", WARM_MS)):
            print(
                f"{label} (goal {goal:.0f} ms): {child('--library-of', XDG_CACHE_HOME=folder)}",
                end="",
            )


def cpu() -> tuple[str, str]:
    """Model and the SIMD features that matter here."""
    wanted = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "asimd")
    model, flags = "unknown CPU", set()
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = set(value.split())
            break
    return model, " ".join(flag for flag in wanted if flag in flags)


def main() -> None:
    options = dict(option.partition("=")[::2] for option in sys.argv[1:])
    quick = "--quick" in options
    if "--memory-of" in options:
        memory_of(options["--memory-of"], options["--dtype"], quick)
        return
    if "--library-of" in options:
        library_of()
        return
    model, flags = cpu()
    print(f"{model}: {flags}; load {os.getloadavg()[0]:.1f}; NumPy {np.__version__}")
    if "--threads" in options:
        threads(quick, options.get("--only", ""))
        return
    if "--checks" in options:
        checks(quick, options.get("--only", ""))
        return
    parts = {"--memory", "--library"} & options.keys()
    if not parts:
        one_cpu(quick, "--numpy" in options, options.get("--only", ""))
    if not parts and "--only" in options:
        return
    if not parts or "--memory" in parts:
        memory(quick)
    if not parts or "--library" in parts:
        library_times()


if __name__ == "__main__":
    main()
