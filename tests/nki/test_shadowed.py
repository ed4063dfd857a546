"""A user's folder or file that has the name of one of our packages: imports say which, and so does
`nki doctor`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from combinations import combined

ROOT = Path(__file__).resolve().parents[2]


def python(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a folder, which comes before ours in the path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(ROOT)])}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=here, env=environment)


def shadow(folder: Path, package: str, as_folder: bool) -> Path:
    """A package, or a module, of the user's with that name."""
    place = folder / package if as_folder else folder / f"{package}.py"
    file = place / "__init__.py" if as_folder else place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("own = 1\n")
    return place


KERNEL = "import nki, nki.language as nl, nki.isa\nimport simulator.execute, graph_compiler\n"


@combined({"package": ["isa", "simulator", "graph_compiler"], "as_folder": [True, False]})
def test_an_import_says_which_file_shadows_ours(tmp_path: Path, package, as_folder) -> None:
    place = shadow(tmp_path, package, as_folder)
    result = python(tmp_path, "-c", KERNEL)
    (last,) = [line for line in result.stderr.splitlines() if "ShadowedPackageError: " in line]
    assert f"`import {package}` finds {place}, which is not ours" in last
    assert str(ROOT / package) in last
    assert "try: Rename it" in result.stderr and "`nki doctor`" in result.stderr
    found = python(tmp_path, "-m", "nki.cli", "doctor")
    assert found.returncode == 1 and str(place) in found.stdout and "Rename it" in found.stdout


def test_what_is_loaded_already_is_refused_too(tmp_path: Path) -> None:
    place = shadow(tmp_path, "isa", False)
    result = python(tmp_path, "-c", "import isa\nassert isa.own\nimport nki")
    assert result.returncode == 1 and f"finds {place}" in result.stderr


def test_a_graph_says_so_without_a_kernel(tmp_path: Path) -> None:
    place = shadow(tmp_path, "isa", True)
    result = python(tmp_path, "-c", "import graph_compiler")
    assert result.returncode == 1 and f"finds {place}" in result.stderr


def test_folders_without_code_and_names_of_others_are_no_shadows(tmp_path: Path) -> None:
    (tmp_path / "isa").mkdir()
    shadow(tmp_path, "operations", True)
    result = python(tmp_path, "-c", KERNEL + "import operations\nprint(operations.own)")
    assert (result.stderr, result.stdout) == ("", "1\n")


def test_a_command_says_so_without_frames(tmp_path: Path) -> None:
    place = shadow(tmp_path, "simulator", False)
    (tmp_path / "kernel.py").write_text("import nki\n\n@nki.jit\ndef kernel(a):\n    return a\n")
    result = python(tmp_path, "-m", "nki.cli", "run", "kernel.py", "--input", "a=zeros(2,2)")
    assert result.returncode != 0 and str(place) in result.stderr
    assert "Traceback" not in result.stderr and "defect" not in result.stderr
    assert len(result.stderr.splitlines()) <= 5 and "nki doctor" in result.stderr
