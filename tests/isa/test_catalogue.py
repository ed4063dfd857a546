"""The error catalogue is complete, unique and worded for a user."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from isa.errors import CATALOGUE, NeuronError
from isa.program import SourceLocation

ROOT = Path(__file__).parents[2]


def test_numbers_and_slugs_are_unique():
    numbers = [entry.number for entry in CATALOGUE.values()]
    assert len(set(numbers)) == len(numbers)
    titles = [entry.title for entry in CATALOGUE.values()]
    assert len(set(titles)) == len(titles)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in CATALOGUE)


@pytest.mark.parametrize("code", CATALOGUE)
def test_entries_state_rule_and_way_out(code):
    entry = CATALOGUE[code]
    assert entry.title[0].isupper() or entry.title.startswith(("range", "break"))
    assert not entry.title.endswith(".") and len(entry.title) < 80
    for text in (entry.rule, entry.hint):
        assert text.endswith(".") and "  " not in text
        assert 10 < len(text) < 400
    assert not entry.document or entry.document.startswith(("nki/", "compiler/", "https://"))
    assert 101 <= entry.number <= 799


def test_codes_raised_anywhere_exist():
    raised = set()
    for package in ("isa", "simulator", "nki", "graph_compiler"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            raised |= set(re.findall(r"\b(?:NeuronError|Violation)\(\s*\"([^\"]+)\"", text))
    assert raised and raised <= set(CATALOGUE), raised - set(CATALOGUE)


def test_error_falls_back_to_the_catalogue():
    error = NeuronError("partition-limit", "dst has 256 partitions, the limit is 128")
    what = "[NKI0101 partition-limit] dst has 256 partitions, the limit is 128"
    assert str(error) == f"{what}\n  try: {error.hint}"
    assert error.why == CATALOGUE["partition-limit"].rule
    assert error.hint == CATALOGUE["partition-limit"].hint
    own = NeuronError("partition-limit", "what", why="why", hint="hint", notes=("a",))
    assert (own.why, own.hint, own.notes, own.location) == ("why", "hint", ("a",), None)
    with pytest.raises(KeyError):
        NeuronError("no-such-code", "what")


def test_an_error_is_also_what_the_documents_call_it():
    """SDK nki/guides/nki_simulator.rst: constraints of operations are AssertionErrors."""
    for code, entry in CATALOGUE.items():
        error = NeuronError(code, "what")
        assert isinstance(error, NeuronError)
        assert type(error).__qualname__ == "NeuronError" and "] what" in str(error)
        assert isinstance(error, AssertionError) == (
            entry.number < 200 and code not in ("missing-argument", "unknown-argument")
        )


LINE = SourceLocation("kernel.py", 3, 4, 12, "kernel", "    tile = nl.load(a)")


@pytest.mark.parametrize("place", [LINE, ("code", 12)])
def test_an_error_goes_from_one_process_to_another(place):
    error = NeuronError("partition-limit", "what", "why", "hint", place, ("a note",))
    error.add_note("where: kernel.py:3")
    other = pickle.loads(pickle.dumps(error))
    assert isinstance(other, AssertionError) and isinstance(other, NeuronError)
    assert (other.code, str(other), other.why, other.hint) == (
        error.code,
        str(error),
        "why",
        "hint",
    )
    assert (other.notes, other.__notes__) == (("a note",), ["where: kernel.py:3"])
    assert other.location == (LINE if place is LINE else None)
