"""The command `nki isa`: operations and machine instructions looked up."""

from __future__ import annotations

import inspect
import re

import pytest
from command_lines import run

from isa.machine import MACHINE_INSTRUCTIONS
from isa.operations import OPERATIONS


def test_operations_can_be_looked_up(capsys) -> None:
    code, out, _ = run(capsys, "isa")
    assert code == 0 and "nc_matmul" in out and "MultiplyMoving" in out
    assert "nki.isa.nc_matmul(" in run(capsys, "isa", "nc_matmul")[1]
    assert "0x11" in run(capsys, "isa", "MultiplyMoving")[1]
    code, _, err = run(capsys, "isa", "nc_matmull")
    assert code == 2 and "nc_matmul" in err


@pytest.mark.parametrize("name", [*MACHINE_INSTRUCTIONS, *OPERATIONS])
def test_every_row_has_a_card(capsys, name):
    row = {**MACHINE_INSTRUCTIONS, **OPERATIONS}[name]
    code, out, _ = run(capsys, "isa", name)
    words = " ".join(inspect.getdoc(row).split()[:4])
    assert code == 0 and words.replace("`", "") in out.replace("`", "").replace("\n", " ")
    assert [field for field in row.fields if not re.search(rf"\b{field}\b", out)] == []


def test_names_of_cards_as_kernels_spell_them(capsys):
    _, expected, _ = run(capsys, "isa", "nc_matmul")
    for name in ("nisa.nc_matmul", "nki.isa.nc_matmul", "NC_Matmul"):
        assert run(capsys, "isa", name)[1] == expected
    assert run(capsys, "isa", "iota")[1] != run(capsys, "isa", "Iota")[1]


@pytest.mark.parametrize("name", ["tensor_scalar", "MultiplyMoving"])
def test_cards_have_no_links_to_pages_that_a_terminal_does_not_show(capsys, name):
    assert ".md" not in run(capsys, "isa", name)[1]
    assert ".md" in run(capsys, "isa", name, "--json")[1]
