"""Gathers along a dimension at constant places, on the device. NumPy says what they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_compiler import GraphOptions, compile, parse_text


def gather(dims: tuple[int, ...], axis: int, places: list[int], last: bool = False) -> Any:
    """Elements of a dimension; with `last`, the places are the last dimension of the result."""
    count = len(places)
    result = [count if number == axis else size for number, size in enumerate(dims)]
    offsets = [number for number in range(len(dims)) if number != axis]
    if last:
        result = [*(size for number, size in enumerate(dims) if number != axis), count]
        offsets = list(range(len(dims) - 1))
    sizes = [1 if number == axis else size for number, size in enumerate(dims)]

    def text(numbers: Any) -> str:
        return ",".join(map(str, numbers))

    return parse_text(f"""HloModule m
ENTRY e {{
 x = f32[{text(dims)}] parameter(0)
 i = s32[{count},1] constant({{ {", ".join(f"{{{place}}}" for place in places)} }})
 ROOT r = f32[{text(result)}] gather(x, i), offset_dims={{{text(offsets)}}},
  collapsed_slice_dims={{{axis}}}, start_index_map={{{axis}}}, index_vector_dim=1,
  slice_sizes={{{text(sizes)}}}
}}""")


@settings(max_examples=25)
@given(data=st.data())
def test_constant_places_are_what_numpy_takes(data: Any) -> None:
    dims = data.draw(st.sampled_from([(40,), (6, 40), (3, 20, 7), (2, 4, 33, 5)]))
    axis = data.draw(st.integers(0, len(dims) - 1))
    size = dims[axis]
    places = data.draw(
        st.one_of(
            st.just(list(np.repeat(np.arange(size), 2))),
            st.just(list(range(size - 1, -1, -1))),
            st.just(list(range(0, size, 3))),
            st.just([0] * 5),
            st.lists(st.integers(-2, size + 1), min_size=1, max_size=30),
        )
    )
    last = data.draw(st.booleans())
    target, cores = data.draw(st.sampled_from([("trn2", 1), ("trn1", 1), ("trn2", 2)]))
    x = np.random.default_rng(1).standard_normal(dims, np.float32)
    module = gather(dims, axis, [int(place) for place in places], last)
    (found,) = compile(module, target, GraphOptions(logical_cores=cores))(x)
    wanted = np.take(x, np.clip(places, 0, size - 1), axis)
    np.testing.assert_array_equal(found, np.moveaxis(wanted, axis, -1) if last else wanted)


PLACES = {
    "apart": lambda i, j: (i // 2, j // 2),
    "turned": lambda i, j: (j // 2, i // 2),
    "reversed": lambda i, j: (11 - i // 2, j // 3),
    "one row": lambda i, j: (0 * i + 5, j // 2),
    "together": lambda i, j: ((i + j) // 4, j // 2),
    "scattered": lambda i, j: (i * 7 % 12, j * 5 % 15),
    "outside": lambda i, j: (i - 3, j),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_along_two_dimensions(name: str) -> None:
    """As images are resized: pixels of known rows and columns."""
    x = np.random.default_rng(1).standard_normal((3, 12, 15, 40), np.float32)
    rows, columns = (np.broadcast_to(one, (24, 30)) for one in PLACES[name](*np.ogrid[:24, :30]))
    pairs = np.stack([rows, columns], -1).tolist()
    module = parse_text(f"""HloModule m
ENTRY e {{
 x = f32[3,12,15,40] parameter(0)
 i = s32[24,30,2] constant({str(pairs).replace("[", "{").replace("]", "}")})
 ROOT r = f32[3,24,30,40] gather(x, i), offset_dims={{0,3}}, collapsed_slice_dims={{1,2}},
  start_index_map={{1,2}}, index_vector_dim=2, slice_sizes={{3,1,1,40}}
}}""")
    (found,) = compile(module, "trn2")(x)
    wanted = x[:, np.clip(rows, 0, 11), np.clip(columns, 0, 14)]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("axis", [1, 2])
def test_doubled_images_take_no_computed_transfers(axis: int) -> None:
    dims, places = (2, 32, 32, 128), [place // 2 for place in range(64)]
    x = np.random.default_rng(1).standard_normal(dims, np.float32)
    (found,), profile = compile(gather(dims, axis, places), "trn2").profile(x)
    np.testing.assert_array_equal(found, np.repeat(x, 2, axis))
    assert profile.dma.descriptors < found.size / 100
