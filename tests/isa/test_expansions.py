"""Into which machine instructions operations expand."""

from __future__ import annotations

import isa.operations  # noqa: F401  (defines the rows)
from isa.expansions import Computed, Placeholder, expansions, instructions_of
from isa.spec import MACHINE_INSTRUCTIONS, OPERATIONS


def test_every_operation_expands_into_rows_of_the_table() -> None:
    for row in OPERATIONS.values():
        names = instructions_of(row)
        assert names and set(names) <= set(MACHINE_INSTRUCTIONS), row.name


def test_a_product_is_a_load_of_the_array_and_a_stream_through_it() -> None:
    # SDK trainium_inferentia2_arch.rst, Tensor Engine: LoadStationary, then MultiplyMoving
    assert instructions_of(OPERATIONS["nc_matmul"])[:2] == ["LoadStationary", "MultiplyMoving"]


def test_placeholders_show_where_fields_go() -> None:
    ((_, (gather,)),) = expansions(OPERATIONS["nc_n_gather"])
    assert all(isinstance(value, Placeholder) for value in gather.values)
    assert [value.field for value in gather.values] == ["dst", "data", "indices"]


def test_results_of_registers_are_read_where_they_are_wanted() -> None:
    found = {
        len(instructions): choice
        for choice, instructions in expansions(OPERATIONS["tensor_scalar_reduce"])
    }
    assert found[1]["reduce_res"] is None and found[2]["reduce_res"] is not None


def test_what_depends_on_the_length_of_a_field_is_computed() -> None:
    ((_, (reduction,)), *_) = expansions(OPERATIONS["tensor_reduce"])
    assert isinstance(reduction.value("axes"), Computed)
