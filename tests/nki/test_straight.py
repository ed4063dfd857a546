"""Semaphores of bodies without control flow: the same from their dependences as from records of
what every access did."""

from itertools import product

import numpy as np
import pytest
import spine_kernels as kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_kernels import LADDER

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Memory
from isa.text import disassemble
from nki.ir.nodes import Tensor
from nki.passes import straight
from nki.passes.access_state import taken_over
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
            lambda *given: walked.append(synchronise(*given)),
        )
        short = disassemble(nki.compile(kernel, *arguments, target="trn2").program)
    assert walked, "the kernel has no control flow"
    monkeypatch.setattr(
        straight, "synchronise", lambda steps, context, _: Level(steps, context).run()
    )
    assert disassemble(nki.compile(kernel, *arguments, target="trn2").program) == short


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 96), st.integers(1, 32), st.integers(0, 60), st.integers(1, 16)),
        min_size=1,
        max_size=12,
    )
)
def test_bytes_are_taken_from_whatever_had_them_last(places):
    tensors, placement, last = [], {}, {}
    expected = set()
    for number, (partition, rows, low, words) in enumerate(places):
        tensors.append(Tensor(number, f"t{number}", Memory.sbuf, "float32", (rows, words)))
        placement[tensors[-1]] = partition, 4 * low
        for byte in product(range(partition, partition + rows), range(4 * low, 4 * (low + words))):
            if byte in last:
                expected.add((number, last[byte]))
            last[byte] = number
    found = taken_over(tensors, placement)
    assert found is not None
    assert {(place, other.number) for place, other in zip(*found)} == expected
