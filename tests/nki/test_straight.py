"""Semaphores of bodies without control flow: the same from their dependences as from records of
what every access did."""

import numpy as np
import pytest
import spine_kernels as kernels
from matmul_kernels import LADDER

import nki
import nki.isa as nisa
import nki.language as nl
from isa.text import disassemble
from nki.passes import straight
from nki.passes.synchronise import Level

MATRICES = nki.TensorSpec((1024, 512), nl.bfloat16), nki.TensorSpec((1024, 1024), nl.bfloat16)


@nki.jit
def begun_in_parts(a):
    """Tiles that transfers fill in two parts, the second once the first is in use."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for row in range(0, a.shape[0], 128):
        whole = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        half = a.shape[1] // 2
        rows = nl.ds(row, 128)
        left, right = nl.ds(0, half), nl.ds(half, half)
        nisa.dma_copy(dst=whole[:, left], src=a[rows, left])
        nisa.tensor_scalar(dst=whole[:, left], data=whole[:, left], op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=whole[:, right], src=a[rows, right])
        nisa.activation(dst=whole, op=nl.exp, data=whole)
        nisa.dma_copy(dst=out[rows, left], src=whole[:, left])
        nisa.tensor_scalar(dst=whole[:, left], data=whole[:, left], op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out[rows, right], src=whole[:, right])
    return out


CASES = {
    **{kernel.__name__: (kernel, MATRICES) for kernel in LADDER},
    "softmax": (kernels.softmax, (np.zeros((300, 96), np.float32),)),
    "begun_in_parts": (begun_in_parts, (nki.TensorSpec((4096, 4096), nl.float32),)),
}


@pytest.mark.parametrize("name", CASES)
def test_both_analyses_give_the_same_program(name, monkeypatch):
    kernel, arguments = CASES[name]
    walked = []
    synchronise = straight.synchronise
    with monkeypatch.context() as patch:
        patch.setattr(
            straight,
            "synchronise",
            lambda steps, context: walked.append(synchronise(steps, context)),
        )
        short = disassemble(nki.compile(kernel, *arguments, target="trn2").program)
    assert walked, "the kernel has no control flow"
    monkeypatch.setattr(straight, "synchronise", lambda steps, context: Level(steps, context).run())
    assert disassemble(nki.compile(kernel, *arguments, target="trn2").program) == short
