"""Native code against NumPy: rows, engines, pairs of dtypes, operators, and CPU levels, by table.

`--all-native` takes every case, else a sample of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_equality import CONVERTED, is_native, patterns
from test_gemm import assert_product
from test_native_rows import ELSEWHERE, GENERATORS, assert_same_after
from tiles import tile

from isa.alu import ACTIVATIONS, ALU, AluOperator
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.fields import Kind
from isa.machine import MACHINE_INSTRUCTIONS
from isa.object_cache import Cache
from simulator import native
from simulator.native.codegen.levels import CpuLevel
from simulator.native.codegen.library import Library, host_levels, library
from simulator.native.matmul import blocks
from simulator.native.matmul import plans as matmul
from simulator.native.plans import table
from simulator.views import Indirect, dtype_name

pytestmark = pytest.mark.skipif(library() is None, reason="there is no LLVM")

Values = tuple[Any, ...]

PAIRS = [
    (source, target)
    for source, target in product(DTYPES, repeat=2)
    if not (DTYPES[source].is_packed or DTYPES[target].is_packed)
]
OPERATORS: dict[Kind, tuple[Any, ...]] = {
    Kind.alu: tuple(ALU.values()),
    Kind.activation: tuple(ACTIVATIONS.values()),
}
COMPUTED = frozenset(CONVERTED)
REGISTERS = ("ActReadAccumulator", "VectorReadAccumulator")
ENGINES = [
    (row, engine)
    for row in GENERATORS
    for engine in MACHINE_INSTRUCTIONS[row].engines
    # Transfers do not depend on the engine that triggers them.
    if engine is GENERATORS[row][0] or not MACHINE_INSTRUCTIONS[row].asynchronous
]
LEVELS = host_levels()[:-1]


def seeded(*names: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(names).encode()))


def cases(
    row: str, source: str, target: str, rng: np.random.Generator, count: int
) -> Iterator[Values]:
    """Some of the generated operands."""
    found = list(GENERATORS[row][1](rng, source, target))
    for number in rng.permutation(len(found))[:count]:
        yield found[number]


def dtypes(values: Values) -> set[str]:
    arrays = [value.base if isinstance(value, Indirect) else value for value in values]
    return {dtype_name(array) for array in arrays if isinstance(array, np.ndarray)}


def compare(row: str, engine: Engine, values: Values) -> bool:
    """Whether there is native code for these operands, which is compared then; there has to be for
    dtypes that engines compute with, and operators that this engine has."""
    # What reads registers has code for those of an engine that runs.
    native = row in REGISTERS or is_native(row, engine, values)
    alone = len(MACHINE_INSTRUCTIONS[row].engines) == 1
    operators = [value for value in values if isinstance(value, AluOperator)]
    runs = alone or all(engine in op.engines | op.tensor_scalar_engines for op in operators)
    assert native or not runs or not dtypes(values) <= COMPUTED, (row, values)
    if native:
        assert_same_after(row, engine, values)
    return native


@pytest.mark.parametrize("row, engine", ENGINES)
def test_every_pair_of_dtypes(row: str, engine: Engine, pytestconfig: pytest.Config) -> None:
    rng = seeded(row, engine.name)
    every = pytestconfig.getoption("--all-native")
    pairs = PAIRS if every else [PAIRS[number] for number in rng.integers(len(PAIRS), size=2)]
    for source, target in pairs:
        for values in cases(row, source, target, rng, 2 if every else 1):
            compare(row, engine, values)


def operator_fields(row: str) -> list[tuple[int, Kind]]:
    return [
        (position, attribute.kind)
        for position, _, attribute in MACHINE_INSTRUCTIONS[row].attributes
        if attribute.kind in OPERATORS
    ]


@pytest.mark.parametrize(
    "row, engine", [(row, engine) for row, engine in ENGINES if operator_fields(row)]
)
def test_every_operator(row: str, engine: Engine, pytestconfig: pytest.Config) -> None:
    """In each field in turn, from and to every dtype; bit-vector operators between equal ones."""
    rng = seeded(row, engine.name, "operators")
    every = pytestconfig.getoption("--all-native")
    compared = set()
    for position, kind in operator_fields(row):
        operators = OPERATORS[kind]
        for number in range(len(operators)) if every else rng.integers(len(operators), size=1):
            operator = operators[number]
            arithmetic = getattr(operator, "arithmetic", True)
            names = rng.permutation(sorted(COMPUTED)).tolist()
            pairs = list(zip(names, names[1:] + names[:1] if arithmetic else names))
            for source, target in pairs if every else pairs[:1]:
                (values,) = cases(row, source, target, rng, 1)
                if getattr(values[position], "arithmetic", True) != arithmetic:
                    continue
                values = (*values[:position], operator, *values[position + 1 :])
                if is_native(row, engine, values):
                    compared.add(operator.name)
                    assert_same_after(row, engine, values)
    assert len(compared) > 2 or not every


@pytest.mark.parametrize("level", LEVELS, ids=[level.name for level in LEVELS])
def test_every_level(
    level: CpuLevel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """All rows from every dtype, as CPUs with fewer features compute."""
    every = pytestconfig.getoption("--all-native")
    functions = Library(Cache(level.name, tmp_path), level)
    block = blocks.block_for(level, level.form)
    monkeypatch.setattr(native, "_PLANS", {})
    monkeypatch.setattr(table, "library", lambda: functions)
    monkeypatch.setattr(matmul, "blocking", lambda: block)
    for row, engine in ENGINES if every else ENGINES[zlib.crc32(level.name.encode()) % 5 :: 5]:
        rng = seeded(row, engine.name, level.name)
        sources = rng.permutation(sorted(COMPUTED))
        for source in sources if every else sources[:1]:
            target = str(rng.choice(sources))
            for values in cases(row, str(source), target, rng, 2 if every else 1):
                compare(row, engine, values)


def test_products_of_every_pair_of_dtypes(pytestconfig: pytest.Config) -> None:
    """Into every dtype, on ordinary numbers and on any bit patterns, added to what is there or
    not."""
    rng = seeded("products")
    every = pytestconfig.getoption("--all-native")
    pairs = list(product(sorted(COMPUTED), repeat=2))
    for left, right in pairs if every else pairs[::50]:
        for make, accumulate in product((tile, patterns), (False, True)):
            depth, rows, columns = (int(size) for size in rng.integers(1, (129, 129, 300)))
            stationary, moving = make(rng, left, depth, rows), make(rng, right, depth, columns)
            result = str(rng.choice(("float32", "bfloat16", left, right)))
            assert_product(stationary, make(rng, result, rows, columns), moving, accumulate)


def outputs_of(level: CpuLevel, folder: Path, *modules: str) -> str:
    """What `level_outputs` prints in a process that computes so."""
    script = Path(__file__).with_name("level_outputs.py")
    environment = os.environ | {"XDG_CACHE_HOME": str(folder)}
    command = [sys.executable, str(script), level.name, *modules]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.parametrize("level", LEVELS, ids=[level.name for level in LEVELS])
def test_other_modules(level: CpuLevel, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Modules that compare the rows of the PE array, random numbers and whole programs with NumPy
    pass at every level."""
    modules = sorted({*ELSEWHERE.values(), "test_gemm_tiles", "test_tensor_queue"})
    paths = [Path(__file__).with_name(f"{module}.py") for module in modules]
    assert [path for path in paths if not path.exists()] == []
    if not pytestconfig.getoption("--all-native"):
        pytest.skip("a minute for each level; --all-native runs it")
    assert "passed" in outputs_of(level, tmp_path, *map(str, paths))


@pytest.mark.skipif(not LEVELS, reason="this CPU has one level")
def test_whole_kernels(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Programs give the same bytes at every level, on one, two and four threads."""
    if not pytestconfig.getoption("--all-native"):
        pytest.skip("some seconds for each level; --all-native runs it")
    wanted = outputs_of(host_levels()[-1], tmp_path)
    assert [outputs_of(level, tmp_path) for level in LEVELS] == [wanted] * len(LEVELS)
