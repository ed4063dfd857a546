"""The IR verifier: what is legal passes, each broken invariant is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tile_ir.parser import parse_kernel
from tile_ir.verify import verify

from isa.affine import Symbol, polynomial
from isa.errors import NeuronError
from nki.ir import Op, Register, Tensor, TracedKernel, While

TEXT = """
kernel scale target=trn2
symbol M min=128 max=8192 multiple_of=128
tensor %t0 "a": shared_hbm float32[M, 512] role=input
tensor %t1 "n": shared_hbm int32[1, 1] role=input
tensor %t2 "out": shared_hbm float32[M, 512] role=output
tensor %t3 "tile": sbuf float32[128, 512] core=0
tensor %t4 "rows": sbuf int32[128, 1] core=0
tensor %t5 "sum": psum float32[128, 512] core=0
input %t0 "a"
input %t1 "n"
result %t2
core 0:
  register %r0 "i" from 0 to (M//128 - 1)
  register %r1 "limit"
  register %r2 "j" from 0
  storage_begin dst=%t4[128, 1 : 1, 1 @ 0]
  loop %r0 = 0 to (M//128) step 1 unroll:
    storage_begin dst=%t3[128, 512 : 512, 1 @ 0]
    dma_copy dst=%t3[128, 512 : 512, 1 @ 0] src=%t0[128, 512 : 512, 1 @ 65536*%r0]
    tensor_scalar dst=%t3[128, 256 : 512, 2 @ 1] data=%t3[128, 256 : 512, 2 @ 0] op0=multiply \
operand0=2.5
    storage_begin dst=%t5[128, 512 : 512, 1 @ 0]
    nc_matmul dst=%t5[128, 512 : 512, 1 @ 0] stationary=%t3[128, 128 : 512, 1 @ 0] \
moving=%t3[128, 512 : 512, 1 @ 0] accumulate=[%r0 > 0]
    dma_copy dst=%t2[128, 512 : 512, 1 @ 65536*%r0] src=%t3[128, 512 : 512, 1 @ 0]
  register_load dst=%r1 src=%t1[1, 1 : 1, 1 @ 0]
  loop %r2 = 0 to %r1 step 2:
    storage_begin dst=%t3[128, 512 : 512, 1 @ 0]
    dma_copy dst=%t3[128, 512 : 512, 1 @ 0] src=%t0[128, 512 : 512, 1 @ 0] \
rows(%t4[128, 1 : 1, 1 @ 0] * 512 < (M)) oob_mode=skip
    dma_copy dst=%t2[1, 512 : 512, 1 @ 512*%r2] src=%t3[1, 512 : 512, 1 @ 0]
    while %r1:
      register_move dst=%r1 src=0
"""


def test_a_legal_kernel_passes() -> None:
    verify(parse_kernel(TEXT))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # Accesses.
        ("512 @ 0] data", "512 @ 0] data", ""),
        ("256 : 512, 2 @ 1]", "256 : 512, 2 @ 2]", "is out of bounds"),
        ("256 : 512, 2 @ 0]", "256 : 511, 2 @ 0]", "dimension 0 steps by 511"),
        ("256 : 512, 2 @ 0]", "256 : 512, 2 @ 512]", "is out of bounds"),
        ("256 : 512, 2 @ 0]", "256 : 512, -1 @ 0]", "is out of bounds"),
        ("256 : 512, 2 @ 0]", "256 : 512, 2 @ 0]:float64x", None),
        ("src=%t1[1, 1 : 1, 1 @ 0]", "src=%t1[1, 1 : 1, 1 @ 1]", "is out of bounds"),
        ("src=%t0[128, 512 : 512, 1 @ 65536*%r0]", "src=%t0[128, 512 : 512, 1 @ -1]", "bounds"),
        ("@ 512*%r2] src", "@ 512*%r1 - 512*%r0] src", "%r0 i is read before it is written"),
        # Memories and dtypes.
        ("stationary=%t3[128, 128 : 512", "stationary=%t5[128, 128 : 512", "psum is not allowed"),
        ("register_load dst=%r1 src=%t1", "register_load dst=%r1 src=%t5", "psum is not allowed"),
        ("moving=%t3[128, 512 : 512, 1 @ 0]", "moving=%t4[128, 1 : 1, 1 @ 0]", "dtype int32"),
        # Storage.
        ('"tile": sbuf float32[128, 512] core=0', '"tile": sbuf float32[128, 512]', "no core"),
        ('"tile": sbuf float32[128, 512] core=0', '"tile": sbuf float32[128, 512] core=1', "core"),
        ('"tile": sbuf float32[128, 512]', '"tile": sbuf float32[256, 512]', "256 partitions"),
        ('"tile": sbuf float32[128, 512]', '"tile": sbuf float32[128, M]', "shape"),
        ("  storage_begin dst=%t4[128, 1 : 1, 1 @ 0]\n", "", "has not begun"),
        ("    storage_begin dst=%t5[128, 512 : 512, 1 @ 0]\n", "", "has not begun"),
        ("role=output", "role=constant", "constants have data"),
        ("float32[M, 512] role=input", "float32[M, 512] role=local", "local, not input"),
        ("result %t2", "result %t3", "is not in HBM"),
        # Registers.
        ("  register_load dst=%r1 src=%t1[1, 1 : 1, 1 @ 0]\n", "", "%r1 limit is read before"),
        ("register_load dst=%r1 src", "register_load dst=%r0 src", "%r1 limit is read before"),
        ("register_move dst=%r1 src=0", "register_move dst=%r2 src=0", "never writes"),
        (
            "      register_move dst=%r1 src=0",
            "      register_move dst=%r2 src=0\n      register_move dst=%r1 src=0",
            "writes the loop variable",
        ),
        ("step 2", "step 0", "step 0"),
        ("symbol M", "symbol N", None),
        # Operations.
        (" accumulate=[%r0 > 0]", "", "is not resolved"),
        ("op0=multiply operand0=2.5", "op0=multiply operand0=none", ""),
        ("data=%t3[128, 256 : 512, 2 @ 0]", "data=none", "is missing"),
        ("oob_mode=skip", "oob_mode=skip engine=vector", "is not one of the choices"),
    ],
)
def test_broken_text_is_refused(old: str, new: str, expected: str | None) -> None:
    changed = TEXT.replace(old, new, 1)
    if expected == "":
        verify(parse_kernel(changed))
        return
    with pytest.raises(NeuronError) as caught:
        verify(parse_kernel(changed))
    if expected is None:
        assert caught.value.code == "ir-syntax"
    else:
        assert caught.value.code == "ir-invalid"
        assert expected in caught.value.what
        assert caught.value.what.startswith("kernel scale: ")


def _op(kernel: TracedKernel, position: int) -> Op:
    return kernel.bodies[0][1].body[position]  # type: ignore[union-attr,return-value]


def _set(op: Op, position: int, value: Any) -> None:
    values = list(op.values)
    values[position] = value
    op.values = tuple(values)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda k: setattr(k.tensors[3], "number", 0), "are both %t0"),
        (lambda k: k.tensors.remove(k.tensors[3]), "is not among the tensors"),
        (lambda k: setattr(k.tensors[3], "dtype", "float33"), "unknown dtype"),
        (lambda k: setattr(k.tensors[3], "role", "temporary"), "unknown role"),
        (lambda k: setattr(k.tensors[0], "address", (0, 0)), "an address in HBM"),
        (lambda k: setattr(k, "target", "trn9"), "unknown target"),
        (lambda k: setattr(k, "bodies", []), "no core has a body"),
        (lambda k: k.parameter_names.pop(), "2 parameters, 1 names"),
        (lambda k: setattr(_op(k, 1), "values", _op(k, 1).values[:-1]), "5 values for 6 fields"),
        (lambda k: _set(_op(k, 2), 3, "two"), "'two' is not a number"),
        (lambda k: _set(_op(k, 2), 2, "multiply"), "'multiply' is no alu"),
        (lambda k: _set(_op(k, 2), 4, 1), "1 is no flag"),
        (lambda k: setattr(_op(k, 1), "after", (_op(k, 2),)), "is not above it"),
        (lambda k: _set(_op(k, 1), 1, 4.0), "is not a view"),
        (lambda k: setattr(_op(k, 1).values[1], "strides", (512,)), "2 dimensions, 1 strides"),
        (
            lambda k: setattr(k.tensors[0], "data", np.zeros((1,), np.float32)),
            "constants have data",
        ),
        (
            lambda k: k.bodies[0].append(While(Register(1, "other"), [])),
            "is read before it is written",
        ),
        (
            lambda k: setattr(_op(k, 1).values[1], "offset", polynomial(Symbol("other", 64))),
            "symbol other is not declared",
        ),
    ],
)
def test_broken_nodes_are_refused(change: Callable[[TracedKernel], Any], expected: str) -> None:
    kernel = parse_kernel(TEXT)
    change(kernel)
    with pytest.raises(NeuronError) as caught:
        verify(kernel)
    assert caught.value.code == "ir-invalid"
    assert expected in caught.value.what


def test_a_core_uses_its_own_tensors() -> None:
    kernel = parse_kernel(TEXT)
    kernel.bodies.append(parse_kernel(TEXT).bodies[0][:1])
    foreign: Tensor = kernel.bodies[1][0].values[0].storage  # type: ignore[union-attr]
    foreign.number = 99
    kernel.tensors.append(foreign)
    with pytest.raises(NeuronError, match="belongs to core 0"):
        verify(kernel)
    foreign.core = 1
    verify(kernel)


def test_the_error_names_the_line() -> None:
    text = TEXT.replace("step 2:", "step 0 loc=0:") + (
        'location 0 "kernel.py" 41 8 20 "scale" "        for j in nl.dynamic_range(n):"\n'
    )
    with pytest.raises(NeuronError) as caught:
        verify(parse_kernel(text))
    assert caught.value.location.line == 41
