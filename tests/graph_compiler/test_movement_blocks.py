"""Blocks that indices choose: long ones, and short ones along other dimensions than the first."""

from __future__ import annotations

import numpy as np
import pytest
from on_device import modelled_ns

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


@pytest.mark.parametrize(
    "dims, axes, count, most",
    [
        ((20000, 6), (1,), 9, 100),  # 2,538 us column by column
        ((300, 50, 2), (1,), 40, 40),  # 64 us
        ((60, 30, 40), (0, 2), 400, 60),
        ((40, 30, 60), (2, 1), 300, 60),
        ((8, 4000), (1,), 3, 60),  # so few that they are taken one by one
    ],
)
def test_columns_are_rows_of_the_transposed_array(
    dims: tuple[int, ...], axes: tuple[int, ...], count: int, most: float
) -> None:
    kept = [axis for axis in range(len(dims)) if axis not in axes]
    sizes = [1 if axis in axes else size for axis, size in enumerate(dims)]
    shape, own, offsets, taken, order = (
        ",".join(map(str, numbers))
        for numbers in (
            dims,
            [*(dims[axis] for axis in kept), count],
            range(len(kept)),
            sorted(axes),
            axes,
        )
    )
    module = parse_text(
        f"""HloModule columns
ENTRY e {{
 x = f32[{shape}] parameter(0)
 i = s32[{count},{len(axes)}] parameter(1)
 ROOT r = f32[{own}] gather(x, i), offset_dims={{{offsets}}}, collapsed_slice_dims={{{taken}}},
  start_index_map={{{order}}}, index_vector_dim=1, slice_sizes={{{",".join(map(str, sizes))}}}
}}"""
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal(dims).astype(np.float32)
    i = np.stack([rng.integers(0, dims[axis], count) for axis in axes], 1).astype(np.int32)
    compiled = compile(module, "trn2")
    (found,) = compiled(x, i)
    wanted = np.moveaxis(x, axes, range(len(axes)))[tuple(i.T)]
    np.testing.assert_array_equal(found, np.moveaxis(wanted, 0, -1))
    assert modelled_ns(compiled) < most * 1000


@pytest.mark.parametrize("dims", [(64, 512), (7, 300), (5, 3, 1000)])
def test_few_long_blocks_are_moved_in_parts(dims: tuple[int, ...]) -> None:
    """As searches with beams take those that go on, each of 8 batches 4 of its own."""
    sizes = ",".join(map(str, dims))
    axes = ",".join(str(axis + 2) for axis in range(len(dims)))
    module = parse_text(
        f"""HloModule beams
ENTRY e {{
 x = f32[8,4,{sizes}] parameter(0)
 i = s32[8,4,1] parameter(1)
 ROOT r = f32[8,4,{sizes}] gather(x, i), offset_dims={{{axes}}}, collapsed_slice_dims={{1}},
  start_index_map={{1}}, index_vector_dim=2, slice_sizes={{1,1,{sizes}}},
  operand_batching_dims={{0}}, start_indices_batching_dims={{0}}
}}"""
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 4, *dims)).astype(np.float32)
    i = rng.integers(0, 4, (8, 4)).astype(np.int32)
    compiled = compile(module, "trn2")
    (found,) = compiled(x, i[..., None])
    np.testing.assert_array_equal(found, x[np.arange(8)[:, None], i])
    bytes_ns = 2 * x.nbytes / TARGETS["trn2"].dma_bytes_per_ns
    assert modelled_ns(compiled) < 1.6 * bytes_ns + 30e3  # one engine in four moved them: 370 us
