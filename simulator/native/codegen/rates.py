"""How fast this CPU multiplies and adds, measured: which of its instructions serve a product best.

Results do not depend on it; only speed does.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from functools import cache

from simulator.native.codegen.fused import dot_of_pairs
from simulator.native.codegen.library import Library
from simulator.native.codegen.text import WORD, FunctionText, Value

SUMS = 24
"""Independent sums: more than hide the latency of any multiply-add."""

_STEPS = 1000
_TRIALS = 5
_ROOM = 64


@dataclass(frozen=True, slots=True)
class MultiplyAdds:
    """Independent multiply-adds of registers of `width` fp32 lanes, by VDPBF16PS if `dot`, else by
    FMA. Words: how many times all sums are added to; behind it is room for them."""

    width: int
    dot: bool

    def text(self, name: str) -> str:
        f = FunctionText(name)
        pairs = f.load(f.words, "i32", self.width)
        factor = f.convert("bitcast", pairs, "float")

        def step(_: Value, *sums: Value) -> list[Value]:
            if self.dot:
                return [dot_of_pairs(f, pairs, pairs, value) for value in sums]
            return [f.intrinsic("fma", factor, factor, value) for value in sums]

        start = [f.constant("float", 0.0, self.width)] * SUMS
        sums = f.loop(f.integer(0), f.word(0), 1, step, start)
        for index, value in enumerate(sums):
            f.store(value, f.words + _ROOM * (index + 1))
        return f.text()


def multiply_adds(functions: Library, dot: bool, steps: int = _STEPS, trials: int = _TRIALS) -> int:
    """Multiply-adds in a second, in the fastest of the trials."""
    width = 16 if functions.level.wide_registers else 8
    function = functions.function(MultiplyAdds(width, dot))
    words = (ctypes.c_int64 * (_ROOM // WORD * (SUMS + 1)))(steps)
    best = min(_nanoseconds(function, words) for _ in range(trials))
    return steps * SUMS * width * (1 + dot) * 10**9 // best


def _nanoseconds(function: object, words: object) -> int:
    assert callable(function)
    start = time.perf_counter_ns()
    function(words)
    return max(time.perf_counter_ns() - start, 1)


@cache
def pairs_pay(functions: Library) -> bool:
    """Whether the CPU has VDPBF16PS and does more multiply-adds by it than by FMA, as not all do:
    one that issues it every other cycle, and FMA twice a cycle, does half as many."""
    return functions.level.bf16_dot and multiply_adds(functions, True) > multiply_adds(
        functions, False
    )
