"""Pages of operations."""

from __future__ import annotations

from isa.enums import Engine
from isa.machine import MACHINE_INSTRUCTIONS
from isa.operations import OPERATIONS
from nki.row_pages.operations import expansions, instructions_of


def test_an_operation_page_states_fields_rules_and_expansion(generated: dict[str, str]) -> None:
    page = generated["reference/operations/nc_matmul.md"]
    assert "nki.isa.nc_matmul(\n    dst,\n    stationary,\n    moving," in page
    assert "accumulate=None," in page
    assert "| `dst` | update tensor | psum | required |" in page
    assert "stationary [K, M] and moving [K, N] give dst [M, N]." in page
    assert "[LoadStationary](../machine/LoadStationary.md): `src=stationary`" in page
    assert "`moving=moving`, `accumulate=accumulate`" in page
    assert "## Example\n\n```pycon\n>>> import numpy as np, nki" in page
    assert "*Source:* [SDK nki/api/nki.isa.rst#nki.isa.nc_matmul](https://" in page


def test_rules_are_sentences() -> None:
    for row in OPERATIONS.values():
        for rule in row.rules:
            assert rule.text.endswith("."), rule.name
            assert rule.document or row.public, rule.name


def test_expansions_show_every_variant() -> None:
    by_engine = {
        choice["engine"]: [i.row.name for i in instructions]
        for choice, instructions in expansions(OPERATIONS["nc_transpose"])
    }
    assert by_engine == {
        Engine.tensor: ["LoadStationary", "TransposeStationary"],
        Engine.vector: ["Transpose32"],
    }
    variants = expansions(OPERATIONS["activation"])
    assert sorted(len(instructions) for _, instructions in variants) == [1, 2]
    assert instructions_of(OPERATIONS["activation"]) == ["Activate", "ActReadAccumulator"]


def test_every_computing_instruction_is_used_by_an_operation() -> None:
    used = {n for row in OPERATIONS.values() for n in instructions_of(row)}
    computing = {n for n, row in MACHINE_INSTRUCTIONS.items() if not row.control}
    assert computing <= used
