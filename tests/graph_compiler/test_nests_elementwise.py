"""Element-wise nests whose operands are the same along a dimension: what they load, and values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from on_device import modelled_ns

from graph_compiler import compile, parse_text


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
        least = (sum(value.nbytes for value in given) + found.nbytes) / 368
        assert modelled_ns(compiled) < rate * least


EXPONENTIALS = """HloModule m
plus {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }}
ENTRY e {{
 x = f32[{dims}] parameter(0)
 y = f32[{own}] parameter(1)
 zero = f32[] constant(0)
 ys = f32[{dims}] broadcast(y), dimensions={{{axes}}}
 d = f32[{dims}] {operation}(x, ys)
 e = f32[{dims}] exponential(d)
 ROOT r = f32[{kept}] reduce(e, zero), dimensions={{{gone}}}, to_apply=plus
}}"""


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("operation", ["subtract", "multiply"])
@pytest.mark.parametrize(
    "dims, axes, gone",
    [
        ((300, 700), (0,), (1,)),
        ((300, 700), (1,), (1,)),
        ((300, 700), (1,), (0,)),
        ((70, 9, 30), (0, 2), (1, 2)),
        ((70, 9, 30), (1,), (2,)),
        ((5, 20000), (0,), (1,)),
    ],
)
def test_sums_of_a_function(
    dims: tuple[int, ...],
    axes: tuple[int, ...],
    gone: tuple[int, ...],
    operation: str,
    target: str,
) -> None:
    def text(sizes: Any) -> str:
        return ",".join(map(str, sizes))

    own = [dims[axis] for axis in axes]
    kept = [size for axis, size in enumerate(dims) if axis not in gone]
    module = parse_text(
        EXPONENTIALS.format(
            dims=text(dims),
            own=text(own),
            kept=text(kept),
            axes=text(axes),
            gone=text(gone),
            operation=operation,
        )
    )
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(sizes, np.float32) for sizes in (dims, own))
    (found,) = compile(module, target)(x, y)
    spread = np.expand_dims(y, [axis for axis in range(len(dims)) if axis not in axes])
    numbers = getattr(np, operation)(x, spread, dtype=np.float64)
    wanted = np.exp(numbers).sum(gone)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_sums_of_a_function_take_no_pass_of_their_own() -> None:
    fold = EXPONENTIALS.format(
        dims="512,4096", own="512", kept="512", axes="0", gone="1", operation="subtract"
    )
    work = fold.replace(" ROOT r = f32[512] reduce(e", " r = f32[512] reduce(e").replace(
        " e = f32[512,4096]", " ROOT e = f32[512,4096]"
    )
    x, y = np.ones((512, 4096), np.float32), np.ones(512, np.float32)
    summed, plain = (compile(parse_text(one), "trn2").profile(x, y)[1] for one in (fold, work))
    assert summed.total_ns < plain.total_ns


BIAS = """HloModule bias
ENTRY e {{
 x = f32[{dims}] parameter(0)
 y = f32[{own}] parameter(1)
 z = f32[{dims}] broadcast(y), dimensions={{{axes}}}
 ROOT r = f32[{dims}] add(x, z)
}}"""


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize(
    "dims, axes",
    [
        ((8, 64, 56, 28), (1,)),
        ((7, 24, 30, 30), (1,)),
        ((5, 200, 500), (1,)),
        ((40, 3, 11, 700), (0,)),
        ((9, 40, 6, 300), (0, 2)),
        ((3, 12, 5, 7, 64), (1, 3)),
    ],
)
def test_dimensions_that_fill_partitions_together(
    dims: tuple[int, ...], axes: tuple[int, ...], target: str
) -> None:
    own = [dims[axis] for axis in axes]
    text = [",".join(map(str, sizes)) for sizes in (dims, own, axes)]
    module = parse_text(BIAS.format(**dict(zip(("dims", "own", "axes"), text))))
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(sizes, np.float32) for sizes in (dims, own))
    (found,) = compile(module, target)(x, y)
    spread = np.expand_dims(y, [axis for axis in range(len(dims)) if axis not in axes])
    np.testing.assert_array_equal(found, x + spread)


@pytest.mark.parametrize("dims", ["8,64,3136", "16,48,2000", "4,192,1800"])
def test_a_bias_of_images_is_as_fast_as_memory(dims: str) -> None:
    module = parse_text(BIAS.format(dims=dims, own=dims.split(",")[1], axes="1"))
    least = 2 * 4 * math.prod(int(size) for size in dims.split(",")) / 368
    assert modelled_ns(compile(module, "trn2")) < 1.4 * least
