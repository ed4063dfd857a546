"""Element-wise nests whose operands are the same along a dimension: what they load, and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import compile, parse_text
from graph_compiler.timing import static_timeline


@pytest.mark.parametrize(
    "dims, operands, rate",
    [
        ((4096, 4096), [(0, 1), (1,)], 1.15),  # a bias: 1.54 with a row loaded for each tile
        ((3000, 3000), [(0,), (1,)], 1.25),  # 2.16
        ((3000, 3000), [(0, 1), (1,), (1,)], 1.25),  # 2.15
        ((2000, 5000), [(0,), (1,)], 1.45),  # 2.2
        ((5, 700, 900), [(0, 1, 2), (2,), (1,)], None),
        ((70, 3, 5000), [(0, 2), (1, 2)], None),
        ((40, 9000), [(0, 1), (1,), (0,)], None),
    ],
)
def test_rows_that_are_the_same_are_loaded_once(
    dims: tuple[int, ...], operands: list[tuple[int, ...]], rate: float | None
) -> None:
    """Against NumPy; `rate`: how much longer it takes at most than to move arguments and result."""

    def shape(axes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(dims[axis] for axis in axes)

    whole = ",".join(map(str, dims))
    lines, names = [], []
    for number, axes in enumerate(operands):
        own = ",".join(map(str, shape(axes)))
        lines.append(f" p{number} = f32[{own}] parameter({number})")
        kept = ",".join(map(str, axes))
        lines.append(f" b{number} = f32[{whole}] broadcast(p{number}), dimensions={{{kept}}}")
        names.append(f"b{number}")
    for number, (one, other) in enumerate(zip(["b0", "s1", "s2"], names[1:]), 1):
        last = "ROOT " if number == len(names) - 1 else ""
        op = "subtract" if number == 1 else "multiply"
        lines.append(f" {last}s{number} = f32[{whole}] {op}({one}, {other})")
    module = parse_text("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape(axes)).astype(np.float32) for axes in operands]
    spread: list[Any] = [
        value.reshape([size if axis in axes else 1 for axis, size in enumerate(dims)])
        for value, axes in zip(given, operands)
    ]
    wanted = spread[0] - spread[1]
    for value in spread[2:]:
        wanted = wanted * value
    compiled = compile(module, "trn2")
    (found,) = compiled(*given)
    np.testing.assert_array_equal(found, wanted)
    if rate is not None:
        timeline = static_timeline(compiled.kernel.program)
        least = (sum(value.nbytes for value in given) + found.nbytes) / 368
        assert timeline is not None and timeline.total_ns < rate * least
