"""Every documented name is there, with the documented parameters, members and methods."""

import enum
import importlib
import inspect
import json
from pathlib import Path

import pytest

from nki.superseded import SUPERSEDED

FACTS = Path(__file__).resolve().parents[3] / "shared" / "facts" / "nki_api.json"
MODULES = ("nki", "nki.language", "nki.isa", "nki.collectives")


@pytest.fixture(scope="module")
def documented():
    if not FACTS.exists():
        pytest.skip(f"the documented API is not here: {FACTS}")
    return json.loads(FACTS.read_text())["modules"]


@pytest.mark.parametrize("module", MODULES)
def test_names(documented, module):
    ours = importlib.import_module(module)
    assert [name for name in documented[module] if not hasattr(ours, name)] == []
    old = {row.old.removeprefix(f"{module}.") for row in SUPERSEDED if row.rewrite}
    assert set(documented[module]) - old <= set(ours.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_parameters(documented, module):
    """Documented parameters come first and in order; ours after them are keywords."""
    ours = importlib.import_module(module)
    wrong = {}
    for name, entry in documented[module].items():
        function = getattr(ours, name, None)
        if entry["kind"] != "function" or not inspect.isfunction(function):
            continue
        # Nothing can come behind what takes all other keywords.
        every = [p["name"] for p in entry["params"]]
        expected = [name.lstrip("*") for name in every if not name.startswith("**")]
        found = inspect.signature(function).parameters
        names = list(found)
        extra = [found[n] for n in names[len(expected) :]]
        keywords = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        if names[: len(expected)] != expected or any(p.kind not in keywords for p in extra):
            wrong[name] = (names, expected)
    assert wrong == {}


@pytest.mark.parametrize("module", MODULES)
def test_members_and_methods(documented, module):
    ours = importlib.import_module(module)
    wrong = {}
    for name, entry in documented[module].items():
        kind = getattr(ours, name, None)
        if entry["kind"] != "class" or kind is None:
            continue
        if "Enum" in entry["bases"]:
            expected = {member: eval(value) for member, value in entry["members"].items()}
            found = {member.name: member.value for member in kind}
            if not issubclass(kind, enum.Enum) or found != expected:
                wrong[name] = (found, expected)
        else:
            names = [*entry["members"], *entry["methods"]]
            missing = [n for n in names if not hasattr(kind, n)]
            if missing:
                wrong[name] = missing
    assert wrong == {}
