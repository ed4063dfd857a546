"""The tests of native code, numbers and containers on an emulated aarch64, and digests of kernels.

    python tests/run_aarch64.py [--short] [--folder PATH] [--processes N] [--only WORD]

Sets up an aarch64 Python in a folder (`tests/emulated_aarch64.py`), runs the tests there, file by
file, and compares digests of 200 kernels (`tests/kernel_digests.py`) with those made on this
machine. `--short` is what continuous integration runs: the files whose bits a CPU may decide, and
each eighth kernel. Without Debian's packages it says so and ends with 0; without `--short` with 2.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from emulated_aarch64 import ROOT, Unavailable, prepare

SHORT = (
    "tests/simulator/test_special_values.py",
    "tests/simulator/test_native_conversion.py",
    "tests/isa/test_dtypes.py",
    "tests/isa/test_container.py",
)

FILES = (
    *(
        "tests/isa/test_*.py",
        "tests/simulator/test_*_numerics.py",
        "tests/simulator/test_native_*.py",
    ),
    *(
        f"tests/simulator/test_{module}.py"  # of simulator.native, by their modules
        for module in (
            *("object_cache", "library", "levels", "template", "reduction", "copy"),
            *("microscaled", "gemm", "indexed"),
        )
    ),
    *("tests/simulator/test_special_values.py", "tests/simulator/test_conversion.py"),
    *("tests/simulator/test_expressions.py", "tests/simulator/test_activation_accuracy.py"),
    *("tests/simulator/test_resealed.py", "tests/simulator/test_impossible.py"),
    *("tests/nki/test_neuron_dtypes.py", "tests/nki/test_spine_kernels.py"),
)
"""Native, numeric and container tests."""

EACH = 8
"""Of the kernels `--short` compares one in so many."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="some minutes instead of an hour")
    parser.add_argument("--folder", type=Path, help="where the packages are kept for another run")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument(
        "--only",
        default="",
        metavar="WORD",
        help="of the files, and `digests`, those with it in their names",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        try:
            python = prepare(folder / "aarch64")
        except Unavailable as reason:
            print(f"not run on aarch64: {reason}")
            return 0 if options.short else 2
        print(f"an emulated aarch64 Python is at {python}", flush=True)
        with ThreadPoolExecutor(options.processes) as pool:
            wanted = options.only in "digests"
            digests = pool.submit(_digests, python, folder, options.short) if wanted else None
            failed = _tests(pool, python, folder, _files(options.short, options.only))
            different = digests is not None and digests.result()
    return 1 if failed or different else 0


def _files(short: bool, word: str) -> list[str]:
    found = SHORT if short else (str(p.relative_to(ROOT)) for g in FILES for p in ROOT.glob(g))
    return sorted({file for file in found if word in file})


def _run(python: Path | str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of Python in the checkout, with caches in a folder of their own."""
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(folder / "cache" / Path(python).name),
        "NKI_NUM_THREADS": "2",
        "MUTANT_SECONDS": "30",  # an emulated CPU takes some ten times as long
    }
    command = (str(python), *words)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def _tests(pool: ThreadPoolExecutor, python: Path, folder: Path, files: Iterable[str]) -> list[str]:
    """The files in which a test fails; what pytest says of each is printed as it comes."""
    failed = []
    for file, passed, said in pool.map(partial(_test, python, folder), files):
        print(f"{file}: {said}", flush=True)
        if not passed:
            failed.append(file)
    return failed


def _test(python: Path, folder: Path, file: str) -> tuple[str, bool, str]:
    begun = time.monotonic()
    done = _run(python, folder, "-m", "pytest", "-p", "no:cacheprovider", file)
    seconds = time.monotonic() - begun
    text = (done.stdout + done.stderr).strip()
    said = text.splitlines()[-1] if done.returncode == 0 else text[-6000:]
    return file, done.returncode == 0, f"{said} ({seconds:.0f} s)"


def _digests(python: Path, folder: Path, short: bool) -> bool:
    """Whether kernels differ between here and there."""
    script, every = "tests/kernel_digests.py", ("--every", str(EACH if short else 1))
    here, there = (str(folder / f"{name}.json") for name in ("here", "aarch64"))
    for arguments in ((sys.executable, here), (python, there, "--against", here)):
        done = _run(arguments[0], folder, script, *arguments[1:], *every)
        if done.returncode:
            break
    print(f"digests: {(done.stdout + done.stderr).strip()[-3000:]}", flush=True)
    return bool(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
