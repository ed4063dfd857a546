"""Examples in docstrings: they run, and every public name has one."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import graph_compiler
import graph_compiler.hlo
import isa.affine
import isa.files.container
import nki
import nki.collectives
import nki.isa as nisa
import nki.kernel
import nki.language as nl
import simulator.execute
import simulator.profile
import simulator.races.happens_before
import simulator.timing
from graph_compiler.description import describe, remarks
from graph_compiler.frontends.sniff import sniff
from graph_compiler.hlo.cost import work_of
from graph_compiler.hlo.operators import operator
from graph_compiler.pages import operator_pages
from graph_compiler.sample_inputs import sample_inputs
from graph_compiler.storage.arena import local_bytes
from isa.files.text import assemble, disassemble
from nki.isa.calls import FUNCTIONS
from nki.language.operators import OPERATORS, Operator
from nki.pipeline import stage_text

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("isa", "simulator", "nki", "graph_compiler")
TARGET = "trn2"

HOLDS_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def examples_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring with an example, whatever decorates its function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, HOLDS_DOCSTRING) and ">>>" in (text := ast.get_docstring(node) or ""):
            yield node.body[0].lineno, text


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if any(examples_of(path))
}


def failures(text: str, module: ModuleType, name: str, file: str, line: int) -> str:
    """What doctest reports of one docstring, whose names are those of its module."""
    case = doctest.DocTestParser().get_doctest(text, dict(vars(module)), name, file, line - 1)
    assert case.examples
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(case, out=report.append)
    return "".join(report)


@pytest.fixture(autouse=True)
def one_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", TARGET)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_run(name: str) -> None:
    path, module = MODULES[name], importlib.import_module(name)
    found = [failures(text, module, name, str(path), line) for line, text in examples_of(path)]
    assert "".join(found) == ""


def test_examples_of_the_generated_functions_run() -> None:
    """The docstrings of `nki.isa`, as `help` shows them, without anything imported before."""
    empty = ModuleType("nothing")
    found = [
        failures(inspect.getdoc(function) or "", empty, f"nki.isa.{name}", "<docstring>", 1)
        for name, function in FUNCTIONS.items()
    ]
    assert "".join(found) == ""


WITHOUT_EXAMPLE = ("nki.language.DType", "nki.language.MemoryRegion")
"""Names of types: `str`, and an enumeration."""


def public(module: ModuleType) -> dict[str, object]:
    """The functions and classes of a module's `__all__`; of `nki.isa` only the functions."""
    named = {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    return {
        name: value
        for name, value in named.items()
        if inspect.isroutine(value) or (inspect.isclass(value) and module is not nisa)
    }


def methods() -> dict[str, object]:
    """The public methods of `NkiTensor`, inherited ones included, and indexing."""
    return {
        f"NkiTensor.{name}": value
        for name, value in inspect.getmembers(nl.NkiTensor, inspect.isroutine)
        if not name.startswith("_") or name == "__getitem__"
    }


BELOW_THE_API = {
    f"{function.__module__}.{function.__qualname__}": function
    for function in (
        assemble,
        disassemble,
        isa.files.container.load,
        isa.files.container.save,
        simulator.execute.run,
        simulator.timing.simulate,
        simulator.profile.profile,
        simulator.races.happens_before.check,
        local_bytes,
        stage_text,
        sniff,
        operator,
        work_of,
        describe,
        remarks,
        sample_inputs,
        operator_pages,
    )
}

PUBLIC = {
    name: value
    for group in (
        public(nki),
        public(nisa),
        public(nl),
        public(nki.collectives),
        public(nki.kernel),
        public(isa.affine),
        public(graph_compiler),
        public(graph_compiler.hlo),
        methods(),
        BELOW_THE_API,
    )
    for name, value in group.items()
    if name not in WITHOUT_EXAMPLE
}


def test_every_public_name_has_an_example() -> None:
    assert len(PUBLIC) > 80
    assert [
        name for name, value in PUBLIC.items() if ">>>" not in (inspect.getdoc(value) or "")
    ] == []


def test_operators_and_attributes_are_in_the_example_of_their_class() -> None:
    shown = inspect.getdoc(Operator) or ""
    assert ">>>" in shown and sum(f"nl.{name}" in shown for name in OPERATORS) >= 2
    shown = inspect.getdoc(nl.NkiTensor) or ""
    attributes = {n: v for n, v in vars(nl.NkiTensor).items() if isinstance(v, property)}
    own = {name for name, value in attributes.items() if ">>>" in (inspect.getdoc(value) or "")}
    assert [name for name in attributes if f".{name}" not in shown and name not in own] == []


def test_a_wrong_example_is_reported() -> None:
    report = failures(">>> 1 + 1\n3", ModuleType("nothing"), "sum", "sum.py", 7)
    assert "Expected:" in report and 'File "sum.py", line 7' in report
