"""Products of a batch in halves of the tensor engine's array."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from on_device import modelled_ns

from graph_compiler import compile, execute, parse_text
from graph_compiler.lower.products import cut
from graph_compiler.lower.products.array_halves import ArrayHalves


def product(type: str, batch: int, rows: int, depth: int, columns: int) -> str:
    """The text of a product of a batch."""
    return f"""HloModule product
ENTRY e {{
 x = {type}[{batch},{rows},{depth}] parameter(0)
 y = {type}[{batch},{depth},{columns}] parameter(1)
 ROOT r = {type}[{batch},{rows},{columns}] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
  lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}"""


def test_elements_are_shared_out_between_the_halves() -> None:
    for halves in ArrayHalves(), ArrayHalves(depth=True), ArrayHalves(rows=True):
        for number in range(1, 9):
            shares = halves.shares(number)
            assert sum(share.number for share in shares) == number
            assert [s for own in halves.by_depth(number) for s in own] == shares
            sizes = [share.number for share in shares]
            assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1


@pytest.mark.parametrize("halves", [ArrayHalves(depth=True), ArrayHalves(rows=True)])
@pytest.mark.parametrize("type", ["f32", "bf16"])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("sizes", [(19, 161, 50, 70), (7, 30, 61, 600), (40, 140, 64, 33)])
def test_products_in_halves_of_the_array(
    halves: ArrayHalves,
    type: str,
    target: str,
    sizes: tuple[int, int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both ways, of odd batches, and of rows and columns that fill no tile, against NumPy: of small
    integers, whose sums are exact in any order. A row that is infinite or no number stays alone
    where bits are transposed as they are."""
    if halves.rows and target == "trn1":
        pytest.skip("rows are transposed bit for bit")
    asked: list[ArrayHalves] = []

    def chosen(*_: Any) -> ArrayHalves:
        asked.append(halves)
        return halves

    monkeypatch.setattr(cut, "fastest_halves", chosen)
    batch, rows, depth, columns = sizes
    rng = np.random.default_rng(rows)
    dtype = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}[type]
    x = rng.integers(-2, 3, (batch, rows, depth)).astype(dtype)
    y = rng.integers(-1, 2, (batch, depth, columns)).astype(dtype)
    if target == "trn2":
        x[1, rows - 1, 3], x[batch - 1, 0, 0] = np.inf, np.nan
    (found,) = compile(parse_text(product(type, *sizes)), target)(x, y)
    with np.errstate(invalid="ignore"):
        wanted = np.matmul(x.astype(np.float32), y.astype(np.float32))
    np.testing.assert_array_equal(np.asarray(found, np.float32), wanted)
    assert asked


def test_rows_that_fill_columns_of_the_array_badly_are_on_either_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """161 rows are three tiles of at most 64, two of which run in parallel, instead of two that
    take all of the array."""
    text = product("f32", 12, 161, 518, 352)
    halved = modelled_ns(compile(parse_text(text), "trn2"))
    monkeypatch.setattr(cut, "fastest_halves", lambda *_: ArrayHalves())
    assert halved < 0.93 * modelled_ns(compile(parse_text(text), "trn2"))


def test_the_host_agrees() -> None:
    """The chosen plan, on ordinary numbers, against the graph's execution on the host."""
    rng = np.random.default_rng(5)
    module = parse_text(product("f32", 9, 170, 140, 130))
    x, y = (rng.standard_normal(p.shape.dimensions).astype(np.float32) for p in module.parameters)
    (found,), (wanted,) = compile(module, "trn2")(x, y), execute(module, x, y)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
