"""How marks of uninitialised elements pass through rows."""

from __future__ import annotations

import numpy as np
import pytest
from partly_loaded import E, F, Kernel, P
from programs import contiguous, hbm, psum, sbuf

from isa.alu import ACTIVATIONS, ALU
from isa.array_tiles import WHOLE_ARRAY
from isa.enums import ReduceCommand
from isa.errors import NeuronError
from isa.machine import elementwise, gpsimd, scalar, tensor, vector
from simulator.execute import run


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
        k.add(tensor.LoadStationary, left, WHOLE_ARRAY)
        k.add(tensor.MultiplyMoving, dst, right, False, WHOLE_ARRAY)
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
    k.add(tensor.LoadStationary, k.source, WHOLE_ARRAY)
    k.add(tensor.MultiplyMoving, dst, k.source, True, WHOLE_ARRAY)
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
            k.add(tensor.LoadStationary, k.source, WHOLE_ARRAY)
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
