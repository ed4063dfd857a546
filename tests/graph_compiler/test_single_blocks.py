"""Scatters of one block, as `x.at[2:5].add(y)` states them, and of index vectors without numbers,
as `x.at[:].set(y)` does: against slices of NumPy's arrays."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graph_compiler import GraphOptions, compile, execute, parse_text

TARGET = "trn2"
STEPS = {"b": lambda a, b: b, "add(a, b)": np.add, "subtract(a, b)": np.subtract}


def scatter(
    dims: tuple[int, ...], block: tuple[int, ...], axes: tuple[int, ...], step: str, start: str = ""
) -> str:
    """A block at a start along `axes`: a constant one, or the parameter."""
    rank, count = len(dims), len(axes)
    whole, part = (",".join(map(str, sizes)) for sizes in (dims, block))
    root = f"ROOT s = f32[] {step}" if "(" in step else "ROOT b = f32[] parameter(1)"
    second = "b = f32[] parameter(1)\n " if "(" in step else ""
    return f"""HloModule scattered
combine {{ a = f32[] parameter(0)
 {second}{root} }}
ENTRY e {{
 x = f32[{whole}] parameter(0)
 u = f32[{part}] parameter(1)
 i = s32[{count}] {start or "parameter(2)"}
 ROOT r = f32[{whole}] scatter(x, i, u), update_window_dims={{{",".join(map(str, range(rank)))}}},
  inserted_window_dims={{}}, scatter_dims_to_operand_dims={{{",".join(map(str, axes))}}},
  index_vector_dim=0, to_apply=combine
}}"""


def combined(x: np.ndarray, u: np.ndarray, start: tuple[int, ...], step: str) -> np.ndarray:
    """What NumPy makes of it; nothing where the block is not inside."""
    found = x.copy()
    if all(0 <= at <= size - part for at, size, part in zip(start, x.shape, u.shape)):
        place = tuple(slice(at, at + part) for at, part in zip(start, u.shape))
        found[place] = STEPS[step](found[place], u)
    return found


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("dims", [(5,), (5, 7), (300, 400), (3, 2, 4)])
def test_index_vectors_without_numbers_are_the_first_place(
    dims: tuple[int, ...], step: str, cores: int
) -> None:
    text = scatter(dims, dims, (), step, "constant({})")
    x, u = normal(*dims), normal(*dims[:-1], dims[-1] + 1)[..., :-1].copy()
    (found,) = compile(parse_text(text), TARGET, GraphOptions(logical_cores=cores))(x, u)
    np.testing.assert_array_equal(found, STEPS[step](x, u))


def test_a_scalar_takes_an_update() -> None:
    text = scatter((), (), (), "add(a, b)", "constant({})")
    (found,) = compile(parse_text(text), TARGET)(np.float32(2), np.float32(3))
    assert found == 5


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("start", [(2, 3), (0, 0), (102, 100), (103, 0), (0, -1)])
def test_a_large_block_at_a_known_place(step: str, start: tuple[int, int]) -> None:
    text = scatter((600, 700), (498, 600), (0, 1), step, f"constant({{{start[0]}, {start[1]}}})")
    x, u = normal(600, 700), normal(498, 600)
    (found,) = compile(parse_text(text), TARGET)(x, u)
    np.testing.assert_array_equal(found, combined(x, u, start, step))


@pytest.mark.parametrize("step", STEPS)
def test_a_large_block_at_a_place_that_is_computed(step: str) -> None:
    """Of the array's own dimensions in another order, and left out where it is not inside."""
    text = scatter((600, 700), (498, 600), (1, 0), step)
    compiled = compile(parse_text(text), TARGET)
    x, u = normal(600, 700), normal(498, 600)
    for start in ((2, 3), (102, 100), (103, 0), (0, -1), (0, 101)):
        index = np.array([start[1], start[0]], np.int32)
        np.testing.assert_array_equal(compiled(x, u, index)[0], combined(x, u, start, step))


def test_one_row_of_another_type_at_an_index_of_bytes() -> None:
    text = """HloModule scattered
combine { a = bf16[] parameter(0)
 b = bf16[] parameter(1)
 ROOT s = bf16[] maximum(a, b) }
ENTRY e {
 x = bf16[7,300,5] parameter(0)
 i = u8[1,1] parameter(1)
 u = bf16[7,1,5] parameter(2)
 ROOT r = bf16[7,300,5] scatter(x, i, u), update_window_dims={0,2}, inserted_window_dims={1},
  scatter_dims_to_operand_dims={1}, index_vector_dim=1, to_apply=combine
}"""
    x, u = (normal(*dims).astype(ml_dtypes.bfloat16) for dims in ((7, 300, 5), (7, 1, 5)))
    compiled = compile(parse_text(text), TARGET)
    for place in (0, 3, 255):
        wanted = x.copy()
        wanted[:, place] = np.maximum(x[:, place], u[:, 0])
        (found,) = compiled(x, np.array([[place]], np.uint8), u)
        np.testing.assert_array_equal(found, wanted)


def test_several_updates_by_vectors_without_numbers() -> None:
    text = """HloModule scattered
combine { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] subtract(a, b) }
ENTRY e {
 x = f32[5,7] parameter(0)
 i = s32[3,0] constant({ {}, {}, {} })
 u = f32[3,2,4] parameter(1)
 ROOT r = f32[5,7] scatter(x, i, u), update_window_dims={1,2}, inserted_window_dims={},
  scatter_dims_to_operand_dims={}, index_vector_dim=1, to_apply=combine
}"""
    x, u = normal(5, 7), normal(3, 2, 4)
    module = parse_text(text)
    (wanted,) = execute(module, x, u)
    slow = x.copy()
    for one in u:
        slow[:2, :4] -= one
    np.testing.assert_array_equal(wanted, slow)
    np.testing.assert_array_equal(compile(module, TARGET)(x, u)[0], slow)


def test_a_gather_by_vectors_without_numbers() -> None:
    text = """HloModule gathered
ENTRY e {
 x = f32[5,7] parameter(0)
 i = s32[3,0] constant({ {}, {}, {} })
 ROOT r = f32[2,3,4] gather(x, i), offset_dims={0,2}, collapsed_slice_dims={}, start_index_map={},
  index_vector_dim=1, slice_sizes={2,4}
}"""
    x = normal(5, 7)
    (found,) = compile(parse_text(text), TARGET)(x)
    np.testing.assert_array_equal(found, np.broadcast_to(x[:2, None, :4], (2, 3, 4)))
