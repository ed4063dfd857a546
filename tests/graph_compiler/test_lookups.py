"""Indices outside of what they index, given by callers of a graph: the run goes on, and says so."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_compiler import compile, load, parse_text
from isa.errors.warned import NeuronWarning
from isa.files import container
from simulator.runtime import nrtpy

EMBEDDING = """HloModule m
embed {
  table = f32[10,4] parameter(0)
  places = s32[2,3] parameter(1)
  flat = s32[6,1] reshape(places)
  ROOT g = f32[6,4] gather(table, flat), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
}
ENTRY e {
  tokens = s32[2,3] parameter(0)
  table = f32[10,4] parameter(1)
  ROOT r = f32[6,4] call(table, tokens), to_apply=embed
}
"""


def test_an_index_outside_takes_the_nearest_row_with_a_warning() -> None:
    compiled = compile(parse_text(EMBEDDING), "trn2")
    table = np.arange(40, dtype=np.float32).reshape(10, 4)
    tokens = np.array([[0, 9, 3], [10, -1, 1 << 20]], np.int32)
    with pytest.warns(NeuronWarning, match="3 of 6 indices are outside of 0 to 9.* 10") as caught:
        (found,) = compiled(tokens, table)
    assert caught[0].message.code == "index-outside"  # type: ignore[union-attr]
    np.testing.assert_array_equal(found, table[[0, 9, 3, 9, 0, 9]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(np.abs(tokens) % 10, table)


UPDATES = """HloModule m
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }
ENTRY e {
  table = f32[10,4] parameter(0)
  both = (f32[3,0], f32[3,4]) parameter(1)
  rows = s64[3,1] parameter(2)
  values = f32[3,4] get-tuple-element(both), index=1
  ROOT r = f32[10,4] scatter(table, rows, values), update_window_dims={1},
    inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
}
"""


def test_an_update_outside_is_left_out_with_a_warning() -> None:
    compiled = compile(parse_text(UPDATES), "trn2")
    table, values = np.ones((10, 4), np.float32), np.full((3, 4), 2, np.float32)
    both, rows = (np.zeros((3, 0), np.float32), values), np.array([[2], [-1], [2]])
    with pytest.warns(NeuronWarning, match="1 of 3 indices are outside of 0 to 9.* -1"):
        (found,) = compiled(table, both, rows)
    expected = table.copy()
    expected[2] += 4
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("wide", [False, True])
def test_the_runtime_runs_to_the_end_and_reports_an_index_outside(
    tmp_path: Path, wide: bool
) -> None:
    """The status is that of the SDK's nrt_status.h, and outputs are there."""
    text = EMBEDDING.replace("s32", "s64") if wide else EMBEDDING
    compile(parse_text(text), "trn2").save(tmp_path / "m.neff")
    model = nrtpy.NrtpyModel.load_from_neff(tmp_path / "m.neff")
    table = np.arange(40, dtype=np.float32).reshape(10, 4)

    def run(tokens: list[list[int]]) -> Any:
        rows = np.array(tokens, np.int64 if wide else np.int32)
        rows = rows.reshape(2, 3, 1).view(np.uint32) if wide else rows
        arrays = dict(zip(model.input_tensors_info, (rows, table)))
        given = {name: nrtpy.NrtpyTensor.from_numpy(array) for name, array in arrays.items()}
        found = np.zeros((6, 4), np.float32)
        (output,) = model.output_tensors_info
        outputs = {output: nrtpy.NrtpyTensor.from_numpy(found)}
        try:
            return model(given, outputs), outputs[output].numpy()
        except nrtpy.NrtError as error:
            return error, outputs[output].numpy()

    try:
        error, found = run([[0, 9, 3], [10, -1, 1 << 20]])
        assert error.status_code.value == 1006
        assert "3 of 6 indices are outside of 0 to 9" in error.__notes__[0]
        np.testing.assert_array_equal(found, table[[0, 9, 3, 9, 0, 9]])
        error, found = run([[0, 9, 3], [1, 1, 2]])
        assert error is None
        np.testing.assert_array_equal(found, table[[0, 9, 3, 1, 1, 2]])
    finally:
        nrtpy.reset()


@pytest.mark.parametrize(
    "ranges", [[[9, 9, "<i4", ""]], [[0, -1, "<i4", ""]], [[0, 1, "<f4", ""]], [[0]], 3, [5]]
)
def test_a_container_with_other_ranges_is_refused(tmp_path: Path, ranges: Any) -> None:
    program = compile(parse_text(EMBEDDING), "trn2").kernel.program
    container.save(program, tmp_path / "m.neff", {"index_ranges": ranges})
    try:
        with pytest.raises(nrtpy.NrtError) as caught:
            nrtpy.NrtpyModel.load_from_neff(tmp_path / "m.neff")
        assert "container-corrupt" in caught.value.__notes__[0]
    finally:
        nrtpy.reset()


def test_what_jax_takes_has_none_outside() -> None:
    """`take` selects NaN for them before the lookup."""
    jax: Any = pytest.importorskip(
        "jax", reason="jax is not installed (pip install 'opennki[jax]')"
    )
    table, tokens = np.ones((10, 4), np.float32), np.array([3, 99], np.int32)
    taken = jax.jit(lambda table, tokens: jax.numpy.take(table, tokens, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeuronWarning)
        (found,) = compile(load(taken.lower(table, tokens)), "trn2")(table, tokens)
    np.testing.assert_array_equal(found, np.asarray(taken(table, tokens)))
