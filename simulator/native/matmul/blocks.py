"""Blocks of results that stay in registers: their size on a CPU, and the form of operands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from simulator.native.codegen.levels import CpuLevel, Form
from simulator.native.codegen.library import Library, library
from simulator.native.codegen.rates import pairs_pay
from simulator.numerics.matmul import fits_short


@dataclass(frozen=True, slots=True)
class Blocking:
    """A block of results: `rows` of `vectors` vectors of `width` fp32 lanes, or of `packed` ones
    where a strip has another form than fp32. Results that are summed in short chains need registers
    for two chains beside their totals: a block of those has `short_rows`.

    `form`: what operands that are summed in short chains are multiplied as: pairs by VDPBF16PS on
    vectors of this width, tiles by matrix registers.
    """

    rows: int
    vectors: int
    width: int
    short_rows: int = 2
    form: Form = Form.wide
    packed: int = 2

    def form_of(self, dtype: str) -> Form:
        """The form of an operand."""
        return self.form if fits_short(dtype) else Form.wide


@cache
def blocking() -> Blocking:
    """The block of results for this CPU."""
    functions = library()
    assert functions is not None
    return block_for(functions.level, best_form(functions))


def best_form(functions: Library) -> Form:
    """What multiplies fastest by operands that are summed in short chains."""
    form = functions.level.form
    return Form.wide if form is Form.pairs and not pairs_pay(functions) else form


def block_for(level: CpuLevel, form: Form) -> Blocking:
    """The block for a level: as many sums as hide the latency of what multiplies and adds, and no
    more registers."""
    if level.wide_registers:
        return Blocking(8, 3, 16, form=form)
    if level.fused:
        return Blocking(8, 2, 4, short_rows=4) if level.many_registers else Blocking(4, 2, 8)
    return Blocking(2, 2, 4)
