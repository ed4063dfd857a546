"""Whole kernels at one level of the CPU's features: `python level_outputs.py NAME` prints a digest
of their results, for several numbers of threads; with paths of test modules it runs these."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.execute import LoadedProgram
from simulator.native.codegen import library as library_module
from simulator.native.loop import program
from simulator.native.threads import team

FUNCTIONS = ("gelu", "silu_dx", "tanh", "rsqrt", "log", "softplus", "sin", "erf")


@nki.jit
def functions(a):
    """Activation functions of a tile one after the other, a sum and a largest value of each row,
    and casts to eight bits."""
    out = nl.ndarray((len(FUNCTIONS), *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    rows = nl.ndarray((2, a.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    eight = nl.ndarray(a.shape, dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
    data = nl.load(a)
    for number, name in enumerate(FUNCTIONS):
        result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.activation(dst=result, op=getattr(nl, name), data=data)
        nl.store(out[number], result)
    for number, op in enumerate((nl.add, nl.maximum)):
        total = nl.ndarray((a.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=op, data=data, axis=1)
        nl.store(rows[number], total)
    cast = nl.ndarray(a.shape, dtype=nl.float8_e4m3, buffer=nl.sbuf)
    nisa.tensor_copy(dst=cast, src=data)
    nl.store(eight, cast)
    return out, rows, eight


def digest(threads: tuple[int, ...]) -> str:
    """Of all results of all kernels, on ordinary numbers and on any bit patterns."""
    from matmul_kernels import tiled

    rng, found = np.random.default_rng(0), hashlib.sha256()
    program.busy, team.LEAST_WORK = (lambda threads: False), 64  # type: ignore[attr-defined]
    for dtype in (np.float32, ml_dtypes.bfloat16):
        ordinary = rng.uniform(-3, 3, (128, 512)).astype(dtype)
        words = rng.integers(0, 256, ordinary.nbytes, np.uint8)
        cases: list[tuple[Any, list[Any]]] = [
            (tiled, [ordinary[:, :128], ordinary]),
            (functions, [ordinary]),
            (functions, [words.view(dtype).reshape(ordinary.shape)]),
        ]
        for kernel, inputs in cases:
            compiled = nki.compile(kernel, *inputs, target="trn2").program_for(inputs)
            for count in threads:
                for result in LoadedProgram(compiled, threads=count).run(inputs).outputs:
                    found.update(result.tobytes())
    return found.hexdigest()


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))
    (level,) = (each for each in library_module.host_levels() if each.name == sys.argv[1])
    library_module.of_host = lambda *host: level  # type: ignore[assignment]
    functions = library_module.library()
    assert functions is not None and functions.level is level
    if len(sys.argv) > 2:
        sys.exit(pytest.main(["-W", "ignore", "-p", "no:cacheprovider", "-v", *sys.argv[2:]]))
    print(digest((1, 2, 4)))


if __name__ == "__main__":
    main()
