"""Cores that differ in HBM addresses only are ordered and synchronised once; programs stay."""

import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.files.text import disassemble
from nki.passes import lower as lowering
from nki.passes.analysis.known import Known
from nki.pipeline import compile_kernel

A = nki.TensorSpec((1024, 64), nl.float32)


def tile(a, out, rows, other):
    """Loads, computes and stores a tile; `other` takes one operation more."""
    x, y = (nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=x, src=a[rows, :])
    nisa.activation(dst=y, op=nl.exp, data=x)
    nisa.tensor_scalar(dst=x, data=y, op0=nl.add, operand0=1.0)
    if other:
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5)
    nisa.dma_copy(dst=out[rows, :], src=x)


@nki.jit
def tiles(a, unlike, looped):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    for number in range(4):
        tile(a, out, nl.ds((4 * core + number) * 128, 128), unlike and core and number == 2)
    if looped:
        nl.fori_loop(0, 512, lambda row: tile(a, out, nl.ds(row, 128), False), 128)
    return out


def program(unlike, looped):
    """The text of a program for two cores, and how often waits were sought."""
    calls = []
    whole = lowering.synchronise
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering, "synchronise", lambda *given: calls.append(0) or whole(*given))
        traced = tiles[2].trace(A, unlike, looped, target="trn2")
        return disassemble(compile_kernel(traced)), len(calls)


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("unlike", [False, True])
def test_programs_are_those_of_cores_found_alone(unlike, looped, monkeypatch):
    shared, _ = program(unlike, looped)
    monkeypatch.setattr(Known, "result", lambda self, inputs, find: find())
    assert shared == program(unlike, looped)[0]


def test_waits_of_like_cores_are_found_once():
    counts = {unlike: program(unlike, False)[1] for unlike in (False, True)}
    assert counts[True] == counts[False] + 1


def test_results_are_known_by_columns_and_values():
    known = Known()
    assert known.result(([1, 2], "a"), lambda: 1) == 1
    assert known.result(([1, 2], "a"), lambda: 2) == 1
    assert known.result(([1, 3], "a"), lambda: 3) == 3
    assert known.result(([1, 2], "b"), lambda: 4) == 4
