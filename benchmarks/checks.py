"""What the run-time checks cost: calls with all of them, without each one, and without any.

Run: python benchmarks/checks.py [--quick] [--only=WORD]

Figures are CPU time in ms, medians of interleaved calls on one pinned CPU, one thread. "first" is
the first call of a new kernel in device mode: trace, compilation, proof and run, micro-kernels
compiled before. "device", "reference" and "eager" are later calls in these modes. "all": the
default, every check on. The others are ratios of it to the time without

- "proof": the proof that a program orders all accesses (`nki.verification`);
- "unset": following data that was never written (`simulator.checks.initialised`);
- "cores": comparing what cores write or access (`simulator.races.replicated`, `unordered`);
- "hazards": operands that meet within an operation, sums in PSUM (`nki.ir.checks.hazards`);
- "none": NKI_CHECKS=0, which leaves out all but the hazards.

"-" stands where a mode has no such check. What costs more than 1.1 times is marked "!".
"""

from __future__ import annotations

import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["NKI_NUM_THREADS"] = "1"
os.environ.setdefault("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tutorials"))

import ml_dtypes
import native_programs as programs
import numpy as np
from flash_attention import flash_attention
from matmul_kernels import LADDER

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.checks.initialised import Shadow

GOAL = 1.1


def added(a: Any, b: Any) -> Any:
    """Rows of both operands, half of them on each core, and a sum behind a barrier."""
    core = nl.program_id(0)
    half = a.shape[0] // 2
    total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for first in range(core * half, core * half + half, 128):
        tile = nl.load(a[first : first + 128])
        other = nl.load(b[first : first + 128])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.add)
        nl.store(total[first : first + 128], tile)
    nisa.core_barrier(total, (0, 1))
    for first in range(core * half, core * half + half, 128):
        nl.store(out[first : first + 128], nl.load(total[a.shape[0] - 128 - first :][:128]))
    return out


def cases(quick: bool) -> Iterator[tuple[str, Any, int, list[Any]]]:
    """Name, function, cores and inputs of each kernel."""
    rng = np.random.default_rng(0)
    size = 1 if quick else 2

    def given(*shapes: tuple[int, ...]) -> list[Any]:
        return [rng.uniform(-1, 1, shape).astype(ml_dtypes.bfloat16) for shape in shapes]

    for kernel in LADDER:
        yield kernel.__name__, kernel, 1, given((1024, 1024), (1024, 1024 * size))
    shapes = (128, 2048 * size), (128, 2048 * size), (2048 * size, 128)
    yield "flash_attention", flash_attention, 1, given(*shapes)
    large = (2048 * size, 2048)
    yield "softmax", programs.softmax, 1, [a.astype(np.float32) for a in given(large)]
    yield "gelu_chain", programs.gelu_chain, 1, given(large, large)
    yield "small_tiles", programs.small_tiles, 1, given((128, 128), (128, 128))
    yield "two cores", nki.jit(added), 2, given(large, large)
    yield "two cores, 128", nki.jit(added), 2, given((4096, 128), (4096, 128))


@contextmanager
def without(*places: tuple[str, Any]) -> Iterator[None]:
    """Other values for names of modules."""
    patches = [patch(name, value) for name, value in places]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def nothing(*_: Any, **__: Any) -> None:
    """In place of what a check makes."""


ARMS: dict[str, tuple[tuple[str, ...], Callable[[], Any]]] = {
    "all": (("first", "device", "reference", "eager"), without),
    "proof": (
        ("first",),
        partial(without, ("nki.verification.verify_program", lambda program: True)),
    ),
    "unset": (
        ("device", "reference", "eager"),
        partial(
            without,
            ("simulator.execute.Shadow", lambda reports=True: Shadow(reports=False)),
            ("nki.eager.launch.Shadow", nothing),
        ),
    ),
    "cores": (
        ("device", "reference", "eager"),
        partial(
            without,
            ("simulator.execute.Replicated", nothing),
            ("nki.eager.launch.InStep", nothing),
            ("nki.eager.launch.Unordered", nothing),
        ),
    ),
    "hazards": (
        ("first", "eager"),
        partial(
            without,
            ("nki.ir.checks.hazards.Hazards.observe", nothing),
            ("nki.ir.checks.hazards.Hazards.follow", nothing),
        ),
    ),
    "none": (
        ("first", "device", "reference", "eager"),
        partial(patch.dict, os.environ, NKI_CHECKS="0"),
    ),
}
"""By name: the modes that have a check, and a context in which it is off."""


def measured(function: Any, cores: int, inputs: list[Any], mode: str, rounds: int) -> list[str]:
    """A row of the table: ms with all checks, and ratios."""
    arms = {name: off for name, (modes, off) in ARMS.items() if mode in modes}
    kernels = {name: nki.jit(function)[cores] for name in arms}
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, off in arms.items():
            with off():
                if mode == "first":
                    kernels[name] = nki.jit(function)[cores]
                    call = nki.simulate(kernels[name])
                else:
                    call = nki.simulate(kernels[name], mode=mode)
                    if mode != "eager":
                        call(*inputs)  # the arms share what stays loaded
                start = time.process_time()
                call(*inputs)
                times[name].append(time.process_time() - start)
    middle = {name: statistics.median(spent[1:]) for name, spent in times.items()}
    cells = [f"{1e3 * middle['all']:9.2f}"]
    for name in list(ARMS)[1:]:
        ratio = middle["all"] / middle[name] if name in middle else None
        mark = "!" if ratio is not None and ratio > GOAL else " "
        cells.append(f"{'-':>9} " if ratio is None else f"{ratio:9.2f}{mark}")
    return cells


def main() -> None:
    options = dict(option.partition("=")[::2] for option in sys.argv[1:])
    warnings.simplefilter("ignore")
    print(f"{'':18}{'':11}{'all':>9}" + "".join(f"{name:>9} " for name in list(ARMS)[1:]))
    for name, kernel, cores, inputs in cases("--quick" in options):
        if options.get("--only", "") not in name:
            continue
        for mode in ("first", "device", "reference", "eager"):
            cells = measured(kernel.function, cores, inputs, mode, 4 if mode == "first" else 8)
            print(f"{name:18}{mode:11}{''.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
