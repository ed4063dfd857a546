"""What rows derive from the fields of their body."""

from __future__ import annotations

from typing import Any

import pytest

from isa.enums import Engine, Memory
from isa.fields import HBM, ON_CHIP, SBUF, Attribute, Kind, Read, Update, Write
from isa.operations import OPERATIONS
from isa.spec import MACHINE_INSTRUCTIONS, Instruction, MachineInstruction, Operation, defaults
from isa.target import TARGETS


class Example(Operation):
    """Of no name, and so in no table."""

    dst = Write(SBUF | HBM)
    total = Update(ON_CHIP, one_bank=True)
    first = Read()
    second = Read(optional=True, default=None)
    count = Attribute(kind=Kind.value, default=3)
    into = Attribute(kind=Kind.register)
    engines = (Engine.vector, Engine.gpsimd)
    engine = Attribute(kind=Kind.engine, default=Engine.unknown)
    lists = {"data": ("first", "second")}


def test_fields_are_those_of_the_body_in_order() -> None:
    assert Example.field_names == ("dst", "total", "first", "second", "count", "into", "engine")
    assert Example.writes == (0, 1) and Example.reads == (1, 2, 3)
    assert Example.accesses == ((0, True), (1, True), (2, False), (3, False))
    assert Example.hbm_writes == (0,) and Memory.private_hbm in HBM
    assert Example.banked == (1,)
    assert Example.register_writes == (5,)
    assert Example.register_fields == (0, 1, 2, 3, 4, 5), "all but the engine"
    assert defaults(Example) == {"second": None, "count": 3, "engine": Engine.unknown}


def test_a_list_of_the_public_function_goes_to_several_fields() -> None:
    parameters = Example.parameters()
    assert list(parameters) == ["dst", "total", "data", "count", "into", "engine"]
    assert parameters["data"] == ("first", "second") and parameters["count"] == ("count",)


def test_an_engine_that_is_left_open_is_the_first_of_the_row() -> None:
    target = TARGETS["trn2"]
    values: tuple[Any, ...] = (1, 2, 3, None, 3, 4, Engine.unknown)
    assert Example.resolve(values, target)[-1] is Engine.vector
    chosen = (*values[:-1], Engine.gpsimd)
    assert Example.resolve(chosen, target) == chosen


def test_a_row_of_one_machine_instruction_runs_on_its_engine() -> None:
    target = TARGETS["trn2"]
    memset, reciprocal = OPERATIONS["memset"], OPERATIONS["reciprocal"]
    (found,) = memset.expand(("tile", 1.0, Engine.gpsimd), target)
    assert (found.row, found.engine, found.values) == (memset.machine, Engine.gpsimd, ("tile", 1.0))
    (found,) = reciprocal.expand(("dst", "data"), target)
    assert (found.engine, found.values) == (Engine.vector, ("dst", "data"))
    (found,) = OPERATIONS["register_move"].expand(("register", 1), target)
    assert found.engine is Engine.unknown, "every sequencer may"


def test_the_page_of_an_operation_follows_from_its_name() -> None:
    assert OPERATIONS["max8"].document == "nki/api/nki.isa.rst#nki.isa.max8"
    assert OPERATIONS["register_alu"].document == "", "of no public operation there is a page"
    assert "device_print" in OPERATIONS["device_print"].document


def test_no_two_machine_instructions_have_one_opcode() -> None:
    taken = MACHINE_INSTRUCTIONS["Nop"].opcode
    with pytest.raises(ValueError, match=f"opcode {taken:#x} is taken"):
        type("Again", (MachineInstruction,), {"opcode": taken})
    assert "Again" not in MACHINE_INSTRUCTIONS


def test_an_instruction_names_its_values() -> None:
    row = MACHINE_INSTRUCTIONS["Memset"]
    instruction = Instruction(row, Engine.vector, ("tile", 2.5))
    assert instruction.fields == {"dst": "tile", "value": 2.5}
    assert repr(instruction) == "<vector Memset dst='tile' value=2.5>"
