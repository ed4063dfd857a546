"""Random copies between tensors that share the bytes of one argument, in device and reference mode
against NumPy views of these bytes; the proof of the program agrees that they wait for each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference_run import run_reference
from tile_ir.parser import parse_kernel
from tile_ir.verify import verify

from nki.pipeline import compile_kernel
from simulator.execute import run
from simulator.races.happens_before import check

BYTES = 1024
ROUNDS = 6
WORDS = {"float32": np.uint32, "bfloat16": np.uint16, "uint8": np.uint8}


class View(NamedTuple):
    """Rows and columns of a tensor of some rows of 8 elements, at a byte of the argument; `step`
    bytes further each round."""

    dtype: str
    offset: int
    step: int
    rows: int
    columns: int
    start: int
    pitch: int

    @property
    def size(self) -> int:
        return int(np.dtype(WORDS[self.dtype]).itemsize)

    def of(self, memory: np.ndarray[Any, Any], number: int) -> Any:
        first = self.offset + self.step * number + self.start * self.size
        strides = self.pitch * self.size, self.size
        return np.ndarray((self.rows, self.columns), WORDS[self.dtype], memory, first, strides)


@st.composite
def views(draw: Any, dtype: str, rows: int, columns: int, steps: Any) -> View:
    size = np.dtype(WORDS[dtype]).itemsize
    pitch = draw(st.sampled_from([8, 12, 16]))
    extent = (rows * pitch + 8) * size
    step = draw(steps) * 4
    offset = draw(st.integers(0, (BYTES - extent - step * (ROUNDS - 1)) // 4)) * 4
    return View(dtype, offset, step, rows, columns, draw(st.integers(0, 8 - columns)), pitch)


@st.composite
def copies(draw: Any) -> list[tuple[bool, View, View]]:
    """(whether in a loop, destination, source), which share no byte in any round."""
    found = []
    for _ in range(draw(st.integers(2, 6))):
        looped = draw(st.booleans())
        steps = st.sampled_from([0, 1, 4, 8, 16]) if looped else st.just(0)
        form = draw(st.sampled_from(list(WORDS))), draw(st.integers(1, 4)), draw(st.integers(1, 8))
        dst, src = draw(views(*form, steps)), draw(views(*form, steps))
        marks = np.zeros(BYTES, np.uint8)
        for number in range(ROUNDS):
            marks[...] = 0
            dst.of(marks, number)[...] = ~np.array(0, WORDS[dst.dtype])
            if src.of(marks, number).any():
                break
        else:
            found.append((looped, dst, src))
    return found


def text_of(steps: list[tuple[bool, View, View]]) -> str:
    head = [
        "kernel copies target=trn2",
        f'tensor %t0 "arena": shared_hbm uint8[{BYTES}] role=inout',
        'input %t0 "arena"',
        "result %t0",
    ]
    tensors, registers, places, body = [], [], [], []
    for index, (looped, *both) in enumerate(steps):
        operands = []
        if looped:
            registers.append(f'  register %r{index} "i" from 0 to {ROUNDS - 1}')
        for number, view in enumerate(both, 1 + 2 * index):
            at = f" at={view.offset}"
            if view.step:
                places.append(f"  place %t{number} at=({view.offset} + {view.step}*%r{index})")
                at = ""
            tensors.append(
                f'tensor %t{number} "t{number}": shared_hbm {view.dtype}'
                f"[{view.rows * view.pitch + 8}] within=%t0{at}"
            )
            operands.append(
                f"%t{number}[{view.rows}, {view.columns} : {view.pitch}, 1 @ {view.start}]"
            )
        engine = ("sync", "gpsimd", "scalar")[index % 3]
        copy = f"dma_copy dst={operands[0]} src={operands[1]} engine={engine}"
        if looped:
            body += [f"  loop %r{index} = 0 to {ROUNDS} step 1:", "    " + copy]
        else:
            body.append("  " + copy)
    return "\n".join([*head[:2], *tensors, *head[2:], "core 0:", *registers, *places, *body, ""])


@settings(max_examples=20, deadline=None)
@given(copies())
@example(  # a column that meets the one of two rounds before, and not that of the last one
    [
        (
            True,
            View("bfloat16", 32, 16, rows=2, columns=1, start=1, pitch=16),
            View("bfloat16", 0, 0, rows=2, columns=1, start=0, pitch=8),
        )
    ]
)
def test_random_copies_within_one_argument(steps: list[tuple[bool, View, View]]) -> None:
    expected = np.arange(BYTES).astype(np.uint8)
    given_bytes = expected.copy()
    for looped, dst, src in steps:
        for number in range(ROUNDS if looped else 1):
            dst.of(expected, number)[...] = src.of(expected, number)
    kernel = parse_kernel(text_of(steps))
    verify(kernel)
    program = compile_kernel(kernel)
    assert check(program, iterations=None) == []
    for native in (True, False):
        (found,) = run(program, [given_bytes], native=native).outputs
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(run_reference(kernel, [given_bytes]).outputs[0], expected)
