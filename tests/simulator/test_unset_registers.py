"""Registers that a loop or a branch left without a value: refused when they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError
from isa.files.text import assemble
from simulator.checks.unset import maybe_unset
from simulator.execute import LoadedProgram

MODES = ("device", "reference", "eager")


@nki.jit
def last_value(values: Any) -> Any:
    """out = the value that the last iteration of `values[0, 0]` loaded, twice."""
    held = nl.load(values)
    out = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.shared_hbm)
    result = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf)
    other, trips, last = (nisa.register_alloc() for _ in range(3))
    # Another register has come and gone before.
    nisa.register_load(other, held[:, 1:2])
    nisa.register_store(result[:, 0:1], other)
    nisa.register_load(trips, held[:, 0:1])

    def load(i: Any) -> None:
        nisa.register_load(last, held[:, 1:2])

    nl.fori_loop(0, trips, load)
    for column in range(2):
        nisa.register_store(result[:, column : column + 1], last)
    nl.store(out, result)
    return out


@pytest.mark.parametrize("native", ["native", "numpy"])
@pytest.mark.parametrize("mode", MODES)
def test_all_modes_refuse_what_a_loop_without_iterations_left(
    mode: str, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NKI_BACKEND", native)
    simulated = nki.simulate(last_value, mode=mode)
    for trips in (2, 1):
        (got,) = simulated(np.array([[trips, 7]], np.int32))
        assert got.tolist() == [7, 7]
    with pytest.raises(NeuronError, match="before it holds a value") as caught:
        simulated(np.array([[0, 7]], np.int32))
    assert caught.value.code == "value-not-allowed"
    assert caught.value.location is not None
    assert "register_store(result[:, column" in caught.value.location.text
    (got,) = simulated(np.array([[3, 5]], np.int32))
    assert got.tolist() == [5, 5]


def stored(a: Any) -> Any:
    register = nisa.register_alloc()
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.register_store(tile, register)  # read
    return tile


def beside_another(a: Any) -> Any:
    register, _ = nisa.register_alloc(), nisa.register_alloc(1)
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.register_store(tile, register)  # read
    return tile


def row_of(a: Any) -> Any:
    register = nisa.register_alloc()
    tile = nl.ndarray((1, 1), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a[nl.ds(register, 1), :])  # read
    return tile


@pytest.mark.parametrize("body", [stored, beside_another, row_of])
@pytest.mark.parametrize("mode", MODES)
def test_all_modes_refuse_a_register_that_nothing_writes(mode: str, body: Any) -> None:
    def kernel(a: Any) -> Any:
        tile = body(a)
        out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    with pytest.raises(NeuronError, match="before it holds a value") as caught:
        nki.simulate(nki.jit(kernel), mode=mode)(np.zeros((4, 1), np.float32))
    assert caught.value.location is not None
    assert "# read" in caught.value.location.text


STREAM = """
.program "ways" target=trn2
.core
.stream gpsimd
  RegisterMove dst=R0 src=1
  Branch condition=eq left=R0 right=SIDE target=@3
  RegisterMove dst=R1 src=2
  RegisterAlu dst=R2 op=add left=R1 right=R0
  Halt
"""


@pytest.mark.parametrize(("side", "passed"), [(1, True), (2, False)])
def test_a_branch_that_passes_over_a_write(side: int, passed: bool) -> None:
    program = assemble(STREAM.replace("SIDE", str(side)))
    ((stream,),) = (core.streams.values() for core in program.cores)
    assert maybe_unset(stream) == {3: (1,)}
    loaded = LoadedProgram(program)
    if passed:
        with pytest.raises(NeuronError, match="before it holds a value"):
            loaded.run([])
    else:
        loaded.run([])


LOOPS = """
.program "loops" target=trn2
.core
.stream gpsimd
  RegisterMove dst=R5 src=4
  LoopBegin register=R0 lower=0 upper=UPPER step=1 exit=@6
  RegisterMove dst=R1 src=R0
  RegisterAlu dst=R2 op=add left=R3 right=R1
  RegisterMove dst=R3 src=7
  LoopEnd begin=@1
  RegisterMove dst=R4 src=R1
  Halt
"""


@pytest.mark.parametrize(
    ("upper", "expected"), [("4", {3: (3,)}), ("R5", {3: (3,), 6: (1,)}), ("0", {6: (1,)})]
)
def test_iterations_follow_each_other(upper: str, expected: dict[int, tuple[int, ...]]) -> None:
    """A register that the iteration before wrote holds a value in all but the first one."""
    program = assemble(LOOPS.replace("UPPER", upper))
    ((stream,),) = (core.streams.values() for core in program.cores)
    found = maybe_unset(stream)
    assert found.items() >= expected.items()
