"""What notebooks show: run by nbclient, looked at as HTML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.program import OnChipAllocation
from nki.displays.memory_map import memory_map

SETUP = """
import numpy as np, nki, nki.isa as nisa, nki.language as nl

@nki.jit(target="trn2")
def doubled(a, factor=2.0):
    '''Twice what it gets.'''
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
"""
CELLS = (
    SETUP,
    "doubled(np.ones((128, 8), np.float32))\ndoubled",
    "nki.compile(doubled, nki.TensorSpec((128, 8), nl.float32))",
    """
@nki.jit(target="trn2")
def wrong(a):
    helper(a)

def helper(a):
    nl.ndarray((256, 8), dtype=a.dtype, buffer=nl.sbuf)

wrong(np.ones((128, 8), np.float32))
""",
    "print(nki.profile(doubled)(np.ones((128, 8), np.float32))[1].text())",
    "nki.profile(doubled)(np.ones((128, 8), np.float32))[1]",
    """
from IPython.display import display

@nki.jit(target="trn2")
def looked_at(a):
    tile = nl.load(a)
    display(tile)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out

nki.simulate(looked_at, mode="eager")(np.arange(32.0, dtype=np.float32).reshape(4, 8))
None
""",
    "wrong_name(3)",
)


@pytest.fixture(scope="module")
def outputs():
    """The outputs of the cells, each a list."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient: the extra [dev]")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="ipykernel: the extra [dev]")
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    nbclient.NotebookClient(notebook, allow_errors=True, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells]


def shown(outputs, number):
    """The HTML that a cell shows; its parts must be well-formed."""
    (result,) = [one for one in outputs[number] if "text/html" in one.get("data", {})]
    html = result.data["text/html"]
    ElementTree.fromstring(f"<all>{html.replace('<br>', '<br/>')}</all>")
    assert result.data["text/plain"]
    return html


def test_a_kernel_shows_its_signature_and_specialisations(outputs) -> None:
    html = shown(outputs, 1)
    assert "doubled(a, factor=2.0)" in html and "Twice what it gets." in html
    assert "a float32[128, 8]" in html and "trn2" in html


def test_a_compiled_program_shows_engines_and_memories(outputs) -> None:
    html = shown(outputs, 2)
    assert "VectorE" in html or "vector" in html
    assert "SBUF: 32 of 229,376 bytes of a partition" in html and "<svg" in html
    assert re.search(r"<title>tile \[128 x 8\] float32: 32 bytes", html)


def test_an_error_names_cells_and_lines(outputs) -> None:
    (error,) = outputs[3]
    text = re.sub(r"\x1b\[[\d;]*m", "", error.evalue + "\n".join(error.traceback))
    assert "In[4]:6 in helper" in text and "called from In[4]:3 in wrong" in text
    assert "ipykernel_" not in text


def test_a_profile_names_cells_and_lines(outputs) -> None:
    text = "".join(one.text for one in outputs[4])
    assert "In[1]:7" in text and "ipykernel_" not in text


def test_a_profile_shows_its_timeline_verdict_and_lines(outputs) -> None:
    html = shown(outputs, 5)
    assert "<svg" in html and "<title>VectorE</title>" in html and "queue qSyncIO0" in html
    for words in ("verdict", "where the time goes", "In[1]:7", "nisa.tensor_scalar(dst=tile"):
        assert words in html
    assert "ipykernel_" not in html


def test_a_tensor_shows_its_corner_statistics_and_memory(outputs) -> None:
    html = shown(outputs, 6)
    for words in ("4 partitions of 32 bytes", "15.5", ">31<", "sbuf"):
        assert words in html


def test_an_error_of_python_stays_python(outputs) -> None:
    (error,) = outputs[7]
    assert error.ename == "NameError"


def test_a_tensor_shows_its_corner_in_eager_mode() -> None:
    found = []

    @nki.jit
    def kernel(a):
        tile = nl.load(a)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        found.append(tile._repr_html_())
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    a = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)
    a[0, 0] = np.inf
    nki.simulate(kernel, mode="eager")(a)
    (eager,) = found
    assert "128 partitions of 64 bytes" in eager
    values = re.findall(r">([^<>]+)</td>", eager)
    assert {"inf", "2", "10", "4094", "..."} <= set(values)
    nki.simulate(kernel, mode="device")(a)
    assert "4094" not in found[1] and "128 partitions" in found[1]


def test_a_timeline_has_what_each_lane_does_at_its_place() -> None:
    @nki.jit(target="trn2")
    def kernel(a):
        tile = nl.load(a)
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    _, profile = nki.profile(kernel)(np.ones((128, 512), np.float32))
    root = ElementTree.fromstring(profile.picture())
    rows = {group.find("title").text: group.findall("rect") for group in root.findall("g")}
    assert {"ScalarE", "queue qSyncIO0"} <= set(rows)
    (exp,) = [one for one in profile.engines if one.name == "ScalarE"]
    drawn = sum(int(piece.get("width")) for piece in rows["ScalarE"])
    assert drawn == pytest.approx(640 * exp.busy_ns / profile.total_ns, abs=4)
    first = int(rows["queue qSyncIO0"][0].get("x"))
    assert 140 <= first < int(rows["ScalarE"][-1].get("x"))


def test_a_memory_map_puts_what_shares_bytes_below_each_other() -> None:
    def storage(name, offset, size):
        return OnChipAllocation(name, "sbuf", "float32", (128, size // 4), 0, 128, offset, size, 0)

    svg = memory_map(
        [storage("<a>", 0, 400), storage("b", 400, 400), storage("c", 200, 400)], 1000, "t"
    )
    root = ElementTree.fromstring(svg)
    shapes = [one for one in root if one.find("title") is not None]
    place = {one.find("title").text[:3].rstrip(" ["): one.attrib for one in shapes}
    assert place["<a>"]["y"] == place["b"]["y"] != place["c"]["y"]
    assert float(place["b"]["x"]) == float(place["<a>"]["width"]) == 640 * 0.4
