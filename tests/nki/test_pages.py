"""The generated pages under docs/: up to date, complete, and without dead links."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

import click
import pytest

from isa.alu import ACTIVATIONS, ALU
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.errors import CATALOGUE
from isa.machine import MACHINE_INSTRUCTIONS
from isa.operations import OPERATIONS
from isa.target import DOCUMENTS, TARGETS
from nki.cli.application import all_commands
from nki.cli.exit_codes import EXIT_CODES
from nki.pages import difference, update

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_committed_pages_are_the_generated_ones(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update"):
        update(DOCS)
    assert difference(DOCS) == [], "rewrite them: python -m nki.pages --update"


def test_every_variable_that_is_read_has_a_row(generated: dict[str, str]) -> None:
    source = (DOCS.parent / "nki" / "settings.py").read_text()
    read = set(re.findall(r"""environ(?:\.get\(|\[)"(\w+)\"""", source)) | set(
        re.findall(r"_TARGET_VARIABLES = \((.*)\)", source)[0].replace('"', "").split(", ")
    )
    assert len(read) >= 8
    page = generated["reference/environment.md"]
    assert [name for name in sorted(read) if f"`{name}`" not in page] == []


def test_differences_are_found_and_updates_remove_them(tmp_path: Path) -> None:
    update(tmp_path)
    assert difference(tmp_path) == []
    (tmp_path / "errors.md").write_text("changed")
    (tmp_path / "command-line.md").unlink()
    stray = tmp_path / "reference" / "machine" / "Stray.md"
    stray.write_text("")
    (tmp_path / "guide.md").write_text("written by hand")
    assert difference(tmp_path) == [
        "errors.md differs",
        "command-line.md is missing",
        "reference/machine/Stray.md belongs to no table row",
    ]
    update(tmp_path)
    assert difference(tmp_path) == [] and not stray.exists()
    assert (tmp_path / "guide.md").read_text() == "written by hand"


def test_another_process_generates_the_same_bytes(generated: dict[str, str]) -> None:
    code = (
        "import hashlib, nki.pages; "
        "print(hashlib.sha256(repr(sorted(nki.pages.pages().items())).encode()).hexdigest())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=DOCS.parent,
        env={**os.environ, "COLUMNS": "40", "PYTHONHASHSEED": "1"},
    ).stdout
    assert os.environ.get("PYTHONHASHSEED") != "1"
    assert hashlib.sha256(repr(sorted(generated.items())).encode()).hexdigest() == found.strip()


def test_every_row_has_its_page(generated: dict[str, str]) -> None:
    for name, row in OPERATIONS.items():
        assert (f"reference/operations/{name}.md" in generated) is row.public
    for name in MACHINE_INSTRUCTIONS:
        assert f"reference/machine/{name}.md" in generated
    for page, names in {
        "dtypes": DTYPES,
        "targets": {**TARGETS, **TARGETS["trn2"].figures(), **DOCUMENTS},
        "alu": ALU,
        "activations": ACTIVATIONS,
        "memories": [memory.value for memory in Memory],
    }.items():
        for name in names:
            assert name in generated[f"reference/{page}.md"], (page, name)
    for code, entry in CATALOGUE.items():
        assert f"## NKI{entry.number:04d} {code}" in generated["errors.md"]
    for command in all_commands():
        assert f"## nki {command.name}" in generated["command-line.md"]
        inner = list(command.commands.values()) if isinstance(command, click.Group) else []
        for one in inner:
            assert f"## nki {command.name} {one.name}" in generated["command-line.md"]
        for parameter in [p for one in (command, *inner) for p in one.params]:
            if parameter.param_type_name == "option":
                assert parameter.opts[-1] in generated["command-line.md"]
    for exit_code in EXIT_CODES:
        assert f"| {exit_code.number} | {exit_code.name} |" in generated["command-line.md"]


def test_every_link_leads_to_a_page(generated: dict[str, str]) -> None:
    seen = 0
    for path, text in generated.items():
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https://)([^)#]+)\)", prose):
            parts: list[str] = []
            for part in (PurePosixPath(path).parent / target).parts:
                if part == "..":
                    parts.pop()
                else:
                    parts.append(part)
            assert "/".join(parts) in generated, f"{path} links to {target}"
            seen += 1
    assert seen > len(generated)
