"""The tutorials run from top to bottom, and are notebooks that jupytext can convert."""

import re
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "tutorials"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("[0-9][0-9]_*.py"))
LIBRARIES = {
    "07_pytorch.py": "torch",
    "08_jax.py": "jax",
    "15_jax_model_report.py": "jax",
    "16_kernel_in_a_jax_model.py": "jax",
}


def test_the_tutorials_are_found():
    assert NOTEBOOKS[:2] == ["01_tensor_add.py", "02_matrix_multiplication.py"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_tutorial_runs(name, monkeypatch, capsys, tmp_path):
    """In a fresh namespace, like a notebook's; `tutorials` is on sys.path as for a notebook."""
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    path = FOLDER / name
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "  bound " in printed.out, "each shows a profile"


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_tutorial_whose_library_is_missing_says_so(name, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, LIBRARIES[name], None)
    with pytest.raises(SystemExit, match=f"pip install {LIBRARIES[name]}$"):
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_tutorial_is_a_notebook(name):
    jupytext = pytest.importorskip("jupytext", reason="jupytext comes with the extra [dev]")
    text = (FOLDER / name).read_text()
    notebook = jupytext.reads(text, fmt="py:percent")
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds[0] == "markdown" and kinds.count("code") >= 5
    assert notebook.cells[0].source.startswith("# Tutorial")
    assert re.search(r"Targets?:\s", notebook.cells[0].source), "it states its target"
    again = jupytext.reads(jupytext.writes(notebook, fmt="py:percent"), fmt="py:percent")
    assert [cell.source for cell in again.cells] == [cell.source for cell in notebook.cells]
