"""Digests of 200 kernels: of the bits that each gives, and of its container.

    python tests/kernel_digests.py FILE [--every N] [--against OTHER]

They must be the same on every machine. Kernels are the public functions, each for several of its
documented dtypes and targets, loops at random, and the whole kernels that other tests run.
`--every 8` has each eighth only. Of containers `kernel_debug_info.json` is left out: it has the
paths of the source.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

sys.path[:0] = [str(ROOT / "tests" / "nki"), str(ROOT / "benchmarks"), str(ROOT)]

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

import nki  # noqa: E402
from isa.files.archive import program_files  # noqa: E402

COUNT = 200
LOOPS = 24
"""Kernels made of random loops."""

Made = tuple[Any, tuple[Any, ...]]
"""A kernel for a target, and its arguments."""


def kernels() -> dict[str, Callable[[], Made]]:
    """COUNT kernels by name, each with what makes it."""
    found = {**_whole(), **_loops()}
    return found | dict(islice(_public(), COUNT - len(found)))


def _whole() -> dict[str, Callable[[], Made]]:
    """The kernels of published figures, at small sizes."""
    from latency.cases import BFLOAT16, cases
    from latency.reference import scan

    def made(case: Any) -> Made:
        random = np.random.default_rng(0)
        dtype = ml_dtypes.bfloat16 if case.dtype == BFLOAT16 else np.float32
        inputs = [random.uniform(0.1, 1.0, shape).astype(dtype) for shape in case.small]
        if case.formula is scan:
            inputs[2] *= -1  # a state that decays
        return nki.compile(case.kernel, *inputs, target=case.target, **case.options), tuple(inputs)

    distinct = {(c.kernel.__name__, str(c.options)): (name, c) for name, c in cases().items()}
    return {f"latency {name}": partial(made, case) for name, case in distinct.values()}


def _loops() -> dict[str, Callable[[], Made]]:
    from test_random_loops import arrays, kernel_of, random_steps

    def made(seed: int) -> Made:
        inputs = arrays(2, 3, 3, seed)
        return nki.compile(kernel_of(random_steps(Random(seed))), *inputs), tuple(inputs)

    return {f"loops {seed}": partial(made, seed) for seed in range(LOOPS)}


def _public() -> Iterator[tuple[str, Callable[[], Made]]]:
    """Public names for their dtypes and targets, in rounds: one of each name first."""
    import surface_collectives  # noqa: F401  registers its cases, as the others do
    import surface_isa  # noqa: F401
    import surface_isa_state  # noqa: F401
    import surface_language  # noqa: F401
    import surface_search  # noqa: F401
    from surface import CASES, TARGETS, kernel_of

    def made(case: Any, dtype: str, target: str) -> Made:
        body, inputs, _ = case.build(dtype)
        kernel = nki.jit(kernel_of(body, dtype))[case.cores]
        return nki.compile(kernel, list(inputs), target=target), tuple(inputs)

    pairs: dict[str, list[tuple[str, str]]] = {}
    for name, case in CASES.items():
        if not case.ranks:
            found = [(d, t) for d in case.dtypes for t in TARGETS if case.supports(d, t)]
            Random(zlib.crc32(name.encode())).shuffle(found)
            pairs[name] = found
    for turn in range(max(map(len, pairs.values()))):
        for name, found in pairs.items():
            if turn < len(found):
                dtype, target = found[turn]
                yield f"{name} {dtype} {target}", partial(made, CASES[name], dtype, target)


def digest(make: Callable[[], Made]) -> list[str]:
    """SHA-256 of the container without its debug information, and of what the kernel gives."""
    compiled, arguments = make()
    files = program_files(compiled.program, {})
    del files["kernel_debug_info.json"]
    container = sha256()
    for name, data in sorted(files.items()):
        container.update(f"{name} {len(data)}\n".encode() + data)
    outputs = sha256()
    with np.errstate(all="ignore"):
        results = compiled(*arguments)
    for array in results if isinstance(results, tuple) else (results,):
        outputs.update(f"{array.dtype} {array.shape}\n".encode() + array.tobytes())
    return [container.hexdigest(), outputs.hexdigest()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="is written: digests as JSON")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--against", type=Path, metavar="OTHER", help="digests made elsewhere")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {}
    for name, make in islice(kernels().items(), 0, None, options.every):
        found[name] = digest(make)
    options.file.write_text(json.dumps(found, indent=1))
    if options.against is None:
        return 0
    expected = json.loads(options.against.read_text())
    parts = ("container", "outputs")
    different = [
        f"{name}: {part}"
        for name in found
        for part, one, other in zip(parts, found[name], expected[name])
        if one != other
    ]
    print(f"{len(found)} kernels, {len(different)} differences", *different, sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
