"""Speed of the native micro-kernels against NumPy, in one process, pinned to one CPU.

Run: python benchmarks/native_speed.py [--quick]

Arms, interleaved, medians of the repeats: our program with native micro-kernels, the same program
on our NumPy backend, and an eager loop over NumPy tiles that does the same instructions without
addresses, checks or semaphores (the shape of an eager NKI simulator: compute in fp32, cast to the
tile's dtype at each instruction, NaN in fresh tiles), and where they are installed the same maths
as one function of torch and of XLA:CPU (jax), which simulate nothing. All of them run on one
thread. "exec" is execution alone, "native" and "numpy" run a loaded program, arguments in and
results out, with the run-time checks; "no check" is native without them. "call" is a call of a
compiled kernel, "first" one trace, compilation and call, micro-kernels that are not in the disk
cache included.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["NKI_NUM_THREADS"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from flash_attention import copied, eager_flash_attention, flash_attention, fresh, wide

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.execute import LoadedProgram

Array = np.ndarray[Any, Any]

P = 128
BANK = 512
F32, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)


# The kernels ------------------------------------------------------------------------------------


@nki.jit
def matmul(lhsT, rhs):
    """lhsT.T @ rhs with every tile loaded once."""
    K, M = lhsT.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    width = min(BANK, N)
    left, right = [], []
    for k in range(K // P):
        tile = nl.ndarray((P, M), dtype=lhsT.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=lhsT[nl.ds(k * P, P), :])
        left.append(tile)
        tile = nl.ndarray((P, N), dtype=rhs.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=rhs[nl.ds(k * P, P), :])
        right.append(tile)
    for m in range(M // P):
        for n in range(N // width):
            total = nl.ndarray((P, width), dtype=nl.float32, buffer=nl.psum)
            for k in range(K // P):
                nisa.nc_matmul(
                    dst=total,
                    stationary=left[k][:, nl.ds(m * P, P)],
                    moving=right[k][:, nl.ds(n * width, width)],
                )
            tile = nl.ndarray((P, width), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=total)
            nisa.dma_copy(dst=out[nl.ds(m * P, P), nl.ds(n * width, width)], src=tile)
    return out


@nki.jit
def softmax(a):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(rows // P):
        x = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[nl.ds(i * P, P), :])
        low = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=x, axis=1, negate=True)
        e = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=e, op=nl.exp, data=x, reduce_op=nl.add, reduce_res=total, bias=low
        )
        inverse = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=total)
        y = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y, data=e, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=y)
    return out


@nki.jit
def rmsnorm(a, gain):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    g = nl.ndarray((P, columns), dtype=gain.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=g, src=gain)
    for i in range(rows // P):
        x = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[nl.ds(i * P, P), :])
        squares = nl.ndarray((P, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=squares, op=nl.square, data=x, reduce_op=nl.add, reduce_res=total
        )
        nisa.tensor_scalar(
            dst=total,
            data=total,
            op0=nl.multiply,
            operand0=1.0 / columns,
            op1=nl.add,
            operand1=1e-6,
        )
        scale = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=scale, op=nl.rsqrt, data=total)
        y = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=scale)
        nisa.tensor_tensor(dst=y, data1=y, data2=g, op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=y)
    return out


@nki.jit
def gelu_chain(a, b):
    """gelu(a * b + 1.5)."""
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(rows // P):
        x = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        y = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[nl.ds(i * P, P), :])
        nisa.dma_copy(dst=y, src=b[nl.ds(i * P, P), :])
        z = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=z, data1=x, data2=y, op=nl.multiply)
        nisa.tensor_scalar(dst=z, data=z, op0=nl.add, operand0=1.5)
        w = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.activation(dst=w, op=nl.gelu_apprx_tanh, data=z)
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=w)
    return out


SMALL_STEPS = 200


@nki.jit
def small_tiles(a, b):
    """Four instructions on one small tile, over and over."""
    x = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    y = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
    nisa.dma_copy(dst=y, src=b)
    low = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    for _ in range(SMALL_STEPS):
        nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.multiply)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=0.5)
        nisa.tensor_reduce(dst=low, op=nl.minimum, data=x, axis=1)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.subtract, operand0=low)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


# The same instructions on NumPy tiles -------------------------------------------------------------


def eager_matmul(lhsT: Array, rhs: Array) -> Array:
    K, M = lhsT.shape
    N = rhs.shape[1]
    out = fresh((M, N), lhsT.dtype)
    width = min(BANK, N)
    left = [copied(lhsT[k : k + P]) for k in range(0, K, P)]
    right = [copied(rhs[k : k + P]) for k in range(0, K, P)]
    for m in range(0, M, P):
        for n in range(0, N, width):
            total = fresh((P, width), F32)
            for k, (a, b) in enumerate(zip(left, right)):
                product = wide(a[:, m : m + P]).T @ wide(b[:, n : n + width])
                if k:
                    total += product
                else:
                    total[...] = product
            tile = fresh((P, width), out.dtype)
            tile[...] = total
            out[m : m + P, n : n + width] = tile
    return out


def eager_softmax(a: Array) -> Array:
    out = fresh(a.shape, a.dtype)
    for i in range(0, len(a), P):
        x = copied(a[i : i + P])
        low = fresh((P, 1), F32)
        low[...] = -np.maximum.reduce(wide(x), axis=1, keepdims=True)
        e, total = fresh(x.shape, a.dtype), fresh((P, 1), F32)
        result = np.exp(wide(x) + low)
        total[...] = result.sum(axis=1, keepdims=True)
        e[...] = result
        inverse = fresh((P, 1), F32)
        inverse[...] = np.float32(1) / total
        y = fresh(x.shape, a.dtype)
        y[...] = wide(e) * inverse
        out[i : i + P] = y
    return out


def eager_rmsnorm(a: Array, gain: Array) -> Array:
    out = fresh(a.shape, a.dtype)
    g = copied(gain)
    for i in range(0, len(a), P):
        x = copied(a[i : i + P])
        squares, total, scale = fresh(x.shape, F32), fresh((P, 1), F32), fresh((P, 1), F32)
        result = np.square(wide(x))
        total[...] = result.sum(axis=1, keepdims=True)
        squares[...] = result
        total[...] = total * np.float32(1.0 / a.shape[1]) + np.float32(1e-6)
        scale[...] = np.float32(1) / np.sqrt(total)
        y = fresh(x.shape, a.dtype)
        y[...] = wide(x) * scale
        y[...] = wide(y) * wide(g)
        out[i : i + P] = y
    return out


def eager_gelu_chain(a: Array, b: Array) -> Array:
    out = fresh(a.shape, a.dtype)
    for i in range(0, len(a), P):
        x, y = copied(a[i : i + P]), copied(b[i : i + P])
        z, w = fresh(x.shape, a.dtype), fresh(x.shape, a.dtype)
        z[...] = wide(x) * wide(y)
        z[...] = wide(z) + np.float32(1.5)
        v = wide(z)
        inner = np.float32(0.7978845608) * (v + np.float32(0.044715) * v * v * v)
        w[...] = np.float32(0.5) * v * (np.float32(1) + np.tanh(inner))
        out[i : i + P] = w
    return out


def eager_small_tiles(a: Array, b: Array) -> Array:
    x, y, low = copied(a), copied(b), fresh((P, 1), F32)
    for _ in range(SMALL_STEPS):
        x[...] = wide(x) * wide(y)
        x[...] = wide(x) + np.float32(0.5)
        low[...] = np.minimum.reduce(wide(x), axis=1, keepdims=True)
        x[...] = wide(x) - low
    return copied(x)


# Measuring --------------------------------------------------------------------------------------


def timed(function: Callable[..., Any], *arguments: Any) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def random(*shape: int, dtype: Any) -> Array:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype)


def cases(quick: bool) -> list[tuple[str, Any, Callable[..., Array], list[Array]]]:
    found = []
    for dtype in (BF16, F32):
        size = 512 if quick else 1024
        square = [random(size, size, dtype=dtype) for _ in range(2)]
        found.append((f"matmul {size}^3", matmul, eager_matmul, square))
        for size in (1024,) if quick else (1024, 4096):
            a = random(size, size, dtype=dtype)
            found.append((f"softmax [{size},{size}]", softmax, eager_softmax, [a]))
            found.append((f"rmsnorm [{size},{size}]", rmsnorm, eager_rmsnorm, [a, a[:P]]))
            found.append((f"gelu chain [{size},{size}]", gelu_chain, eager_gelu_chain, [a, a]))
        length = 1024 if quick else 4096
        heads = [random(*shape, dtype=dtype) for shape in ((P, length), (P, length), (length, P))]
        name = f"flash attention {length}x128"
        found.append((name, flash_attention, eager_flash_attention, heads))
        for width in (16, 64, 256):
            small = [random(P, width, dtype=dtype) for _ in range(2)]
            name = f"{4 * SMALL_STEPS} ops [128,{width}]"
            found.append((name, small_tiles, eager_small_tiles, small))
    return found


def peers(name: str, inputs: list[Array]) -> dict[str, Callable[[], Any]]:
    """The same maths in torch and XLA, by name of the arm; whichever is installed."""
    found: dict[str, Callable[[], Any]] = {}
    maths = MATHS.get(name.split()[0])
    if maths is None:
        return found
    try:
        import torch
    except ImportError:
        pass
    else:
        torch.set_num_threads(1)
        tensors = [torch.from_numpy(a.astype(np.float32)) for a in inputs]
        if inputs[0].dtype == BF16:
            tensors = [t.to(torch.bfloat16) for t in tensors]
        found["torch"] = lambda: maths(torch, *tensors)
    try:
        import jax
    except ImportError:
        pass
    else:
        arrays = [jax.numpy.asarray(a) for a in inputs]
        function = jax.jit(lambda *a: maths(jax.numpy, *a))
        found["xla"] = lambda: function(*arrays).block_until_ready()
    return found


def _softmax(xp: Any, a: Any) -> Any:
    powers = xp.exp(a - a.max(1)[0][:, None] if xp.__name__ == "torch" else a - a.max(1)[:, None])
    return powers / powers.sum(1)[:, None]


MATHS: dict[str, Callable[..., Any]] = {
    "matmul": lambda xp, a, b: a.T @ b,
    "softmax": _softmax,
    "rmsnorm": lambda xp, a, g: a * ((a * a).mean(1)[:, None] + 1e-6) ** -0.5 * g[:1],
    "gelu": lambda xp, a, b: _gelu(xp, a * b + 1.5),
    "flash": lambda xp, q, k, v: _softmax(xp, (q.T @ k) * q.shape[0] ** -0.5) @ v,
}
"""By the first word of a case."""


def _gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def execution(loaded: LoadedProgram, inputs: list[Array]) -> float:
    """Seconds that execution alone takes."""
    loaded.prepare(inputs)
    return timed(loaded.execute)


def measure(
    name: str, kernel: Any, eager: Callable[..., Array], inputs: list[Array]
) -> dict[str, float]:
    """Medians in milliseconds by arm."""
    first = timed(nki.simulate(kernel, backend="native"), *inputs)
    compiled = nki.compile(kernel, *inputs, target="trn2")
    program = compiled.program_for(inputs)
    native, numpy = (LoadedProgram(program, native=flag) for flag in (True, False))
    unchecked = LoadedProgram(program, check=False)
    arms = peers(name, inputs) | {
        "native": lambda: native.run(inputs),
        "unchecked": lambda: unchecked.run(inputs),
        "call": lambda: compiled(*inputs),
        "numpy": lambda: numpy.run(inputs),
        "eager": lambda: eager(*inputs),
    }
    for arm in arms.values():
        arm()
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    started = time.perf_counter()
    while len(times["native"]) < 5 or (
        len(times["native"]) < 25 and time.perf_counter() - started < 2.0
    ):
        for arm, function in arms.items():
            times[arm].append(timed(function))
        times.setdefault("exec", []).append(execution(native, inputs))
    medians = {arm: statistics.median(values) * 1e3 for arm, values in times.items()}
    return medians | {"first": first * 1e3}


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
    os.environ.setdefault("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    model, flags = cpu()
    print(f"{model}: {flags}; load {os.getloadavg()[0]:.1f}; NumPy {np.__version__}")
    print("medians in ms; ratios are the time of a peer over ours: above 1, ours is faster")
    print(
        f"{'kernel':25}{'':9}{'exec':>8}{'native':>8}{'no check':>9}{'call':>8}{'first':>8}"
        f"{'numpy':>9}{'eager':>9}{'torch':>8}{'xla':>8} | {'numpy/run':>9}{'eager/exec':>11}"
        f"{'eager/call':>11}{'torch/exec':>11}{'xla/exec':>9}"
    )
    for name, kernel, eager, inputs in cases("--quick" in sys.argv):
        t = {"torch": float("nan"), "xla": float("nan")} | measure(name, kernel, eager, inputs)
        print(
            f"{name:25}{inputs[0].dtype.name:9}{t['exec']:8.2f}{t['native']:8.2f}"
            f"{t['unchecked']:9.2f}{t['call']:8.2f}{t['first']:8.1f}{t['numpy']:9.2f}"
            f"{t['eager']:9.2f}{t['torch']:8.2f}{t['xla']:8.2f} | "
            f"{t['numpy'] / t['native']:8.2f}x{t['eager'] / t['exec']:10.2f}x"
            f"{t['eager'] / t['call']:10.2f}x{t['torch'] / t['exec']:10.2f}x"
            f"{t['xla'] / t['exec']:8.2f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
