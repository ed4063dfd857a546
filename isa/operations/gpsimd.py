"""Operations of the GpSimd engine."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.alu import ALU
from isa.enums import Engine
from isa.fields import SBUF, Attribute, Kind, Read, Write
from isa.machine import gpsimd
from isa.spec import Instruction, Operation


class Iota(Operation):
    """dst[p, w, z, y, x] = offset + p * channel_multiplier + sum of index * step, in int32."""

    name = "iota"
    document = "nki/api/nki.isa.rst#nki.isa.iota"
    engines = (Engine.gpsimd,)
    dst = Write(SBUF)
    pattern = Attribute(kind=Kind.pattern)
    offset = Attribute(kind=Kind.value, default=0)
    channel_multiplier = Attribute(kind=Kind.integer, default=0)
    rules = (rules.pattern_covers("pattern", "dst"),)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(gpsimd.Iota, Engine.gpsimd, values),)


class AffineSelect(Operation):
    """dst = on_true_tile where `cmp_op(affine value, 0)` holds, else `on_false_value`.

    The affine value of element (p, w, z, y, x) is that of `iota`.
    """

    name = "affine_select"
    document = "nki/api/nki.isa.rst#nki.isa.affine_select"
    engines = (Engine.gpsimd,)
    dst = Write(SBUF)
    pattern = Attribute(kind=Kind.pattern)
    channel_multiplier = Attribute(kind=Kind.integer)
    on_true_tile = Read(SBUF)
    on_false_value = Attribute(kind=Kind.float32)
    cmp_op = Attribute(kind=Kind.alu, default=ALU["equal"])
    offset = Attribute(kind=Kind.value, default=0)
    rules = (
        rules.same_elements("dst", "on_true_tile"),
        rules.pattern_covers("pattern", "dst"),
        rules.comparison_operator("cmp_op"),
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, pattern, multiplier, on_true, on_false, op, offset = values
        return (
            Instruction(
                gpsimd.AffineSelect,
                Engine.gpsimd,
                (dst, on_true, pattern, offset, multiplier, op, on_false),
            ),
        )
