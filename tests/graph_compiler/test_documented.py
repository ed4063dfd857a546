"""A program for each documented code that is raised, through `neuronx-cc`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graph_compiler import GraphOptions, parse_text
from graph_compiler.admission import findings
from graph_compiler.command import main
from graph_compiler.documented import DOCUMENTED
from graph_compiler.documented_programs import PROGRAMS, quantised, scaled
from isa.target import resolve

ELSEWHERE = {"EHCA005", "EOOM001", "EVRF006"}
"""Codes whose programs stand in tests of their own."""


@pytest.mark.parametrize("code", PROGRAMS)
def test_the_program_of_a_code(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text, options, target = PROGRAMS[code]
    Path("m").write_text(text)
    words = ["compile", "m", "--framework", "XLA", "--target", target, *options]
    assert main(words) == 7
    shown = capsys.readouterr().err
    assert re.findall(r"NCC_([A-Z0-9]+)", shown)[0] == code
    assert f"NCC_{code}" in Path("log-neuron-cc.txt").read_text()
    assert not Path("file.neff").exists()


def test_every_code_has_a_program() -> None:
    raised = {code for code, row in DOCUMENTED.items() if not row.never}
    assert len(DOCUMENTED) == 60
    assert {*PROGRAMS, *ELSEWHERE} == raised


# The pages of compiler/error-codes, SDK 2.32.
VERIFIER = (
    *(1, 4, 5, 6, 7, 9, 10, 11, 13, 15, 16, 17, 18, 19, 22, 31),
    *range(35, 60),
    *(60, 61, 62, 63, 64, 65),
)
OTHERS = [
    "EARG001",
    "EBIR023",
    "EBVF030",
    "EHCA005",
    "EMOD025",
    "EOOM001",
    "EOOM002",
    "ESFH002",
    "ESPP004",
    "ESPP047",
    "EUOC002",
    "EXSP001",
    "EXTP004",
]


def test_the_codes_are_those_of_the_documentation() -> None:
    assert {*OTHERS, *(f"EVRF{number:03d}" for number in VERIFIER)} == set(DOCUMENTED)


def test_calls_of_scaled_floats_that_are_right_are_not_refused() -> None:
    strict = GraphOptions(documented_limits=True)
    for program in (quantised(), quantised(dim=-2, result="(u32[2,64], u8[1,64])"), scaled()):
        module = parse_text(program.text)
        assert list(findings(module, resolve("trn3"), strict)) == []
