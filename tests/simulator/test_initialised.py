"""What is found when uninitialised memory is read, and what reaches an output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from partly_loaded import E, F, Kernel, P
from programs import Builder, contiguous, hbm, reg, sbuf

from isa.alu import ALU
from isa.errors import NeuronError
from isa.machine import control, elementwise
from simulator.execute import LoadedProgram, run


def test_clean_programs_have_no_findings() -> None:
    k = Kernel()
    result = k.tile(F)
    k.add(elementwise.TensorTensor, result, k.source, k.source, ALU["add"])
    k.store(result)
    ran = k.run()
    assert ran.findings == [] and (ran.outputs[0] == 2).all()


@pytest.mark.parametrize(("rows", "columns"), [(P, 4), (5, F), (5, 4)])
def test_element_wise_taint_is_counted_and_located(rows: int, columns: int) -> None:
    k = Kernel(rows, columns)
    result = k.tile(F)
    k.add(elementwise.TensorScalar, result, k.source, ALU["add"], 1.0, False, None, None, False)
    k.store(result)
    missing = P * F - rows * columns
    program = k.b.finish()
    with pytest.raises(NeuronError) as caught:
        run(program, [np.ones((P, F), np.float32)])
    text = str(caught.value)
    assert f"Output out: {missing} of its {P * F} elements" in text
    assert f"by TensorScalar: {missing} elements of its operand data" in text
    assert caught.value.location.line == 4  # begin, load, begin, TensorScalar


def test_a_read_that_reaches_no_output_is_only_a_finding() -> None:
    k = Kernel(P, 4)
    result = k.tile(F)
    k.add(elementwise.TensorTensor, result, k.source, k.source, ALU["add"])
    k.store(sbuf("float32", result.offset, P, 4), (P, 4))
    ran = k.run()
    assert (ran.outputs[0] == 2).all()
    assert {(f.row, f.operand, f.elements) for f in ran.findings} == {
        ("TensorTensor", "data1", P * 2),
        ("TensorTensor", "data2", P * 2),
    }


def test_unchecked_runs_show_the_sentinel() -> None:
    k = Kernel(P, 4)
    k.store(k.source)
    ran = run(k.b.finish(), [np.ones((P, F), np.float32)], check=False)
    assert np.isnan(ran.outputs[0][:, 4:]).all() and (ran.outputs[0][:, :4] == 1).all()


def test_output_not_written() -> None:
    b = Builder()
    b.tensor("out", "float32", (2, 3), "output")
    with pytest.raises(NeuronError, match="none of its 6 elements") as caught:
        run(b.finish(), [])
    assert caught.value.code == "output-not-written"


def test_output_partly_written() -> None:
    k = Kernel()
    out = k.b.tensor("out", "float32", (P, F), "output")
    k.b.dma(E.gpsimd, hbm(out, "float32", ((F, P), (1, 4))), sbuf("float32", 0, P, 4))
    with pytest.raises(NeuronError, match=r"16 of its 48 .* element 4 in row-major") as caught:
        k.run()
    assert caught.value.code == "output-not-written"


def test_output_written_in_parts_is_whole() -> None:
    k = Kernel()
    out = k.b.tensor("out", "float32", (P, F), "output")
    for column in range(F):
        k.b.dma(
            E.gpsimd,
            hbm(out, "float32", ((F, P), (1, 1)), column),
            sbuf("float32", 4 * column, P, 1),
        )
    assert (k.run().outputs[0] == 1).all()


def test_reuse_of_a_region_forgets_what_it_held() -> None:
    """The second StorageBegin of the same bytes makes them uninitialised again."""
    k = Kernel()
    k.b.begin(E.gpsimd, k.source)
    k.store(k.source)
    assert k.tainted() == P * F


def test_loop_iterations_start_with_fresh_storage() -> None:
    """Written in the first iteration only, read in both."""
    b = Builder()
    out = b.tensor("out", "float32", (2, P, F), "output")
    tile = sbuf("float32", 0, P, F)
    begin = b.add(E.gpsimd, control.LoopBegin, reg(0), 0, 2, 1, 6)
    b.begin(E.gpsimd, tile)
    b.add(E.gpsimd, control.Branch, _not_equal(), reg(0), 0, 4)
    b.add(E.gpsimd, elementwise.Memset, tile, 1.0)
    b.dma(
        E.gpsimd,
        hbm(out, "float32", contiguous((P, F)), registers=((0, 4 * P * F),)),
        tile,
    )
    b.add(E.gpsimd, control.LoopEnd, begin)
    with pytest.raises(NeuronError, match=f"{P * F} of its {2 * P * F} elements") as caught:
        run(b.finish(), [])
    assert caught.value.code == "uninitialised-output"


def _not_equal() -> Any:
    from isa.enums import Condition

    return Condition.ne


def test_registers_are_not_loaded_from_nothing() -> None:
    k = Kernel()
    cell = k.tile(1, 1, "int32")
    k.add(control.RegisterLoad, reg(0), cell)
    k.store(k.source)
    with pytest.raises(NeuronError, match="uninitialised-control"):
        k.run()


def test_memory_without_storage_markers_is_followed_byte_by_byte() -> None:
    b = Builder()
    b.tensor("a", "float32", (P, F), "input")
    out = b.tensor("out", "float32", (P, F), "output")
    whole = hbm(0, "float32", contiguous((P, F)))
    b.dma(E.sync, sbuf("float32", 100, P, F), whole)
    b.dma(E.sync, hbm(out, "float32", contiguous((P, F))), sbuf("float32", 104, P, F))
    with pytest.raises(NeuronError, match=f"{P} of its {P * F} elements"):
        run(b.finish(), [np.ones((P, F), np.float32)])


def test_second_run_starts_afresh() -> None:
    """A tile that is written only when an input says so."""
    b = Builder()
    flag = b.tensor("flag", "int32", (1,), "input")
    out = b.tensor("out", "float32", (P, F), "output")
    tile = sbuf("float32", 0, P, F)
    b.add(E.sync, control.RegisterLoad, reg(0), hbm(flag, "int32", ((1, 1),)))
    b.begin(E.sync, tile)
    b.add(E.sync, control.Branch, _not_equal(), reg(0), 1, 4)
    b.add(E.sync, elementwise.Memset, tile, 3.0)
    b.dma(E.sync, hbm(out, "float32", contiguous((P, F))), tile)
    loaded = LoadedProgram(b.finish())
    for value in (1, 0, 1):
        argument = [np.array([value], np.int32)]
        if value:
            assert (loaded.run(argument).outputs[0] == 3).all()
        else:
            with pytest.raises(NeuronError):
                loaded.run(argument)
