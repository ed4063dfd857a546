"""What is found when uninitialised memory is read, and what reaches an output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import Builder, contiguous, hbm, psum, reg, sbuf

from isa.alu import ACTIVATIONS, ALU
from isa.enums import Engine, ReduceCommand
from isa.errors import NeuronError
from isa.machine import control, elementwise, gpsimd, scalar, tensor, vector
from simulator.checks.initialised import Shadow
from simulator.checks.marks import CLEAN, DEAD, EMPTY, MIXED, Space, Tracked
from simulator.execute import LoadedProgram, RunResult, run
from simulator.views import strided

E = Engine
P, F = 8, 6


class Kernel:
    """A program on one engine's stream around [8, 6] float32 tiles; tile 0 is loaded up to
    `columns` columns and `rows` rows of an all-ones input."""

    def __init__(self, rows: int = P, columns: int = F, engine: E = E.gpsimd) -> None:
        self.engine = engine
        self.b = Builder()
        self.b.tensor("a", "float32", (P, F), "input")
        self.tiles = 0
        self.source = self.tile(F)
        part = hbm(0, "float32", ((F, rows), (1, columns)))
        loaded = sbuf("float32", 0, rows, columns)
        loaded.dims = ((1, columns),)
        self.b.dma(self.engine, loaded, part)

    def tile(self, columns: int, partitions: int = P, dtype: str = "float32") -> Any:
        pattern = sbuf(dtype, 256 * self.tiles, partitions, columns)
        self.tiles += 1
        self.b.begin(self.engine, pattern)
        return pattern

    def add(self, row: Any, *values: Any) -> None:
        self.b.add(self.engine, row, *values)

    def store(self, pattern: Any, shape: tuple[int, ...] = (P, F)) -> None:
        out = self.b.tensor("out", pattern.dtype, shape, "output")
        self.b.dma(self.engine, hbm(out, pattern.dtype, contiguous(shape)), pattern)

    def run(self) -> RunResult:
        return run(self.b.finish(), [np.ones((P, F), np.float32)])

    def tainted(self) -> int:
        """How many output elements the error counts."""
        with pytest.raises(NeuronError) as caught:
            self.run()
        assert caught.value.code == "uninitialised-output"
        assert caught.value.location is not None
        return int(str(caught.value).split("Output out: ")[1].split()[0])


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


def test_reductions_taint_their_row() -> None:
    k = Kernel(5, F)
    result = k.tile(1)
    k.add(vector.TensorReduce, result, k.source, ALU["add"], 1, False)
    k.store(result, (P, 1))
    assert k.tainted() == 3


def test_matmul_taints_rows_and_columns() -> None:
    def product(rows: int, columns: int, stationary_first: bool) -> int:
        k = Kernel(rows, columns)
        ones, dst = k.tile(F), psum("float32", 0, F, F)
        k.add(elementwise.Memset, ones, 1.0)
        k.b.begin(E.gpsimd, dst)
        left, right = (k.source, ones) if stationary_first else (ones, k.source)
        k.add(tensor.LoadStationary, left, 0, 0)
        k.add(tensor.MultiplyMoving, dst, right, False, 0, 0)
        copy = k.tile(F, F)
        k.add(elementwise.TensorCopy, copy, dst)
        k.store(copy, (F, F))
        return k.tainted()

    assert product(P, 4, True) == 2 * F  # two columns of the stationary tile: two output rows
    assert product(P, 4, False) == F * 2
    assert product(P - 1, F, True) == F * F  # part of the contraction: everything


def test_accumulating_into_nothing() -> None:
    k = Kernel()
    dst = psum("float32", 0, F, F)
    k.b.begin(E.gpsimd, dst)
    k.add(tensor.LoadStationary, k.source, 0, 0)
    k.add(tensor.MultiplyMoving, dst, k.source, True, 0, 0)
    copy = k.tile(F, F)
    k.add(elementwise.TensorCopy, copy, dst)
    k.store(copy, (F, F))
    assert k.tainted() == F * F


def test_transposes_move_marks() -> None:
    for on_tensor_engine in (False, True):
        k = Kernel(P, 4)
        dst = psum("float32", 0, F, P) if on_tensor_engine else k.tile(P, F)
        if on_tensor_engine:
            k.b.begin(E.gpsimd, dst)
            k.add(tensor.LoadStationary, k.source, 0, 0)
            k.add(tensor.TransposeStationary, dst, 0, False)
        else:
            k.add(vector.Transpose32, dst, k.source)
        top = k.tile(P, 4)
        part = psum("float32", 0, 4, P) if on_tensor_engine else sbuf("float32", dst.offset, 4, P)
        k.add(elementwise.TensorCopy, top, part)
        k.store(top, (4, P))
        ran = k.run()
        assert (ran.outputs[0] == 1).all()


def test_affine_select_hides_what_it_does_not_select() -> None:
    """The columns that were never loaded are exactly those that the mask replaces."""
    for bound in (4, 5):
        k = Kernel(P, 4)
        result = k.tile(F)
        k.add(
            gpsimd.AffineSelect,
            *(result, k.source, ((-1, F),), bound - 1, 0, ALU["greater_equal"], -9.0),
        )
        k.store(result)
        if bound == 4:
            ran = k.run()
            assert ran.findings == [] and (ran.outputs[0][:, 4:] == -9).all()
        else:
            assert k.tainted() == P


def test_predicated_copy_marks_follow_the_predicate() -> None:
    def build(chosen: int) -> Kernel:
        k = Kernel(P, 4)
        predicate, ones = k.tile(F, dtype="uint32"), k.tile(F)
        k.add(gpsimd.Iota, predicate, ((1, F),), 0, 0)
        k.add(
            elementwise.TensorScalar,
            *(predicate, predicate, ALU["greater_equal"], float(chosen), False),
            *(None, None, False),
        )
        k.add(elementwise.Memset, ones, 5.0)
        k.add(elementwise.CopyPredicated, k.source, ones, predicate, False)
        k.store(k.source)
        return k

    ran = build(4).run()
    assert (ran.outputs[0][:, :4] == 1).all() and (ran.outputs[0][:, 4:] == 5).all()
    assert ran.findings == []
    assert build(5).tainted() == P


def test_accumulate_registers_carry_marks() -> None:
    def build(first: ReduceCommand, rows: int) -> Kernel:
        k = Kernel(rows, F, E.scalar)
        scratch, result = k.tile(F), k.tile(1)
        k.add(scalar.Activate, *(scratch, k.source, ACTIVATIONS["copy"], None, 1.0, first))
        k.add(scalar.ActReadAccumulator, result, 0)
        k.store(result, (P, 1))
        return k

    assert (build(ReduceCommand.reset_reduce, P).run().outputs[0] == F).all()
    assert build(ReduceCommand.reset_reduce, 5).tainted() == 3
    assert build(ReduceCommand.reduce, P).tainted() == P  # never reset
    assert (build(ReduceCommand.reset, 5).run().outputs[0] == 0).all()


def test_gather_and_scatter_move_the_marks_of_rows() -> None:
    k = Kernel()
    index = k.b.tensor(
        "i", "int32", (4, 1), "constant", data=np.array([0, 2, 5, 7], "i4").tobytes()
    )
    middle = k.b.tensor("m", "float32", (P, F), "internal")
    positions = k.tile(1, 4, "int32")
    k.b.dma(E.gpsimd, positions, hbm(index, "int32", contiguous((4, 1))))
    rows = {"vector_offset": positions, "vector_stride": F, "vector_bound": P}
    dims = contiguous((4, F))
    k.b.dma(E.gpsimd, hbm(middle, "float32", dims, **rows), sbuf("float32", 0, 4, F))
    gathered, everything = k.tile(F, 4), k.tile(F)
    k.b.dma(E.gpsimd, gathered, hbm(middle, "float32", dims, **rows))
    k.store(gathered, (4, F))
    ran = k.run()
    assert (ran.outputs[0] == 1).all() and ran.findings == []
    k.b.cores[0][E.gpsimd].pop()  # the Halt
    k.b.dma(E.gpsimd, everything, hbm(middle, "float32", contiguous((P, F))))
    k.store(everything)
    with pytest.raises(NeuronError) as caught:
        run(k.b.finish(), [np.ones((P, F), np.float32)])
    assert f"{4 * F} of its {P * F} elements" in str(caught.value)


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


# Marks by themselves: the lazy states against a plain byte map.

BOXES = st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 14), st.integers(1, 16)).map(
    lambda b: (b[0], min(b[0] + b[1], 4), b[2], min(b[2] + b[3], 16))
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["begin", "write", "read"]), BOXES), max_size=12))
def test_lazy_marks_equal_a_byte_map(steps: list[tuple[str, tuple[int, int, int, int]]]) -> None:
    pitch = 20
    buffer = np.zeros(4 * pitch, np.uint8)
    space = Space(buffer, pitch)
    truth = np.zeros((4, pitch), np.bool_)
    allocated = np.zeros((4, pitch), np.int64)  # which allocation a byte belongs to
    for number, (what, (first, last, low, high)) in enumerate(steps, 1):
        view = strided(buffer, "uint8", first * pitch + low, (last - first, high - low), (pitch, 1))
        inside = (slice(first, last), slice(low, high))
        if what == "begin":
            # An allocation that is partly overwritten is gone as a whole.
            for gone in np.unique(allocated[inside]):
                if gone:
                    truth[allocated == gone] = False
                    allocated[allocated == gone] = 0
            space.begin(view)
            truth[inside] = False
            allocated[inside] = number
            continue
        operand = Tracked(space, view, "operand")
        if what == "write":
            operand.write(None)
            truth[inside] = True
            continue
        if (allocated[inside] == 0).any():
            continue  # freed memory may keep old marks
        mask = operand.mask()
        expected = truth[inside]
        assert (mask is None and expected.all()) or np.array_equal(mask, expected)


def test_states_of_a_region() -> None:
    buffer = np.zeros(64, np.uint8)
    shadow = Shadow()
    space = shadow.add(buffer, pitch=16)
    view = strided(buffer, "float32", 0, (4, 2), (16, 4))
    region = space.begin(view)
    assert region is not None and region.state == EMPTY
    half = Tracked(space, view[:, :1], "half")
    half.write(None)
    assert region.state == MIXED and half.mask() is None
    other = Tracked(space, view[:, 1:], "other")
    assert not other.mask().any()
    other.write(None)
    assert other.mask() is None and region.state == CLEAN
    space.begin(strided(buffer, "float32", 4, (4, 2), (16, 4)))
    assert region.state == DEAD
