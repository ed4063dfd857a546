"""Every level of the CPU's features gives the same bits, and they are NumPy's."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from native_equality import assert_equal, is_native, patterns
from tiles import State, empty, tile
from vector_rows import VECTOR_ROWS

from isa.alu import ACTIVATIONS, ALU
from isa.array_tiles import WHOLE_ARRAY
from isa.enums import Engine, ReduceCommand
from isa.machine.tensor import LoadStationary
from isa.object_cache import Cache
from simulator import native
from simulator.kernels import fixed
from simulator.native.codegen import levels as native_levels
from simulator.native.codegen.levels import GENERATING, CpuLevel, Form, levels, of_host
from simulator.native.codegen.library import Library, host_levels
from simulator.native.codegen.rates import pairs_pay
from simulator.native.matmul import blocks
from simulator.native.matmul import plans as matmul
from simulator.native.matmul.gemm import MultiplyKernel
from simulator.native.matmul.gemm_image import Image
from simulator.native.plans import table
from simulator.oracle import quiet
from simulator.views import bits

Array = np.ndarray[Any, Any]

LEVELS = host_levels()


@pytest.fixture(scope="module", params=LEVELS, ids=[level.name for level in LEVELS])
def level(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CpuLevel]:
    """Native code for this level in place of the host's."""
    chosen: CpuLevel = request.param
    folder: Path = tmp_path_factory.mktemp(chosen.name)
    functions = Library(Cache(chosen.name, folder), chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_PLANS", {})
        patch.setattr(table, "library", lambda: functions)
        block = blocks.block_for(chosen, chosen.form)
        patch.setattr(matmul, "blocking", lambda: block)
        yield chosen


def assert_as_numpy(
    row: str, *values: Any, engine: Engine = Engine.vector, state: Any = None
) -> None:
    assert is_native(row, engine, values)
    with quiet():
        assert_equal(row, *values, engine=engine, state=state)


@pytest.mark.parametrize("dtype", ("bfloat16", "float16", "float8_e4m3", "int8", "uint32", "bool"))
def test_conversions(level: CpuLevel, dtype: str) -> None:
    rng = np.random.default_rng(0)
    assert_as_numpy("TensorCopy", empty(dtype, 7, 61), patterns(rng, "float32", 7, 61))
    assert_as_numpy("TensorCopy", empty("float32", 7, 61), patterns(rng, dtype, 7, 61))


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "float8_e5m2", "float16"))
def test_products(level: CpuLevel, dtype: str) -> None:
    """Moderate numbers, and any bit patterns; accumulated into fp32 and bfloat16."""
    rng = np.random.default_rng(1)
    for make in (tile, patterns):
        for output, depth, rows, columns in (("float32", 31, 21, 75), ("bfloat16", 40, 9, 13)):
            a, b = make(rng, dtype, depth, rows), make(rng, dtype, depth, columns)
            state = State(Engine.tensor)
            fixed(LoadStationary, Engine.tensor, state, (a, WHOLE_ARRAY), native=True)()
            assert type(state.stationary.get(WHOLE_ARRAY)) is matmul.HeldTile
            dst = tile(rng, output, rows, columns)
            assert_as_numpy(
                "MultiplyMoving", dst, b, True, WHOLE_ARRAY, engine=Engine.tensor, state=state
            )


@pytest.mark.parametrize("name", ("add", "maximum", "greater_equal", "right_shift", "power"))
def test_elementwise(level: CpuLevel, name: str) -> None:
    rng = np.random.default_rng(2)
    dtype = "float32" if ALU[name].arithmetic else "uint32"
    operands = [patterns(rng, dtype, 5, 37) for _ in range(2)]
    assert_as_numpy("TensorTensor", empty(dtype, 5, 37), *operands, ALU[name])


def test_transpositions_by_a_streamed_matrix(level: CpuLevel) -> None:
    """An identity, whose rows are no multiple of a vector, and what is none."""
    rng = np.random.default_rng(7)
    source, moving = tile(rng, "bfloat16", 45, 20), empty("bfloat16", 45, 45)
    state = State(Engine.tensor)
    fixed(LoadStationary, Engine.tensor, state, (source, WHOLE_ARRAY), native=True)()
    for order in (np.arange(45), np.roll(np.arange(45), 1), np.arange(45)):
        moving[...] = np.eye(45)[:, order]
        values = (empty("bfloat16", 20, 45), moving, False, WHOLE_ARRAY)
        assert_as_numpy("TransposeMoving", *values, engine=Engine.tensor, state=state)
        np.testing.assert_array_equal(bits(values[0]), bits(source).T[:, order])


@pytest.mark.parametrize("dtype", ("int32", "uint32"))
def test_integer_powers(level: CpuLevel, dtype: str) -> None:
    operands = [patterns(np.random.default_rng(5), dtype, 5, 37) for _ in range(2)]
    operands[0][:, ::5] |= -1 if dtype == "int32" else 1
    values = (empty(dtype, 5, 37), *operands, ALU["power"])
    assert_as_numpy("TensorTensor", *values, engine=Engine.gpsimd)


@pytest.mark.parametrize(
    "name",
    (
        *("exp", "tanh", "erf", "gelu", "gelu_apprx_tanh", "silu", "log", "mish", "rsqrt"),
        *("sin", "arctan"),
    ),
)
def test_activations(level: CpuLevel, name: str) -> None:
    """Moderate numbers, and any bit patterns; rounded to bfloat16, and not."""
    rng = np.random.default_rng(3)
    op = ACTIVATIONS[name]
    for dtype, data in (
        ("bfloat16", tile(rng, "float32", 5, 37)),
        ("float32", patterns(rng, "float32", 5, 37)),
    ):
        values = (empty(dtype, 5, 37), data, op, None, 1.0, ReduceCommand.idle)
        assert_as_numpy("Activate", *values, engine=Engine.scalar)


@pytest.mark.parametrize("name", ("add", "maximum", "bitwise_xor"))
def test_reductions(level: CpuLevel, name: str) -> None:
    rng = np.random.default_rng(6)
    dtype = "bfloat16" if ALU[name].arithmetic else "uint16"
    for make in (tile, patterns):
        values = (empty(dtype, 5, 1), make(rng, dtype, 5, 75), ALU[name], 1, False)
        assert_as_numpy("TensorReduce", *values)


@pytest.mark.parametrize("row", VECTOR_ROWS)
def test_rows_along_partitions(level: CpuLevel, row: str) -> None:
    engine, generate = VECTOR_ROWS[row]
    values = list(generate(np.random.default_rng(3), "bfloat16", "float32"))
    for some in values[:: max(len(values) // 2, 1)]:
        assert_as_numpy(row, *some, engine=engine)


def test_transposes(level: CpuLevel) -> None:
    rng = np.random.default_rng(4)
    for dtype in ("float32", "bfloat16", "uint8"):
        source = patterns(rng, dtype, 3, 18, 33)
        assert_as_numpy("TensorCopy", empty(dtype, 3, 33, 18), source.transpose(0, 2, 1))


def test_levels_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = dict.fromkeys(
        ("fma", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "avx512bf16"),
        True,
    )
    best = of_host("x86_64-unknown-linux-gnu", "cpu", everything, "+all")
    assert best.fused and best.wide_registers and best.bf16_dot and not best.tiles
    names = [each.name for each in levels("x86_64-unknown-linux-gnu", best)]
    assert names == ["sse2", "avx2", "avx512", "host"]
    for granted in (True, False):
        monkeypatch.setattr(native_levels, "permitted", partial(bool, granted))
        tiles = dict.fromkeys(("amx-tile", "amx-bf16"), True)
        server = of_host("x86_64-unknown-linux-gnu", "cpu", everything | tiles, "+all")
        forms = [each.form for each in levels("x86_64-unknown-linux-gnu", server)]
        assert forms[3:] == ([Form.pairs, Form.tiles] if granted else [Form.pairs])
    laptop = of_host("x86_64-pc", "cpu", everything | {"avx512vl": False}, "")
    assert laptop.fused and not (laptop.wide_registers or laptop.bf16_dot)
    old = of_host("x86_64-pc", "cpu", {"fma": False, "avx2": False}, "")
    assert not old.fused and [each.name for each in levels("x86_64-pc", old)] == ["sse2", "host"]
    arm = of_host("aarch64-apple-darwin", "cpu", {}, "+neon")
    assert arm.fused and arm.many_registers and not arm.wide_registers
    other = of_host("riscv64-linux", "cpu", {}, "")
    assert not other.fused
    chosen = [blocks.block_for(each, each.form) for each in (best, laptop, old, arm)]
    assert [block.width for block in chosen] == [16, 8, 4, 4]
    assert [block.form for block in chosen] == [Form.pairs, Form.wide, Form.wide, Form.wide]


@pytest.mark.skipif(len(LEVELS) < 2, reason="this CPU has one level")
def test_code_is_for_the_level(tmp_path: Path) -> None:
    """Objects of two levels differ, and are kept apart without a folder being named."""
    objects, folders = [], set()
    for chosen in (LEVELS[0], LEVELS[-1]):
        functions = Library(Cache(chosen.name, tmp_path), chosen)
        functions.function(Image("float8_e4m3", Form.wide))
        (path,) = (tmp_path / chosen.name).iterdir()
        objects.append(path.read_bytes())
        folders.add(Library(level=chosen).folder)
    assert objects[0] != objects[1]
    assert len(folders) == 2


def _text(level: CpuLevel, kernel: MultiplyKernel) -> str:
    """A kernel's text for a level."""
    GENERATING.set(level)
    return kernel.text("multiply")


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_code_for_arm(dtype: str) -> None:
    """Products have fused multiply-adds of vectors, and call only what makes the image."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip("this LLVM has no code generator for ARM")
    machine = target.create_target_machine(cpu="neoverse-n1", opt=2)
    level = of_host(triple, "neoverse-n1", {}, "")
    block = blocks.block_for(level, Form.wide)
    text = copy_context().run(_text, level, MultiplyKernel(dtype, dtype, True, block))
    module = llvm.parse_assembly(text)
    module.verify()
    code = machine.emit_assembly(module).splitlines()
    assert sum("fmla" in line for line in code) >= block.rows * block.vectors
    assert not [line for line in code if line.strip().startswith("bl\t")]
    assert sum(line.strip().startswith("blr\t") for line in code) == 1


@pytest.mark.parametrize("pays", (False, True))
def test_the_fastest_form(pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """VDPBF16PS where it multiplies more than FMA does; matrix registers in any case."""
    monkeypatch.setattr(blocks, "pairs_pay", lambda functions: pays)
    for level, form in (
        (CpuLevel("fma", "cpu", fused=True), Form.wide),
        (CpuLevel("dot", "cpu", fused=True, bf16_dot=True), Form.pairs if pays else Form.wide),
        (CpuLevel("tiles", "cpu", fused=True, bf16_dot=True, tiles=True), Form.tiles),
    ):
        assert blocks.best_form(SimpleNamespace(level=level)) is form


@pytest.mark.skipif(not LEVELS, reason="there is no LLVM")
def test_pairs_do_not_pay_without_their_instruction() -> None:
    for level in LEVELS:
        if not level.bf16_dot:
            assert not pairs_pay(Library(level=level))
