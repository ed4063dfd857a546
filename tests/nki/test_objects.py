"""`nl.NKIObject`, the base of configurations of kernels."""

from __future__ import annotations

import dataclasses

import pytest

import nki.language as nl


class Tiling(nl.NKIObject):
    rows: int
    columns: int = 512


class Named(Tiling):
    name: str = "tile"


def test_annotated_attributes_are_taken_by_place_and_by_name() -> None:
    one = Named(128, 64, name="x")
    assert (one.rows, one.columns, one.name) == (128, 64, "x")
    assert (Named(1).columns, Named(1).name, Tiling(columns=2).rows) == (512, "tile", None)


def test_other_keywords_become_attributes() -> None:
    assert Tiling(4, extra=5).extra == 5


def test_values_that_nothing_takes_are_refused_as_python_does() -> None:
    with pytest.raises(TypeError, match="3 values"):
        Tiling(1, 2, 3)
    with pytest.raises(TypeError, match="two values for rows"):
        Tiling(1, rows=2)


def test_initialisers_of_the_author_and_what_follows_them() -> None:
    class Own(nl.NKIObject):
        def __init__(self, size: int) -> None:
            self.size = 2 * size

    class Finished(nl.NKIObject):
        size: int

        def __post_init__(self) -> None:
            self.half = self.size // 2

    assert Own(3).size == 6 and Finished(8).half == 4


def test_a_dataclass_may_leave_fields_out() -> None:
    @dataclasses.dataclass
    class Config(nl.NKIObject):
        rows: int
        columns: int
        scale: float = 1.0
        other = 7  # no field, as it has no annotation

    one = Config(rows=2, other=3)
    assert (one.rows, one.scale, one.other) == (2, 1.0, 3) and not hasattr(one, "columns")
    assert Config(1, 2) == Config(1, 2)
    assert dataclasses.replace(Config(1, 2), rows=5).rows == 5


def test_tensors_count_as_such_objects() -> None:
    import numpy as np

    import nki

    seen = []

    @nki.jit
    def kernel(a):
        seen.append(isinstance(a, nl.NKIObject))

    kernel(np.zeros((1, 1), np.float32))
    assert seen == [True]
