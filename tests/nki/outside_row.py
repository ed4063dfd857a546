"""An element-wise instruction that this project does not have, added from outside: its machine row
with its meaning and its cost, and the operation that authors call. Run by `test_outside_row`."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.language as nl
from isa.enums import Engine, ReduceCommand
from isa.errors import NeuronError
from isa.fields import Attribute, EngineState, Kind, Read, Write
from isa.files.text import assemble, disassemble
from isa.machine import accumulate, costs
from isa.machine.scalar import ACCUMULATORS
from isa.meaning import Element, Fold, Meaning, alu
from isa.spec import Instruction, MachineInstruction, Operation
from nki.isa.calls import function
from nki.row_pages.machine import machine_page


class ScaledDistance(MachineInstruction):
    """dst = |data - other| * scale; each partition's largest goes into its accumulate register."""

    opcode = 0xF0
    engines = (Engine.vector,)
    cost = costs.SELECT_REDUCE
    state = (EngineState(ACCUMULATORS),)
    dst = Write()
    data = Read()
    other = Read()
    scale = Read(immediate=True, column=True)
    reduce_command = Attribute(kind=Kind.reduce_command)
    meaning = Meaning(
        alu("multiply", alu("abs", alu("subtract", Element("data"), Element("other"))),
            Element("scale")),
        Fold("maximum"),
    )  # fmt: skip


class Distance(Operation):
    """As the machine instruction; `largest` [P, 1] gets the registers."""

    name = "scaled_distance"
    engines = (Engine.vector,)
    dst = Write()
    data = Read()
    other = Read()
    scale = Read(immediate=True, column=True)
    largest = Write(column=True)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, data, other, scale, largest = values
        fields = (dst, data, other, scale, ReduceCommand.reset_reduce)
        read = Instruction(accumulate.VectorReadAccumulator, Engine.vector, (largest, False, 0))
        return Instruction(ScaledDistance, Engine.vector, fields), read


scaled_distance = function(Distance)


@nki.jit(platform_target="trn2")
def distances(a, b):  # type: ignore[no-untyped-def]
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    largest = nl.ndarray((a.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    scaled_distance(dst=tile, data=nl.load(a), other=nl.load(b), scale=0.5, largest=largest)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    top = nl.ndarray(largest.shape, dtype=largest.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    nl.store(top, largest)
    return out, top


@nki.jit(platform_target="trn2")
def never_written(a):  # type: ignore[no-untyped-def]
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    missing = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    largest = nl.ndarray((a.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    scaled_distance(dst=tile, data=nl.load(a), other=missing, scale=0.5, largest=largest)
    top = nl.ndarray(largest.shape, dtype=largest.dtype, buffer=nl.shared_hbm)
    nl.store(top, largest)
    return top


def assert_results_are_numpys() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((100, 37)).astype(np.float32) for _ in range(2))
    expected = np.abs(a - b) * np.float32(0.5)
    for mode in ("device", "reference", "eager"):
        for backend in ("native", "numpy"):
            out, top = nki.simulate(distances, mode=mode, backend=backend)(a, b)
            np.testing.assert_array_equal(out, expected, f"{mode}, {backend}")
            np.testing.assert_array_equal(top, expected.max(1, keepdims=True))


def assert_missing_data_is_found() -> None:
    for mode in ("device", "reference", "eager"):
        for backend in ("native", "numpy"):
            try:
                nki.simulate(never_written, mode=mode, backend=backend)(np.ones((4, 8), np.float32))
            except NeuronError as error:
                assert error.code == "uninitialised-output", error
            else:
                raise AssertionError(f"{mode}, {backend} did not see it")


def assert_text_page_and_native_code() -> None:
    from simulator.native.rows.meaning import planner_of

    program = nki.compile(distances, *(nki.TensorSpec((100, 37), nl.float32),) * 2).program
    text = disassemble(program)
    assert "ScaledDistance" in text
    assert disassemble(assemble(text)) == text
    page = machine_page(ScaledDistance, [])
    assert "|data - other| * scale" in page and "reduce_command" in page
    tiles = [np.ones((4, 8), np.float32) for _ in range(3)]
    planner = planner_of(ScaledDistance)
    assert planner is not None
    assert planner(Engine.vector, *tiles, 2.0, ReduceCommand.reset_reduce) is not None


if __name__ == "__main__":
    assert_results_are_numpys()
    assert_missing_data_is_found()
    assert_text_page_and_native_code()
