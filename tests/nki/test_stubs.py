"""The stubs: as generated, what editors show of them, what a type checker reports by them."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import jedi
import numpy as np
import pytest
import typed_calls
from mypy import api

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki.errors import NeuronError
from nki.stubs import PACKAGES, ROOT, difference, stubs, update
from nki.superseded import SUPERSEDED

CALLS = Path(typed_calls.__file__)
CHECKED = """
[tool.mypy]
python_version = "3.11"
ignore_missing_imports = true
follow_imports = "skip"
[[tool.mypy.overrides]]
module = ["isa.*", "nki.*", "numpy.*"]
follow_imports = "normal"
[[tool.mypy.overrides]]
module = ["nki.advice.*", "nki.eager.*", "nki.passes.*", "nki.reference.*"]
follow_imports = "skip"
"""
"""The type checker reads what signatures name, and not the whole of the code behind them."""
HEAD = "import nki, nki.isa as nisa, nki.language as nl, nki.collectives as ncc\n"
SHORT = {"nki": nki, "ncc": ncc, "nisa": nisa, "nl": nl}


def test_the_committed_stubs_are_the_generated_ones(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update"):
        update()
    assert difference() == [], "rewrite them: python -m nki.stubs --update"


def test_differences_are_found_and_updates_remove_them(tmp_path: Path) -> None:
    assert difference(tmp_path) == list(stubs())
    update(tmp_path)
    assert difference(tmp_path) == []
    (tmp_path / "nki" / "isa" / "__init__.pyi").write_text("")
    assert difference(tmp_path) == ["nki/isa/__init__.pyi"]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_stub_defines_what_is_public_and_nothing_else(name: str) -> None:
    """Names that a stub imports without `as` the same name, or that begin with _, are private."""
    tree = ast.parse((ROOT / name.replace(".", "/") / "__init__.pyi").read_text())
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname for alias in node.names if alias.asname and alias.asname != "nl"}
    public = {one for one in found if not one.startswith("_")}
    assert public == set(dir(sys.modules[name])) == set(sys.modules[name].__all__)


def test_old_spellings_are_not_public() -> None:
    old = {row.old for row in SUPERSEDED if row.rewrite}
    assert len(old) > 10
    for name in PACKAGES:
        assert not old & {f"{name}.{public}" for public in dir(sys.modules[name])}
    assert not {"psum_fmax", "total_available_sbuf_size"} & set(dir(nl.tile_size))


# A type checker


def marked(path: Path) -> set[int]:
    lines = path.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


def test_a_type_checker_reports_wrong_calls_and_no_others(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    kept = getattr(request.config, "cache", None)  # without -p no:cacheprovider
    cache = tmp_path if kept is None else kept.mkdir("mypy")
    configuration = tmp_path / "mypy.toml"
    configuration.write_text(CHECKED)
    output, errors, _ = api.run(
        ["--config-file", str(configuration), "--cache-dir", str(cache), str(CALLS)]
    )
    assert errors == ""
    reported = {int(line) for line in re.findall(rf"{CALLS.name}:(\d+): error", output)}
    assert len(marked(CALLS)) == 40
    assert reported == marked(CALLS), output


def statements(function: Any) -> list[str]:
    """The statements of a kernel of `typed_calls`, each as source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function.func)))
    return [ast.unparse(node) for node in tree.body[0].body[1:]]  # type: ignore[attr-defined]


def test_right_calls_are_right() -> None:
    assert len(statements(typed_calls.right_calls)) >= 48
    outcome = nki.compile(typed_calls.right_calls, nki.TensorSpec((128, 128), nl.float32))
    assert outcome.target


def made(call: str) -> None:
    """Make a call in a kernel, behind what the kernel of wrong calls defines."""

    @nki.jit
    def kernel(a):  # type: ignore[no-untyped-def]
        names = {**vars(typed_calls), "a": a}
        exec("\n".join(statements(typed_calls.wrong_calls)[:3]), names)
        exec(call, names)

    nki.simulate(kernel, mode="eager")(np.zeros((128, 128), np.float32))


@pytest.mark.parametrize("line", sorted(marked(CALLS)))
def test_wrong_calls_are_wrong(line: int) -> None:
    made("nisa.tensor_copy(dst=y, src=x)")
    with pytest.raises((NeuronError, TypeError, AttributeError)):
        made(CALLS.read_text().splitlines()[line - 1].strip())


# An editor


def script(text: str) -> jedi.Script:
    return jedi.Script(HEAD + text, project=jedi.Project(str(ROOT)))


def end(text: str) -> tuple[int, int]:
    lines = (HEAD + text).split("\n")
    return len(lines), len(lines[-1])


def completed(text: str) -> set[str]:
    return {found.name for found in script(text).complete(*end(text))}


def hovered(text: str) -> str:
    return "\n".join(found.docstring() for found in script(text).help(*end(text)))


@pytest.mark.parametrize("name", SHORT)
def test_completion_offers_every_public_name_and_no_old_one(name: str) -> None:
    module = SHORT[name]
    offered = completed(f"{name}.")
    assert set(module.__all__) <= offered
    old = {row.old.removeprefix(f"{module.__name__}.") for row in SUPERSEDED if row.rewrite}
    assert not offered & old
    files = {path.stem for path in Path(module.__path__[0]).iterdir()}
    private = {found for found in offered if found.startswith("_")}
    assert offered - private - files <= {*module.__all__, "nl"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("nisa.tensor_tens", {"tensor_tensor", "tensor_tensor_scan"}),
        ("nisa.tensor_scalar(oper", {"operand0=", "operand1="}),
        ("nl.load(a).resh", {"reshape", "reshape_dim"}),
        ("nl.exp(nl.load(a)).sha", {"shape"}),
        ("nl.tile_size.psum_b", {"psum_bank_fmax", "psum_bank_fmax_bytes"}),
        ("nisa.engine.ve", {"vector"}),
        ("@nki.jit\ndef kernel(a):\n    return a\nkernel.with_s", {"with_schedule"}),
        ("nisa.iota(t, [[1, 2]]).depen", {"depends_on"}),
    ],
)
def test_completion_knows_parameters_results_and_members(text: str, wanted: set[str]) -> None:
    assert completed(text) == wanted


@pytest.mark.parametrize("name", sorted(nisa.__all__))
def test_hover_shows_the_signature_and_documentation_of_operations(name: str) -> None:
    function = getattr(nisa, name)
    if not inspect.isfunction(function):
        return
    text = hovered(f"nisa.{name}")
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"\b{parameter}\b", text.partition("\n")[0])
    assert (inspect.getdoc(function) or "").partition("\n")[0] in text


def test_hover_shows_types_defaults_and_examples() -> None:
    text = hovered("nisa.tensor_scalar")
    assert "operand0: NkiTensor | Number | None" in text and "engine.unknown" in text
    assert "op1: AluOp | None=None" in text and ">>> @nki.jit" in text
    assert "e ** x." in hovered("nl.exp") and "Within 1 units" in hovered("nl.exp")
    (call,) = script("nl.exp(").get_signatures(*end("nl.exp("))
    assert call.to_string() == "_exp(x: NkiTensor, dtype: DTypeLike | None=None) -> NkiTensor"
    assert "without a copy" in hovered("nl.NkiTensor.reshape")


# Help


def test_help_reads_like_documentation() -> None:
    text = inspect.getdoc(nisa.tensor_scalar) or ""
    for expected in (
        "dst = (data <op0> operand0) <op1> operand1",
        "data: tensor in sbuf or psum, read\n",
        "operand0: number, or column [P, 1] in sbuf or psum, read; may be None\n",
        "engine: one of unknown, vector, scalar, gpsimd\n",
        "dst and data have the same partitions and the same elements in each.",
        "Engines: scalar, gpsimd, vector.",
        "Max(MIN_II, N*S) cycles otherwise",
        "N: elements that stream through a partition",
        "Source: SDK nki/api/nki.isa.rst#nki.isa.tensor_scalar",
        ">>> print(scaled_distance(",
    ):
        assert expected in text, expected
    assert "stationary [K, M] and moving [K, N] give dst [M, N]." in (nisa.nc_matmul.__doc__ or "")
    assert "one of bfloat16, float16" in (nisa.nc_matmul.__doc__ or "")
