"""The host executor against XLA:CPU, in one process, on one CPU or as many as `--cpus` says.

Run: python benchmarks/host_executor.py [--quick] [--training] [--cpus=N] [MODEL ...]

For each model: "run" is one call from NumPy arrays to NumPy arrays, arms interleaved, medians of
wall time and of CPU time (of all threads; what a loaded machine disturbs less). "cold" compiles
with empty caches, "warm" with a full disk cache and nothing in memory; XLA's compile has no cache.
"memory" is what peak resident memory exceeds that before compiling by, a process for each arm.
Chains of 300 operations on 1,024 numbers show what an operation costs beyond its work. Numbers are
ratios XLA / ours: above 1 ours is faster, or smaller.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import graph_compiler
from graph_compiler.execute import execute
from graph_compiler.execute.executable import Executable
from isa.object_cache import Cache
from nki.settings import threads_wanted
from simulator.native.codegen.library import Library

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / "graph_compiler")]

from conformance_models import MODELS, WITHOUT_GOLDEN, inputs_of, models  # noqa: E402

Array = np.ndarray[Any, Any]
Run = Callable[[], list[Array]]

REPEATS, QUICK_REPEATS = 11, 3
CHAIN = 300


def xla_executable(proto: bytes) -> Any:
    """A compiled module and a function that makes its arguments."""
    import jax
    from jaxlib import _hlo, _jax, xla_client

    client = jax.devices()[0].client
    computation = _hlo.XlaComputation(proto)
    stablehlo = _jax.mlir.xla_computation_to_mlir_module(computation)
    devices = _jax.DeviceList(tuple(client.local_devices()[:1]))
    return client.compile_and_load(stablehlo, devices, xla_client.CompileOptions())


def xla_run(executable: Any, inputs: list[Array]) -> Run:
    import jax

    arguments = [jax.device_put(array) for array in inputs]
    return lambda: [np.asarray(result) for result in executable.execute(arguments)]


def timed(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall and CPU seconds, and the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function()
    return time.perf_counter() - wall, time.process_time() - cpu, result


class Folder:
    """A disk cache of our own: compiles in it are cold once, then warm."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._parent = Path(self._folder.name)

    def compile(self, module: graph_compiler.Module) -> Executable:
        functions = Library(Cache("kernels", self._parent))
        return Executable(module, Cache("plans", self._parent), functions, threads_wanted())


def measured(proto: bytes, inputs: list[Array], repeats: int) -> dict[str, float]:
    """The figures of one module, in seconds."""
    module = graph_compiler.load(proto)
    folder = Folder()
    row: dict[str, float] = {}
    row["cold"], row["cold cpu"], _ = timed(lambda: folder.compile(module))
    row["xla compile"], row["xla compile cpu"], theirs = timed(lambda: xla_executable(proto))
    warm = [timed(lambda: folder.compile(module)) for _ in range(3)]
    row["warm"] = min(wall for wall, _, _ in warm)
    assert warm[-1][2].from_disk
    execute(module, *inputs)
    arms = {"run": lambda: execute(module, *inputs), "xla": xla_run(theirs, inputs)}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for number in range(repeats + 1):
        for name, arm in arms.items():
            wall, cpu, _ = timed(arm)
            if number:  # the first touches memory and fills caches
                times[name].append((wall, cpu))
    for name, values in times.items():
        row[name] = statistics.median(wall for wall, _ in values)
        row[f"{name} cpu"] = statistics.median(cpu for _, cpu in values)
    return row


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if values else float("nan")


HEADER = (
    f"{'':<28}{'ours ms':>9}{'XLA ms':>9}{'ratio':>7}{'of CPU':>8}"
    f"{'cold s':>8}{'XLA s':>7}{'ratio':>7}{'warm ms':>9}{'ratio':>7}"
)


def line(name: str, row: dict[str, float]) -> str:
    return (
        f"{name:<28}{1e3 * row['run']:9.2f}{1e3 * row['xla']:9.2f}"
        f"{row['xla'] / row['run']:7.2f}{row['xla cpu'] / row['run cpu']:8.2f}"
        f"{row['cold']:8.2f}{row['xla compile']:7.2f}{row['xla compile'] / row['cold']:7.2f}"
        f"{1e3 * row['warm']:9.1f}{row['xla compile'] / row['warm']:7.1f}"
    )


def chains() -> dict[str, tuple[bytes, list[Array]]]:
    """Chains of CHAIN operations: element-wise ones, and ones with a sum in every third."""
    import jax
    import jax.numpy as jnp

    def elementwise(x: Any) -> Any:
        for number in range(CHAIN // 3):
            x = jnp.maximum(x * (1.0 + number / 1024) + 0.25, -x)
        return x

    def with_sums(x: Any) -> Any:
        for number in range(CHAIN // 3):
            x = (x - jnp.sum(x) / 1024.0) * (1.0 + number / 4096)
        return x

    x = np.linspace(-1, 1, 1024, dtype=np.float32)
    found = {}
    for function in (elementwise, with_sums):
        lowered = jax.jit(function).lower(x)
        proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
        found[f"chain, {function.__name__}"] = (proto, [x])
    return found


# Memory: a process for each arm -----------------------------------------------------------------


def _resident(field: str) -> int:
    for text in Path("/proc/self/status").read_text().splitlines():
        if text.startswith(field):
            return int(text.split()[1]) * 1024
    raise LookupError(field)


def aligned(array: Array) -> Array:
    """A copy at an address that XLA takes without copying."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def memory_of(arm: str, name: str) -> None:
    """Prints the growth of peak resident memory over compiling and two runs."""
    model = models()[name]
    proto, inputs = model.path.read_bytes(), [aligned(array) for array in inputs_of(model)]
    module = graph_compiler.load(proto)
    if arm == "xla":
        xla_executable(graph_compiler.to_proto(graph_compiler.parse_text(_SMALL)))
    else:
        Folder().compile(graph_compiler.parse_text(_SMALL))
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _resident("VmRSS")
    if arm == "xla":
        run = xla_run(xla_executable(proto), inputs)
    else:
        executable = Folder().compile(module)

        def run() -> list[Array]:
            return executable(inputs)

    run()
    run()
    print(_resident("VmHWM") - before)


_SMALL = "HloModule m\nENTRY e {\n x = f32[2] parameter(0)\n ROOT r = f32[2] add(x, x)\n}"


def memory_line(name: str) -> tuple[str, float]:
    grown = []
    for arm in ("ours", "xla"):
        command = [sys.executable, __file__, "--memory", arm, name]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        grown.append(int(result.stdout.split()[-1]))
    ours, theirs = grown
    text = f"{name:<28}{ours / 1e6:9.0f} MB{theirs / 1e6:9.0f} MB  ours / XLA {ours / theirs:.2f}"
    return text, ours / theirs


def machine() -> str:
    import llvmlite.binding as llvm

    wanted = ("fma", "avx512f", "avx512bf16")
    flags = [name for name in wanted if llvm.get_host_cpu_features().get(name)]
    return f"{llvm.get_host_cpu_name()}, {' '.join(flags)}; load {os.getloadavg()[0]:.1f}"


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--memory"]:
        memory_of(*arguments[1:3])
        return
    cpus = max([1, *(int(text[7:]) for text in arguments if text.startswith("--cpus="))])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cpus:])
    if cpus == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    if not MODELS.exists():
        sys.exit(f"There are no model files in {MODELS}.")
    names = [name for name in arguments if not name.startswith("-")]
    training = "--training" in arguments
    chosen = names or [
        name
        for name in models()
        if name not in WITHOUT_GOLDEN and (training or "train" not in name)
    ]
    repeats = QUICK_REPEATS if "--quick" in arguments else REPEATS
    print(machine())
    print(HEADER)
    ratios: dict[str, list[tuple[float, float]]] = {"fp32": [], "bf16": []}
    for name in chosen:
        row = measured(models()[name].path.read_bytes(), inputs_of(models()[name]), repeats)
        print(line(name, row), flush=True)
        if "train" not in name:
            low = models()[name].tolerance == 3e-2
            pair = row["xla"] / row["run"], row["xla cpu"] / row["run cpu"]
            ratios["bf16" if low else "fp32"].append(pair)
    for name, (proto, inputs) in chains().items() if not names else ():
        print(line(name, measured(proto, inputs, 10 * repeats)), flush=True)
    for kind, pairs in ratios.items():
        wall, cpu = (geometric_mean([pair[i] for pair in pairs]) for i in range(2))
        print(f"{kind} inference, geometric mean of XLA / ours: {wall:.2f}, of CPU time {cpu:.2f}")
    for name in chosen:
        print(memory_line(name)[0], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
