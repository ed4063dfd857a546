"""Blocks that indices choose, of more elements than a partition takes at a time."""

from __future__ import annotations

import numpy as np
import pytest

from graph_compiler import compile, parse_text
from graph_compiler.lower.assemble import assemble
from isa.target import TARGETS
from nki.ir.nodes import operations


@pytest.mark.parametrize("dims", [(20000,), (100, 200), (3, 9000)])
def test_long_rows_are_moved_in_pieces(dims: tuple[int, ...]) -> None:
    """A row of 20,000 elements took 20,000 transfers."""
    sizes = ",".join(map(str, dims))
    axes = ",".join(str(axis + 1) for axis in range(len(dims)))
    module = parse_text(
        f"""HloModule rows
ENTRY e {{
 x = f32[4,{sizes}] parameter(0)
 i = s32[5,1] parameter(1)
 ROOT r = f32[5,{sizes}] gather(x, i), offset_dims={{{axes}}}, collapsed_slice_dims={{0}},
  start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{sizes}}}
}}"""
    )
    x = np.random.default_rng(0).standard_normal((4, *dims)).astype(np.float32)
    i = np.array([3, 0, 0, 1, 3], np.int32)
    (found,) = compile(module, "trn2")(x, i[:, None])
    np.testing.assert_array_equal(found, x[i])
    kernel = assemble(module, TARGETS["trn2"])
    assert sum(len([*operations(body)]) for body in kernel.bodies) < 40
