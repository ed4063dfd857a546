"""Panels of fp32 numbers, made of an image's pairs, for strips that are multiplied by FMA."""

from __future__ import annotations

from simulator.native.codegen.levels import Form
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.matmul.image_layout import (
    DEEPEST,
    GROUP,
    LINE,
    PITCH,
    WIDEST,
    lines_of,
    panel_at,
    panels_bytes,
)
from simulator.numerics.matmul import SHORT

_UPPER = 0xFFFF0000


class WidePanels:
    """Memory of a function for the panels of one image, which are made where they are needed."""

    def __init__(self, f: FunctionText) -> None:
        self.f = f
        self.place = f.scratch("i8", panels_bytes(DEEPEST, WIDEST))
        self._made = f.scratch("i64", 1)
        f.store(f.integer(0), self._made)

    def made(self) -> Value:
        """1 when the panels are made."""
        f = self.f
        return f.compare("icmp ne", f.load(self._made, "i64"), f.integer(0))

    def make(self, panels: Value, form: Form, depth: Value, rows: Value) -> None:
        """Copy the panels or lines of an image of a form."""
        writer = self._of_lines if form is Form.tiles else self._of_pairs
        writer(panels, depth, rows)
        self.f.store(self.f.integer(1), self._made)

    def _of_pairs(self, panels: Value, depth: Value, rows: Value) -> None:
        f, zero = self.f, self.f.integer(0)
        steps = lines_of(f, depth, Form.pairs)

        def group(column: Value) -> None:
            origin = panel_at(f, panels, steps, column)
            target = panel_at(f, self.place, depth, column)

            def line(k: Value) -> None:
                place = f.element_at(origin, f.binary("lshr", k, f.integer(1)), LINE)
                pairs = f.load(place, "i32", GROUP)
                odd = f.compare("icmp ne", k & 1, zero)
                f.store(self._half(pairs, odd), f.element_at(target, k, LINE))

            f.loop(zero, depth, 1, line)

        f.loop(zero, rows, GROUP, group)

    def _of_lines(self, panels: Value, depth: Value, rows: Value) -> None:
        f, zero = self.f, self.f.integer(0)

        def column(index: Value) -> None:
            origin = f.element_at(panels, index, PITCH)
            target = panel_at(f, self.place, depth, index)

            def line(k: Value) -> None:
                after = k & (SHORT - 1)
                groups = f.binary("lshr", k, f.integer((2 * SHORT).bit_length() - 1))
                number = groups * SHORT + after
                pair = f.load(f.element_at(origin, number, 4), "i32")
                second = f.compare("icmp ne", k & SHORT, zero)
                f.store(self._half(pair, second), f.element_at(target, k, LINE))

            f.loop(zero, depth, 1, line)

        f.loop(zero, rows, 1, column)

    def _half(self, pairs: Value, second: Value) -> Value:
        """The first or second elements of pairs, as the bits of fp32."""
        f = self.f
        shift = f.select(second, f.constant("i32", 16), f.constant("i32", 0))
        by = f.splat(shift, pairs.width) if pairs.width else shift
        return (pairs << by) & _UPPER
