"""What pyright, the server behind many editors, completes, explains and reports by the stubs."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typed_calls
from language_server import LanguageServer

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki.stubs import ROOT
from nki.superseded import SUPERSEDED

HEAD = "import nki, nki.isa as nisa, nki.language as nl, nki.collectives as ncc\n"
PACKAGES = {"nki": nki, "ncc": ncc, "nisa": nisa, "nl": nl}
WAIT = 60
"""Seconds for pyright's first start, in which its package on PyPI loads that of node."""


@pytest.fixture(scope="module")
def pyright() -> str:
    """The program; skips where there is none, or where its package finds no node."""
    program = shutil.which("pyright")
    if program is None or shutil.which("pyright-langserver") is None:
        pytest.skip("no pyright: the extra [dev] has it, as has npm install pyright")
    try:
        subprocess.run([program, "--version"], capture_output=True, check=True, timeout=WAIT)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"pyright does not start: {error}")
    return program


def configure(folder: Path) -> None:
    """Let pyright find this checkout from a folder."""
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))


@pytest.fixture(scope="module")
def server(pyright: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    folder = tmp_path_factory.mktemp("editor")
    configure(folder)
    command = [str(shutil.which("pyright-langserver")), "--stdio"]
    running = LanguageServer(command, folder)
    yield running
    running.close()


def asked(server: LanguageServer, method: str, text: str) -> Any:
    """What an editor asks with the cursor behind the last character of a text."""
    server.open(HEAD + text)
    lines = (HEAD + text).split("\n")
    return server.at(method, len(lines) - 1, len(lines[-1]))


def completed(server: LanguageServer, text: str) -> set[str]:
    answer = asked(server, "completion", text)
    return {item["label"] for item in answer["items"]}


def hovered(server: LanguageServer, name: str) -> str:
    return str(asked(server, "hover", name)["contents"]["value"])


def test_it_reports_wrong_calls_and_no_others(pyright: str, tmp_path: Path) -> None:
    source = Path(typed_calls.__file__).read_text()
    (tmp_path / "calls.py").write_text(source)
    configure(tmp_path)
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    found = json.loads(done.stdout)["generalDiagnostics"]
    reported = {one["range"]["start"]["line"] for one in found if one["severity"] == "error"}
    lines = source.splitlines()
    assert len(lines) - len(reported) > 60
    assert reported == {at for at, line in enumerate(lines) if line.endswith("# wrong")}


@pytest.mark.parametrize("name", PACKAGES)
def test_it_offers_every_public_name_and_no_old_one(server: LanguageServer, name: str) -> None:
    package = PACKAGES[name]
    offered = completed(server, f"{name}.")
    assert set(package.__all__) <= offered
    old = {row.old.removeprefix(f"{package.__name__}.") for row in SUPERSEDED if row.rewrite}
    assert not offered & old


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("nisa.tensor_scalar(oper", {"operand0=", "operand1="}),
        ("nl.exp(nl.load(a)).resh", {"reshape", "reshape_dim"}),
        ("nisa.engine.", {row.name for row in nisa.engine}),
        ("nki.profile(k)(a)[1].total_", {"total_ns", "total_us"}),
        ("@nki.jit\ndef kernel(a):\n    return a\nkernel.", {"with_schedule", "trace"}),
    ],
)
def test_it_knows_parameters_results_and_members(
    server: LanguageServer, text: str, wanted: set[str]
) -> None:
    assert wanted <= completed(server, text)


@pytest.mark.parametrize("name", ["tensor_scalar", "nc_matmul", "dma_copy", "activation_reduce"])
def test_hover_shows_signature_and_documentation(server: LanguageServer, name: str) -> None:
    function = getattr(nisa, name)
    text = hovered(server, f"nisa.{name}")
    for parameter in inspect.signature(function).parameters:
        assert f"{parameter}:" in text
    for words in ("Parameters:", "Engines:", ">>> @nki.jit"):
        assert words in text
    assert (inspect.getdoc(function) or "").partition("\n")[0] in text


def test_hover_explains_functions_and_views(server: LanguageServer) -> None:
    assert "e ** x." in hovered(server, "nl.exp")
    assert "without a copy" in hovered(server, "nl.load(a).reshape")
    assert "Make a kernel of a function" in hovered(server, "nki.jit")


def test_a_call_shows_its_parameters(server: LanguageServer) -> None:
    (call,) = asked(server, "signatureHelp", "nisa.tensor_tensor(dst=a, ")["signatures"]
    parameters = ("dst: NkiTensor", "data1: NkiTensor", "data2: NkiTensor", "op: AluOp")
    assert all(parameter in call["label"] for parameter in parameters)
