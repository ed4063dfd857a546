"""Loop nests over strided operands, as micro-kernels share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulator.native.codegen.text import FunctionText, Value


def loops(
    f: FunctionText,
    counts: Sequence[Value],
    strides: Sequence[Sequence[Value]],
    pointers: Sequence[Value],
    body: Callable[[Sequence[Value], Value], Value],
    carried: Value,
) -> Value:
    """`carried = body(pointers, carried)` for every index of `counts` (outermost first), the
    pointers moved by the strides of their operands; the last `carried`."""
    if not counts:
        return body(pointers, carried)

    def inside(index: Value, value: Value) -> list[Value]:
        moved = [pointer + index * steps[0] for pointer, steps in zip(pointers, strides)]
        return [loops(f, counts[1:], [steps[1:] for steps in strides], moved, body, value)]

    return f.loop(f.integer(0), counts[0], 1, inside, [carried])[0]


class NestWords:
    """The argument words of `simulator.native.plans.plan.nest_words`: `pointers`, `counts`
    (outermost first), `strides` of each operand. `used` words precede those of the micro-kernel's
    own."""

    def __init__(self, f: FunctionText, operands: int, rank: int) -> None:
        self.f = f
        self.pointers = [f.word(index, "ptr") for index in range(operands)]
        self.counts = [f.word(operands + index) for index in range(rank)]
        first = operands + rank
        self.strides = [
            [f.word(first + operand * rank + index) for index in range(rank)]
            for operand in range(operands)
        ]
        self.used = first + operands * rank

    def rows(self, body: Callable[[Sequence[Value]], None], inner: int = 1) -> None:
        """Run `body(pointers)` for every index of all dimensions but the `inner` innermost ones."""

        def each(pointers: Sequence[Value], number: Value) -> Value:
            body(pointers)
            return number

        outer = len(self.counts) - inner
        strides = [steps[:outer] for steps in self.strides]
        loops(self.f, self.counts[:outer], strides, self.pointers, each, self.f.integer(0))

    def rows_in_lockstep(
        self, body: Callable[[Sequence[Sequence[Value]]], None], size: int, inner: int = 1
    ) -> None:
        """As `rows`, for `size` rows at a time and those that are left: `body` gets the pointers of
        each."""
        f, outer = self.f, len(self.counts) - inner - 1
        count = self.counts[outer]
        whole = count - f.binary("srem", count, f.integer(size))

        def groups(pointers: Sequence[Value]) -> None:
            def group(index: Value, together: int) -> None:
                rows = []
                for number in range(together):
                    at = index + number
                    rows.append(
                        [
                            pointer + at * steps[outer]
                            for pointer, steps in zip(pointers, self.strides)
                        ]
                    )
                body(rows)

            f.loop(f.integer(0), whole, size, lambda index: group(index, size))
            f.loop(whole, count, 1, lambda index: group(index, 1))

        self.rows(groups, inner + 1)
