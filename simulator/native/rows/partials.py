"""Reductions in registers: 16 strided partial results in a vector, then a fixed tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isa import scalar
from isa.alu import ALU
from simulator.native.codegen.expressions import lane_type, print_expression
from simulator.native.codegen.text import FunctionText, Value
from simulator.oracle.reduction import LANES

Elements = Callable[[Value, int], Value]
"""What gives the elements of a row: so many adjacent ones from an index on."""

IN_LOCKSTEP = 2
"""Rows of which the sums are taken side by side."""

_CHOICES = {scalar.Maximum: "fcmp ogt", scalar.Minimum: "fcmp olt"}


class Reducer:
    """Emits one reduction: an operator over the elements of a domain."""

    def __init__(self, f: FunctionText, operator: str, domain: str) -> None:
        self.f = f
        self.operator = ALU[operator]
        self.domain = domain
        self.lane = lane_type(domain)
        self._memory = f.scratch(self.lane, LANES)

    def start(self) -> Value:
        """The partial results of no elements."""
        identity = self.operator.identity
        assert identity is not None
        if self.domain != "float32":
            identity = int(identity) & ((1 << int(self.lane[1:])) - 1)
        return self.f.constant(self.lane, identity, LANES)

    def combine(self, left: Value, right: Value) -> Value:
        inputs = {"x": left, "y": right}
        return print_expression(self.f, self.operator.expression, self.domain, inputs)

    def row(self, count: Value, elements: Elements) -> Value:
        """The partial results of `count` elements: `elements(index, width)` gives `width` adjacent
        ones."""
        return self.rows(count, [elements])[0]

    def rows(self, count: Value, rows: Sequence[Elements]) -> list[Value]:
        """The partial results of several rows of `count` elements, side by side: an addition waits
        for the one before it in its own row only."""
        if self._chosen() is not None:
            return [self._chosen_row(count, elements) for elements in rows]
        f = self.f
        whole = count & -LANES

        def step(index: Value, *partials: Value) -> list[Value]:
            found = [elements(index, LANES) for elements in rows]
            return [self.combine(partial, value) for partial, value in zip(partials, found)]

        partials = f.loop(f.integer(0), whole, LANES, step, [self.start() for _ in rows])
        return [
            self._rest(whole, count, elements, partial) for elements, partial in zip(rows, partials)
        ]

    def _rest(self, whole: Value, count: Value, elements: Elements, partial: Value) -> Value:
        """The partial results with the elements from `whole` on, fewer than LANES."""
        f = self.f

        def last(first: Value, partial: Value) -> list[Value]:
            """Fewer than LANES elements: the other lanes take the identity."""
            f.store(self.start(), self._memory)

            def one(index: Value) -> None:
                lane = index - first
                f.store(elements(index, 1), f.element_at(self._memory, lane, self._size))

            f.loop(first, count, 1, one)
            return [self.combine(partial, f.load(self._memory, self.lane, LANES))]

        return f.loop(whole, count, LANES, last, [partial])[0]

    def _chosen_row(self, count: Value, elements: Elements) -> Value:
        f, chosen = self.f, self._chosen()
        assert chosen is not None
        whole = count & -LANES

        def pick(left: Value, right: Value) -> Value:
            return f.select(f.compare(chosen, left, right), left, right)

        def choose(index: Value, partial: Value, unordered: Value) -> list[Value]:
            """As `combine`, but that NaN are only taken note of: two short chains."""
            value = elements(index, LANES)
            unordered = unordered | f.compare("fcmp uno", value, value)
            return [pick(partial, value), unordered]

        def choose_four(index: Value, partial: Value, unordered: Value) -> list[Value]:
            """As four times `choose`: of equal numbers the last one stays, however they are
            grouped."""
            a, b, c, d = (elements(index + step * LANES, LANES) for step in range(4))
            nan = f.compare("fcmp uno", a, b) | f.compare("fcmp uno", c, d)
            best = pick(partial, pick(pick(a, b), pick(c, d)))
            return [best, unordered | nan]

        carried = [self.start(), f.constant("i1", 0, LANES)]
        fours = count & (-4 * LANES)
        carried = f.loop(f.integer(0), fours, 4 * LANES, choose_four, carried)
        best, unordered = f.loop(fours, whole, LANES, choose, carried)
        partial = [f.select(unordered, f.like(best, float("nan")), best)]
        return self._rest(whole, count, elements, partial[0])

    def _chosen(self) -> str | None:
        """The comparison by which the operator keeps the left one of two fp32 numbers, if so."""
        expression = self.operator.expression
        if self.domain != "float32" or not isinstance(expression, scalar.Binary):
            return None
        if (expression.left, expression.right) != (scalar.X, scalar.Y):
            return None
        return _CHOICES.get(type(expression))

    @property
    def _size(self) -> int:
        return 4 if self.domain == "float32" else int(self.lane[1:]) // 8

    def begin_one_by_one(self) -> None:
        """Start a reduction that takes its elements by `add`."""
        self.f.store(self.start(), self._memory)

    def add(self, index: Value, element: Value) -> None:
        """Fold in element `index` of the row, of width 1."""
        f = self.f
        lane = index & (LANES - 1)
        place = f.element_at(self._memory, lane, self._size)
        f.store(self.combine(f.load(place, self.lane, 1), element), place)

    def partial(self) -> Value:
        """The partial results of what `add` took."""
        return self.f.load(self._memory, self.lane, LANES)

    def tree(self, partial: Value) -> Value:
        """The one result, of width 1."""
        width = LANES // 2
        while width:
            lower = self.f.shuffle(partial, partial, range(width))
            upper = self.f.shuffle(partial, partial, range(width, 2 * width))
            partial = self.combine(lower, upper)
            width //= 2
        return partial
