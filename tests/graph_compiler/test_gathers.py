"""Gathers of element-wise work, which is done on what is gathered, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import compile, parse_text

CLASSES = """larger {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b) }}
ENTRY e {{
 x = f32[{rows},{columns}] parameter(0)
 i = s32[{rows},1] parameter(1)
 least = f32[] constant(-inf)
 m = f32[{rows}] reduce(x, least), dimensions={{1}}, to_apply=larger
 ms = f32[{rows},{columns}] broadcast(m), dimensions={{0}}
 d = f32[{rows},{columns}] subtract(x, ms)
{gather}
}}"""

PAIRED = """ ROOT r = f32[{rows},1] gather(d, i), offset_dims={{}}, collapsed_slice_dims={{1}},
  start_index_map={{1}}, operand_batching_dims={{0}}, start_indices_batching_dims={{0}},
  index_vector_dim=2, slice_sizes={{1,1}}"""

COUNTED = """ n = s32[{rows},1] iota(), iota_dimension=0
 both = s32[{rows},2] concatenate(n, i), dimensions={{1}}
 ROOT r = f32[{rows}] gather(d, both), offset_dims={{}}, collapsed_slice_dims={{0,1}},
  start_index_map={{0,1}}, index_vector_dim=1, slice_sizes={{1,1}}"""

ROWS = """ some = s32[3] parameter(2)
 ROOT r = f32[3,{columns}] gather(d, some), offset_dims={{1}}, collapsed_slice_dims={{0}},
  start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{columns}}}"""


def differences(rows: int, columns: int, gather: str) -> Any:
    sizes = {"rows": rows, "columns": columns}
    text = CLASSES.format(gather=gather.format(**sizes), **sizes)
    return compile(parse_text(f"HloModule m\n{text}"), "trn2")


@pytest.mark.parametrize("gather", [PAIRED, COUNTED])
@pytest.mark.parametrize("rows, columns", [(5, 7), (300, 2000)])
def test_one_of_each_row(rows: int, columns: int, gather: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, columns), np.float32)
    i = rng.integers(-2, columns + 2, (rows, 1)).astype(np.int32)  # others take the nearest place
    (found,), profile = differences(rows, columns, gather).profile(x, i)
    wanted = np.take_along_axis(x, np.clip(i, 0, columns - 1), 1) - x.max(1, keepdims=True)
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)
    if rows == 300 and gather is PAIRED:
        # Loading takes 7 us, and storing the differences would take as long again.
        assert profile.dma.hbm_write_bytes < x.nbytes // 4


def test_rows() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((400, 900), np.float32)
    i, some = np.zeros((400, 1), np.int32), np.array([399, -5, 17], np.int32)
    found = differences(400, 900, ROWS)(x, i, some)[0]
    np.testing.assert_array_equal(found, (x - x.max(1, keepdims=True))[[399, 0, 17]])
